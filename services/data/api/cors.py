"""Cross-origin rules: the origins allowed to read answers (docs/access.md section 2)."""

from collections.abc import Collection, Mapping
from typing import Final

from diem.links.refusals import foreign_origin

ANY: Final = "*"
_EXPOSED: Final = "ETag, Date, Age, Diem-Version, Diem-Time, Retry-After, RateLimit, RateLimit-Policy"
_MAX_AGE_S: Final = 600
"""Time that browsers cache preflight answers, during which a removed origin stays allowed."""


class Cors:
    """Pages of any origin may read with an API key, those of ``origins`` without one; no others may.

    Anonymous answers are not for all pages: a page of another origin can make its visitor's browser request an address
    that only the visitor reaches, such as 127.0.0.1. It cannot get an API key from the visitor.
    """

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._origins = frozenset(origins)

    def of_answer(self, origin: str | None, *, shows_key: bool) -> Mapping[str, str]:
        """Return the header fields of the answer to a read with the request's ``origin``."""
        allowed = self._allowed(origin, shows_key=shows_key)
        if allowed is None:
            return {}
        return {"Access-Control-Allow-Origin": allowed, "Access-Control-Expose-Headers": _EXPOSED}

    def of_preflight(
        self, origin: str | None, requested_headers: str | None, methods: str = "GET, HEAD"
    ) -> Mapping[str, str] | None:
        """Return the header fields of the answer to a preflight request for a read; None refuses it.

        ``methods`` are the safe methods of the resource. A preflight never contains a key. One that announces an
        Authorization field is allowed: if the request itself has no key, it is refused, or its answer is withheld from
        the page.
        """
        names = {name.strip().lower() for name in (requested_headers or "").split(",")}
        allowed = self._allowed(origin, shows_key="authorization" in names)
        if allowed is None:
            return None
        return {
            "Access-Control-Allow-Origin": allowed,
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": "If-None-Match, Accept, Authorization, Content-Type",
            "Access-Control-Max-Age": str(_MAX_AGE_S),
            "Vary": "Origin, Access-Control-Request-Headers",
        }

    def may_read(self, origin: str) -> bool:
        """Return whether pages of an origin may read without an API key."""
        return self._allowed(origin, shows_key=False) is not None

    @property
    def depends_on_origin(self) -> bool:
        """True if caches must separate answers by origin."""
        return bool(self._origins - {ANY})

    def _allowed(self, origin: str | None, *, shows_key: bool) -> str | None:
        if shows_key or ANY in self._origins:
            return ANY
        return origin if origin in self._origins else None


class AdmittedPages:
    """Pages of other origins that can use this system: admitted by the servers, and allowed to read.

    Args:
        cors: who may read.
        origins: whom the WebSocket servers admit; None: not known.
    """

    def __init__(self, cors: Cors, origins: Collection[str] | None) -> None:
        self._cors = cors
        self._origins = None if origins is None else frozenset(origins)

    def may_read(self, origin: str) -> bool:
        """Return whether pages of an origin may read without an API key."""
        return self._cors.may_read(origin)

    def refusal(self, origin: str, host: str) -> str | None:
        """Return the reason why a page cannot use this system, and the remedy; None if it can, or if unknown.

        Args:
            origin: ``Origin`` of the request.
            host: ``Host`` of the request, contained in the origin of this system's own pages.
        """
        if self._origins is None or origin.partition("://")[2] == host:
            return None
        if origin in self._origins and self.may_read(origin):
            return None
        return foreign_origin(origin)
