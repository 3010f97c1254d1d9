"""One connection to a server: the library does the handshake; update frames then bypass it as bytes."""

import asyncio
import socket
from typing import Final, Protocol

from diem.fanout.session import DeliveryStats, Session
from diem.links.dialer import ClientConnection
from diem.links.mutual_auth import HEAD_END
from diem.protocol import messages
from diem.protocol.codes import Close
from diem.protocol.frames import SHORT, START, BadFrame, ControlFrame, FrameRun, Splitter, short_run

MAX_HEAD_BYTES: Final = 16 * 1024
"""Maximum size of the response to the opening handshake."""
RECEIVE_BUFFER_BYTES: Final = 32 * 1024
"""Kernel receive buffer of each client link: frames in it can no longer be conflated when the client is blocked.

A Unix socket has no such buffer: only the send buffer of the server counts there.
"""


class UpstreamListener(Protocol):
    """Receives the events of links to servers, on the event loop; must not block."""

    def opened(self, link: "Upstream") -> None:
        """Called when a link has opened."""
        ...

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """Called with ``frames`` whole update frames, as received.

        Raises:
            BadFrame: a frame is malformed; the link is closed.
        """
        ...

    def message(self, url: str, message: messages.ServerMessage) -> None:
        """Called with every non-update message."""
        ...

    def lost(self, url: str) -> None:
        """Called when an open link is lost."""
        ...


class UpstreamOwner(Protocol):
    """Keeps a connection open, and replaces it when it is lost."""

    def connected(self, upstream: "Upstream") -> None:
        """Called when the handshake has succeeded."""
        ...

    def disconnected(self, upstream: "Upstream") -> None:
        """Called when an open connection is lost."""
        ...


class Upstream(ClientConnection):
    """A link that speaks ``diem.v1.json`` as a client. After the handshake, the library is fed control frames only."""

    __slots__ = ("_aligned", "_head", "_inspected", "_listener", "_owner", "_splitter", "_was_open", "url")

    def __init__(self, url: str, authorization: str, listener: UpstreamListener, owner: UpstreamOwner) -> None:
        super().__init__(url, authorization, subprotocol=messages.SUBPROTOCOL)
        self.url = url
        self._listener = listener
        self._owner = owner
        self._head = b""
        self._splitter = Splitter()
        self._aligned = False
        """Whether the next chunk begins at the start of a frame, and may be passed on as it is."""
        self._inspected = False
        self._was_open = False

    def data_received(self, data: bytes) -> None:
        """Pass updates to the listener as bytes, and other messages parsed."""
        self.alive = True
        if not self._was_open:
            self._finish_handshake(data)
            return
        try:
            if self._aligned and (frames := short_run(data)):
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
            self._aligned = not (self._splitter.tail or self._inspected)
        except (BadFrame, messages.BadMessage) as error:
            self.fail(Close.PROTOCOL_ERROR, str(error)[:100])
            self.abort()

    def inspect(self, *, inspected: bool) -> None:
        """Route every update through the listener instead of straight to the client, or end that."""
        self._inspected = inspected
        if inspected:
            self._aligned = False

    def on_closed(self) -> None:
        """Report the loss of the link, once and only if it was open."""
        super().on_closed()
        if self._was_open:
            self._was_open = self._aligned = False
            self._owner.disconnected(self)

    def _finish_handshake(self, data: bytes) -> None:
        """Feed the library the handshake response, and none of the bytes after it."""
        head = self._head + data
        end = head.find(HEAD_END) + len(HEAD_END)
        if end < len(HEAD_END):
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
    """One client's link; its updates go straight to the client's session."""

    __slots__ = ("_session", "_stats")

    def __init__(
        self,
        url: str,
        authorization: str,
        listener: UpstreamListener,
        owner: UpstreamOwner,
        *,
        session: Session,
        stats: DeliveryStats,
    ) -> None:
        super().__init__(url, authorization, listener, owner)
        self._session = session
        self._stats = stats

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound the kernel's data for a blocked client, so that the server starts to conflate soon."""
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Forward a single update frame, the usual case, by the shortest path: most of a proxy's cost is here."""
        if SHORT.get(data[:START]) == len(data) and self._aligned:
            self.alive = True
            self._stats.offered += 1
            # Two steps: in one call, the slot would be looked up as a method, which is slower.
            send = self._session.send
            send(data)
            self._session.recently_sent = True
        else:
            super().data_received(data)
