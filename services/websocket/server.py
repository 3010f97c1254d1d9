"""One WebSocket server, without its sockets: the feed on one side, the edge on the other, and whether it is live."""

from typing import Any

import structlog

from diem.fanout.hub import Hub
from diem.fanout.liveness import Liveness
from diem.links.edge import Edge
from diem.process.clock import Clock
from diem.protocol import feed
from diem.protocol.versions import iso


class Server:
    """Takes what the feed says (it is a ``FeedSink``) and tells the edge."""

    def __init__(self, hub: Hub, edge: Edge, clock: Clock) -> None:
        self.hub = hub
        self.edge = edge
        self.liveness = Liveness()
        self._clock = clock
        self._log = structlog.get_logger("websocket")
        self._say_status()

    # FeedSink

    def resume(self) -> feed.Resume:
        """A link to the feed was opened."""
        return self.hub.state.resume()

    def hello(self, message: feed.Hello) -> None:
        """Take the source and the names."""
        if message.source != self.hub.state.source:
            self._log.info("reading from the start of a source that is new to this server", source=message.source)
        self.hub.hello(message.source, list(message.names))

    def batch(self, batch: feed.Batch) -> None:
        """Fan out what is new."""
        self.hub.batch(batch)

    def caught_up(self, name: str) -> None:
        """Tell subscribers what the catch-up changed; clients are taken from the first time on."""
        self.hub.caught_up(name)
        if self.hub.state.caught_up and not self.edge.ready:
            self.edge.ready = True
            self._log.info("ready", endpoints=len(self.hub.state.retained))

    def resync(self, message: feed.Resync) -> None:
        """Have subscribers fetch what the feed could not tell them of."""
        self.hub.resync([endpoint.encode() for endpoint in message.endpoints])

    def beat(self) -> None:
        """The source is alive; it counts when everything before was received."""
        if self.hub.state.caught_up:
            self.liveness.beat(self._clock.monotonic())
            self.look()

    # Its own state

    def look(self) -> None:
        """Look at the clock: tell the clients when this server stops or begins to be live."""
        if self.liveness.changed(self._clock.monotonic()):
            self._log.log(20 if self.liveness.live else 30, "live" if self.liveness.live else "feed silent: not live")
            self._say_status()

    def why_not_ready(self) -> str | None:
        """Why no clients should be sent here; lag and a lost feed are no reason (docs/protocol.md section 7)."""
        if self.edge.draining:
            return "draining"
        return None if self.edge.ready else "the feed has not been caught up with yet"

    def status(self) -> dict[str, Any]:
        """The part of ``/status`` that is this server's own."""
        silence = self.liveness.silence(self._clock.monotonic())
        return {
            "ready": self.why_not_ready() is None,
            "live": self.liveness.live,
            "clients": len(self.edge.connections),
            "subscriptions": self.hub.registry.entries,
            "endpoints": len(self.hub.state.retained),
            "position": sum(self.hub.state.positions.values()),
            "source": self.hub.state.source,
            "lag_seconds": None if silence is None else round(silence, 3),
        }

    def _say_status(self) -> None:
        self.edge.say_status(live=self.liveness.live, since=iso(self._clock.wall_ms()))
