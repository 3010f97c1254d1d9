"""The WebSocket protocol of a load client, without I/O: handshake, masked frames, a fast parser of incoming frames.

Servers do not fragment, and compressed frames are decompressed before (``deflate``); anything but whole frames is a
:class:`WireError`.

A dataset within an update has the fields of the update, too. The patterns begin with the first bytes of an update,
which cannot be within a dataset: quotes in its texts are escaped, and it has no object of this form.
"""

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from diem.protocol.messages import SUBPROTOCOL
from diem.protocol.update import HEAD, TIME_BYTES

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
COMPRESSED_TEXT = 0x40 | TEXT
"""With RSV1, by which permessage-deflate marks a compressed message (RFC 7692 section 6)."""
_TEXT_BYTE = 0x80 | TEXT
_SHORTEST_UPDATE = 11
_TYPE_AT = 10
"""``{"type":"up`` has its p at byte 10; no other type of the protocol has."""
_P = ord("p")
_HEAD = re.escape(HEAD)

ANY_UPDATE = re.compile(_HEAD + rb'([^"]*)","version":(\d+)')
"""Groups: endpoint and version of every update frame in a chunk."""


class WireError(Exception):
    """The server violated the WebSocket protocol, or this client's assumptions."""


class Special(NamedTuple):
    """A frame other than an update, and its position in the chunk."""

    start: int
    end: int
    opcode: int
    payload: bytes


def updates_of(endpoints: set[bytes]) -> re.Pattern[bytes]:
    """Return a pattern like :data:`ANY_UPDATE` for these endpoints only, for clients in all-to-all."""
    if not endpoints:
        return re.compile(rb"(?!)()()")
    names = b"|".join(re.escape(endpoint) for endpoint in sorted(endpoints))
    return re.compile(_HEAD + b"(" + names + rb')","version":(\d+)')


def walk(data: bytes) -> tuple[int, int, list[Special]]:
    """Find the frames in ``data``.

    Returns:
        Where the last whole frame ends, how many update frames there are, and all other frames. The loop is the load
        client's hot path: up to 500,000 frames a second, so that it looks at four bytes of a frame and calls nothing.
    """
    start, size, updates = 0, len(data), 0
    specials: list[Special] = []
    while start + 2 <= size:
        length = data[start + 1]
        if length < 126:
            payload = start + 2
        elif length == 126 and start + 4 <= size:
            payload = start + 4
            length = data[start + 2] << 8 | data[start + 3]
        elif length == 127 and start + 10 <= size:
            payload = start + 10
            length = int.from_bytes(data[start + 2 : payload], "big")
        elif length > 127:
            raise WireError("a masked frame from the server")
        else:
            break
        end = payload + length
        if end > size:
            break
        if data[start] == _TEXT_BYTE and length >= _SHORTEST_UPDATE and data[payload + _TYPE_AT] == _P:
            updates += 1
        else:
            if data[start] & 0xF0 != 0x80:
                raise WireError("a fragment or a reserved bit")
            specials.append(Special(start, end, data[start] & 0x0F, data[payload:end]))
        start = end
    return start, updates, specials


def updates(data: bytes, start: int, end: int, pattern: re.Pattern[bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Return the updates that ``pattern`` finds, of the update frames between two positions that :func:`walk` found.

    Returns:
        The endpoint, the digits of the version, and what follows the time: a brace, or ``,"gone":true}``, or
        ``,"data":``, the dataset and a brace. The frame says where the dataset ends, whatever it contains.
    """
    while start < end:
        length = data[start + 1]
        payload = start + 2
        if length == 126:
            payload = start + 4
            length = data[start + 2] << 8 | data[start + 3]
        elif length == 127:
            payload = start + 10
            length = int.from_bytes(data[start + 2 : payload], "big")
        start = payload + length
        if found := pattern.match(data, payload, start):
            yield found[1], found[2], data[found.end() + TIME_BYTES : start]


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """Return a client's frame of at most 64 KiB, masked (RFC 6455 section 5.3); ``opcode`` may have a reserved bit."""
    size = len(payload)
    head = bytes((0x80 | opcode, 0x80 | size)) if size < 126 else bytes((0x80 | opcode, 0xFE, size >> 8, size & 0xFF))
    mask = os.urandom(4)
    pad = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")
    return head + mask + masked.to_bytes(size, "big")


def server_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """Return a server's frame, which is not masked."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


class Handshake:
    """The opening handshake of one connection, with a token, an offer of an extension, an origin if there are any."""

    def __init__(self, host: str, port: int, path: str, bearer: str = "", offer: str = "", *, origin: str = "") -> None:
        key = base64.b64encode(os.urandom(16))
        protocols = f"{SUBPROTOCOL}, bearer.{bearer}" if bearer else SUBPROTOCOL
        extensions = f"Sec-WebSocket-Extensions: {offer}\r\n" if offer else ""
        fields = extensions + (f"Origin: {origin}\r\n" if origin else "")
        self._offer = offer
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324 - RFC 6455 section 4.2.2
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {protocols}\r\n{fields}\r\n"
        ).encode()
        self.extension = ""
        """The server's answer to the offer; empty if it was declined, or there was none."""

    def answer(self, data: bytes) -> bytes | None:
        """Return the bytes after the server's response; None while it is incomplete.

        Raises:
            InvalidStatus: the server refused.
            WireError: it answered wrongly.
        """
        head, blank, rest = data.partition(b"\r\n\r\n")
        if not blank:
            return None
        status, *lines = head.split(b"\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        words = status.decode("latin-1").split(" ", 2)
        if words[1:2] != ["101"]:
            if len(words) < 3 or not words[1].isdecimal():
                raise WireError(f"answer {words}")
            fields = Headers({name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()})
            raise InvalidStatus(Response(int(words[1]), words[2], fields))
        if headers.get(b"sec-websocket-accept") != self._accept:
            raise WireError("wrong Sec-WebSocket-Accept")
        if headers.get(b"sec-websocket-protocol") != SUBPROTOCOL.encode():
            raise WireError("wrong subprotocol")
        self.extension = headers.get(b"sec-websocket-extensions", b"").decode("latin-1")
        if self.extension and not self._offer:
            raise WireError("an extension that was not offered")
        return rest
