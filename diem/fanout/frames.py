"""WebSocket frames built once and shared by all receivers (RFC 6455 section 5.2; server frames are not masked)."""

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


def held_as(frame: bytes) -> bytes:
    """Return the key of a frame that is held back: of frames with the same key the latest replaces the others.

    An update has the name of its endpoint. A ``moved`` or ``resync`` that names one endpoint has a key of its own
    (:func:`held_keys`): the first says where to ask from now on, the second to fetch again, and neither takes back the
    update before it, which a proxy retains for others. Frames without a name have one key in common.

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


def held_keys(endpoint: bytes) -> tuple[bytes, bytes, bytes]:
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
