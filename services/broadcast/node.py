"""The Broadcast node without its sockets: applies one feed and serves it again (docs/internals.md section 2)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from diem.fanout.change_map import ChangeMap
from diem.fanout.data_budget import DataBudget
from diem.process.tracing import MAX_UPDATES, TracedUpdates
from diem.protocol import feed
from diem.protocol.codes import Close

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Node:
    """Applies the store's changes (a ``FeedSink``) and re-serves them (a ``FeedSource``).

    The store's source and sequences are kept, so a server's position is valid both here and at the store, and across
    restarts of this node. When the source changes, readers are dropped, the map is cleared, and readers are
    accepted again once the node has caught up: otherwise positions in the old store would be applied to the new one.
    """

    def __init__(self, budget: DataBudget | None = None, traces: TracedUpdates | None = None) -> None:
        self._with_data = budget is None or budget.max_bytes > 0
        self.changes = ChangeMap(budget)
        self._traces = traces
        self._forwarding: list[Span] = []
        """Spans of the traced updates that the next batch has."""
        self.source: str | None = None
        """The store's id once this node has caught up with it; None: readers are not accepted."""
        self.received = 0
        self.stale = 0
        self.on_changed: Callable[[], None] = lambda: None
        self.on_heartbeat: Callable[[], None] = lambda: None
        self.on_new_source: Callable[[int, str], None] = lambda _code, _reason: None
        self._upstream: str | None = None
        """The id of the store that is read, None before the first ``hello``."""
        self._caught_up = False
        """Whether this node has caught up on the current link."""
        self._log = structlog.get_logger("broadcast")

    # FeedSink

    def resume(self) -> feed.Resume:
        """Return the position at which a new link to the store resumes: after the last applied change."""
        self._caught_up = False
        positions = {feed.STORE: self.changes.sequence + 1} if self._upstream else {}
        return feed.Resume(self._upstream, positions, data=self._with_data, traces=self._traces is not None)

    def hello(self, message: feed.Hello) -> None:
        """Set the store's id; a new id drops all readers and clears the map."""
        if message.source == self._upstream:
            return
        if self._upstream is not None:
            self._log.warning("the store has a new id: starting over", source=message.source)
        self._upstream, self.source = message.source, None
        self.on_new_source(Close.RESTART, "the store has a new id")
        self.changes.clear()

    def batch(self, *batches: feed.Batch) -> None:
        """Apply changes under their sequences in the store."""
        for batch in batches:
            for change in batch.records:
                self.received += 1
                if change.sequence <= self.changes.sequence:
                    self.stale += 1
                else:
                    self.changes.apply(change)
            # The last changes may be of endpoints forgotten by the store.
            self.changes.advance(batch.next - 1)
        self.on_changed()
        while self._forwarding:
            self._forwarding.pop().end()

    def traced(self, message: feed.Traced) -> None:
        """Pass on the context of an update with a span of this node."""
        if self._traces is not None and len(self._forwarding) < MAX_UPDATES:
            tracer, endpoint, version = self._traces.tracer, message.endpoint, message.version
            span = tracer.start("forward", message.traceparent, {"diem.endpoint": endpoint, "diem.version": version})
            self._forwarding.append(span)
            self._traces.add(endpoint.encode(), version, tracer.context_of(span))

    def caught_up(self, name: str) -> None:  # noqa: ARG002 - a store has one name
        """Accept readers: the map is that of the store."""
        self._caught_up = True
        if self.source is None:
            self.source = self._upstream
            self._log.info("ready", endpoints=len(self.changes))

    def resync(self, message: feed.Resync) -> None:
        """Do nothing: a store has no records other than updates."""

    def owners(self, message: feed.Owners) -> None:
        """Do nothing: every server reads all of a store."""

    def heartbeat(self) -> None:
        """Forward the heartbeat of the store once this node has caught up."""
        if self._caught_up:
            self.on_heartbeat()

    # FeedSource

    def went_back(self, position: int) -> None:
        """Log a reader ahead of this node, coming from another feed: its link is closed until this node catches up."""
        self._log.warning("a reader is ahead of this node", position=position, sequence=self.changes.sequence)
