"""Negotiation of permessage-deflate (RFC 7692) for connections that share compressed frames."""

from collections.abc import Sequence
from typing import Final

from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import CTRL_OPCODES, Frame
from websockets.typing import ExtensionParameter

from diem.protocol.deflate import WINDOW_BITS

MAX_CHUNK_BYTES: Final = 512
"""Bytes parsed at a time if messages may be compressed: a few bytes may expand to a whole message of maximum size."""


class SharedDeflate(PerMessageDeflate):
    """Decompresses incoming messages, within their limit; outgoing frames are unchanged."""

    closing = False
    """The connection is being closed: messages are dropped unread, until the client's close frame."""

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Return the frame decompressed, or empty while closing."""
        if self.closing and frame.opcode not in CTRL_OPCODES:
            return Frame(frame.opcode, b"", frame.fin)
        return super().decode(frame, max_size=max_size)

    def encode(self, frame: Frame) -> Frame:
        """Return the frame: replies are short, and updates are compressed when they are built."""
        return frame


class SharedDeflateFactory(ServerPerMessageDeflateFactory):
    """Accepts offers that allow all clients to read the same compressed frame."""

    def __init__(self) -> None:
        super().__init__(
            server_no_context_takeover=True, client_no_context_takeover=True, server_max_window_bits=WINDOW_BITS
        )

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """Answer an offer; one with too small a window is declined, leaving the connection uncompressed."""
        answer, agreed = super().process_request_params(params, accepted_extensions)
        if agreed.local_max_window_bits < WINDOW_BITS:
            raise NegotiationError("server_max_window_bits is too small")
        return answer, SharedDeflate(True, True, agreed.remote_max_window_bits, WINDOW_BITS)


SHARED_DEFLATE: Final = (SharedDeflateFactory(),)
"""Extensions of a connection with compression."""
