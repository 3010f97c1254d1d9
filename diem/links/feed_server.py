"""Serves a change map as a feed (docs/internals.md section 2), with a cursor per reader, no queue or window."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from diem.fanout.change_map import ChangeMap
from diem.links.internal import InternalConnection
from diem.links.keepalive import LinkMonitor
from diem.process.clock import until_next
from diem.process.tracing import TracedUpdates
from diem.protocol import feed
from diem.protocol.codes import Close
from diem.protocol.update import Change, without_data

HEARTBEAT_EVERY_S: Final = 1.0
LEAST_FORGOTTEN: Final = 1024
"""Forgotten endpoints after which (if more than the map has) readers start over and drop them, to stay bounded."""


class FeedSource(Protocol):
    """Source of a feed: the store of the Data Service, or the map of a Broadcast node."""

    @property
    def source(self) -> str | None:
        """As of ``feed.store_source``; None while unknown, when no reader is accepted."""
        ...

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint, in the store's order."""
        ...

    def went_back(self, position: int) -> None:
        """Called when a reader's ``position`` is beyond this store's end: the store is an older copy."""
        ...


def read_resume(connection: InternalConnection, data: bytes, *, first: bool) -> feed.Resume | None:
    """Return a reader's ``resume``, which must be its ``first`` message; otherwise close the link with 4500.

    Unknown messages are ignored.
    """
    try:
        message = feed.decode(data)
    except feed.FeedError as error:
        connection.close(Close.BAD_REQUEST, str(error)[:100])
        return None
    if isinstance(message, feed.UnknownMessage):
        return None
    if isinstance(message, feed.Resume) and first:
        return message
    connection.close(Close.BAD_REQUEST, "expected one resume")
    return None


@dataclass(slots=True)
class _Reader:
    cursor: int = 0
    forgotten: int = 0
    """That of its own source."""
    with_data: bool = False
    with_traces: bool = False
    resumed: bool = False
    caught_up: bool = False


class FeedServer:
    """Channel handler of a feed. Call :meth:`changed` after the map has changed.

    :meth:`heartbeat` is called every second while the source is alive: by :meth:`run`, unless ``heartbeats`` is False
    (a Broadcast node forwards the heartbeats of its own source). Contexts of updates among ``traces`` precede them.
    """

    subprotocol = feed.SUBPROTOCOL

    def __init__(self, source: FeedSource, *, heartbeats: bool = True, traces: TracedUpdates | None = None) -> None:
        self._source = source
        self._heartbeats = heartbeats
        self._traces = traces
        self._readers: dict[InternalConnection, _Reader] = {}
        self.sent = 0
        """Changes written to readers."""
        self._monitor = LinkMonitor("feed reader")
        self._open = True
        self._last_heartbeat = float("-inf")
        self._forgotten = 0
        """Changes up to this sequence may be missing from the map: endpoints that are gone for long."""
        self._oldest = 0
        """The same when all readers had to begin again."""
        self._removed = 0

    @property
    def accepting(self) -> bool:
        """True if readers are accepted now."""
        return self._open and self._source.source is not None

    @property
    def readers(self) -> int:
        """Number of open links."""
        return len(self._readers)

    def changed(self) -> None:
        """Send every reader its missing changes, as far as its link accepts them."""
        self._check_forgotten()
        changes = self._source.changes
        for connection, reader in self._readers.items():
            while reader.resumed and not connection.paused and connection.is_open:
                found = changes.after(reader.cursor, feed.MAX_RECORDS)
                if not found:
                    if not reader.caught_up:
                        self._finish_catch_up(connection, reader)
                    break
                if not reader.with_data:
                    found = [each._replace(value=without_data(each.endpoint, each.value)) for each in found]
                batch = next(feed.batches_of(found))
                reader.cursor = batch[-1].sequence
                self.sent += len(batch)
                if self._traces and reader.with_traces:
                    self._send_traces(connection, batch, self._traces)
                connection.send_binary(feed.encode_batch(feed.STORE, reader.cursor + 1, batch))

    def _send_traces(self, connection: InternalConnection, batch: Iterable[Change], traces: TracedUpdates) -> None:
        for change in batch:
            if (context := traces.find(change.endpoint, change.version)) is not None:
                connection.send_text(feed.encode(feed.Traced(change.endpoint.decode(), change.version, context)))

    def _check_forgotten(self) -> None:
        """Close the links of readers that must start over: changes they have yet to read are gone."""
        _, forgotten = feed.split_source(self._source.source or "")
        if forgotten != self._forgotten:
            self._forgotten, changes = forgotten, self._source.changes
            if changes.removed - self._removed > max(LEAST_FORGOTTEN, len(changes)):
                self._oldest, self._removed = forgotten, changes.removed
            for connection, reader in list(self._readers.items()):
                if reader.resumed and (reader.cursor < forgotten or reader.forgotten < self._oldest):
                    connection.close(Close.RESTART, "deleted endpoints were forgotten")

    def _finish_catch_up(self, connection: InternalConnection, reader: _Reader) -> None:
        reader.caught_up = True
        if reader.cursor < self._source.changes.sequence:
            # The last change was removed: a position before it would be invalid on the next link.
            reader.cursor = self._source.changes.sequence
            connection.send_binary(feed.encode_batch(feed.STORE, reader.cursor + 1, []))
        connection.send_text(feed.encode(feed.CaughtUp(feed.STORE)))
        if self._heartbeats or asyncio.get_running_loop().time() - self._last_heartbeat < 2 * HEARTBEAT_EVERY_S:
            # Without it, a server that just caught up would report ``live: false`` to its first clients.
            connection.send_text(feed.HEARTBEAT)

    def heartbeat(self) -> None:
        """Send a heartbeat: the source is alive."""
        self._last_heartbeat = asyncio.get_running_loop().time()
        for connection, reader in self._readers.items():
            # Not queued behind updates on a paused link: a late heartbeat would report the past.
            if reader.resumed and not connection.paused:
                connection.send_text(feed.HEARTBEAT)

    def drop_readers(self, code: int = Close.RESTART, reason: str = "") -> None:
        """Close every link; the readers reconnect."""
        for connection in list(self._readers):
            connection.close(code, reason)

    async def run(self) -> None:
        """Send heartbeats and pings until cancelled."""
        while True:
            await asyncio.sleep(until_next(asyncio.get_running_loop().time(), HEARTBEAT_EVERY_S))
            if self._heartbeats:
                self.heartbeat()
            self._monitor.tick()

    def stop(self) -> None:
        """Accept no more readers, and close the links."""
        self._open = False
        self.drop_readers(Close.GOING_AWAY)

    # ChannelHandler

    def opened(self, connection: InternalConnection) -> None:
        """Register a reader, which sends the first message."""
        self._readers[connection] = _Reader()
        self._monitor.add(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Handle the reader's ``resume``; any other message is an error."""
        reader = self._readers.get(connection)
        source = self._source.source
        if reader is None or source is None:
            return
        message = read_resume(connection, data, first=not reader.resumed)
        if message is None:
            return
        self._check_forgotten()
        store, reader.forgotten = feed.split_source(source)
        own = message.source or ""
        of, began = feed.split_source(own)
        if of == store:
            # A position is the next sequence to read, a cursor the last one sent.
            cursor = max(0, message.positions.get(feed.STORE, 0) - 1)
            if cursor > self._source.changes.sequence:
                self._source.went_back(cursor)
                connection.close(Close.OVERLOAD, "the store went back")
                return
            if cursor >= self._forgotten and began >= self._oldest:
                # Under its own source, which states the changes missing at its start.
                source, reader.cursor, reader.forgotten = own, cursor, began
        reader.resumed, reader.with_data, reader.with_traces = True, message.data, message.traces
        connection.send_text(feed.encode(feed.Hello(source, [feed.STORE])))
        self.changed()

    def blocked(self, connection: InternalConnection) -> None:
        """Do nothing: the cursor stops, and the map conflates."""

    def resumed(self, connection: InternalConnection) -> None:
        """Continue with a slow reader; the map skips changes superseded meanwhile."""
        if connection in self._readers:
            self.changed()

    def closed(self, connection: InternalConnection) -> None:
        """Forget a disconnected reader."""
        self._readers.pop(connection, None)
        self._monitor.discard(connection)
