"""The statistics of a window, without Spark: the reference for small inputs (docs/traffic.md section 3); pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import NamedTuple, TypeVar

from diem.protocol.traffic import Counted, TrafficEvent, Type
from metadata.statistics.figures import EndpointRow, PairRow, SetRow, Statistics, Summary, WasteRow
from metadata.statistics.rules import HELD_MS, LARGE_SET, LATE_MS, MINUTE_MS, PAIRS
from metadata.statistics.sessions import ClientSession, proven, sessions, together, twins
from metadata.statistics.window import Window

K = TypeVar("K")


class Arrival(NamedTuple):
    """An event, and when it arrived (Unix ms)."""

    event: TrafficEvent
    at: int


class ClientTotals(NamedTuple):
    """What clients did in the window, in ms."""

    connected: Mapping[str, int]
    held: Mapping[tuple[str, str], int]
    """By client and endpoint that there is; only what is more than nothing."""
    sharers: Mapping[str, int]
    """Connections that shared an address with a client, at most."""


def statistics(arrivals: Iterable[Arrival], window: Window) -> Statistics:
    """Return the statistics of a window.

    Args:
        arrivals: in any order; repeats have the same id and content.
        window: events of 7 days before it are of use, too.
    """
    every = list(arrivals)
    # Of repeats, the one that came first says how late the event was.
    distinct = {arrival.event.id: arrival for arrival in sorted(every, key=lambda arrival: -arrival.at)}
    events = [arrival.event for arrival in distinct.values()]
    lasting = [session for session in sessions(events, window) if _lasts(session, window)]
    counts = [event for event in events if event.type is Type.COUNTS and window.start <= _middle(event) < window.end]
    clients = _clients(lasting, window, proven(events, window).union(*(event.updates for event in counts)))
    endpoints = _endpoints(clients, counts, window)
    sets = _sets(clients, {row.endpoint: index for index, row in enumerate(endpoints)})
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
        large_sets=sum(len(row.endpoints) > LARGE_SET for row in sets),
        twins=twins(events, window),
    )
    return Statistics(window, summary, endpoints, sets, _pairs(sets, endpoints), _waste(counts))


def _lasts(session: ClientSession, window: Window) -> bool:
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
    return ClientTotals(_together(connected), _together(held), sharers)


def _together(intervals: Mapping[K, Iterable[tuple[int, int]]]) -> dict[K, int]:
    return {key: ms for key, own in intervals.items() if (ms := together(own))}


def _middle(counts: TrafficEvent) -> int:
    return (counts.since + counts.until) // 2


def _endpoints(clients: ClientTotals, counts: Iterable[TrafficEvent], window: Window) -> tuple[EndpointRow, ...]:
    held = Counter[str]()
    for (_, endpoint), ms in clients.held.items():
        held[endpoint] += ms
    by_minute = defaultdict[tuple[str, int], Counter[str]](Counter)
    total = defaultdict[str, Counted](lambda: Counted(0, 0))
    for event in counts:
        for endpoint, (taken, delivered) in event.updates.items():
            by_minute[endpoint, _middle(event) // MINUTE_MS][event.edge] += taken
            total[endpoint] = Counted(total[endpoint].taken + taken, total[endpoint].delivered + delivered)
    updates = Counter[str]()
    for (endpoint, _), edges in by_minute.items():
        updates[endpoint] += max(edges.values())
    return tuple(
        EndpointRow(name, updates[name] * 1000 / window.ms, held[name] / window.ms, *total[name])
        for name in sorted(held.keys() | total.keys())
    )


def _sets(clients: ClientTotals, index: Mapping[str, int]) -> tuple[SetRow, ...]:
    of_client = defaultdict[str, list[int]](list)
    for (client, endpoint), ms in clients.held.items():
        if ms >= HELD_MS:
            of_client[client].append(index[endpoint])
    weight, number = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for client, endpoints in of_client.items():
        if share := clients.connected[client] // (1000 * clients.sharers[client]):
            key = tuple(sorted(endpoints))
            weight[key] += share
            number[key] += 1
    return tuple(SetRow(key, weight[key], number[key]) for key in sorted(weight))


def _pairs(sets: Iterable[SetRow], endpoints: tuple[EndpointRow, ...]) -> tuple[PairRow, ...]:
    weight, clients = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for row in sets:
        if len(row.endpoints) <= LARGE_SET:
            for pair in combinations(row.endpoints, 2):
                weight[pair] += row.weight
                clients[pair] += row.clients
    heaviest = sorted(weight, key=lambda pair: (-weight[pair], pair))[:PAIRS]
    return tuple(
        PairRow(endpoints[pair[0]].endpoint, endpoints[pair[1]].endpoint, weight[pair], clients[pair])
        for pair in heaviest
    )


def _waste(counts: Iterable[TrafficEvent]) -> tuple[WasteRow, ...]:
    by_edge = defaultdict[str, Counter[str]](Counter)
    for event in counts:
        own = by_edge[event.edge]
        for taken, delivered in event.updates.values():
            own.update(taken=taken, delivered=delivered, discarded=0 if delivered else taken)
    return tuple(
        WasteRow(edge, n["taken"], n["delivered"], n["discarded"], n["discarded"] / n["taken"] if n["taken"] else 0.0)
        for edge, n in sorted(by_edge.items())
    )
