"""One WebSocket connection as an ``asyncio.Protocol`` over websockets' sans-IO protocol: no task and no queue each.

The library does the handshake, masking, control frames, limits and the closing handshake; whoever fans out writes
prebuilt frames straight to the transport.
"""

import asyncio
import logging
from typing import Final, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING, OPEN, Protocol

from diem.protocol.codes import Close

CLOSE_TIMEOUT_S: Final = 5.0
"""Seconds that the peer has to answer a close frame before the connection is cut."""
HIGH_WATER_BYTES: Final = 32 * 1024
"""Bytes waiting in the transport above which the connection counts as blocked (docs/reliability.md S15)."""
# The library logs every frame at debug level; checking for that on each one costs more than the frame.
SILENT_LOGGER = logging.getLogger("diem.websockets")
SILENT_LOGGER.setLevel(logging.CRITICAL)


class Connection(asyncio.Protocol):
    """What both sides of a WebSocket connection share.

    Subclasses override the ``on_*`` methods; all are called on the event loop and must not block. After
    :meth:`on_closed` nothing more is called.
    """

    __slots__ = ("_fragments", "_is_text", "alive", "close_code", "protocol", "transport")

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.alive = True
        """Whether anything arrived since a heartbeat last cleared it."""
        self.close_code: int | None = None
        """The close code that this side sent or received first; None while open, 1006 when there was none."""
        self._fragments: bytearray | None = None
        self._is_text = True

    # To be overridden

    def on_request(self, request: Request) -> None:
        """A client's opening handshake has arrived (server side)."""

    def on_response(self, response: Response) -> None:
        """The server's answer to the opening handshake has arrived (client side)."""

    def on_frame(self, frame: Frame) -> None:
        """Handle a data or control frame; this implementation assembles messages and ignores control frames."""
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            if not frame.fin:
                # The library keeps the sum of the fragments below max_size; in one buffer, empty ones take no room.
                self._fragments = bytearray(frame.data)
                self._is_text = opcode is Opcode.TEXT
            elif opcode is Opcode.TEXT:
                self.on_text(bytes(frame.data))
            else:
                self.on_binary(bytes(frame.data))
        elif opcode is Opcode.CONT and self._fragments is not None:
            self._fragments += frame.data
            if frame.fin:
                whole, self._fragments = bytes(self._fragments), None
                (self.on_text if self._is_text else self.on_binary)(whole)

    def on_text(self, data: bytes) -> None:
        """A whole text message; its UTF-8 has not been checked yet."""

    def on_binary(self, data: bytes) -> None:  # noqa: ARG002 - what arrived is not wanted
        """A whole binary message."""
        self.close(Close.UNSUPPORTED_DATA, "text only")

    def on_closed(self) -> None:
        """The connection is gone."""

    # To be used

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent: after the handshake and before a close frame."""
        return self.protocol.state is OPEN

    def send_text(self, payload: bytes) -> None:
        """Send one text message; nothing happens when the connection is not open."""
        if self.protocol.state is OPEN:
            self.protocol.send_text(payload)
            self.flush()

    def send_binary(self, payload: bytes) -> None:
        """Send one binary message; nothing happens when the connection is not open."""
        if self.protocol.state is OPEN:
            self.protocol.send_binary(payload)
            self.flush()

    def ping(self) -> None:
        """Send a ping; the pong makes :attr:`alive` true."""
        if self.protocol.state is OPEN:
            self.protocol.send_ping(b"")
            self.flush()

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake; the connection is cut when the peer does not answer within 5 s.

        A repeat does nothing. A connection that never opened is cut at once.
        """
        if self.protocol.state is OPEN:
            self.protocol.send_close(code, reason)
            self.flush()
            self._abort_later()
        elif self.protocol.state is CONNECTING:
            self.abort()

    def fail(self, code: int, reason: str) -> None:
        """The peer broke the protocol: close without waiting for its answer (RFC 6455 section 7.1.7)."""
        self.protocol.fail(code, reason)
        self.flush()

    def abort(self) -> None:
        """Cut the connection at once; a repeat does nothing."""
        if self.transport is not None:
            self.transport.abort()

    def on_closing(self) -> None:
        """A close frame is about to be sent, or the connection is gone: no data may follow. May be called twice."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and set its bounds; asyncio and uvloop have set TCP_NODELAY."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Feed the protocol and handle what comes of it."""
        self.alive = True
        protocol = self.protocol
        protocol.receive_data(data)
        events = protocol.events_received()
        if (
            events
            and isinstance(events[0], Request)
            and (len(events) > 1 or protocol.writes or protocol.eof_sent or protocol.reader.buffer)
        ):
            # The library has already read what stands behind a request that nobody has answered; no client sends that.
            self.abort()
            return
        for event in events:
            if isinstance(event, Frame):
                self.on_frame(event)
            elif isinstance(event, Request):
                self.on_request(event)
            elif isinstance(event, Response):
                self.on_response(event)
        self.flush()

    def eof_received(self) -> None:
        """The peer sends no more: so do we, and asyncio closes the transport."""
        self.protocol.receive_eof()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a loss needs no reason
        """Report the end to the subclass, once."""
        self.protocol.receive_eof()
        self._note_close()
        self.on_closing()
        self.on_closed()

    def flush(self) -> None:
        """Write what the protocol wants to send; a connection that is no longer open stops fan-out first."""
        writes = self.protocol.data_to_send()
        if not writes:
            return
        if self.protocol.state is not OPEN:
            self._note_close()
            self.on_closing()
        for data in writes:
            if data:
                self.transport.write(data)
            elif self.transport.can_write_eof() and not self.transport.is_closing():
                self.transport.write_eof()
                self._abort_later()

    def _note_close(self) -> None:
        if self.close_code is None and self.protocol.state is not CONNECTING:
            first = self.protocol.close_rcvd if self.protocol.close_rcvd_then_sent else self.protocol.close_sent
            self.close_code = first.code if first else 1006

    def _abort_later(self) -> None:
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.abort)
