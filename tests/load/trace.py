"""Traces: traffic events in JSON Lines (docs/traffic.md section 1), recorded or generated, as what a run repeats.

``connect``, ``subscribe``, ``unsubscribe`` and ``disconnect`` become visits of clients, ``counts`` become writes.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from diem.protocol.traffic import BadEvent, TrafficEvent, Type, decode, encode
from learning.modes.load import Data, Load

MAX_UPDATES: Final = 5_000_000
"""Most updates of a trace: they are held in memory."""
_MINUTE_MS: Final = 60_000


class BadTrace(Exception):
    """The file is not a trace, or nothing can be repeated of it."""


class Change(NamedTuple):
    """A change of the endpoints of a client."""

    time: float
    """Seconds from the start of the trace."""
    subscribed: tuple[str, ...]
    unsubscribed: tuple[str, ...]


@dataclass
class Visit:
    """A client from its first subscription until its last connection has ended. Times are seconds."""

    start: float
    """0 for clients that are there when the trace begins."""
    endpoints: tuple[str, ...]
    """The endpoints that it subscribes to at the start."""
    changes: list[Change] = field(default_factory=list)
    end: float | None = None
    """None: it stays."""

    def holdings(self, until: float) -> Iterator[tuple[str, float, float]]:
        """Yield endpoint, begin and end of each subscription; those that last end with ``until``."""
        end = until if self.end is None else min(self.end, until)
        held = dict.fromkeys(self.endpoints, self.start)
        for time, subscribed, unsubscribed in self.changes:
            for endpoint in unsubscribed:
                if (since := held.pop(endpoint, None)) is not None:
                    yield endpoint, since, time
            held |= {endpoint: time for endpoint in subscribed if endpoint not in held}
        for endpoint, since in held.items():
            yield endpoint, since, end


class Write(NamedTuple):
    """Updates that are written together."""

    time: float
    """Seconds from the start of the trace."""
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class Trace:
    """What happens in ``seconds``."""

    seconds: float
    visits: list[Visit]
    writes: list[Write]
    endpoints: list[str]
    """Every endpoint, sorted."""
    batch: int
    """Most updates of a write."""

    @property
    def updates(self) -> int:
        """Number of updates."""
        return sum(len(write.endpoints) for write in self.writes)

    @property
    def watched(self) -> set[str]:
        """The endpoints that any client ever subscribes to."""
        return {endpoint for visit in self.visits for endpoint, _, _ in visit.holdings(inf)}

    def frames(self) -> int:
        """Return the number of frames to clients: one for each update and subscription at its time."""
        begun, ended = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for visit in self.visits:
            for endpoint, since, until in visit.holdings(inf):
                begun[endpoint].append(since)
                ended[endpoint].append(until)
        for times in (*begun.values(), *ended.values()):
            times.sort()
        return sum(
            bisect.bisect_right(begun[endpoint], write.time) - bisect.bisect_right(ended[endpoint], write.time)
            for write in self.writes
            for endpoint in write.endpoints
            if endpoint in begun
        )

    def load(self) -> Load:
        """Return the load for the model: means over the trace, notifications alone."""
        present = sum((self.seconds if visit.end is None else visit.end) - visit.start for visit in self.visits) or inf
        held = sum(until - since for visit in self.visits for _, since, until in visit.holdings(self.seconds))
        return Load(
            clients=0.0 if present == inf else present / self.seconds,
            endpoints=len(self.endpoints),
            updates=self.updates / self.seconds,
            subscriptions=held / present,
            batch=self.updates / len(self.writes) if self.writes else 1.0,
            subscribers=self.frames() / self.updates if self.updates else 0.0,
            data=Data.NONE,
        )


def read_trace(path: Path, *, batch: int, seed: int = 0) -> Trace:
    """Read a trace; the events need not be in their order.

    Args:
        path: a file of JSON Lines, as in ``traffic/in`` of a state directory.
        batch: most updates of a write, which events do not tell.
        seed: of the time of an update in the interval in which it was counted.

    Raises:
        BadTrace: the file cannot be read, a line is not an event, or there are no updates.
    """
    events = _read(path)
    try:
        return trace_of(events, batch=batch, seed=seed)
    except BadTrace as error:
        raise BadTrace(f"{path}: {error}") from None


def read_visits(path: Path) -> list[Visit]:
    """Read the visits of a trace alone: it may have a million updates. Raises ``BadTrace``."""
    ordered = sorted(_read(path), key=_order)
    begin, end = _interval(_counts(ordered))
    return _visits(ordered, begin, end)


def _read(path: Path) -> list[TrafficEvent]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadTrace(f"{path}: {error.strerror or error}") from None
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(decode(line))
        except BadEvent as error:
            raise BadTrace(f"{path}, line {number}: {error}") from None
    return events


def trace_of(events: Iterable[TrafficEvent], *, batch: int, seed: int = 0) -> Trace:
    """Return the trace of events: it begins and ends with the counted intervals. Raises ``BadTrace``."""
    ordered = sorted(events, key=_order)
    intervals = _counts(ordered)
    begin, end = _interval(intervals)
    updates = sorted(_updates(intervals, begin, seed))
    visits = _visits(ordered, begin, end)
    names = {endpoint for _, endpoint in updates}
    names |= {endpoint for visit in visits for endpoint, _, _ in visit.holdings(inf)}
    return Trace((end - begin) / 1000, visits, list(_writes(updates, batch)), sorted(names), batch)


def _order(event: TrafficEvent) -> tuple[int, int]:
    return event.time, int(event.id.partition("-")[2])


def _counts(events: Iterable[TrafficEvent]) -> list[TrafficEvent]:
    return [event for event in events if event.type is Type.COUNTS and event.updates]


def _interval(intervals: Sequence[TrafficEvent]) -> tuple[int, int]:
    """Return begin and end of the trace, in ms. Raises ``BadTrace``."""
    if not intervals:
        raise BadTrace("it counts no updates")
    return min(event.since for event in intervals), max(event.until for event in intervals)


def _updates(intervals: Sequence[TrafficEvent], begin: int, seed: int) -> Iterator[tuple[float, str]]:
    """Yield time and endpoint of each update, evenly over the interval in which it was counted.

    Several processes count the same update: of each endpoint and minute the greatest count is taken, as in statistics.
    """
    counted: dict[tuple[str, int], dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for event in intervals:
        minute = (event.since + event.until) // 2 // _MINUTE_MS
        for endpoint, (received, _) in event.updates.items():
            edges = counted[endpoint, minute]
            number, since, until = edges.get(event.edge, (0, event.since, event.until))
            edges[event.edge] = (number + received, min(since, event.since), max(until, event.until))
    chosen = {key: max(edges.values()) for key, edges in counted.items()}
    if sum(number for number, _, _ in chosen.values()) > MAX_UPDATES:
        raise BadTrace(f"more than {MAX_UPDATES:,} updates")
    for (endpoint, minute), (number, since, until) in chosen.items():
        phase = Random(f"{seed} {endpoint} {minute}").random()
        for index in range(number):
            yield (since - begin + (index + phase) / number * (until - since)) / 1000, endpoint


def _writes(updates: Iterable[tuple[float, str]], batch: int) -> Iterator[Write]:
    """Yield writes of ``batch`` updates, the last one of fewer, at the time of their first ones.

    A write has an endpoint once: a further update of it waits for the next write.
    """
    pending: dict[str, float] = {}
    later: Counter[str] = Counter()
    for time, endpoint in updates:
        if endpoint in pending:
            later[endpoint] += 1
            continue
        pending[endpoint] = time
        if len(pending) >= batch:
            yield _write(pending)
            pending = dict.fromkeys(later, time)
            later = Counter({name: more - 1 for name, more in later.items() if more > 1})
    while pending:
        last = max(pending.values())
        yield _write(pending)
        pending = dict.fromkeys(later, last)
        later = Counter({name: more - 1 for name, more in later.items() if more > 1})


def _write(pending: dict[str, float]) -> Write:
    return Write(min(pending.values()), tuple(pending))


def _visits(events: Sequence[TrafficEvent], begin: int, end: int) -> list[Visit]:
    """Return the visits of all clients; what was before the trace is the state at its start."""
    visits: list[Visit] = []
    open_: dict[str, Visit] = {}
    held: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for event in events:
        if not event.client or event.time > end:
            continue
        time = max(0.0, (event.time - begin) / 1000)
        connections = held[event.client]
        before = set[str]().union(*connections.values())
        match event.type:
            case Type.SUBSCRIBE:
                connections.setdefault(event.connection, set()).update(event.endpoints)
            case Type.UNSUBSCRIBE:
                connections.setdefault(event.connection, set()).difference_update(event.endpoints)
            case Type.DISCONNECT:
                connections.pop(event.connection, None)
        after = set[str]().union(*connections.values())
        visit = open_.get(event.client)
        if visit is None:
            if after:
                open_[event.client] = visit = Visit(time, tuple(sorted(after)))
                visits.append(visit)
        elif not connections:
            visit.end = time
            del open_[event.client]
        elif after != before:
            _change(visit, time, after, Change(time, tuple(sorted(after - before)), tuple(sorted(before - after))))
    # Clients that left before the start were never there.
    return [visit for visit in visits if visit.end is None or visit.end > 0]


def _change(visit: Visit, time: float, after: set[str], change: Change) -> None:
    """Add a change; those at the very start belong to it: an event has at most 100 endpoints."""
    if time <= visit.start:
        visit.endpoints = tuple(sorted(after))
    else:
        visit.changes.append(change)


def write_trace(path: Path, events: Iterator[TrafficEvent]) -> None:
    """Write events as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as lines:
        for event in events:
            lines.write(encode(event) + b"\n")
