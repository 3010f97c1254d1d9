"""Negative controls: break one promise in a clean history, synthetic or recorded, which the oracle must detect."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from tests.oracle.history import Accepted, Event, History, Kind
from tests.oracle.interest import interests
from tests.oracle.ledger import Collection, Endpoint, Ledger
from tests.oracle.values import NotPatchable, applied, fingerprint
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
    ledger = _ledger(history)

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
    ledger = _ledger(history)
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
    ledger = _ledger(history)
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
        places = [
            index
            for index, agreed in _held(events)
            if events[index].code > 0 and not events[index].endpoint.endswith("/") and (agreed or not compressed)
        ]
        for place in random.sample(places, len(places)):
            event = events[place]
            others = [each for each in history.accepted if each.stamp not in (0, event.code) and fits(each, event)]
            if others:
                other = max(others, key=lambda one: one.version)
                return [*events[:place], event._replace(code=other.stamp), *events[place + 1 :]]
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


def patch_of_another_version(history: History, random: Random) -> History:
    """Apply the patch that made a version which a client holds to a version before the one that it was made for."""
    ledger = _ledger(history)

    def change(events: list[Event]) -> list[Event] | None:
        places = [index for index, event in enumerate(events) if event.kind == Kind.HELD and event.code > 0]
        for place in random.sample(places, len(places)):
            event = events[place]
            if stamp := _patched_elsewhere(ledger[event.endpoint], event.version):
                return [*events[:place], event._replace(code=stamp), *events[place + 1 :]]
        return None

    return _change_one(history, random, change)


def _patched_elsewhere(endpoint: Endpoint | Collection, version: int) -> int:
    """Return what a patch makes of a version two before its own; 0 if it is no patch, or makes the same of it."""
    if isinstance(endpoint, Collection):
        return 0
    values: list[Any] = [None]
    for each in endpoint.changes:
        if each.change is None:
            values.append(None)
            continue
        if each.version == version and "put" not in each.change:
            other = next((value for value in reversed(values[:-1]) if value is not None), None)
            with suppress(NotPatchable):
                stamp = fingerprint(applied(other, each.change))
                return 0 if endpoint.has_stamp(version, stamp) else stamp
            return 0
        try:
            values.append(applied(values[-1], each.change))
        except NotPatchable:
            return 0
    return 0


def foreign_document(history: History, random: Random) -> History:
    """Attach the document of another endpoint to a document that a client holds."""
    documents = {change.endpoint for change in history.accepted if change.change}
    stamps = {
        (event.endpoint, event.code)
        for events in history.clients.values()
        for event in events
        if event.kind == Kind.HELD and event.code > 0 and event.endpoint in documents
    }

    def change(events: list[Event]) -> list[Event] | None:
        places = [index for index, each in enumerate(events) if (each.endpoint, each.code) in stamps]
        for place in random.sample(places, len(places)):
            if others := sorted(stamp for name, stamp in stamps if name != events[place].endpoint):
                return [*events[:place], events[place]._replace(code=random.choice(others)), *events[place + 1 :]]
        return None

    return _change_one(history, random, change)


def forbidden(history: History, random: Random) -> History:
    """Confirm an endpoint to a client whose token does not cover it, and deliver it."""

    def change(events: list[Event]) -> list[Event] | None:
        asked = {event.endpoint for event in events if event.kind in (Kind.SUBSCRIBE, Kind.SUBSCRIBED)}
        others = [accepted for accepted in history.accepted if accepted.endpoint not in asked]
        places = [index for index, event in enumerate(events) if event.kind == Kind.SUBSCRIBED]
        if not others or not places:
            return None
        place, other = random.choice(places), random.choice(others)
        at, link = events[place].time, events[place].link
        more = [
            Event(at, kind, other.endpoint, other.version, link=link)
            for kind in (Kind.SUBSCRIBE, Kind.SUBSCRIBED, Kind.UPDATE)
        ]
        return [*events[: place + 1], *more, *events[place + 1 :]]

    limited = {name: events for name, events in history.clients.items() if name in history.rights}
    found = _change_one(replace(history, clients=limited), random, change)
    (client,) = [name for name in limited if found.clients[name] is not limited[name]]
    return replace(history, clients=Overlay(history.clients, client, found.clients[client]))


def missing_member(history: History, random: Random) -> History:
    """Remove a member from the list that a client holds of a collection."""
    ledger, lists = _ledger(history), dict(history.lists)

    def change(events: list[Event]) -> list[Event] | None:
        places = [index for index, event in enumerate(events) if event.kind == Kind.HELD and event.code in lists]
        for place in random.sample(places, len(places)):
            event = events[place]
            collection = ledger.collection(event.endpoint)
            must = collection.bounds(event.version)[0] & {*lists[event.code]} if collection is not None else ()
            if must:
                missing = random.choice(sorted(must))
                listed = [name for name in lists[event.code] if name != missing]
                lists[stamp := fingerprint(listed)] = listed
                return [*events[:place], event._replace(code=stamp), *events[place + 1 :]]
        return None

    return replace(_change_one(history, random, change), lists=lists)


def shown_expired(history: History, random: Random) -> History:
    """Keep the end of an expired endpoint from a client that is subscribed to it until the end."""
    ledger = _ledger(history)

    def change(events: list[Event]) -> list[Event] | None:
        ends = [interest.endpoint for interest in interests(events, ledger, history.end) if interest.at_end]
        places = []
        for name in ends:
            endpoint = ledger[name]
            if isinstance(endpoint, Collection) or not endpoint.expiries or endpoint.expiries[-1].before < inf:
                continue
            expired = endpoint.expiries[-1].version
            after = [index for index, event in enumerate(events) if event.endpoint == name and event.version > expired]
            # Not those that a later subscribe would make up for.
            if after and all(events[index].kind in (Kind.UPDATE, Kind.HELD) for index in after):
                places.append(after)
        if not places:
            return None
        dropped = set(random.choice(places))
        return [event for index, event in enumerate(events) if index not in dropped]

    return _change_one(history, random, change)


def shown_member(history: History, random: Random) -> History:
    """Add an expired member to the list that a client holds of a collection."""
    ledger, lists, final = _ledger(history), dict(history.lists), history.final or {}
    expiring = [(name, endpoint.expiries) for name, endpoint in ledger.endpoints() if endpoint.expiries]

    def expired(collection: Collection, version: int) -> list[str]:
        over = [
            name
            for name, expiries in expiring
            if f"{name.rpartition('/')[0]}/" == collection.name
            and any(expiry.certain and expiry.version < version < expiry.before for expiry in expiries)
        ]
        is_last = version == final.get(collection.name)
        listable = ledger.members_at_end(collection.name) if is_last else collection.bounds(version)[1]
        return sorted({*over} - listable)

    def change(events: list[Event]) -> list[Event] | None:
        places = [index for index, event in enumerate(events) if event.kind == Kind.HELD]
        for place in random.sample(places, len(places)):
            event = events[place]
            collection = ledger.collection(event.endpoint)
            if collection is not None and (names := expired(collection, event.version)):
                listed = [*lists.get(event.code, ()), random.choice(names)]
                lists[stamp := fingerprint(listed)] = listed
                return [*events[:place], event._replace(code=stamp), *events[place + 1 :]]
        return None

    return replace(_change_one(history, random, change), lists=lists)


def other_base(history: History, random: Random) -> History:
    """Accept a write with ``If-Match`` after another version than the one that it names."""
    known: dict[str, list[Accepted]] = {}
    for change in history.accepted:
        known.setdefault(change.endpoint, []).append(change)
    places = [changes for changes in known.values() if len({change.version for change in changes}) > 2]
    if not places:
        raise NotApplicable
    changes = sorted(random.choice(places), key=lambda change: change.version)
    named, last = changes[0].version, changes[-1].version
    accepted = [
        each._replace(after=named) if (each.endpoint, each.version) == (changes[0].endpoint, last) else each
        for each in history.accepted
    ]
    return replace(history, accepted=accepted)


def _ledger(history: History) -> Ledger:
    return Ledger(history.accepted, history.uncertain, faults=history.faults, end=history.end)


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
    "patch-of-another-version": patch_of_another_version,
    "foreign-document": foreign_document,
    "forbidden": forbidden,
    "missing-member": missing_member,
    "shown-expired": shown_expired,
    "shown-member": shown_member,
    "other-base": other_base,
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
    "patch-of-another-version": {"WrongData"},
    "foreign-document": {"WrongData"},
    "forbidden": {"Forbidden"},
    "missing-member": {"WrongMembers"},
    "shown-expired": {"NotConverged"},
    "shown-member": {"WrongMembers"},
    "other-base": {"WrongBase"},
}
"""Classes of violations that the oracle must report for a control."""


def _change_one(history: History, random: Random, change: Callable[[list[Event]], list[Event] | None]) -> History:
    clients = list(history.clients)
    random.shuffle(clients)
    for client in clients:
        if (events := change(history.clients[client])) is not None:
            return replace(history, clients=Overlay(history.clients, client, events))
    raise NotApplicable
