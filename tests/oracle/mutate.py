"""Negative controls: break one promise in a clean history, synthetic or recorded, which the oracle must detect."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random

from tests.oracle.history import Accepted, Event, History, Kind
from tests.oracle.interest import interests
from tests.oracle.ledger import Ledger
from tests.oracle.windows import touches

STALL_SECONDS = 25.0
_CALM_SECONDS = 20.0
"""Time without a suspension before a stall, because its T_heal would excuse the beginning."""


class NotApplicable(Exception):
    """The history offers no place for this mutation."""


class Overlay(Mapping[str, list[Event]]):
    """The clients of a history, with one client's events replaced."""

    def __init__(self, clients: Mapping[str, list[Event]], client: str, events: list[Event]) -> None:
        self._clients, self._client, self._events = clients, client, events

    def __getitem__(self, client: str) -> list[Event]:
        return self._events if client == self._client else self._clients[client]

    def __iter__(self) -> Iterator[str]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


def drop_last(history: History, random: Random) -> History:
    """Drop the last update of one (client, endpoint) pair that was still subscribed at the end."""
    ledger = Ledger(history.accepted, history.uncertain)

    def change(events: list[Event]) -> list[Event] | None:
        ends = [interest.endpoint for interest in interests(events, ledger, history.end) if interest.at_end]
        last = {event.endpoint: index for index, event in enumerate(events) if event.kind == Kind.UPDATE}
        places = [
            index
            for name, index in last.items()
            if name in ends
            and events[index].version == ledger[name].latest
            # Not those that a later subscribe, resync or fetch would make up for.
            and not any(event.endpoint == name for event in events[index + 1 :])
        ]
        if not places:
            return None
        place = random.choice(places)
        return events[:place] + events[place + 1 :]

    return _change_one(history, random, change)


def replay_old(history: History, random: Random) -> History:
    """Deliver an old version again after the drop rule."""

    def change(events: list[Event]) -> list[Event] | None:
        pairs: dict[str, list[int]] = {}
        for index, event in enumerate(events):
            if event.kind == Kind.UPDATE:
                pairs.setdefault(event.endpoint, []).append(index)
        places = [indices for indices in pairs.values() if len(indices) > 1]
        if not places:
            return None
        old, new = sorted(random.sample(random.choice(places), 2))
        again = events[old]._replace(time=events[new].time)
        return [*events[: new + 1], again, *events[new + 1 :]]

    return _change_one(history, random, change)


def foreign(history: History, random: Random) -> History:
    """Deliver an accepted update of an endpoint that the client never requested."""

    def change(events: list[Event]) -> list[Event] | None:
        asked = {event.endpoint for event in events if event.kind in (Kind.SUBSCRIBE, Kind.SUBSCRIBED)}
        others = [accepted for accepted in history.accepted if accepted.endpoint not in asked]
        places = [index for index, event in enumerate(events) if event.kind == Kind.UPDATE]
        if not others or not places:
            return None
        place, other = random.choice(places), random.choice(others)
        phantom = Event(events[place].time, Kind.UPDATE, other.endpoint, other.version)
        return [*events[: place + 1], phantom, *events[place + 1 :]]

    return _change_one(history, random, change)


def stall(history: History, random: Random) -> History:
    """Hold back the updates of one (client, endpoint) pair for 25 s; they arrive before the end of the run."""
    ledger = Ledger(history.accepted, history.uncertain)
    faults = [(fault.start, fault.end) for fault in history.faults]

    def change(events: list[Event]) -> list[Event] | None:
        places = [
            (interest.endpoint, event.time)
            for interest in interests(events, ledger, history.end)
            for event in events
            if event.kind == Kind.UPDATE and event.endpoint == interest.endpoint
            if interest.since <= event.time < interest.until - STALL_SECONDS
            if not touches(event.time, event.time + STALL_SECONDS, faults + interest.suspended, _CALM_SECONDS)
            if not _busy(events, interest.endpoint, event.time)
        ]
        if not places:
            return None
        endpoint, start = random.choice(places)
        return sorted((_held_back(event, endpoint, start) for event in events), key=lambda event: event.time)

    return _change_one(history, random, change)


def _busy(events: list[Event], endpoint: str, start: float) -> bool:
    # A new subscription or a fetch would tell the client what the stall keeps from it.
    near = (event for event in events if event.endpoint == endpoint and event.kind != Kind.UPDATE)
    return any(start <= event.time <= start + STALL_SECONDS for event in near)


def _held_back(event: Event, endpoint: str, start: float) -> Event:
    held = event.kind == Kind.UPDATE and event.endpoint == endpoint
    if not held or not start <= event.time < start + STALL_SECONDS:
        return event
    return event._replace(time=start + STALL_SECONDS)


def put_back(history: History, random: Random) -> History:
    """Put the store back to the version before of an endpoint that a client was subscribed to at the end."""
    ledger = Ledger(history.accepted, history.uncertain)
    places = sorted(
        {
            interest.endpoint
            for events in history.clients.values()
            for interest in interests(events, ledger, history.end)
            if interest.at_end and len(ledger[interest.endpoint].versions) > 1
        }
    )
    if not places or history.final is None:
        raise NotApplicable
    endpoint = random.choice(places)
    return replace(history, final={**history.final, endpoint: ledger[endpoint].versions[-2]})


def stale_data(history: History, random: Random) -> History:
    """Attach the data of the version before to one that a client holds."""
    return _with_other_data(
        history, random, lambda other, event: other.endpoint == event.endpoint and other.version < event.version
    )


def foreign_data(history: History, random: Random) -> History:
    """Attach the data of another endpoint to a version that a client holds."""
    return _with_other_data(history, random, lambda other, event: other.endpoint != event.endpoint)


def stale_compressed_data(history: History, random: Random) -> History:
    """As :func:`stale_data`, on a connection with compression."""
    return _with_other_data(
        history,
        random,
        lambda other, event: other.endpoint == event.endpoint and other.version < event.version,
        compressed=True,
    )


def foreign_compressed_data(history: History, random: Random) -> History:
    """As :func:`foreign_data`, on a connection with compression."""
    return _with_other_data(history, random, lambda other, event: other.endpoint != event.endpoint, compressed=True)


def _with_other_data(
    history: History, random: Random, fits: Callable[[Accepted, Event], bool], *, compressed: bool = False
) -> History:
    """Exchange the data of one version that a client holds for that of the latest accepted change that ``fits``.

    With ``compressed`` only of versions that came on connections where compression was agreed.
    """

    def change(events: list[Event]) -> list[Event] | None:
        places = [index for index, agreed in _held(events) if events[index].code > 0 and (agreed or not compressed)]
        for place in random.sample(places, len(places)):
            others = [other for other in history.accepted if other.stamp and fits(other, events[place])]
            if others:
                other = max(others, key=lambda one: one.version)
                return [*events[:place], events[place]._replace(code=other.stamp), *events[place + 1 :]]
        return None

    return _change_one(history, random, change)


def _held(events: list[Event]) -> Iterator[tuple[int, bool]]:
    """Return the places where data is held, and whether its connection has compression."""
    agreed: dict[int, bool] = {}
    for index, event in enumerate(events):
        if event.kind == Kind.OPEN:
            agreed[event.link] = event.code == 1
        elif event.kind == Kind.HELD:
            yield index, agreed.get(event.link, False)


CONTROLS: dict[str, Callable[[History, Random], History]] = {
    "drop-last": drop_last,
    "replay-old": replay_old,
    "foreign": foreign,
    "stall": stall,
    "put-back": put_back,
    "stale-data": stale_data,
    "foreign-data": foreign_data,
    "stale-compressed-data": stale_compressed_data,
    "foreign-compressed-data": foreign_compressed_data,
}
"""Every negative control of docs/reliability.md section 4.3."""

EXPECTED: dict[str, set[str]] = {
    "drop-last": {"NotConverged"},
    "replay-old": {"OutOfOrder"},
    "foreign": {"NotSubscribed"},
    "stall": {"Behind"},
    "put-back": {"AheadOfStore", "StoreLost"},
    "stale-data": {"WrongData"},
    "foreign-data": {"WrongData"},
    "stale-compressed-data": {"WrongData"},
    "foreign-compressed-data": {"WrongData"},
}
"""Classes of violations that the oracle must report for a control."""


def _change_one(history: History, random: Random, change: Callable[[list[Event]], list[Event] | None]) -> History:
    clients = list(history.clients)
    random.shuffle(clients)
    for client in clients:
        if (events := change(history.clients[client])) is not None:
            return replace(history, clients=Overlay(history.clients, client, events))
    raise NotApplicable
