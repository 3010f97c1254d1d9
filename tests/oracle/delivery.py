"""Checks of I4, I6, I12 and I15 for the updates of one client: order, acceptance, subscription, rights, and data."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tests.oracle.history import Event, Kind
from tests.oracle.ledger import Collection, Ledger
from tests.oracle.violations import (
    AfterUnsubscribed,
    Forbidden,
    NotAccepted,
    NotSubscribed,
    OutOfOrder,
    Violation,
    WrongData,
    WrongMembers,
)

_DELIVERED: Final = (Kind.SUBSCRIBED, Kind.UPDATE, Kind.HELD, Kind.RESYNC, Kind.MOVED)


def check_order(client: str, events: Iterable[Event]) -> Iterator[OutOfOrder]:
    """Check I4: the versions of an endpoint strictly increase, over all connections of the client.

    Those of the updates do, and those of the data that it holds.
    """
    told: dict[tuple[str, str], int] = {}
    for time, kind, endpoint, version, _, _ in events:
        if kind not in (Kind.UPDATE, Kind.HELD):
            continue
        before = told.get((kind, endpoint), 0)
        if version <= before:
            yield OutOfOrder(client, endpoint, (before, version), (time,))
        else:
            told[kind, endpoint] = version


def check_accepted(client: str, events: Iterable[Event], ledger: Ledger) -> Iterator[NotAccepted]:
    """Check I6: every version in an update or ``subscribed`` was accepted."""
    for time, kind, endpoint, version, _, _ in events:
        spoken = kind in (Kind.UPDATE, Kind.SUBSCRIBED)
        if spoken and version and not ledger[endpoint].is_accepted(version, time):
            yield NotAccepted(client, endpoint, (version,), (time,))


def check_data(client: str, events: Iterable[Event], ledger: Ledger) -> Iterator[WrongData]:
    """Check I15: the data that the client holds for a version is the data that was accepted as this version."""
    for time, kind, endpoint, version, stamp, _ in events:
        if kind != Kind.HELD:
            continue
        changes = ledger[endpoint]
        if not isinstance(changes, Collection) and not changes.has_stamp(version, stamp):
            yield WrongData(client, endpoint, (version, changes.version_of(stamp)), (time,))


def check_members(
    client: str,
    events: Iterable[Event],
    ledger: Ledger,
    lists: Mapping[int, Sequence[str]],
    final: Mapping[str, int],
) -> Iterator[WrongMembers]:
    """Check I15: the list that the client holds for a version of a collection has the members that it had then.

    While members come and go, those of the same moment may be in it or not; at the end there is no doubt.
    """
    for time, kind, endpoint, version, stamp, _ in events:
        collection = ledger.collection(endpoint)
        if kind != Kind.HELD or collection is None:
            continue
        if stamp and stamp not in lists:
            yield WrongMembers(client, f"{endpoint} (no list)", (version,), (time,))
            continue
        found = frozenset(lists[stamp] if stamp else ())
        must, may = collection.bounds(version)
        if version == final.get(endpoint):
            must = may = ledger.members_at_end(endpoint)
        if wrong := sorted((must - found) | (found - may)):
            yield WrongMembers(client, f"{endpoint} {' '.join(wrong[:5])}", (version,), (time,))


def check_rights(client: str, events: Iterable[Event], prefixes: Sequence[str] | None) -> Iterator[Forbidden]:
    """Check I12: a client whose token covers some prefixes is delivered nothing else, not even a version."""
    if prefixes is None:
        return
    below = tuple(f"{prefix}/" for prefix in prefixes)
    for time, kind, endpoint, version, _, _ in events:
        if kind in _DELIVERED and not endpoint.startswith(below) and endpoint not in prefixes:
            yield Forbidden(client, endpoint, (version,), (time,))


def check_wanted(client: str, events: Iterable[Event]) -> Iterator[Violation]:
    """Check I6: every update is for an endpoint that is subscribed on its connection, or whose request is pending."""
    connections: defaultdict[int, _Connection] = defaultdict(_Connection)
    for time, kind, endpoint, version, _, link in events:
        if kind in (Kind.OPEN, Kind.CLOSE):
            # Subscriptions are a connection's: the next one starts with none.
            connections.pop(link, None)
            continue
        here = connections[link]
        if kind == Kind.UPDATE:
            if endpoint in here.subscribed or here.asked[endpoint] > 0:
                continue
            broken = AfterUnsubscribed if endpoint in here.left else NotSubscribed
            yield broken(client, endpoint, (version,), (time,))
        elif kind == Kind.SUBSCRIBE:
            here.asked[endpoint] += 1
        elif kind in (Kind.SUBSCRIBED, Kind.REJECTED):
            here.asked[endpoint] -= 1
            if kind == Kind.SUBSCRIBED:
                here.subscribed.add(endpoint)
                here.left.discard(endpoint)
        elif kind == Kind.UNSUBSCRIBED:
            here.subscribed.discard(endpoint)
            here.left.add(endpoint)


class _Connection:
    """Requests and replies on one connection."""

    def __init__(self) -> None:
        self.subscribed: set[str] = set()
        self.left: set[str] = set()
        self.asked: Counter[str] = Counter()
