"""Interests of load clients: any endpoints, or mostly those of their community."""

from collections.abc import Collection, Sequence
from random import Random

HOME_SHARE = 0.85
"""Share of a client's subscriptions within its community; the others are arbitrary."""


class Interests:
    """Chooses endpoints for clients by their number. Without ``communities`` all endpoints are equally likely.

    Communities have about as many endpoints each, every endpoint in one of them; their names say nothing of it.
    """

    def __init__(self, endpoints: Sequence[str], communities: int, seed: int) -> None:
        self._endpoints = endpoints
        mixed = Random(seed).sample(list(endpoints), len(endpoints))
        self._homes = [mixed[number::communities] for number in range(communities)]

    def first(self, client: int, count: int, random: Random) -> list[str]:
        """Return the initial endpoints of a client."""
        if not self._homes:
            return random.sample(self._endpoints, count)
        found: list[str] = []
        while len(found) < count:
            found.append(self.another(client, found, random))
        return found

    def another(self, client: int, has: Collection[str], random: Random) -> str:
        """Return an endpoint that a client does not have yet."""
        if self._homes and random.random() < HOME_SHARE:
            home = self._homes[client % len(self._homes)]
            if left := [name for name in home if name not in has]:
                return random.choice(left)
        return next(name for name in random.sample(self._endpoints, len(has) + 1) if name not in has)
