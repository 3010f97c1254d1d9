"""Response bodies of reads, rendered once for all readers of a version."""

from functools import lru_cache
from typing import Final

from services.data import datasets
from services.data.api.requests import choose
from services.data.byte_lru import ByteLru
from services.data.datasets.form import body as json_body
from services.data.store import StoredVersion

JSON: Final = "application/json"
CSV: Final = "text/csv"
MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of rendered versions in bytes; the least recently used is evicted."""
OVERHEAD_BYTES: Final = 1024
"""Overhead of an entry besides its body."""
OLD_S: Final = 30.0
"""Time that an old version is served from memory before checking in the store that it is still retained."""


class Rendered:
    """One version in one format."""

    __slots__ = ("body", "heads", "media_type", "rendered_at", "version")

    def __init__(self, version: int, media_type: str, body: bytes, rendered_at: float) -> None:
        self.version = version
        self.media_type = media_type
        self.body = body
        self.rendered_at = rendered_at
        """Monotonic seconds."""
        self.heads: dict[str, bytes] = {}
        """Header fields of the fast path's answers, by the value of Cache-Control."""


def render(endpoint: str, stored: StoredVersion, media_type: str, now: float) -> Rendered:
    """Render a stored version as JSON or CSV."""
    if media_type == CSV:
        body = datasets.render_csv(stored.content)
    else:
        body = json_body(endpoint, stored.version, stored.changed_ms, stored.content)
    return Rendered(stored.version, media_type, body, now)


def etag(version: int, media_type: str) -> str:
    """Return the entity tag of a version in one format."""
    return f'"{version}-{"csv" if media_type == CSV else "json"}"'


@lru_cache(256)
def media_type_of(accept: str | None) -> str | None:
    """Return the format for an Accept field; None if neither is acceptable."""
    return choose(accept, (JSON, CSV))


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

    def get(self, endpoint: str, version: int, media_type: str, *, current: bool, now: float) -> Rendered | None:
        """Return a version; None if missing, or if an old version was rendered more than 30 s ago."""
        key = (endpoint, version, media_type)
        found = self._entries.peek(key)
        if found is None or not (current or now - found.rendered_at < OLD_S):
            return None
        return self._entries.get(key)

    def put(self, endpoint: str, rendered: Rendered) -> Rendered:
        """Keep a version, and return it."""
        self._entries.put((endpoint, rendered.version, rendered.media_type), rendered)
        return rendered


def _size(rendered: Rendered) -> int:
    return len(rendered.body) + OVERHEAD_BYTES
