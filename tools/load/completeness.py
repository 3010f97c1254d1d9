"""Comparison of clients' versions with the final catalogue; pure.

Subscriptions never confirmed, and endpoints no longer in the catalogue, do not count as checked, but separately.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MAX_EXAMPLES: Final = 5


class Holding(NamedTuple):
    """One client's latest version of one endpoint."""

    client: int
    endpoint: str
    version: int | None
    """None: no update."""
    subscribed: bool
    """True if a server has confirmed the subscription."""
    resync: bool = False
    """The last message was a ``resync``: the client must fetch the data, so that no update is due."""
    connected: bool = True


class Difference(NamedTuple):
    """A version missing at a client, or in the catalogue."""

    client: int
    endpoint: str
    version: int | None
    """The client's version; None without one."""
    current: int
    """The catalogue's version."""


@dataclass
class Completeness:
    """Counts of subscriptions."""

    checked: int = 0
    """Compared with the catalogue."""
    missed: int = 0
    """Of these: behind the catalogue."""
    unconnected: int = 0
    """Of those missed: with a disconnected client."""
    resynced: int = 0
    """Of those checked: with a request to fetch the data."""
    unsubscribed: int = 0
    """Not checked: never confirmed by a server."""
    removed: int = 0
    """Not checked: the endpoint is no longer in the catalogue."""
    ahead: list[Difference] = field(default_factory=list)
    """Of those checked: later than a more recent catalogue, see :func:`later_than`."""
    examples: list[Difference] = field(default_factory=list)
    """The first of those missed."""


def compare(holdings: Iterable[Holding], catalogue: Mapping[str, int]) -> Completeness:
    """Compare clients' versions with a catalogue's."""
    found = Completeness()
    for each in holdings:
        current = catalogue.get(each.endpoint)
        if not each.subscribed:
            found.unsubscribed += 1
        elif current is None:
            found.removed += 1
        else:
            found.checked += 1
            if (each.version or 0) >= current:
                continue
            if each.resync:
                found.resynced += 1
                continue
            found.missed += 1
            found.unconnected += not each.connected
            if len(found.examples) < MAX_EXAMPLES:
                found.examples.append(Difference(each.client, each.endpoint, each.version, current))
    return found


def later_than(holdings: Iterable[Holding], catalogue: Mapping[str, int]) -> list[Holding]:
    """Return the holdings with later versions than the catalogue's.

    If it was read after them, the store has lost versions sent to clients.
    """
    return [
        each
        for each in holdings
        if each.subscribed and each.endpoint in catalogue and (each.version or 0) > catalogue[each.endpoint]
    ]
