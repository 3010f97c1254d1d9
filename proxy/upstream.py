"""One connection to a server: the library does the handshake; update frames then bypass it as bytes."""

from time import monotonic
from typing import Final, Protocol

from diem.links.dialer import LinkConnection
from diem.links.mutual_auth import HEAD_END
from diem.protocol import messages
from diem.protocol.codes import Close
from diem.protocol.frames import BadFrame, ControlFrame, FrameRun, Splitter, short_run

MAX_HEAD_BYTES: Final = 16 * 1024
"""Maximum size of the response to the opening handshake."""


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


class Upstream(LinkConnection):
    """A link that speaks ``diem.v1.json`` as a client. After the handshake, the library is fed control frames only."""

    __slots__ = ("_aligned", "_head", "_listener", "_splitter", "_was_open", "url")

    def __init__(self, url: str, authorization: str, listener: UpstreamListener) -> None:
        super().__init__(url, authorization, subprotocol=messages.SUBPROTOCOL)
        self.url = url
        self._listener = listener
        self._head = b""
        self._splitter = Splitter()
        self._aligned = False
        """Whether the next chunk begins at the start of a frame, and may be passed on as it is."""
        self._was_open = False

    def data_received(self, data: bytes) -> None:
        """Pass updates to the listener as bytes, and other messages parsed."""
        began = monotonic()
        self._receive(data)
        self.yield_after(began)

    def _receive(self, data: bytes) -> None:
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
            self._aligned = not self._splitter.tail
        except (BadFrame, messages.BadMessage) as error:
            self.fail(Close.PROTOCOL_ERROR, str(error)[:100])
            self.abort()

    def on_closed(self) -> None:
        """Report the loss of the link, once and only if it was open."""
        super().on_closed()
        if self._was_open:
            self._was_open = self._aligned = False
            self._listener.lost(self.url)

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
        self._listener.opened(self)
        self._receive(head[end:])
