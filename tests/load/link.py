"""The connections of load clients: those of the Python client, over a WebSocket of their own without a queue.

A client of half a million frames in a run is not what the library is made for: update frames are recorded where they
arrive, and everything else is handed to the client after that.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import orjson
from websockets.exceptions import ConnectionClosedError, InvalidHandshake
from websockets.frames import Close

from diem.client.link import ClientLink
from diem.client.polling import MessageConnection
from tests.load import wire
from tests.load.deflate import OFFER, Deflate

CONNECT_SECONDS = 10.0


class History(Protocol):
    """What a client records of its connections."""

    address: str
    offers_compression: bool
    refused: int

    def number(self) -> int:
        """Return the number of the next connection."""

    def opened_link(self, link: "Link") -> None:
        """The handshake was accepted."""

    def sent(self, message: dict[str, Any], link: "Link") -> None:
        """A request is sent."""

    def record_frames(self, data: bytes, start: int, end: int, time: float, link: int) -> None:
        """Whole update frames lie between two positions of a chunk."""

    def record_message(self, message: dict[str, Any], time: float, link: "Link") -> None:
        """Any other message."""

    def violated(self, reason: str) -> None:
        """The server sent what no server may send; the connection is aborted."""

    def ended(self, link: "Link", code: int) -> None:
        """A connection that was open is gone."""


class RecordedLink(ClientLink):
    """The link of a client that records its history."""

    @asynccontextmanager
    async def _dial(self, url: str) -> AsyncIterator[MessageConnection]:
        history = cast("History", self._listener)
        link = self._connection(history, url)
        try:
            await link.open()
        except (OSError, InvalidHandshake):
            history.refused += 1
            raise
        try:
            yield cast("MessageConnection", link)
        finally:
            link.close()

    def _connection(self, history: History, url: str) -> "Link":
        return WebSocketConnection(history, url, self._origin or "")

    async def _next(self, connection: MessageConnection) -> bytes:
        """Return the next message that is no update. Raises ``TimeoutError`` if no frame comes, not even an update."""
        link = cast("Link", connection)
        while (left_s := link.last_received + self._silence_s - monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    return await link.recv()
        async with asyncio.timeout(self._timing.late_s):
            return await link.recv()


class Link:
    """One connection, with the part of the library's interface that a :class:`ClientLink` uses, whatever carries it."""

    transport: asyncio.Transport
    """To abort it."""

    def __init__(self, history: History) -> None:
        self.number = history.number()
        """Number of the connection of its client; always 0 for clients with one at a time."""
        self.opened = self.last_received = 0.0
        self.live = True
        self.stale: set[bytes] = set()
        """Endpoints that the server has named in a status live:false."""
        self.welcomed = self.authenticated = False
        self.updates = 0
        self.deflate: Deflate | None = None
        """The compression that was agreed."""
        self._history = history
        self._close: Close | None = None
        """The code of the server, if it has closed the connection."""
        self._messages: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._lost = False

    async def open(self) -> None:
        """Connect from the client's address. Raises ``OSError``, ``InvalidHandshake``."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave."""
        raise NotImplementedError

    async def recv(self) -> bytes:
        """Return the next message that is no update. Raises ``ConnectionClosedError``."""
        while not self._messages:
            if self._lost:
                raise ConnectionClosedError(self._close, None)
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def _begin(self) -> None:
        self.opened = self.last_received = monotonic()
        self._history.opened_link(self)

    def _forward(self, payload: bytes) -> None:
        self._messages.append(payload)
        self._arrived.set()

    def _end(self) -> None:
        self._lost = True
        self._arrived.set()
        if self.opened:
            self._history.ended(self, 1006 if self._close is None else self._close.code)


class WebSocketConnection(Link, asyncio.Protocol):
    """A WebSocket.

    Forwards frames in the order of the wire, and answers pings and closes. Where compression was agreed, requests are
    compressed, too.
    """

    def __init__(self, history: History, url: str, origin: str = "") -> None:
        super().__init__(history)
        parts = urlsplit(url)
        self.host, self.port, path = parts.hostname or "", parts.port or 80, parts.path or "/"
        offer = OFFER if history.offers_compression else ""
        self._handshake = wire.Handshake(self.host, self.port, path, offer=offer, origin=origin)
        self._opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tail = b""

    async def open(self) -> None:
        """Connect from the client's address. Raises ``OSError``, ``InvalidHandshake``."""
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().create_connection(
                lambda: self, self.host, self.port, local_addr=(self._history.address, 0)
            )
            try:
                await self._opening
            except BaseException:
                self.transport.abort()
                raise

    def close(self) -> None:
        """Close with a close frame."""
        self._write(wire.frame((1000).to_bytes(2, "big"), wire.CLOSE))
        self.transport.close()

    async def send(self, payload: bytes, *, text: bool) -> None:
        """Send a request."""
        assert text
        if self.deflate is None:
            self._write(wire.frame(payload))
        else:
            self._write(wire.frame(self.deflate.compress(payload), wire.COMPRESSED_TEXT))
        self._history.sent(orjson.loads(payload), self)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport in all but name.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._handshake.request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._opening.done():
            self._opening.set_exception(ConnectionResetError("connection lost"))
        self._end()

    def data_received(self, data: bytes) -> None:
        try:
            if self.opened:
                self._frames(data)
            else:
                self._shake_hands(data)
        except wire.WireError as error:
            self._history.violated(str(error))
            self.transport.abort()

    def _shake_hands(self, data: bytes) -> None:
        self._tail += data
        try:
            rest = self._handshake.answer(self._tail)
        except InvalidHandshake as error:
            self._opening.set_exception(error)
            return
        if rest is None:
            return
        if self._handshake.extension:
            self.deflate = Deflate(self._handshake.extension)
        self._tail = b""
        self._begin()
        self._opening.set_result(None)
        if rest:
            self._frames(rest)

    def _frames(self, data: bytes) -> None:
        time = self.last_received = monotonic()
        if self._tail:
            data = self._tail + data
        incomplete = b""
        if self.deflate is not None:
            data, incomplete = self.deflate.plain(data)
        end, updates, specials = wire.walk(data)
        self.updates += updates
        self._tail = incomplete or data[end:]
        # In their order on the wire: an update before `unsubscribed` is legal, one after it is not.
        start = 0
        for special in specials:
            self._history.record_frames(data, start, special.start, time, self.number)
            self._special(special, time)
            start = special.end
        self._history.record_frames(data, start, end, time, self.number)

    def _special(self, special: wire.Special, time: float) -> None:
        if special.opcode == wire.TEXT:
            self._history.record_message(orjson.loads(special.payload), time, self)
            self._forward(special.payload)
        elif special.opcode == wire.PING:
            self._write(wire.frame(special.payload, wire.PONG))
        elif special.opcode == wire.CLOSE:
            code = int.from_bytes(special.payload[:2], "big") if special.payload else 1005
            self._close = Close(code, special.payload[2:].decode())
            self._write(wire.frame(special.payload[:2], wire.CLOSE))
            self.transport.close()

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)
