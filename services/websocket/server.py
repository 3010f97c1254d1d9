"""One WebSocket server, without its sockets: the feed on one side, the edge on the other, and whether it is live."""

from typing import Any

import structlog

from diem.fanout.feed_hub import FeedHub
from diem.fanout.feed_state import Liveness
from diem.fanout.ownership import Ownership
from diem.links.edge import Edge
from diem.process.clock import Clock
from diem.protocol import feed
from diem.protocol.feed import is_map
from diem.protocol.partition_map import MapBuilder
from diem.protocol.update import iso


class WebSocketServer:
    """Takes what the feed says (it is a ``FeedSink``) and tells the edge.

    ``ownership`` is the hub's own, where a group of servers shares out the endpoints.
    """

    def __init__(self, hub: FeedHub, edge: Edge, clock: Clock, ownership: Ownership | None = None) -> None:
        self.hub = hub
        self.edge = edge
        self.liveness = Liveness()
        self.ownership = ownership
        self._builder = MapBuilder()
        self._clock = clock
        self._log = structlog.get_logger("websocket")
        self._publish_status()

    # FeedSink

    def resume(self) -> feed.Resume:
        """A link to the feed was opened."""
        return self.hub.state.resume()

    def hello(self, message: feed.Hello) -> None:
        """Take the source and the names; whoever looks at what was lost is sent away."""
        if message.source != self.hub.state.source:
            self._log.info("reading from the start of a source that is new to this server", source=message.source)
        if self.ownership is not None:
            self.ownership.set_names(message.names)
            self._log.info("partitions assigned", partitions=sorted(self.ownership.owned))
        self.hub.hello(message.source, list(message.names))

    def batch(self, batch: feed.Batch) -> None:
        """Fan out what is new."""
        if self.ownership is not None and is_map(batch.name):
            self._take_map(batch, self.ownership)
        else:
            self.hub.batch(batch)

    def _take_map(self, batch: feed.Batch, ownership: Ownership) -> None:
        changed = [self._builder.apply(change.endpoint, change.value) for change in batch.records]
        self.hub.state.advance(batch.name, batch.next)
        if any(changed) and self._builder.map is not None:
            ownership.set_map(self._builder.map)
            self._log.info("partition map", epoch=ownership.epoch, phase=str(self._builder.map.head.phase))
            self.edge.close_moved(self.hub.reconcile())
            self._see_if_ready()

    def caught_up(self, name: str) -> None:
        """Tell subscribers what the catch-up changed; clients are taken from the first time on."""
        self.hub.caught_up(name)
        self._see_if_ready()

    def _see_if_ready(self) -> None:
        mapped = self.ownership is None or self.ownership.map is not None
        if self.hub.state.caught_up and mapped and not self.edge.ready:
            self.edge.ready = True
            self._log.info("ready", endpoints=len(self.hub.state.retained))

    def resync(self, message: feed.Resync) -> None:
        """Have subscribers fetch what the feed could not tell them of."""
        self.hub.fanout.resync([endpoint.encode() for endpoint in message.endpoints])

    def owners(self, message: feed.Owners) -> None:
        """Learn where clients are to be sent."""
        if self.ownership is not None:
            self.ownership.set_owners(message.owners)

    def heartbeat(self) -> None:
        """The source is alive; it counts when everything before was received."""
        if self.hub.state.caught_up:
            self.liveness.heartbeat(self._clock.monotonic())
            self.check_liveness()

    # Its own state

    def check_liveness(self) -> None:
        """Look at the clock: tell the clients when this server stops or begins to be live."""
        if self.liveness.check(self._clock.monotonic()):
            self._log.log(20 if self.liveness.live else 30, "live" if self.liveness.live else "feed silent: not live")
            self._publish_status()

    def why_not_ready(self) -> str | None:
        """Why no clients should be sent here; lag and a lost feed are no reason (docs/protocol.md section 7)."""
        if self.edge.draining:
            return "draining"
        return None if self.edge.ready else "the feed has not been caught up with yet"

    def status(self) -> dict[str, Any]:
        """The part of ``/status`` that is this server's own."""
        silence = self.liveness.silence(self._clock.monotonic())
        owned = (
            {}
            if self.ownership is None
            else {"partitions": sorted(self.ownership.owned), "epoch": self.ownership.epoch}
        )
        return {
            "ready": self.why_not_ready() is None,
            "live": self.liveness.live,
            "clients": len(self.edge.connections),
            "subscriptions": self.hub.fanout.registry.entries,
            "endpoints": len(self.hub.state.retained),
            "position": sum(self.hub.state.positions.values()),
            "source": self.hub.state.source,
            "lag_seconds": None if silence is None else round(silence, 3),
            **owned,
        }

    def _publish_status(self) -> None:
        self.edge.publish_status(live=self.liveness.live, since=iso(self._clock.wall_ms()))
