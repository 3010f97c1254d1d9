"""Pure: one endpoint, and what it is at each server where it was asked for."""

from collections.abc import Collection
from typing import Final

AWAY: Final = -1
"""Instead of a request's id: not asked yet, because the link is down. It is asked when the link opens."""
ANSWERED: Final = 0
LEFT: Final = -2
"""Refused there, or moved away; what it may still deliver is taken until the new server has answered."""


class Followed:
    """One endpoint."""

    __slots__ = ("attempt", "behind", "due", "home", "hops", "places", "since", "stale")

    def __init__(self, home: str | None) -> None:
        self.home = home
        """Where it belongs."""
        self.places: dict[str, int] = {}
        """Server -> the request that it has not answered yet, or one of the states above."""
        self.stale = False
        self.behind = False
        """The server says that it is current but for this one."""
        self.hops = 0
        self.attempt = 0
        self.due: float | None = None
        """When to look for its server again."""
        self.since: float | None = None
        """Since when no server that is current answers for it."""

    def serves(self, dead: Collection[str]) -> bool:
        """Whether a server that is current answers for it."""
        return not self.behind and any(state == ANSWERED and url not in dead for url, state in self.places.items())
