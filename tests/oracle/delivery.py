"""Checks of I4, I6 and I15 for the updates of one client: order, acceptance, subscription, and the data with them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.oracle.history import Event, Kind
from tests.oracle.ledger import Ledger
from tests.oracle.violations import (
    AfterUnsubscribed,
    NotAccepted,
    NotSubscribed,
    OutOfOrder,
    Violation,
    WrongData,
)


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
        if kind == Kind.HELD and not ledger[endpoint].has_stamp(version, stamp):
            yield WrongData(client, endpoint, (version, ledger[endpoint].version_of(stamp)), (time,))


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
