"""WebSocket frames built once and shared by all receivers (RFC 6455 section 5.2; server frames are not masked)."""

_FIN_TEXT = 0x81
_MOVED = b'{"type":"moved"'


def text_frame(payload: bytes) -> bytes:
    """``payload`` as one unmasked text frame."""
    length = len(payload)
    if length < 126:
        return bytes((_FIN_TEXT, length)) + payload
    if length < 1 << 16:
        return bytes((_FIN_TEXT, 126)) + length.to_bytes(2, "big") + payload
    return bytes((_FIN_TEXT, 127)) + length.to_bytes(8, "big") + payload


def endpoint_of(frame: bytes) -> bytes:
    """The endpoint of an ``update`` frame, or of a ``resync`` frame that names one endpoint.

    Both have their first slash where the name begins, and a name has no quote. The frame header (2 to 10 bytes), which
    may contain any byte, is stepped over: the payload's first twelve bytes, ``{"type":"...``, have no slash. A frame
    without one has no endpoint, and all such count as one.
    """
    start = frame.find(b"/", 10)
    return frame[start : frame.find(b'"', start)] if start > 0 else b""


def held_as(frame: bytes) -> bytes:
    """Which frames replace each other while they are held back: those of one endpoint, but for ``moved``.

    That one says where to ask from now on, which no update does; and it takes back no update that was before it.
    """
    endpoint = endpoint_of(frame)
    return b"moved" + endpoint if frame.find(_MOVED, 2, 24) > 0 else endpoint
