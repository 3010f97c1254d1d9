"""Response bodies of reads, rendered once for all readers of a version."""

from functools import lru_cache
from typing import Final

from services.data.api.requests import choose
from services.data.byte_lru import ByteLru
from services.data.kinds import Format, kind_of
from services.data.store import StoredVersion

MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of rendered versions in bytes; the least recently used is evicted."""
OVERHEAD_BYTES: Final = 1024
"""Overhead of an entry besides its body."""
OLD_S: Final = 30.0
"""Time that an old version is served from memory before checking in the store that it is still retained."""


class Rendered:
    """One version in one format."""

    __slots__ = ("body", "changed_ms", "format", "heads", "media_type", "rendered_at", "version")

    def __init__(self, stored: StoredVersion, format_: Format, body: bytes, rendered_at: float) -> None:
        self.version = stored.version
        self.changed_ms = stored.changed_ms
        self.format = format_
        self.media_type = format_.media_type or stored.media_type
        """The Content-Type."""
        self.body = body
        self.rendered_at = rendered_at
        """Monotonic seconds."""
        self.heads: dict[str, bytes] = {}
        """Header fields of the fast path's answers, by the value of Cache-Control."""


def render(endpoint: str, stored: StoredVersion, format_: Format, now: float) -> Rendered:
    """Render a stored version."""
    return Rendered(stored, format_, kind_of(stored.media_type).render(endpoint, stored, format_.suffix), now)


def etag(version: int, format_: Format) -> str:
    """Return the entity tag of a version in one format."""
    return f'"{version}-{format_.suffix}"'


@lru_cache(256)
def format_of(accept: str | None, media_type: str) -> Format | None:
    """Return the format of content for an Accept field; None if none is acceptable.

    Content with one format only is always answered in it.
    """
    formats = kind_of(media_type).formats
    if len(formats) == 1:
        return formats[0]
    named = {name: each for each in formats for name in each.accepted}
    chosen = choose(accept, tuple(named))
    return None if chosen is None else named[chosen]


class RenderedVersions:
    """Rendered versions by endpoint, version and format, at most :data:`MAX_BYTES` of them."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._entries: ByteLru[tuple[str, int, str], Rendered] = ByteLru(max_bytes, _size)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Bytes in use."""
        return self._entries.bytes

    def get(self, endpoint: str, version: int, suffix: str, *, current: bool, now: float) -> Rendered | None:
        """Return a version; None if missing, or if an old version was rendered more than 30 s ago."""
        key = (endpoint, version, suffix)
        found = self._entries.peek(key)
        if found is None or not (current or now - found.rendered_at < OLD_S):
            return None
        return self._entries.get(key)

    def put(self, endpoint: str, rendered: Rendered) -> Rendered:
        """Keep a version, and return it."""
        self._entries.put((endpoint, rendered.version, rendered.format.suffix), rendered)
        return rendered


def _size(rendered: Rendered) -> int:
    return len(rendered.body) + OVERHEAD_BYTES
