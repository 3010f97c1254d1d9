"""Server-sent events (WHATWG HTML, section 9.2) of the frames of docs/protocol.md section 1, converted once for all."""

from typing import Final

import orjson

from diem.protocol.frames import frames_of, payload_offset

MAX_CACHED_BYTES: Final = 512 * 1024
"""Bytes of cached events: a frame goes to all streams at once, so that older ones are of no use."""
HEARTBEAT: Final = b":\n\n"
"""A comment, which clients ignore."""


def event(payload: bytes) -> bytes:
    """Return a message as an event."""
    # In JSON line ends can only be blanks; here they would end a line of the event.
    if b"\n" in payload or b"\r" in payload:
        payload = payload.replace(b"\n", b" ").replace(b"\r", b" ")
    return b"data: " + payload + b"\n\n"


def close_event(code: int, reason: str) -> bytes:
    """Return the last event of a stream, with the meaning of a close frame."""
    return b"event: close\n" + event(orjson.dumps({"code": code, "reason": reason}))


class EventCache(dict[bytes, bytes]):
    """The events of one uncompressed frame of a server, or of several; each is converted once.

    At :data:`MAX_CACHED_BYTES` it begins anew.
    """

    def __init__(self) -> None:
        self._size = 0

    def __missing__(self, run: bytes) -> bytes:
        events = b"".join(event(frame[payload_offset(frame) :]) for frame in frames_of(run))
        size = len(run) + len(events)
        if self._size + size > MAX_CACHED_BYTES:
            self.clear()
            self._size = 0
        if size <= MAX_CACHED_BYTES:
            self[run] = events
            self._size += size
        return events
