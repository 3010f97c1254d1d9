"""One WebSocket connection as an ``asyncio.Protocol`` over websockets' sans-IO protocol, without a task or a queue.

The library does the handshake, control frames, fragments, limits and the closing handshake. Plain messages, nearly all,
are parsed here, and the fan-out writes prebuilt frames straight to the transport.
"""

import asyncio
import logging
from typing import Final, cast

from websockets.exceptions import InvalidMessage
from websockets.frames import Frame, Opcode, apply_mask  # type: ignore[attr-defined] # in C, if that is installed
from websockets.http11 import Request, Response
from websockets.protocol import CONNECTING, OPEN, SERVER, Protocol
from websockets.streams import StreamReader

from diem.protocol.codes import Close

CLOSE_TIMEOUT_S: Final = 5.0
"""Seconds for the peer to answer a close frame before the connection is aborted."""
HIGH_WATER_BYTES: Final = 32 * 1024
"""Bytes in the transport's write buffer above which the connection is blocked (docs/reliability.md S15)."""
MAX_PLAIN_BYTES: Final = 16 * 1024
"""Longest message parsed without the library; every connection's limit is higher."""
_TEXT: Final = 0x81
_WHOLE: Final = (_TEXT, 0x82)
"""First bytes of unfragmented messages, text and binary."""
_PONG: Final = 0x8A
_MASKED: Final = 0x80
_AT_EOF: Final = StreamReader.at_eof.__code__
"""Where the library's parser waits between two frames."""
# The library logs every frame at debug level; the level check costs more than the frame.
SILENT_LOGGER = logging.getLogger("diem.websockets")
SILENT_LOGGER.setLevel(logging.CRITICAL)


class Connection(asyncio.Protocol):
    """Base of both sides of a WebSocket connection.

    Subclasses override the ``on_*`` methods, called on the event loop; they must not block. The last call is
    :meth:`on_closed`.
    """

    __slots__ = ("_expects_message", "_fragments", "_is_text", "alive", "close_code", "protocol", "transport")

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.alive = True
        """Data has arrived since a keepalive last cleared this."""
        self.close_code: int | None = None
        """First close code, sent or received; None while open, 1006 if there was none."""
        self._expects_message = False
        """The library has been fed whole messages, and none is compressed: the next one may be handled without it."""
        self._fragments: bytearray | None = None
        self._is_text = True

    # To be overridden

    def on_request(self, request: Request) -> None:
        """Handle a client's opening handshake (server side)."""

    def on_response(self, response: Response) -> None:
        """Handle the server's response to the opening handshake (client side)."""

    def on_frame(self, frame: Frame) -> None:
        """Handle a control frame or a fragment: assemble messages; ignore control frames, answered by the library."""
        opcode = frame.opcode
        if opcode is Opcode.CONT and self._fragments is not None:
            self._fragments += frame.data
            if frame.fin:
                whole, self._fragments = bytes(self._fragments), None
                (self.on_text if self._is_text else self.on_binary)(whole)
        elif opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            # The library bounds the sum of the fragments by max_size; in one buffer, empty ones take no memory.
            self._fragments = bytearray(frame.data)
            self._is_text = opcode is Opcode.TEXT

    def on_text(self, data: bytes) -> None:
        """Handle a whole text message, its UTF-8 unchecked."""

    def on_binary(self, data: bytes) -> None:  # noqa: ARG002 - refused unseen
        """Handle a whole binary message; this implementation closes with 1003."""
        self.close(Close.UNSUPPORTED_DATA, "text only")

    def on_pong(self) -> None:
        """Handle a pong that the library has not seen."""

    def on_invalid_handshake(self) -> None:
        """Handle an invalid request or response, before the end of stream is sent. May be called again."""

    def on_closed(self) -> None:
        """Handle the end of the connection."""

    # To be used

    @property
    def is_open(self) -> bool:
        """True if messages can be sent: after the handshake, before any close frame in either direction."""
        return self.protocol.state is OPEN

    def send_text(self, payload: bytes) -> None:
        """Send one text message; a no-op unless the connection is open."""
        if self.protocol.state is OPEN:
            self.protocol.send_text(payload)
            self.flush()

    def send_binary(self, payload: bytes) -> None:
        """Send one binary message; a no-op unless the connection is open."""
        self.hold_binary(payload)
        self.flush()

    def hold_binary(self, payload: bytes) -> None:
        """Send one binary message together with the next message, or at :meth:`flush`."""
        if self.protocol.state is OPEN:
            self.protocol.send_binary(payload)

    def ping(self) -> None:
        """Send a ping; the pong makes :attr:`alive` true."""
        if self.protocol.state is OPEN:
            self.protocol.send_ping(b"")
            self.flush()

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake; abort if the peer does not answer within 5 s. Idempotent.

        A connection not open yet is aborted at once.
        """
        if self.protocol.state is OPEN:
            self.protocol.send_close(code, reason)
            self.flush()
            self._abort_later()
        elif self.protocol.state is CONNECTING:
            self.abort()

    def fail(self, code: int, reason: str) -> None:
        """Close after a protocol violation, without waiting for the peer (RFC 6455 section 7.1.7)."""
        self.protocol.fail(code, reason)
        self.flush()

    def abort(self) -> None:
        """Close the connection at once, without a close frame; idempotent."""
        if self.transport is not None:
            self.transport.abort()

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space."""
        return self.transport.get_write_buffer_size()

    def on_closing(self) -> None:
        """Called, perhaps twice, before a close frame and when the connection is lost; no data may follow."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and bound its write buffer; asyncio and uvloop have set TCP_NODELAY."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Handle plain messages and pongs at the beginning of ``data`` here, and leave the rest to :meth:`receive`.

        The library takes five times as long for them, because it can suspend its parser at any byte.
        """
        self.alive = True
        if self._expects_message:
            data = self._handle_plain(data)
            if not data:
                return
        self.receive(data)
        self._expects_message = self._is_between_messages()

    def _handle_plain(self, data: bytes) -> bytes:
        """Handle whole, short, unfragmented messages, and pongs; return what follows them."""
        protocol = self.protocol
        masked, key_bytes = (_MASKED, 4) if protocol.side is SERVER else (0, 0)
        at, end = 0, len(data)
        while end - at >= 2 and protocol.state is OPEN:
            first, length, key = data[at], data[at + 1] ^ masked, at + 2
            if length == 126:
                key = at + 4
                length = int.from_bytes(data[at + 2 : key], "big")
            elif length > 126:
                break
            start = key + key_bytes
            is_pong = first == _PONG and key == at + 2
            if not (is_pong or first in _WHOLE) or length > MAX_PLAIN_BYTES or start + length > end:
                break
            at = start + length
            if is_pong:
                self.on_pong()
                continue
            payload = data[start:at]
            if masked:
                payload = apply_mask(payload, data[key:start])
            (self.on_text if first == _TEXT else self.on_binary)(payload)
        if protocol.writes:
            self.flush()
        return data[at:]

    def _is_between_messages(self) -> bool:
        """Return whether the next byte begins a message, so far as the library has been fed."""
        protocol = self.protocol
        if protocol.state is not OPEN or protocol.extensions or self._fragments is not None:
            return False
        # Of the class's parser, which the parser of either side delegates to after the handshake. A release of the
        # library with another parser gets all messages.
        parser = getattr(protocol.parser, "gi_yieldfrom", None)
        return getattr(getattr(parser, "gi_yieldfrom", None), "gi_code", None) is _AT_EOF

    def receive(self, data: bytes) -> None:
        """Feed the protocol, and handle its events."""
        protocol = self.protocol
        protocol.receive_data(data)
        events = protocol.events_received()
        if not events and isinstance(protocol.handshake_exc, InvalidMessage):
            self.on_invalid_handshake()
        if (
            events
            and isinstance(events[0], Request)
            and (len(events) > 1 or protocol.writes or protocol.eof_sent or protocol.reader.buffer)
        ):
            # The library has parsed data behind an unanswered request; no real client sends any.
            self.abort()
            return
        for event in events:
            if isinstance(event, Frame):
                opcode = event.opcode
                if opcode is Opcode.TEXT and event.fin:
                    self.on_text(bytes(event.data))
                elif opcode is Opcode.BINARY and event.fin:
                    self.on_binary(bytes(event.data))
                else:
                    self.on_frame(event)
            elif isinstance(event, Request):
                self.on_request(event)
            elif isinstance(event, Response):
                self.on_response(event)
        self.flush()

    def eof_received(self) -> None:
        """Handle the peer's end of stream; asyncio then closes the transport."""
        self.protocol.receive_eof()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a loss needs no reason
        """Report the end to the subclass, once."""
        self.protocol.receive_eof()
        self._note_close()
        self.on_closing()
        self.on_closed()

    def flush(self) -> None:
        """Write the protocol's output; before a close frame, call :meth:`on_closing`, which ends the fan-out."""
        writes = self.protocol.data_to_send()
        if not writes:
            return
        if self.protocol.state is not OPEN:
            self._note_close()
            self.on_closing()
        if len(writes) > 1 and all(writes):
            self.transport.writelines(writes)
            return
        for data in writes:
            if data:
                self.transport.write(data)
            elif not self.transport.is_closing():
                if self.transport.can_write_eof():
                    self.transport.write_eof()
                else:  # TLS cannot close one direction
                    self.transport.close()
                self._abort_later()

    def _note_close(self) -> None:
        if self.close_code is None and self.protocol.state is not CONNECTING:
            first = self.protocol.close_rcvd if self.protocol.close_rcvd_then_sent else self.protocol.close_sent
            self.close_code = first.code if first else 1006

    def _abort_later(self) -> None:
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.abort)
