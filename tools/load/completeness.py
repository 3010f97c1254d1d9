"""Whether clients have the versions that the catalogue had at the end; pure.

Only what was compared counts as checked: subscriptions that no server ever confirmed, and endpoints that are no longer
in the catalogue, are counted apart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MAX_EXAMPLES: Final = 5


class Holding(NamedTuple):
    """The latest that one client was sent of one endpoint."""

    client: int
    endpoint: str
    version: int | None
    """None: no update."""
    subscribed: bool
    """Whether a server has confirmed the subscription."""
    resync: bool = False
    """The last message was a ``resync``: the client must fetch the data, so that no update is due."""
    connected: bool = True


class Difference(NamedTuple):
    """A version that a client was not sent, or that the catalogue does not have."""

    client: int
    endpoint: str
    version: int | None
    """What it has; None: nothing."""
    current: int
    """What the catalogue has."""


@dataclass
class Completeness:
    """Counts of subscriptions."""

    checked: int = 0
    """Compared with the catalogue."""
    missed: int = 0
    """Of these: behind the catalogue."""
    unconnected: int = 0
    """Of those missed: their client had lost its connection, and was not back."""
    resynced: int = 0
    """Of those checked: told to fetch the data."""
    unsubscribed: int = 0
    """Not checked: no server has confirmed them."""
    removed: int = 0
    """Not checked: the endpoint is no longer in the catalogue."""
    ahead: list[Difference] = field(default_factory=list)
    """Of those checked: later than a catalogue that is newer than they are, see :func:`later_than`."""
    examples: list[Difference] = field(default_factory=list)
    """The first of those missed."""


def compare(holdings: Iterable[Holding], catalogue: Mapping[str, int]) -> Completeness:
    """Compare what clients were sent with the versions of a catalogue."""
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
    """Return the holdings of versions that are later than those of a catalogue.

    If that was read after clients had been sent them, the store does not have what they were sent.
    """
    return [
        each
        for each in holdings
        if each.subscribed and each.endpoint in catalogue and (each.version or 0) > catalogue[each.endpoint]
    ]
