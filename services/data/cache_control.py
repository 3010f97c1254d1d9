"""Values of Cache-Control: those sent by the service, and those shared caches may store."""

from typing import Final

_YEAR_S: Final = 31_536_000
NO_CACHE: Final = "no-cache"
"""Of the current version: caches must revalidate each time."""
IMMUTABLE: Final = f"public, max-age={_YEAR_S}, immutable"
"""Of a named version, which never changes (RFC 8246), if readable by everybody."""
PRIVATE: Final = f"private, max-age={_YEAR_S}, immutable"
"""Of a named version not readable by everybody."""
