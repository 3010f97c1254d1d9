"""A WebSocket server without its sockets: applies the feed, and tracks readiness and liveness."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import structlog

from diem.fanout.fanout import UpdateCounter
from diem.fanout.feed_hub import FeedHub
from diem.fanout.feed_state import Liveness
from diem.fanout.ownership import Ownership
from diem.links.edge import Edge
from diem.process.clock import Clock
from diem.process.tracing import TracedUpdates, Tracer
from diem.protocol import feed
from diem.protocol.feed import is_map
from diem.protocol.partition_map import MapBuilder, Role
from diem.protocol.update import Change, iso, time_ms_of, with_trace
from diem.protocol.watermark import offset_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span

DELAY_S: Final = 15.0
"""Seconds for which a measured delay is reported: Prometheus' usual interval."""
MAX_DELAYS: Final = 32
"""Those measured in this time, twice a second."""


class WebSocketServer:
    """Applies the events of the feed (a ``FeedSink``) to the hub and the edge.

    Args:
        ownership: the hub's, if a group of servers divides the endpoints; None: it serves all.
        tracer: of this process; None: updates are not traced.
    """

    def __init__(
        self,
        hub: FeedHub,
        edge: Edge,
        clock: Clock,
        ownership: Ownership | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.hub = hub
        self.edge = edge
        self.liveness = Liveness()
        self._since = ""
        """Time of the last change of :attr:`liveness`."""
        self.ownership = ownership
        self.handed_over = asyncio.Event()
        """Others own the partitions of this server, and its clients were sent there; or there are no others."""
        self._builder = MapBuilder()
        self._clock = clock
        self._apply_batch = hub.batch if ownership is None else self._partitioned_batch
        """The hub's own method, except where batches of the partition map arrive, too."""
        self.batch: Callable[..., None] = self._apply_batch
        """Apply batches. Replaced for one call by :meth:`measure_next_delay`: the others cost nothing more."""
        self._delays: deque[tuple[float, int]] = deque(maxlen=MAX_DELAYS)
        """Times of measurements, and the measured milliseconds."""
        self._expected = None if tracer is None else TracedUpdates(tracer)
        """Traced updates of which the contexts have arrived."""
        self._log = structlog.get_logger("websocket")
        self._publish_status()

    # FeedSink

    def resume(self) -> feed.Resume:
        """Return the positions at which a new link to the feed resumes."""
        return replace(self.hub.state.resume(), traces=self._expected is not None)

    def hello(self, message: feed.Hello) -> None:
        """Set the source and the assigned names; subscribers of lost endpoints are sent ``moved``."""
        if message.source != self.hub.state.source:
            self._log.info("starting from the beginning of a new source", source=message.source)
        if self.ownership is not None:
            self.ownership.set_names(message.names)
            self._log.info("partitions assigned", partitions=sorted(self.ownership.owned))
        self.hub.hello(message.source, list(message.names))

    def _partitioned_batch(self, *batches: feed.Batch) -> None:
        """Apply batches of updates and of the partition map, in their order."""
        for of_map, group in groupby(batches, key=lambda batch: is_map(batch.name)):
            if of_map and self.ownership is not None:
                for batch in group:
                    self._apply_map(batch, self.ownership)
            else:
                self.hub.batch(*group)

    def _apply_map(self, batch: feed.Batch, ownership: Ownership) -> None:
        changed = [self._builder.apply(change.endpoint, change.value) for change in batch.records]
        self.hub.state.advance(batch.name, batch.next)
        if any(changed) and self._builder.map is not None:
            ownership.set_map(self._builder.map)
            self._log.info("partition map", epoch=ownership.epoch, phase=str(self._builder.map.head.phase))
            self.edge.close_moved(self.hub.reconcile())
            self._update_readiness()

    def caught_up(self, name: str) -> None:
        """Send subscribers the changes of the catch-up; the server is ready once all names have caught up."""
        self.hub.caught_up(name)
        self._update_readiness()

    def _update_readiness(self) -> None:
        mapped = self.ownership is None or self.ownership.map is not None
        if self.hub.state.caught_up and mapped and not self.edge.ready:
            self.edge.ready = True
            self._log.info("ready", endpoints=len(self.hub.state.retained))

    def resync(self, message: feed.Resync) -> None:
        """Make subscribers refetch endpoints: the feed failed to deliver a change of each."""
        self.hub.resync([endpoint.encode() for endpoint in message.endpoints])

    def owners(self, message: feed.Owners) -> None:
        """Set the URLs for redirecting clients; with ``left``, redirect all of them."""
        if self.ownership is None:
            return
        if not message.left:
            self.ownership.set_owners(message.owners)
            return
        if message.owners:
            self._log.info("others own the partitions: clients are sent there")
            self.ownership.leave(message.owners)
            self.hub.reconcile()
        self.handed_over.set()

    def is_left(self) -> bool:
        """Return whether all clients have left the endpoints now served by others."""
        ownership = self.ownership
        return ownership is None or not any(
            ownership.role(endpoint) is Role.DRAINING for endpoint in self.hub.fanout.registry
        )

    def traced(self, message: feed.Traced) -> None:
        """Trace the fan-out of an update that follows."""
        if self._expected is not None:
            self._expected.add(message.endpoint.encode(), message.version, message.traceparent)
            self.hub.publish = partial(self._publish_traced, self._expected)

    def _publish_traced(
        self, expected: TracedUpdates, fresh: Mapping[bytes, bytes], counter: UpdateCounter | None = None
    ) -> None:
        """Publish updates: a traced one with its context, and one span for all of its receivers."""
        fanout, retained, spans = self.hub.fanout, self.hub.state.retained, dict[bytes, "Span"]()
        updates = dict(fresh)
        for endpoint in expected:
            held, update = retained.get(endpoint, (0, b"")), fresh.get(endpoint)
            if (context := expected.find(endpoint, held[0])) is None:
                continue
            expected.discard(endpoint)
            # Otherwise it was a part of a catch-up, or had arrived before.
            if update is not None:
                span = spans[endpoint] = expected.tracer.start(
                    "fan out", context, {"diem.endpoint": endpoint.decode(), "diem.version": held[0]}
                )
                updates[endpoint] = with_trace(update, expected.tracer.context_of(span))
        fanout.publish(updates, counter)
        for endpoint, span in spans.items():
            span.set_attribute("diem.receivers", fanout.receivers(endpoint))
            span.end()
        if not expected:
            self.hub.publish = fanout.publish

    def heartbeat(self) -> None:
        """Record that the source is alive; ignored until this server has caught up."""
        if self.hub.state.caught_up:
            self.liveness.heartbeat(self._clock.monotonic())
            self.check_liveness()

    # State of the server

    def measure_next_delay(self) -> None:
        """Measure the delay of the next batches of updates, from their acceptance until they are fanned out."""
        self.batch = self._measured_batch

    def _measured_batch(self, *batches: feed.Batch) -> None:
        self.batch = self._apply_batch
        state = self.hub.state
        accepted_ms: list[int] = []

        def noting(batch: feed.Batch) -> Iterator[Change]:
            # Updates of a catch-up are old, and not fanned out.
            measured = state.caught_up and not is_map(batch.name)
            for change in batch.records:
                known = state.retained.get(change.endpoint)
                if measured and (known is None or known[0] < change.version):
                    accepted_ms.append(time_ms_of(change.endpoint, change.value))
                yield change

        self._apply_batch(*(batch._replace(records=noting(batch)) for batch in batches))
        if accepted_ms:
            self._delays.append((self._clock.monotonic(), max(0, self._clock.wall_ms() - min(accepted_ms))))

    def delay_s(self) -> float | None:
        """Return the longest delay measured in the last :data:`DELAY_S`, in seconds; None without one.

        Its error is the difference of the two machines' clocks, plus 1 ms.
        """
        since = self._clock.monotonic() - DELAY_S
        return max((delay_ms / 1000 for at, delay_ms in self._delays if at > since), default=None)

    def silence_s(self) -> float | None:
        """Return the seconds since the last heartbeat of the source, None before the first."""
        return self.liveness.silence(self._clock.monotonic())

    def check_liveness(self) -> None:
        """Send clients the status when the server becomes live, or stops being live for lack of heartbeats."""
        if self.liveness.check(self._clock.monotonic()):
            self._log.log(20 if self.liveness.live else 30, "live" if self.liveness.live else "feed silent: not live")
            self._publish_status()

    def why_not_ready(self) -> str | None:
        """Return the reason why the server is not ready, None when it is; lag or a lost feed are none.

        See docs/protocol.md section 4.
        """
        if self.edge.draining:
            return "draining"
        return None if self.edge.ready else "the feed is not caught up yet"

    def place(self, endpoint: bytes) -> dict[str, Any]:
        """Return what the server knows of an endpoint: its retained version, and whether clients get it here."""
        held = self.hub.state.retained.get(endpoint)
        role = Role.SERVING if self.ownership is None else self.ownership.role(endpoint)
        return {"version": held[0] if held else None, "role": role.name.lower()}

    def status(self) -> dict[str, Any]:
        """Return the WebSocket server's part of ``/status``."""
        silence = self.silence_s()
        owned = (
            {}
            if self.ownership is None
            else {"partitions": sorted(self.ownership.owned), "epoch": self.ownership.epoch}
        )
        return {
            "ready": self.why_not_ready() is None,
            "live": self.liveness.live,
            "since": self._since,
            **self.edge.status(),
            "subscriptions": self.hub.fanout.registry.entries,
            "endpoints": len(self.hub.state.retained),
            "position": sum(map(offset_of, self.hub.state.positions.values())),
            "source": self.hub.state.source,
            "lag_seconds": None if silence is None else round(silence, 3),
            "delay_seconds": self.delay_s(),
            **owned,
        }

    def _publish_status(self) -> None:
        self._since = iso(self._clock.wall_ms())
        self.edge.publish_status(live=self.liveness.live, since=self._since)
