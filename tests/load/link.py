"""One connection of a load client: a WebSocket over an asyncio transport, without a queue.

Only a client with tokens has a task for each connection: it presents every new token.
"""

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol, cast

import orjson

from diem.links.client.tokens import AUTH_ID, NoToken, TokenSource
from tests.load import wire
from tests.load.deflate import OFFER, Deflate


@dataclass(frozen=True)
class Server:
    """Where a client may connect."""

    host: str
    port: int
    path: str
    origin: str = ""
    """Origin of the page that a client claims to be; empty: it is none."""


class LinkOwner(Protocol):
    """Receiver of a link's events."""

    def opened(self, link: "Link") -> None:
        """The handshake was accepted."""

    def welcomed(self) -> None:
        """The server sent its first frame."""

    def updates(self, data: bytes, start: int, end: int, time: float) -> None:
        """Whole update frames lie between two positions of a chunk."""

    def message(self, message: dict[str, Any], time: float) -> None:
        """Any other message."""

    def violated(self, reason: str) -> None:
        """The server sent what no server may send; the connection is aborted."""

    def lost(self, link: "Link", code: int, reason: str) -> None:
        """The connection is gone."""


class Link(asyncio.Protocol):
    """One connection of a client: forwards frames in the order of the wire, and answers pings and closes.

    ``tokens`` are presented in the handshake, and whenever there is a new one. With ``compression`` it is offered, and
    requests are compressed, too, where the server accepts it.
    """

    def __init__(
        self,
        owner: LinkOwner,
        server: Server,
        number: int = 0,
        *,
        tokens: TokenSource | None = None,
        compression: bool = False,
    ) -> None:
        self.number = number
        """Number of the connection of its client; always 0 for clients with one at a time."""
        self.opened = 0.0
        self.last_received = monotonic()
        self.live = True
        self.stale: set[bytes] = set()
        """Endpoints that the server has named in a status live:false."""
        self.welcomed = False
        self.offers_data = False
        """Whether the server takes requests for the data of updates."""
        self.updates = 0
        self.deflate: Deflate | None = None
        """The compression that was agreed."""
        self._offer = OFFER if compression else ""
        self._owner = owner
        self._server = server
        self._requests = 0
        self._handshake: wire.Handshake | None = None
        self._tokens = tokens
        self._presented = ""
        self._refreshing: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._tail = b""
        self._code, self._reason = 1006, ""

    async def dial(self, address: str, within: float) -> None:
        """Connect from a local address; a failure is reported as lost."""
        try:
            async with asyncio.timeout(within):
                if self._tokens is not None:
                    self._presented = await self._tokens.ready()
                host, port, path = self._server.host, self._server.port, self._server.path
                self._handshake = wire.Handshake(
                    host, port, path, self._presented, self._offer, origin=self._server.origin
                )
                await asyncio.get_running_loop().create_connection(
                    lambda: self, self._server.host, self._server.port, local_addr=(address, 0)
                )
        except (OSError, TimeoutError, NoToken) as error:
            self._owner.lost(self, 1006, str(error))

    def request(self, kind: str, endpoints: list[str] | dict[str, int | None], **more: Any) -> None:
        """Send a request; ``more`` are further members of the message."""
        self._requests += 1
        self._send({"type": kind, "id": self._requests, "endpoints": endpoints, **more})

    def close(self) -> None:
        """Close with a close frame."""
        self._write(wire.frame((1000).to_bytes(2, "big"), wire.CLOSE))
        if self._transport:
            self._transport.close()

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self._handshake is not None
        # uvloop's transports are asyncio.Transport in all but name.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._handshake.request)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._tokens is not None:
            self._tokens.closed("", self._presented, self._code)
        self._owner.lost(self, self._code, self._reason)

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            self._shaking_hands(self._handshake, data)
            return
        try:
            self._frames(data)
        except wire.WireError as error:
            self._violated(error)

    def _violated(self, error: wire.WireError) -> None:
        self._owner.violated(str(error))
        self.abort()

    def _shaking_hands(self, handshake: wire.Handshake, data: bytes) -> None:
        self._tail += data
        try:
            rest = handshake.answer(self._tail)
        except wire.WireError as error:
            self._reason = str(error)
            self.abort()
            return
        if rest is None:
            return
        if handshake.extension:
            try:
                self.deflate = Deflate(handshake.extension)
            except wire.WireError as error:
                self._violated(error)
                return
        self._handshake, self._tail = None, b""
        self.opened = self.last_received = monotonic()
        self._owner.opened(self)
        if rest:
            self.data_received(rest)

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
        if not specials:
            self._owner.updates(data, 0, end, time)
            return
        # In their order on the wire: an update before `unsubscribed` is legal, one after it is not.
        start = 0
        for special in specials:
            self._owner.updates(data, start, special.start, time)
            self._special(special, time)
            start = special.end
        self._owner.updates(data, start, end, time)

    def _special(self, special: wire.Special, time: float) -> None:
        if special.opcode == wire.TEXT:
            message = orjson.loads(special.payload)
            self._owner.message(message, time)
            if message["type"] == "welcome":
                self.welcomed = True
                self.offers_data = message.get("data") is True
                if self._tokens is not None:
                    self._refreshing = asyncio.get_running_loop().create_task(self._refresh(self._tokens))
                self._owner.welcomed()
        elif special.opcode == wire.PING:
            self._write(wire.frame(special.payload, wire.PONG))
        elif special.opcode == wire.CLOSE:
            self._code = int.from_bytes(special.payload[:2], "big") if special.payload else 1005
            self._reason = special.payload[2:].decode()
            self._write(wire.frame(special.payload[:2], wire.CLOSE))
            if self._transport:
                self._transport.close()

    async def _refresh(self, tokens: TokenSource) -> None:
        """Present every new token."""
        while True:
            self._presented = await tokens.replaced(self._presented)
            self._send({"type": "auth", "id": AUTH_ID, "token": self._presented})

    def _send(self, message: dict[str, Any]) -> None:
        payload = orjson.dumps(message)
        if self.deflate is None:
            self._write(wire.frame(payload))
        else:
            self._write(wire.frame(self.deflate.compress(payload), wire.COMPRESSED_TEXT))

    def _write(self, data: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(data)
