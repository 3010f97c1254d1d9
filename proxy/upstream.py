"""One connection to a server: the library does the handshake, then updates bypass it as bytes."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from diem.fanout.session import DeliveryStats, Session
from diem.links.dialer import ClientConnection
from diem.protocol import messages
from diem.protocol.codes import Close
from diem.protocol.frames import SHORT, START, BadFrame, ControlFrame, FrameRun, Splitter, short_run

if TYPE_CHECKING:
    from proxy.upstream_pool import UpstreamLink

MAX_HEAD_BYTES: Final = 16 * 1024
"""Of the answer to the opening handshake."""
RECEIVE_BUFFER_BYTES: Final = 32 * 1024
"""Of each link of a client: what its server has written while the client is blocked can no longer be conflated.

A Unix socket has no such buffer: there only the server's own bound counts.
"""


class UpstreamListener(Protocol):
    """Receives the events of links to servers, on the event loop; must not block."""

    def opened(self, link: "Upstream") -> None:
        """Called when a link was opened."""
        ...

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """Called with ``frames`` update frames as they were received.

        Raises:
            BadFrame: one is malformed; the link is closed.
        """
        ...

    def message(self, url: str, message: messages.ServerMessage) -> None:
        """Called with every other message."""
        ...

    def lost(self, url: str) -> None:
        """Called when a link that was open is lost."""
        ...


class Upstream(ClientConnection):
    """A link that speaks ``diem.v1.json`` as a client. Past the handshake the library sees control frames only."""

    __slots__ = ("_head", "_listener", "_owner", "_splitter", "_straight", "_was_open", "url")

    def __init__(self, url: str, authorization: str, listener: UpstreamListener, owner: "UpstreamLink") -> None:
        super().__init__(url, authorization, subprotocol=messages.SUBPROTOCOL)
        self.url = url
        self._listener = listener
        self._owner = owner
        self._head = b""
        self._splitter = Splitter()
        self._straight = False
        """Whether the next chunk begins with a frame."""
        self._was_open = False

    def subscribe(self, request_id: int, known: Mapping[str, int | None]) -> None:
        """Request endpoints, with the versions that are held here."""
        self.send_text(messages.subscribe(request_id, known))

    def unsubscribe(self, request_id: int, names: Sequence[str]) -> None:
        """Unsubscribe from endpoints."""
        self.send_text(messages.unsubscribe(request_id, names))

    def data_received(self, data: bytes) -> None:
        """Pass updates to the listener as they are, and everything else parsed."""
        self.alive = True
        if not self._was_open:
            self._shake_hands(data)
            return
        try:
            if self._straight and (frames := short_run(data)):
                self._listener.updates(self.url, data, frames)
                return
            for piece in self._splitter.feed(data):
                if isinstance(piece, FrameRun):
                    self._listener.updates(self.url, piece.data, piece.frames)
                elif isinstance(piece, ControlFrame):
                    super().data_received(piece.frame)
                else:
                    self._listener.message(self.url, messages.parse_server(piece.payload))
                if not self.is_open:
                    return
            self._straight = not self._splitter.tail
        except (BadFrame, messages.BadMessage) as error:
            self.fail(Close.PROTOCOL_ERROR, str(error)[:100])
            self.abort()

    def on_closed(self) -> None:
        """Report the loss of the link, once, and only if it was open."""
        super().on_closed()
        if self._was_open:
            self._was_open = self._straight = False
            self._owner.disconnected(self)

    def _shake_hands(self, data: bytes) -> None:
        """Give the library the answer to the handshake, and nothing of what follows it."""
        head = self._head + data
        end = head.find(b"\r\n\r\n") + 4
        if end < 4:
            self._head = head
            if len(head) > MAX_HEAD_BYTES:
                self.abort()
            return
        self._head = b""
        super().data_received(head[:end])
        if not self.is_open or self.transport.is_closing():
            self.abort()
            return
        self._was_open = True
        self._owner.connected(self)
        self.data_received(head[end:])


class ClientUpstream(Upstream):
    """A link of one client, whose updates go straight to its session."""

    __slots__ = ("_session", "_stats")

    def __init__(
        self,
        url: str,
        authorization: str,
        listener: UpstreamListener,
        owner: "UpstreamLink",
        *,
        session: Session,
        stats: DeliveryStats,
    ) -> None:
        super().__init__(url, authorization, listener, owner)
        self._session = session
        self._stats = stats

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound what the kernel holds while the client is blocked, so that the server soon conflates."""
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on one update, mostly: this makes up the cost of a proxy, so it touches as little as possible."""
        if SHORT.get(data[:START]) == len(data) and self._straight:
            self.alive = True
            self._stats.offered += 1
            # Two steps: called in one, the slot would be looked up as a method, without a fast path.
            send = self._session.send
            send(data)
        else:
            super().data_received(data)
