"""The Broadcast node, without its sockets: a feed reader whose map is a feed again (docs/protocol.md section 2)."""

from collections.abc import Callable

import structlog

from diem.fanout.change_map import ChangeMap
from diem.protocol import feed
from diem.protocol.codes import Close


class Node:
    """Takes the store's changes (a ``FeedSink``) and offers them under the store's id (a ``FeedSource``).

    It hands on the store's id and the store's sequences: a server's position is valid here as it is at the store, and
    across restarts of this node. When the store is another one, readers are sent away, the map is emptied, and readers
    are taken again after the node's own catch-up: otherwise positions of the old store would be taken for positions of
    the new one.
    """

    def __init__(self) -> None:
        self.changes = ChangeMap()
        self.source: str | None = None
        """The store's id once this node has caught up with it; None = take no readers."""
        self.received = 0
        self.stale = 0
        self.on_changed: Callable[[], None] = lambda: None
        self.on_heartbeat: Callable[[], None] = lambda: None
        self.on_new_source: Callable[[int, str], None] = lambda _code, _reason: None
        self._reading: str | None = None
        self._current = False
        self._log = structlog.get_logger("broadcast")

    # FeedSink

    def resume(self) -> feed.Resume:
        """A link to the store was opened; what this node holds is the position."""
        self._current = False
        return feed.Resume(self._reading, {feed.STORE: self.changes.sequence + 1} if self._reading else {})

    def hello(self, message: feed.Hello) -> None:
        """Take the store's id; another one than before voids everything."""
        if message.source == self._reading:
            return
        if self._reading is not None:
            self._log.warning("the store is another one: starting over", source=message.source)
        self._reading, self.source = message.source, None
        self.on_new_source(Close.RESTART, "the store is another one")
        self.changes.clear()

    def batch(self, batch: feed.Batch) -> None:
        """Take changes under the sequences of the store."""
        for change in batch.records:
            self.received += 1
            if change.sequence <= self.changes.sequence:
                self.stale += 1
            else:
                self.changes.apply(change)
        self.on_changed()

    def caught_up(self, name: str) -> None:  # noqa: ARG002 - a store has one name
        """The map is the store's: readers are taken."""
        self._current = True
        if self.source is None:
            self.source = self._reading
            self._log.info("ready", endpoints=len(self.changes))

    def resync(self, message: feed.Resync) -> None:
        """Nothing: a store has no records that are not updates."""

    def owners(self, message: feed.Owners) -> None:
        """Nothing: every server reads all of a store."""

    def heartbeat(self) -> None:
        """Hand on that the store is alive, unless this node still lags behind it."""
        if self._current:
            self.on_heartbeat()

    # FeedSource

    def went_back(self, position: int) -> None:
        """A server is ahead of this node: it read elsewhere. Its link is closed until this node has followed."""
        self._log.warning("a reader is ahead of this node", position=position, sequence=self.changes.sequence)
