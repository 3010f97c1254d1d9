"""The rights that a token proves: whose they are, which endpoints they cover, and until when."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from diem.protocol.endpoints import coverage
from diem.tokens.key_set import TokenKey

EVERYTHING: Final = "/"
"""The prefix that covers every endpoint."""
MAX_PREFIXES: Final = 100
"""Most prefixes of a token, as of a plan."""
MAX_ORIGINS: Final = 20
"""Most origins of a token, as of an API key."""
MAX_ORIGIN: Final = 256
"""Characters of an origin."""


def covers_origin(origins: Collection[str] | None, origin: str | None) -> bool:
    """Return whether a credential for these origins (None: any) may be used by a page of ``origin``, exactly.

    ``origin`` is the header field of that name (RFC 6454); None: the client is no page, which no origin restricts.
    """
    return origins is None or origin is None or origin in origins


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of a verified token (RFC 7519 section 4); times are Unix seconds."""

    subject: str
    """``sub``: the user, for logs and limits."""
    key: str | None
    """``key``: id of the API key that the token was issued for; None for issuers without API keys."""
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
    """The issuer's key that verified the token: it is valid as long as that key is trusted. None: of no token."""
    allows: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Returns whether an endpoint is one of the prefixes or below one."""

    def __post_init__(self) -> None:
        """Prepare the prefixes once: :attr:`allows` is called for each name of a subscription."""
        object.__setattr__(self, "allows", coverage(self.prefixes))

    @property
    def user(self) -> str | None:
        """The user to whose limits connections count; None for the holder of an API key, who may be many visitors."""
        return None if self.subject == self.key else self.subject

    @property
    def everything(self) -> bool:
        """Whether every endpoint is covered."""
        return EVERYTHING in self.prefixes
