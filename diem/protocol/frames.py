"""WebSocket frames built once and shared by all receivers (RFC 6455 section 5.2; server frames are not masked)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from diem.errors import DiemError

HEAD: Final = b'{"type":"update","endpoint":"'
"""With this begins the payload of every update, and of nothing else."""
MAX_PAYLOAD: Final = 1 << 20
"""A longer frame is refused: the answer to a subscription of 1,000 names has 300 KiB."""
_TEXT: Final = 0x81
START: Final = 2 + len(HEAD)
"""Bytes of a frame that tell that it is a short update, and how long."""
SHORT: Final = {bytes((_TEXT, length)) + HEAD: 2 + length for length in range(len(HEAD), 126)}
"""The first :data:`START` bytes of every update frame with a short header -> bytes of the frame."""
_CONTROL: Final = frozenset({0x88, 0x89, 0x8A})
_VERSION_AT: Final = len(b'","version":')
_DIGITS: Final = 13


class BadFrame(DiemError):
    """What a server of this protocol does not send: the link is closed."""


class FrameRun(NamedTuple):
    """Update frames that follow each other, whole: may be written to a client as they are."""

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
    """Takes the stream in any chunks. What is held between them is the beginning of one frame, at most 1 MiB."""

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail = b""
        """The beginning of a frame whose rest has not arrived."""

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that are complete now, in their order.

        Raises:
            BadFrame: a masked, fragmented, binary or oversize frame.
        """
        if self.tail:
            data = self.tail + data
            self.tail = b""
        pieces: list[Piece] = []
        # A run of updates is [start, at); nothing is copied before its end is known.
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
    """How many frames these bytes are, if they are whole update frames with short headers and nothing else, or 0.

    What nearly every chunk is, found with one look into a dict for each frame.
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
    """The frames of a run, one by one."""
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
    """The endpoint and version of an update frame, and where its payload begins.

    Raises:
        BadFrame: there is no endpoint or no version in its place.
    """
    start = frame.find(HEAD, 2, 10 + len(HEAD))
    name = start + len(HEAD)
    quote = frame.find(b'"', name)
    digits = frame[quote + _VERSION_AT : quote + _VERSION_AT + _DIGITS]
    if quote < 0 or len(digits) != _DIGITS or not digits.isdigit():
        raise BadFrame("an update without a version")
    return frame[name:quote], int(digits), start


def _extended(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Where the payload begins, and its length, of a frame with 126 bytes or more; beyond the data while unknown."""
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


_FIN_TEXT = 0x81
_UPDATE = b'{"type":"update"'
_MOVED = b'{"type":"moved"'
_COLON = ord(":")
"""Before the name in an update, ``"endpoint":"/...``; the others have a list, ``"endpoints":["/...``."""
_VERSION = b'"version":'


def text_frame(payload: bytes) -> bytes:
    """``payload`` as one unmasked text frame."""
    length = len(payload)
    if length < 126:
        return bytes((_FIN_TEXT, length)) + payload
    if length < 1 << 16:
        return bytes((_FIN_TEXT, 126)) + length.to_bytes(2, "big") + payload
    return bytes((_FIN_TEXT, 127)) + length.to_bytes(8, "big") + payload


def conflation_key(frame: bytes) -> bytes:
    """Return the key of a frame that is held back: of frames with the same key the latest replaces the others.

    An update has the name of its endpoint. A ``moved`` or ``resync`` that names one endpoint has a key of its own
    (:func:`conflation_keys`): neither takes back the update before it, which a proxy retains for others. Frames without
    a name have one key in common.

    The frame header (2 to 10 bytes), which may contain any byte, is stepped over: the payload's first twelve bytes,
    ``{"type":"...``, have no slash. The first slash is where the name begins, and a name has no quote.
    """
    start = frame.find(b"/", 10)
    if start < 0:
        return b""
    endpoint = frame[start : frame.find(b'"', start)]
    if frame[start - 2] == _COLON:
        return endpoint
    return (b"moved" if frame.find(_MOVED, 2, 25) > 0 else b"resync") + endpoint


def conflation_keys(endpoint: bytes) -> tuple[bytes, bytes, bytes]:
    """Return every key under which a frame of ``endpoint`` may be held back."""
    return endpoint, b"resync" + endpoint, b"moved" + endpoint


def is_older_update(frame: bytes, other: bytes) -> bool:
    """Whether both are updates of the same endpoint, as their equal keys say, and ``frame`` has the lower version."""
    if frame.find(_UPDATE, 2, 26) < 0:
        return False
    return _version(frame) < _version(other)


def _version(frame: bytes) -> bytes:
    """The thirteen digits of an update's version, whose order as bytes is their order as numbers."""
    start = frame.find(_VERSION, 20) + len(_VERSION)
    return frame[start : start + 13]
