"""Reference implementation of statistics and usage, for small inputs, without Spark or I/O (docs/traffic.md 3, 4)."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple, TypeVar

from diem.protocol.traffic import Counted, TrafficEvent, Type
from learning.statistics.constants import (
    DUPLICATE_OVERLAP_MS,
    ENDED_MS,
    HISTORY_MS,
    LATE_MS,
    MIN_HELD_MS,
    MINUTE_MS,
    SILENCE_MS,
)
from learning.statistics.model import EndpointRow, SetRow, Statistics, Summary, UsageRow, WasteRow
from learning.statistics.parsing import sequence_number
from learning.statistics.sampling import MAX_SUBSCRIPTIONS, count_halvings, is_sampled
from learning.statistics.window import Window


class HeldInterval(NamedTuple):
    """A subscription to one endpoint over an interval."""

    endpoint: str
    start: int
    end: int


class ClientSession(NamedTuple):
    """One connection; times are Unix ms and may lie outside the window."""

    client: str
    start: int
    end: int
    unended: bool
    """True if the process was killed: the session ends with its last sign of life."""
    held: tuple[HeldInterval, ...]
    """Subscriptions within the session; an endpoint may have several."""
    sharers: int
    """Largest number of connections that shared its address."""


def sessions(events: Iterable[TrafficEvent], window: Window) -> list[ClientSession]:
    """Rebuild every session with an event in or before the window (docs/traffic.md section 3.1).

    Args:
        events: distinct, in any order.
        window: the window; its end also decides which processes were alive.
    """
    known = [event for event in events if window.start - HISTORY_MS <= event.time < window.end]
    ends = _ends(known, window)
    by_connection = defaultdict[tuple[str, str], list[TrafficEvent]](list)
    for event in sorted(known, key=lambda event: (event.time, sequence_number(event.id))):
        if event.connection:
            by_connection[event.client, event.connection].append(event)
    return [_session(own, ends) for own in by_connection.values()]


def _ends(events: Iterable[TrafficEvent], window: Window) -> Mapping[str, tuple[int, bool]]:
    last_seen: dict[str, int] = {}
    edges: dict[str, str] = {}
    for event in events:
        last_seen[event.incarnation] = max(event.time, last_seen.get(event.incarnation, 0))
        edges[event.incarnation] = event.edge
    return life_ends(last_seen, edges, window)


def life_ends(last_seen: Mapping[str, int], edges: Mapping[str, str], window: Window) -> Mapping[str, tuple[int, bool]]:
    """Return the end of sessions without a disconnect, by incarnation, and whether the process was killed.

    Args:
        last_seen: the time of the last event of each incarnation.
        edges: the name of the process of each incarnation.
        window: the window.
    """
    current: dict[str, tuple[int, str]] = {}
    for incarnation, time in last_seen.items():
        current[edges[incarnation]] = max((time, incarnation), current.get(edges[incarnation], (0, "")))
    return {
        incarnation: (window.end, False)
        if current[edges[incarnation]][1] == incarnation and time >= window.end - SILENCE_MS
        else (time, True)
        for incarnation, time in last_seen.items()
    }


def _session(events: list[TrafficEvent], ends: Mapping[str, tuple[int, bool]]) -> ClientSession:
    first = events[0]
    disconnected = next((event.time for event in events if event.type is Type.DISCONNECT), None)
    end, unended = ends[first.incarnation] if disconnected is None else (disconnected, False)
    sharers = max(event.sharers for event in events)
    return ClientSession(first.client, first.time, end, unended, tuple(_held(events, end)), sharers)


def _held(events: list[TrafficEvent], end: int) -> Iterator[HeldInterval]:
    since: dict[str, int] = {}
    for event in events:
        for endpoint in event.endpoints:
            if event.type is Type.SUBSCRIBE:
                since.setdefault(endpoint, event.time)
            elif endpoint in since:
                yield HeldInterval(endpoint, since.pop(endpoint), min(event.time, end))
    for endpoint, start in since.items():
        yield HeldInterval(endpoint, start, end)


def confirmed_endpoints(events: Iterable[TrafficEvent], window: Window) -> set[str]:
    """Return the endpoints confirmed not only by clients (docs/traffic.md section 3.2).

    Args:
        events: in any order.
        window: the window; events count from :data:`HISTORY_MS` before it on.
    """
    within = (event for event in events if window.start - HISTORY_MS <= event.time < window.end)
    return set[str]().union(*map(_confirmed, within))


def _confirmed(event: TrafficEvent) -> set[str]:
    registered = set(event.endpoints).difference(event.unknown) if event.type is Type.SUBSCRIBE else set[str]()
    return registered.union(event.updates, (accessed.endpoint for accessed in event.requests))


class Sign(NamedTuple):
    """The last sign of a life, or of endpoints that others than clients confirm, before a time."""

    edge: str
    boot: str
    time: int
    endpoints: tuple[str, ...] = ()


def condense(events: Iterable[TrafficEvent], at: int) -> tuple[list[TrafficEvent], list[Sign]]:
    """Return the events before a time that affect windows from then on, and signs (docs/traffic.md section 3.5).

    Args:
        events: distinct, in any order: all from 7 days before the time on, or a condensed history and all since.
        at: Unix ms.
    """
    before = [event for event in events if at - HISTORY_MS <= event.time < at]
    ended = {event.connection for event in before if event.type is Type.DISCONNECT}
    lives, endpoints = dict[tuple[str, str], int](), dict[str, int]()
    for event in sorted(before, key=lambda event: event.time):
        lives[event.edge, event.incarnation] = event.time
        endpoints |= dict.fromkeys(_confirmed(event), event.time)
    kept = []
    for event in before:
        is_end = event.type is Type.DISCONNECT and event.time >= at - ENDED_MS
        is_open = event.connection and (event.connection not in ended or is_end)
        if is_open or (event.type is Type.COUNTS and _middle(event) >= at):
            kept.append(event)
    return kept, signs(lives, endpoints)


def signs(lives: Mapping[tuple[str, str], int], endpoints: Mapping[str, int]) -> list[Sign]:
    """Return the signs of lives (edge, boot) and endpoints by the times at which they were last seen.

    Those of endpoints belong to the last life: none is later than its own.
    """
    if not lives:
        return []
    by_time = defaultdict[int, list[str]](list)
    for endpoint, time in endpoints.items():
        by_time[time].append(endpoint)
    last = max(lives, key=lambda life: (lives[life], life))
    of_lives = [Sign(*life, time) for life, time in sorted(lives.items())]
    return [*of_lives, *(Sign(*last, time, tuple(sorted(named))) for time, named in sorted(by_time.items()))]


def count_duplicate_recorders(events: Iterable[TrafficEvent], window: Window) -> int:
    """Count names used by two processes at once, by their incarnations' events in the window.

    Args:
        events: distinct, in any order.
        window: the window.
    """
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for event in events:
        if window.start <= event.time < window.end:
            first, last = spans.get((event.edge, event.incarnation), (event.time, event.time))
            spans[event.edge, event.incarnation] = min(first, event.time), max(last, event.time)
    return count_overlapping_lives(spans)


def count_overlapping_lives(spans: Mapping[tuple[str, str], tuple[int, int]]) -> int:
    """Count names used by two processes at once.

    Args:
        spans: times of the first and the last event of each process and incarnation.
    """
    duplicates, reached = set[str](), dict[str, int]()
    for (edge, _), (first, last) in sorted(spans.items(), key=lambda span: span[1]):
        if min(reached.get(edge, first), last) - first > DUPLICATE_OVERLAP_MS:
            duplicates.add(edge)
        reached[edge] = max(reached.get(edge, last), last)
    return len(duplicates)


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals, in their unit; an interval that ends before its start is empty."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        total += max(0, end - begin)
        reached = end if reached is None else max(reached, end)
    return total


K = TypeVar("K")


class Arrival(NamedTuple):
    """An event with its arrival time."""

    event: TrafficEvent
    at: int
    """Unix ms."""


class ClientTotals(NamedTuple):
    """Clients' totals in the window, in ms."""

    connected: Mapping[str, int]
    held: Mapping[tuple[str, str], int]
    """Positive totals by client and confirmed endpoint."""
    sharers: Mapping[str, int]
    """Largest number of connections that shared the client's address."""


def statistics(arrivals: Iterable[Arrival], window: Window, most: int = MAX_SUBSCRIPTIONS) -> Statistics:
    """Return the statistics of a window.

    Args:
        arrivals: in any order; repeats have the same id and content.
        window: the window; events from 7 days before it on are used.
        most: subscriptions beyond which the sets are those of a sample of the clients.
    """
    return statistics_of(arrivals, [window], most)[0]


def statistics_of(
    arrivals: Iterable[Arrival], windows: Sequence[Window], most: int = MAX_SUBSCRIPTIONS
) -> list[Statistics]:
    """Return the statistics of windows, in their order: sessions are rebuilt once, by all events up to the last end.

    Args:
        arrivals: as for :func:`statistics`.
        windows: ascending; events from 7 days before the first one on are used.
        most: as for :func:`statistics`.
    """
    every, whole = list(arrivals), Window(windows[0].start, windows[-1].end)
    # An event's delay is that of its first arrival.
    distinct = {arrival.event.id: arrival for arrival in sorted(every, key=lambda arrival: -arrival.at)}
    events = [arrival.event for arrival in distinct.values()]
    rebuilt, confirmed = sessions(events, whole), confirmed_endpoints(events, whole)
    return [_statistics(window, every, distinct, rebuilt, confirmed, most=most) for window in windows]


def _statistics(
    window: Window,
    every: Sequence[Arrival],
    distinct: Mapping[str, Arrival],
    rebuilt: Sequence[ClientSession],
    confirmed: Collection[str],
    *,
    most: int,
) -> Statistics:
    events = [arrival.event for arrival in distinct.values()]
    lasting = [session for session in rebuilt if _overlaps(session, window)]
    counts = [event for event in events if event.type is Type.COUNTS and window.start <= _middle(event) < window.end]
    clients = _clients(lasting, window, set(confirmed).union(*(event.updates for event in counts)))
    endpoints = _endpoints(clients, counts, window)
    halvings = count_halvings(len(clients.held), most)
    sets = _sets(clients, {row.endpoint: index for index, row in enumerate(endpoints)}, halvings)
    within = [arrival for arrival in every if window.start <= arrival.event.time < window.end]
    first = [arrival for arrival in distinct.values() if window.start <= arrival.event.time < window.end]
    summary = Summary(
        events=len(first),
        duplicates=len(within) - len(first),
        late=sum(arrival.at > arrival.event.time + LATE_MS for arrival in first),
        sessions=len(lasting),
        unended=sum(session.unended for session in lasting),
        clients=len(clients.connected),
        sets=len(sets),
        endpoints=len(endpoints),
        twins=count_duplicate_recorders(events, window),
        active_minutes=_active_minutes(lasting, window),
        halvings=halvings,
    )
    return Statistics(window, summary, endpoints, sets, _waste(counts))


def recorded_since(events: Iterable[TrafficEvent], window: Window) -> int | None:
    """Return the time from which events cover a window: the earliest of those from :data:`SILENCE_MS` before it on.

    None without any. An event covers its time, one with an interval that interval.
    """
    return min(
        (event.since or event.time for event in events if window.start - SILENCE_MS <= event.time < window.end),
        default=None,
    )


def _active_minutes(lasting: Iterable[ClientSession], window: Window) -> int:
    clipped = (window.clip(session.start, session.end) for session in lasting)
    return union_length(
        ((start - window.start) // MINUTE_MS, (end - 1 - window.start) // MINUTE_MS + 1) for start, end in clipped
    )


def _overlaps(session: ClientSession, window: Window) -> bool:
    start, end = window.clip(session.start, session.end)
    return end > start


def _clients(lasting: Iterable[ClientSession], window: Window, known: Collection[str]) -> ClientTotals:
    connected = defaultdict[str, list[tuple[int, int]]](list)
    held = defaultdict[tuple[str, str], list[tuple[int, int]]](list)
    sharers = dict[str, int]()
    for session in lasting:
        sharers[session.client] = max(session.sharers, sharers.get(session.client, 1))
        connected[session.client].append(window.clip(session.start, session.end))
        for endpoint, start, end in session.held:
            if endpoint in known:
                held[session.client, endpoint].append(window.clip(start, end))
    return ClientTotals(_union_lengths(connected), _union_lengths(held), sharers)


def _union_lengths(intervals: Mapping[K, Iterable[tuple[int, int]]]) -> dict[K, int]:
    return {key: ms for key, own in intervals.items() if (ms := union_length(own))}


def _middle(counts: TrafficEvent) -> int:
    return (counts.since + counts.until) // 2


def _endpoints(clients: ClientTotals, counts: Iterable[TrafficEvent], window: Window) -> tuple[EndpointRow, ...]:
    held = Counter[str]()
    for (_, endpoint), ms in clients.held.items():
        held[endpoint] += ms
    by_minute = defaultdict[tuple[str, int], Counter[str]](Counter)
    total = defaultdict[str, Counted](lambda: Counted(0, 0))
    frames = Counter[int]()
    for event in counts:
        for endpoint, (received, delivered) in event.updates.items():
            by_minute[endpoint, _middle(event) // MINUTE_MS][event.edge] += received
            frames[_middle(event) // MINUTE_MS] += delivered
            total[endpoint] = Counted(total[endpoint].received + received, total[endpoint].delivered + delivered)
    busy_minutes = sorted(frames, key=lambda minute: (-frames[minute], minute))[: window.busy_minutes]
    updates, busy = Counter[str](), Counter[str]()
    for (endpoint, minute), edges in by_minute.items():
        updates[endpoint] += max(edges.values())
        busy[endpoint] += max(edges.values()) if minute in busy_minutes else 0
    busy_ms = window.busy_minutes * MINUTE_MS
    return tuple(
        EndpointRow(
            name,
            updates[name] * 1000 / window.ms,
            held[name] / window.ms,
            *total[name],
            busy[name] * 1000 / busy_ms,
        )
        for name in sorted(held.keys() | total.keys())
    )


def _sets(clients: ClientTotals, index: Mapping[str, int], halvings: int) -> tuple[SetRow, ...]:
    of_client = defaultdict[str, list[int]](list)
    for (client, endpoint), ms in clients.held.items():
        if ms >= MIN_HELD_MS and is_sampled(client, halvings):
            of_client[client].append(index[endpoint])
    weight, count = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for client, endpoints in of_client.items():
        if share := clients.connected[client] // (1000 * clients.sharers[client]):
            key = tuple(sorted(endpoints))
            weight[key] += share
            count[key] += 1
    return tuple(SetRow(key, weight[key], count[key]) for key in sorted(weight))


def _waste(counts: Iterable[TrafficEvent]) -> tuple[WasteRow, ...]:
    by_edge = defaultdict[str, Counter[str]](Counter)
    for event in counts:
        own = by_edge[event.edge]
        for received, delivered in event.updates.values():
            own.update(taken=received, delivered=delivered, discarded=0 if delivered else received)
    return tuple(waste_row(edge, own) for edge, own in sorted(by_edge.items()))


def waste_row(edge: str, own: Mapping[str, int]) -> WasteRow:
    """Return the row of a process from its sums of ``taken``, ``delivered`` and ``discarded`` updates."""
    taken, discarded = own["taken"], own["discarded"]
    return WasteRow(edge, taken, own["delivered"], discarded, discarded / taken if taken else 0.0)


def usage(events: Iterable[TrafficEvent], first: date, last: date) -> list[UsageRow]:
    """Return the usage report of the days from ``first`` to ``last``, both included.

    Args:
        events: of all types, in any order; repeats have the same id and content.
        first: UTC.
        last: UTC.
    """
    sums = defaultdict[tuple[date, str, str, str], list[int]](lambda: [0, 0])
    for event in {event.id: event for event in events}.values():
        day = datetime.fromtimestamp((event.since + event.until) // 2 / 1000, UTC).date()
        if first <= day <= last:
            for key, plan, endpoint, answered, refused in event.requests:
                totals = sums[day, key, plan, endpoint]
                totals[0] += answered
                totals[1] += refused
    return [UsageRow(*key, *totals) for key, totals in sorted(sums.items())]
