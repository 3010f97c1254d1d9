"""Who keeps which endpoint: refuses two sources for one, and answers whose an endpoint is."""

from collections.abc import Iterable
from dataclasses import dataclass

from diem.process.faults import ConfigurationError
from services.data.sources.source import Claim, Source


@dataclass(eq=False)
class ClaimedTwice(ConfigurationError):
    """Two sources would overwrite each other's data."""

    template = "the endpoint {endpoint} is claimed by two sources: {first!r} and {second!r}"

    endpoint: str
    first: str
    second: str


class Claims:
    """The claims of all sources.

    Raises:
        ClaimedTwice: two of them overlap.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self._endpoints: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        claims = [(claim, source.name) for source in sources for claim in source.claims]
        # Prefixes first, so that each endpoint meets every prefix it may lie below.
        for claim, name in sorted(claims, key=lambda item: (not item[0].below, item[0].endpoint)):
            self._add(claim, name)

    def owner_of(self, endpoint: str) -> str | None:
        """The name of the source that keeps ``endpoint``; None when it is free for the API."""
        return self._endpoints.get(endpoint) or self._prefix_owner(endpoint)

    def _prefix_owner(self, endpoint: str) -> str | None:
        if not self._prefixes:
            return None
        parent = endpoint.rpartition("/")[0]
        while parent:
            if parent in self._prefixes:
                return self._prefixes[parent]
            parent = parent.rpartition("/")[0]
        return None

    def _add(self, claim: Claim, name: str) -> None:
        own = self._prefixes if claim.below else self._endpoints
        other = own.get(claim.endpoint) or self._prefix_owner(claim.endpoint)
        if other is not None:
            raise ClaimedTwice(claim.endpoint + ("/*" if claim.below else ""), other, name)
        own[claim.endpoint] = name
