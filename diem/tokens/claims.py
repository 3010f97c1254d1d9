"""The rights proved by a token: their holder, endpoints and expiry."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from diem.protocol.endpoints import coverage
from diem.tokens.key_set import TokenKey

EVERYTHING: Final = "/"
"""The prefix that covers every endpoint."""
MAX_PREFIXES: Final = 100
"""Maximum number of a token's prefixes, as of a plan's."""
MAX_ORIGINS: Final = 20
"""Maximum number of a token's origins, as of an API key's."""
MAX_ORIGIN: Final = 256
"""Longest origin in characters."""


def covers_origin(origins: Collection[str] | None, origin: str | None) -> bool:
    """Return whether a credential for these origins (None: any) may be used by a page of exactly ``origin``.

    ``origin`` is the header field of that name (RFC 6454); None: the client is no page, so origins do not apply.
    """
    return origins is None or origin is None or origin in origins


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of a verified token (RFC 7519 section 4); times are Unix seconds."""

    subject: str
    """``sub``: the user, for logs and limits."""
    key: str | None
    """``key``: id of the token's API key; None for issuers without API keys."""
    prefixes: tuple[str, ...]
    """``prefixes``: endpoints, and everything below them; ``/`` is every endpoint."""
    issued_at: float
    """``iat``."""
    expires_at: float
    """``exp``."""
    origins: tuple[str, ...] | None = None
    """``origins``: pages of other origins may not use the token; None: all may."""
    issuer: str = field(default="", compare=False)
    """``iss``."""
    signed_by: TokenKey | None = field(default=None, repr=False, compare=False)
    """The issuer's key that verified the token, which is valid while that key is trusted. None: not from a token."""
    allows: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Predicate for endpoints equal to or below one of the prefixes."""

    def __post_init__(self) -> None:
        """Prepare the prefixes once: :attr:`allows` is called for each name of a subscription."""
        object.__setattr__(self, "allows", coverage(self.prefixes))

    @property
    def user(self) -> str | None:
        """The user for limits on connections; None for the holder of an API key, possibly many visitors."""
        return None if self.subject == self.key else self.subject

    @property
    def everything(self) -> bool:
        """True if every endpoint is covered."""
        return EVERYTHING in self.prefixes
