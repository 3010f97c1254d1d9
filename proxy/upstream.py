"""One connection to a server: the handshake is the library's, and then updates pass by it as bytes."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Final, Protocol

from diem.errors import DiemError
from diem.fanout.session import DeliveryStats, Session
from diem.links.dialer import ClientConnection
from diem.protocol import messages
from diem.protocol.codes import Close
from proxy import upstream_messages
from proxy.frames import SHORT, START, BadFrame, ControlFrame, FrameRun, Splitter, short_run

MAX_HEAD: Final = 16 * 1024
"""Bytes of the answer to the opening handshake."""
RECEIVE_BUFFER: Final = 32 * 1024
"""Of each link of a client: what its server has written while the client is blocked, and cannot conflate any more.

A Unix socket has no such buffer: there the server's own bound is all that counts.
"""


class Receiver(Protocol):
    """What takes what servers say. Called on the event loop; must not block. Servers are named by their URLs."""

    def opened(self, url: str) -> None:
        """A link is open."""
        ...

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """So many update frames, as they came.

        Raises:
            BadFrame: they are not what they seem; the link is closed.
        """
        ...

    def heard(self, url: str, message: upstream_messages.Said) -> None:
        """Another message."""
        ...

    def lost(self, url: str) -> None:
        """A link that was open is gone."""
        ...


class UpstreamListener(Protocol):
    """What keeps a link."""

    def opened(self, link: "Upstream") -> None:
        """The handshake has succeeded; nothing behind it was looked at yet."""
        ...

    def gone(self, link: "Upstream") -> None:
        """The link was open, and is gone."""
        ...


class Upstream(ClientConnection):
    """A link that speaks ``diem.v1.json`` as a client. Past the handshake the library sees control frames only."""

    __slots__ = ("_ends", "_head", "_ids", "_receiver", "_splitter", "_straight", "_was_open", "url")

    def __init__(self, url: str, authorization: str, receiver: Receiver, ends: UpstreamListener) -> None:
        super().__init__(url, authorization, subprotocol=messages.SUBPROTOCOL)
        self.url = url
        self._receiver = receiver
        self._ends = ends
        self._head = b""
        self._splitter = Splitter()
        self._straight = False
        """What comes next is the beginning of a frame."""
        self._ids = 0
        self._was_open = False

    def subscribe(self, known: Mapping[str, int | None]) -> int:
        """Ask for endpoints; returns the request's id."""
        self._ids += 1
        self.send_text(upstream_messages.subscribe(self._ids, known))
        return self._ids

    def unsubscribe(self, names: list[str]) -> int:
        """Ask for no more of these; returns the request's id."""
        self._ids += 1
        self.send_text(upstream_messages.unsubscribe(self._ids, names))
        return self._ids

    def data_received(self, data: bytes) -> None:
        """Updates to the receiver as they are; all else to whom it concerns."""
        self.alive = True
        if not self._straight:
            if self._was_open:
                self._split(data)
            else:
                self._shake_hands(data)
            return
        frames = short_run(data)
        if frames:
            try:
                self._receiver.updates(self.url, data, frames)
            except BadFrame as error:
                self._refuse(error)
        else:
            self._split(data)

    def _split(self, data: bytes) -> None:
        try:
            for piece in self._splitter.feed(data):
                if isinstance(piece, FrameRun):
                    self._receiver.updates(self.url, piece.data, piece.frames)
                elif isinstance(piece, ControlFrame):
                    super().data_received(piece.frame)
                else:
                    self._receiver.heard(self.url, upstream_messages.parse(piece.payload))
                if not self.is_open:
                    return
            self._straight = not self._splitter.tail
        except (BadFrame, upstream_messages.BadMessage) as error:
            self._refuse(error)

    def _refuse(self, error: DiemError) -> None:
        self.fail(Close.PROTOCOL_ERROR, str(error)[:100])
        self.abort()

    def on_closed(self) -> None:
        """Say that the link is gone, once, and only if it was there."""
        super().on_closed()
        if self._was_open:
            self._was_open = self._straight = False
            self._ends.gone(self)

    def _shake_hands(self, data: bytes) -> None:
        """Give the library the answer to the handshake, and nothing behind it."""
        head = self._head + data
        end = head.find(b"\r\n\r\n") + 4
        if end < 4:
            self._head = head
            if len(head) > MAX_HEAD:
                self.abort()
            return
        self._head = b""
        super().data_received(head[:end])
        if not self.is_open or self.transport.is_closing():
            self.abort()
            return
        self._was_open = True
        self._ends.opened(self)
        self._split(head[end:])


class ClientUpstream(Upstream):
    """The link of one client, whose updates go straight to its session."""

    __slots__ = ("_accounts", "_session")

    def __init__(
        self,
        url: str,
        authorization: str,
        receiver: Receiver,
        ends: UpstreamListener,
        *,
        session: Session,
        accounts: DeliveryStats,
    ) -> None:
        super().__init__(url, authorization, receiver, ends)
        self._session = session
        self._accounts = accounts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound what the kernel holds while the client is blocked, so that the server soon conflates."""
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """One update, mostly: this is what the cost of a proxy is made of, so it touches as little as possible."""
        if SHORT.get(data[:START]) == len(data) and self._straight:
            self.alive = True
            self._accounts.offered += 1
            # Two steps: called in one, the slot would be looked up as a method, without a fast path.
            send = self._session.send
            send(data)
        else:
            super().data_received(data)
