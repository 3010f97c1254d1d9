"""I4 and I6: is everything that one client was told in order, accepted and asked for? One pass over its events."""

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.oracle.history import Event, Kind
from tests.oracle.ledger import Ledger
from tests.oracle.violations import AfterUnsubscribed, NotAccepted, NotSubscribed, OutOfOrder, Violation


def check_order(client: str, events: Iterable[Event]) -> Iterator[OutOfOrder]:
    """I4: the versions of an endpoint strictly increase, over all connections of the client."""
    told: dict[str, int] = {}
    for time, kind, endpoint, version, _ in events:
        if kind != Kind.UPDATE:
            continue
        before = told.get(endpoint, 0)
        if version <= before:
            yield OutOfOrder(client, endpoint, (before, version), (time,))
        else:
            told[endpoint] = version


def check_accepted(client: str, events: Iterable[Event], ledger: Ledger) -> Iterator[NotAccepted]:
    """I6: every version that the client was told, in an update or by ``subscribed``, was accepted."""
    for time, kind, endpoint, version, _ in events:
        spoken = kind in (Kind.UPDATE, Kind.SUBSCRIBED)
        if spoken and version and not ledger[endpoint].is_accepted(version, time):
            yield NotAccepted(client, endpoint, (version,), (time,))


def check_wanted(client: str, events: Iterable[Event]) -> Iterator[Violation]:
    """I6: every update is for an endpoint that is subscribed on this connection, or asked for and not answered yet."""
    subscribed: set[str] = set()
    left: set[str] = set()
    asked: Counter[str] = Counter()
    for time, kind, endpoint, version, _ in events:
        if kind == Kind.UPDATE:
            if endpoint in subscribed or asked[endpoint] > 0:
                continue
            broken = AfterUnsubscribed if endpoint in left else NotSubscribed
            yield broken(client, endpoint, (version,), (time,))
        elif kind == Kind.SUBSCRIBE:
            asked[endpoint] += 1
        elif kind in (Kind.SUBSCRIBED, Kind.REJECTED):
            asked[endpoint] -= 1
            if kind == Kind.SUBSCRIBED:
                subscribed.add(endpoint)
                left.discard(endpoint)
        elif kind == Kind.UNSUBSCRIBED:
            subscribed.discard(endpoint)
            left.add(endpoint)
        elif kind in (Kind.OPEN, Kind.CLOSE):
            # Subscriptions are a connection's: the next one starts with none.
            subscribed.clear()
            left.clear()
            asked.clear()
