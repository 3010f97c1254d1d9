"""WebSocket frames built once and shared by all receivers (RFC 6455 section 5.2; server frames are not masked)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from diem.errors import DiemError
from diem.protocol.update import AFTER_NAME, DATA_FIELD, HEAD, TRACE_BYTES, TRACE_FIELD, VERSION_DIGITS, VERSION_FIELD

MAX_PAYLOAD: Final = 1 << 20
"""Longest payload of a frame in bytes: the reply to a subscription of 1,000 names has 300 KiB."""
MAX_HEADER_BYTES: Final = 10
_TEXT: Final = 0x81
"""First byte of a whole text frame."""
COMPRESSED_TEXT: Final = _TEXT | 0x40
"""The same with RSV1, of a compressed frame (RFC 7692 section 6): only updates with data are compressed."""
_CONTROL: Final = frozenset({0x88, 0x89, 0x8A})
START: Final = 2 + len(HEAD)
"""Length of the prefix by which :data:`SHORT` finds update frames."""
SHORT: Final = {bytes((_TEXT, length)) + HEAD: 2 + length for length in range(len(HEAD), 126)}
"""First :data:`START` bytes of an update frame with a two-byte header -> length of the whole frame in bytes."""
_MOVED: Final = b'{"type":"moved"'
_COLON: Final = ord(":")
"""Precedes the name's quote in an update, ``"endpoint":"/...``; other messages have ``"endpoints":["/...``."""


class BadFrame(DiemError):
    """An invalid frame of a server: the link is closed."""


class FrameRun(NamedTuple):
    """Consecutive whole update frames, ready to be written to a client."""

    data: bytes
    frames: int


class Text(NamedTuple):
    """The payload of another text frame."""

    payload: bytes


class ControlFrame(NamedTuple):
    """A close, ping or pong, as the whole frame."""

    frame: bytes


Piece = FrameRun | Text | ControlFrame


class Splitter:
    """Splits a stream, in chunks of any size, into pieces. Buffers part of one frame (<= 1 MiB) between chunks."""

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail = b""
        """Beginning of an incomplete frame."""

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces completed by ``data``, in order.

        Raises:
            BadFrame: a masked, fragmented, binary or oversize frame.
        """
        if self.tail:
            data = self.tail + data
            self.tail = b""
        pieces: list[Piece] = []
        # A run of updates is [start, at); it is copied once, when its end is known.
        start = at = count = 0
        end = len(data)
        while end - at >= 2:
            length = data[at + 1]
            body = at + 2
            if length >= 126:
                body, length = _extended(data, at, length)
            after = body + length
            if after > end:
                break
            if data[at] == _TEXT and data.startswith(HEAD, body):
                at, count = after, count + 1
                continue
            if count:
                pieces.append(FrameRun(data[start:at], count))
            pieces.append(_other(data, at, body, after))
            start = at = after
            count = 0
        if count:
            pieces.append(FrameRun(data if at == end and not start else data[start:at], count))
        if at < end:
            self.tail = data[at:]
        return pieces


def short_run(data: bytes) -> int:
    """Return the number of frames in ``data`` if it consists of whole update frames with short headers, else 0.

    Nearly every chunk does; the check costs one dict lookup per frame.
    """
    at = frames = 0
    end = len(data)
    find = SHORT.get
    while at < end:
        length = find(data[at : at + START])
        if length is None:
            return 0
        at += length
        frames += 1
    return frames if at == end else 0


def frames_of(run: bytes) -> Iterator[bytes]:
    """Iterate over the frames of a run."""
    at, end = 0, len(run)
    while at < end:
        length = run[at + 1]
        if length == 126:
            after = at + 4 + int.from_bytes(run[at + 2 : at + 4], "big")
        elif length == 127:
            after = at + 10 + int.from_bytes(run[at + 2 : at + 10], "big")
        else:
            after = at + 2 + length
        yield run if not at and after == end else run[at:after]
        at = after


def read_update(frame: bytes) -> tuple[bytes, int, int]:
    """Return endpoint and version of an update frame, and the offset of its payload.

    Raises:
        BadFrame: endpoint or version are out of place.
    """
    start = frame.find(HEAD, 2, MAX_HEADER_BYTES + len(HEAD))
    name = start + len(HEAD)
    quote = frame.find(b'"', name)
    version = quote + len(VERSION_FIELD)
    digits = frame[version : version + VERSION_DIGITS]
    if quote < 0 or len(digits) != VERSION_DIGITS or not digits.isdigit():
        raise BadFrame("an update without a version")
    return frame[name:quote], int(digits), start


def _extended(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Return offset and length of the payload of a frame with a long header; for incomplete data, beyond its end."""
    if length > 127:
        raise BadFrame("a masked frame")
    body = at + (4 if length == 126 else 10)
    if len(data) < body:
        return body, 0
    length = int.from_bytes(data[at + 2 : body], "big")
    if length > MAX_PAYLOAD:
        raise BadFrame(f"a frame of {length} bytes")
    return body, length


def _other(data: bytes, at: int, body: int, after: int) -> Piece:
    first = data[at]
    if first == _TEXT:
        return Text(data[body:after])
    if first in _CONTROL and body == at + 2:
        return ControlFrame(data[at:after])
    raise BadFrame(f"a frame that begins with {first:#04x}")


def text_frame(payload: bytes, first: int = _TEXT) -> bytes:
    """Return ``payload`` as one unmasked text frame; ``first`` is :data:`COMPRESSED_TEXT` where it is compressed."""
    length = len(payload)
    if length < 126:
        return bytes((first, length)) + payload
    if length < 1 << 16:
        return bytes((first, 126)) + length.to_bytes(2, "big") + payload
    return bytes((first, 127)) + length.to_bytes(8, "big") + payload


def payload_offset(frame: bytes) -> int:
    """Return the length of the header of a whole frame of a server."""
    length = frame[1]
    return 2 if length < 126 else 4 if length == 126 else MAX_HEADER_BYTES


def frame_without_data(endpoint: bytes, frame: bytes) -> bytes:
    """Return an update frame without its data; ``frame`` itself if it carries none."""
    payload = payload_offset(frame)
    end = payload + len(HEAD) + len(endpoint) + AFTER_NAME
    return text_frame(frame[payload:end] + b"}") if frame.startswith(DATA_FIELD, end) else frame


def frame_without_trace(frame: bytes) -> bytes:
    """Return an uncompressed update frame without the context of its trace; ``frame`` itself if it carries none."""
    end = len(frame) - TRACE_BYTES
    return text_frame(frame[payload_offset(frame) : end] + b"}") if frame.startswith(TRACE_FIELD, end) else frame


def frame_has_data(frame: bytes) -> bool:
    """Return whether a whole frame is an update that carries data, compressed or not."""
    if frame[0] == COMPRESSED_TEXT:
        return True
    name = payload_offset(frame) + len(HEAD)
    return frame.startswith(HEAD, name - len(HEAD)) and frame.startswith(
        DATA_FIELD, frame.find(b'"', name) + AFTER_NAME
    )


def conflation_key(frame: bytes) -> bytes:
    """Return the key of a held frame: only the latest frame of each key is kept.

    The key of an update is its endpoint. A ``moved`` or ``resync`` of one endpoint has another key
    (:func:`conflation_keys`), because neither replaces the update before it, which a proxy retains for its other
    clients. All frames without a name share one key.

    The search starts behind the frame header (2 to 10 bytes), which may contain any byte: the first twelve bytes of the
    payload, ``{"type":"...``, have no slash. The first slash begins the name, and a name has no quote.
    """
    start = frame.find(b"/", 10)
    if start < 0:
        return b""
    endpoint = frame[start : frame.find(b'"', start)]
    if frame[start - 2] == _COLON:
        return endpoint
    return (b"moved" if frame.find(_MOVED, 2, 25) > 0 else b"resync") + endpoint


def conflation_keys(endpoint: bytes) -> tuple[bytes, bytes, bytes]:
    """Return every key under which a frame of ``endpoint`` may be held."""
    return endpoint, b"resync" + endpoint, b"moved" + endpoint


def is_older_update(frame: bytes, other: bytes) -> bool:
    """Return whether ``frame``, with the same :func:`conflation_key` as ``other``, is an update of a lower version."""
    if frame.find(HEAD, 2, MAX_HEADER_BYTES + len(HEAD)) < 0:
        return False
    return _version(frame) < _version(other)


def _version(frame: bytes) -> bytes:
    start = frame.find(VERSION_FIELD, len(HEAD)) + len(VERSION_FIELD)
    return frame[start : start + VERSION_DIGITS]
