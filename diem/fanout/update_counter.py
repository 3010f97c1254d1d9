"""Counts of one interval: how often each endpoint was updated here, and how many sessions were told."""

from collections.abc import Iterable, Iterator


class UpdateCounter:
    """Endpoint -> updates taken, and frames delivered for them."""

    def __init__(self) -> None:
        self._taken: dict[bytes, int] = {}
        self._delivered: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, fresh: Iterable[bytes]) -> None:
        """An update of each was taken: a lookup and an addition for every update of the system."""
        taken = self._taken
        known = taken.get
        for endpoint in fresh:
            taken[endpoint] = known(endpoint, 0) + 1

    def deliver(self, endpoint: bytes, sessions: int) -> None:
        """What was taken of an endpoint went to so many."""
        self._delivered[endpoint] = self._delivered.get(endpoint, 0) + sessions

    def swap(self) -> "UpdateCounter":
        """What was counted until now, as a tally of its own; this one begins anew."""
        done = UpdateCounter()
        done._taken, self._taken = self._taken, {}
        done._delivered, self._delivered = self._delivered, {}
        return done

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Endpoint, updates taken, frames delivered."""
        for endpoint, number in self._taken.items():
            yield endpoint, number, self._delivered.get(endpoint, 0)
