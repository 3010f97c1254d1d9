"""What one client may cost a server: the size and rate of what it sends, its errors, and its time to say who it is."""

import asyncio
from typing import Final

from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol

from diem.fanout.frames import text_frame
from diem.links.acceptor import ServerConnection
from diem.links.edge import Edge
from diem.process.limits import Allowance, ErrorWindow
from diem.protocol import messages
from diem.protocol.codes import Close, ErrorCode
from diem.protocol.messages import MessageError

_SUBPROTOCOLS: Final = (Subprotocol(messages.SUBPROTOCOL),)
MAX_PART: Final = 8 * 1024
_UNCOUNTED: Final = frozenset({Opcode.PING, Opcode.PONG, Opcode.CONT})
MAX_KNOCKING: Final = 1024
"""Connections that have not sent their request yet; each has 10 s for it."""


class RationedConnection(ServerConnection):
    """A client's connection with its limits; docs/protocol.md section 1 has the close codes of who is beyond them."""

    __slots__ = ("_address", "_allowance", "_edge", "_errors", "_flooded")

    def __init__(self, edge: Edge) -> None:
        super().__init__(subprotocols=_SUBPROTOCOLS, max_size=messages.MAX_MESSAGE_BYTES)
        self._edge = edge
        self._address: str | None = None
        """Of who was let in: it counts there until it is gone."""
        self._allowance: Allowance
        """Lent to who was let in, until it is gone."""
        self._errors: ErrorWindow | None = None
        self._flooded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection; of those that wait with their requests only so many, since they count for nobody yet."""
        super().connection_made(transport)
        knocking = self._edge.knocking
        if len(knocking) >= MAX_KNOCKING:
            # The one that has been silent for longest: whoever means it sends its request at once.
            oldest = next(iter(knocking))
            del knocking[oldest]
            self._edge.refused[0] += 1
            oldest.abort()
        knocking[self] = None

    def data_received(self, data: bytes) -> None:
        """Handle what arrives in parts: the library reads all of a part before a flood in it can be noticed."""
        if len(data) <= MAX_PART:
            super().data_received(data)
            return
        for start in range(0, len(data), MAX_PART):
            if self._flooded or self.transport.is_closing():
                return
            super().data_received(data[start : start + MAX_PART])

    def _on_frame(self, frame: Frame) -> None:
        """Bound pings, pongs and fragments as messages are: each costs the library as much as a message."""
        counts = frame.opcode in _UNCOUNTED or not frame.fin
        # Frames come after the handshake only: an allowance was lent.
        if counts and (self._flooded or not self._allowance.take_frame(asyncio.get_running_loop().time())):
            self._stop_flood()
            return
        super()._on_frame(frame)

    def _stop_flood(self) -> None:
        if not self._flooded:
            self._flooded = True
            self.close(Close.RATE, "retry=1000")
            if not self.transport.is_closing() and self.transport.is_reading():
                self.transport.pause_reading()
            asyncio.get_running_loop().call_later(1.0, self.abort)

    def _error(self, error: MessageError) -> None:
        edge = self._edge
        edge.errors[error.code] += 1
        self.transport.write(text_frame(messages.error(error.code, error.message, error.request_id)))
        if self._errors is None:
            self._errors = ErrorWindow()
        if self._errors.add(asyncio.get_running_loop().time()):
            self.close(Close.TOO_MANY_ERRORS, "too many errors")

    def _too_fast(self) -> None:
        now = asyncio.get_running_loop().time()
        self._edge.errors[ErrorCode.RATE] += 1
        self.transport.write(text_frame(messages.error(ErrorCode.RATE, "too many messages")))
        if self._address is not None and self._edge.gate.strike(self._address, now):
            self.close(Close.POLICY_VIOLATION, "too many messages")
        else:
            self.close(Close.RATE, f"retry={int(self._allowance.messages.retry_after(now) * 1000) + 1000}")
