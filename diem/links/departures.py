"""The last clients that left an edge, for ``diem why``."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

MAX_DEPARTURES: Final = 256
"""Departures that an edge remembers, the latest."""


class Departure(NamedTuple):
    """A client that was refused, or whose connection has closed."""

    at_s: float
    """Time of the event loop."""
    session: str
    """Empty for a refused client."""
    address: str
    user: str
    status: int
    """HTTP status of the refusal; 0 for a closed connection."""
    close: int
    """Close code; 0 for a refused client."""
    detail: str
    by_client: bool = False
    """The client closed the connection."""


class Departures:
    """The last :data:`MAX_DEPARTURES` clients that left an edge."""

    def __init__(self) -> None:
        self._latest: deque[Departure] = deque(maxlen=MAX_DEPARTURES)

    def add(self, departure: Departure) -> None:
        """Remember a departure, instead of the oldest if there are too many."""
        self._latest.append(departure)

    def of(self, client: str | None, now_s: float) -> Iterator[dict[str, Any]]:
        """Yield the departures of a client, or of all, as JSON values, the latest first, with their age."""
        for each in reversed(self._latest):
            if client in {None, each.session, each.address, each.user}:
                yield {"ago_s": round(now_s - each.at_s, 1)} | each._asdict()
