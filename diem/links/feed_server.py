"""Serves a change map as a feed (docs/protocol.md section 2): a cursor per reader, no queue, no window."""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from diem.fanout.change_map import ChangeMap
from diem.links.internal import InternalConnection
from diem.links.keepalive import LinkMonitor
from diem.protocol import feed
from diem.protocol.codes import Close

MAX_RECORDS: Final = 1000
"""Records in one batch: about 150 KiB, written while the transport takes it."""
HEARTBEAT_EVERY_S: Final = 1.0


class FeedSource(Protocol):
    """What a feed is served from: the store of the Data Service, or the map of a Broadcast node."""

    @property
    def source(self) -> str | None:
        """The store's id; None while it is not known, and no reader is taken."""
        ...

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint, in the order of the store."""
        ...

    def went_back(self, position: int) -> None:
        """A reader proved that this store is an older copy of itself: it had read up to ``position`` before."""
        ...


def read_resume(connection: InternalConnection, data: bytes, *, first: bool) -> feed.Resume | None:
    """The ``resume`` that a reader says ``first``; for anything else the link is closed with 4500."""
    try:
        message = feed.decode(data)
    except feed.FeedError as error:
        connection.close(Close.BAD_REQUEST, str(error)[:100])
        return None
    if isinstance(message, feed.Resume) and first:
        return message
    connection.close(Close.BAD_REQUEST, "expected one resume")
    return None


@dataclass(slots=True)
class _Reader:
    cursor: int = 0
    resumed: bool = False
    caught_up: bool = False


class FeedServer:
    """The serving end of feed links.

    ``changed()`` wakes the readers after the map changed. ``beat()`` is called every second while the source is alive:
    by :meth:`run` itself, unless ``heartbeats`` is False (a Broadcast node hands its own source's beats on).
    """

    subprotocol = feed.SUBPROTOCOL

    def __init__(self, source: FeedSource, *, heartbeats: bool = True) -> None:
        self._source = source
        self._heartbeats = heartbeats
        self._readers: dict[InternalConnection, _Reader] = {}
        self.sent = 0
        """Changes written to readers."""
        self._monitor = LinkMonitor("feed reader")
        self._open = True
        self._last_heartbeat = float("-inf")

    @property
    def accepting(self) -> bool:
        """Whether readers are taken now."""
        return self._open and self._source.source is not None

    @property
    def readers(self) -> int:
        """Links that are open."""
        return len(self._readers)

    def changed(self) -> None:
        """The map has new changes: send them to whoever can take them."""
        for connection, reader in self._readers.items():
            self._pump(connection, reader)

    def heartbeat(self) -> None:
        """The source behind this feed is alive."""
        self._last_heartbeat = asyncio.get_running_loop().time()
        for connection, reader in self._readers.items():
            # A beat that overtakes nothing: behind a paused link it would only say that the link is paused.
            if reader.resumed and not connection.paused:
                connection.send_text(feed.HEARTBEAT)

    def drop_readers(self, code: int = Close.RESTART, reason: str = "") -> None:
        """Close every link; the readers dial again."""
        for connection in list(self._readers):
            connection.close(code, reason)

    async def run(self) -> None:
        """Beats and pings until cancelled."""
        while True:
            await asyncio.sleep(HEARTBEAT_EVERY_S)
            if self._heartbeats:
                self.heartbeat()
            self._monitor.tick()

    def stop(self) -> None:
        """Take no more readers and close the links."""
        self._open = False
        self.drop_readers(Close.GOING_AWAY)

    # End

    def opened(self, connection: InternalConnection) -> None:
        """A reader has connected; it speaks first."""
        self._readers[connection] = _Reader()
        self._monitor.add(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Take the reader's ``resume``; anything else is an error."""
        reader = self._readers.get(connection)
        source = self._source.source
        if reader is None or source is None:
            return
        message = read_resume(connection, data, first=not reader.resumed)
        if message is None:
            return
        if message.source == source:
            # A position is the next sequence to read.
            reader.cursor = max(0, message.positions.get(feed.STORE, 0) - 1)
            if reader.cursor > self._source.changes.sequence:
                self._source.went_back(reader.cursor)
                connection.close(Close.OVERLOAD, "the store went back")
                return
        reader.resumed = True
        connection.send_text(feed.encode(feed.Hello(source, [feed.STORE])))
        self._pump(connection, reader)

    def blocked(self, connection: InternalConnection) -> None:
        """Nothing: a cursor waits, and conflates meanwhile."""

    def resumed(self, connection: InternalConnection) -> None:
        """A slow reader takes data again: what was superseded meanwhile is skipped by the map itself."""
        reader = self._readers.get(connection)
        if reader is not None:
            self._pump(connection, reader)

    def closed(self, connection: InternalConnection) -> None:
        """A reader is gone."""
        self._readers.pop(connection, None)
        self._monitor.discard(connection)

    def _pump(self, connection: InternalConnection, reader: _Reader) -> None:
        changes = self._source.changes
        while reader.resumed and not connection.paused and connection.is_open:
            found = changes.after(reader.cursor, MAX_RECORDS)
            if not found:
                break
            reader.cursor = found[-1].sequence
            self.sent += len(found)
            connection.send_binary(feed.encode_batch(feed.STORE, reader.cursor + 1, found))
        else:
            return
        if not reader.caught_up:
            reader.caught_up = True
            connection.send_text(feed.encode(feed.CaughtUp(feed.STORE)))
            if self._heartbeats or asyncio.get_running_loop().time() - self._last_heartbeat < 2 * HEARTBEAT_EVERY_S:
                # Without it a server that has just caught up would tell its first clients that it is not live.
                connection.send_text(feed.HEARTBEAT)
