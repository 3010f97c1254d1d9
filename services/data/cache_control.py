"""Values of Cache-Control: what the service sends, and what a cache in front of it may keep for everybody."""

from typing import Final

_YEAR_S: Final = 31_536_000
NO_CACHE: Final = "no-cache"
"""Of the current version: caches must ask each time."""
IMMUTABLE: Final = f"public, max-age={_YEAR_S}, immutable"
"""Of a named version, which never changes (RFC 8246), where everybody may read it."""
PRIVATE: Final = f"private, max-age={_YEAR_S}, immutable"
"""Of a named version where not everybody may read it."""
