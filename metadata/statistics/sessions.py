"""Rebuilds the sessions of connections from their events (docs/traffic.md section 3.1); pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from diem.protocol.traffic import TrafficEvent, Type
from metadata.statistics.judging import number
from metadata.statistics.rules import HISTORY_MS, SILENCE_MS, TWINS_MS
from metadata.statistics.window import Window


class Held(NamedTuple):
    """One endpoint, from one time to another."""

    endpoint: str
    start: int
    end: int


class ClientSession(NamedTuple):
    """One connection; times are Unix ms and may lie outside of the window."""

    client: str
    start: int
    end: int
    unended: bool
    """The process was killed: it ends with the last sign of life."""
    held: tuple[Held, ...]
    """Within the session; an endpoint may be here several times."""
    sharers: int
    """Connections that shared its address, at most."""


def sessions(events: Iterable[TrafficEvent], window: Window) -> list[ClientSession]:
    """Return every session of which an event lies in or before the window.

    Args:
        events: distinct, in any order.
        window: also decides which processes were alive at its end.
    """
    known = [event for event in events if window.start - HISTORY_MS <= event.time < window.end]
    ends = _ends(known, window)
    by_connection = defaultdict[str, list[TrafficEvent]](list)
    for event in sorted(known, key=lambda event: (event.time, number(event.id))):
        if event.connection:
            by_connection[event.connection].append(event)
    return [_session(own, ends) for own in by_connection.values()]


def _ends(events: Iterable[TrafficEvent], window: Window) -> Mapping[str, tuple[int, bool]]:
    """Until when sessions without an end of their own last, by life, and whether that is because it was killed."""
    signs: dict[str, int] = {}
    edges: dict[str, str] = {}
    for event in events:
        signs[event.boot] = max(event.time, signs.get(event.boot, 0))
        edges[event.boot] = event.edge
    current: dict[str, tuple[int, str]] = {}
    for boot, sign in signs.items():
        current[edges[boot]] = max((sign, boot), current.get(edges[boot], (0, "")))
    return {
        boot: (window.end, False)
        if current[edges[boot]][1] == boot and sign >= window.end - SILENCE_MS
        else (sign, True)
        for boot, sign in signs.items()
    }


def _session(events: list[TrafficEvent], ends: Mapping[str, tuple[int, bool]]) -> ClientSession:
    first = events[0]
    disconnected = next((event.time for event in events if event.type is Type.DISCONNECT), None)
    end, unended = ends[first.boot] if disconnected is None else (disconnected, False)
    sharers = max(event.sharers for event in events)
    return ClientSession(first.client, first.time, end, unended, tuple(_held(events, end)), sharers)


def _held(events: list[TrafficEvent], end: int) -> Iterator[Held]:
    since: dict[str, int] = {}
    for event in events:
        for endpoint in event.endpoints:
            if event.type is Type.SUBSCRIBE:
                since.setdefault(endpoint, event.time)
            elif endpoint in since:
                yield Held(endpoint, since.pop(endpoint), min(event.time, end))
    for endpoint, start in since.items():
        yield Held(endpoint, start, end)


def proven(events: Iterable[TrafficEvent], window: Window) -> set[str]:
    """Return the endpoints that there are, as far as anybody but clients says (docs/traffic.md section 3.2).

    Args:
        events: in any order.
        window: of these events and of those of sessions that may last into it.
    """
    found = set[str]()
    for event in events:
        if window.start - HISTORY_MS <= event.time < window.end:
            if event.type is Type.SUBSCRIBE:
                found.update(set(event.endpoints).difference(event.unknown))
            found.update(event.updates)
            found.update(accessed.endpoint for accessed in event.requests)
    return found


def twins(events: Iterable[TrafficEvent], window: Window) -> int:
    """Return how many edges are two processes at once, by the events of their lives in the window.

    Args:
        events: distinct, in any order.
        window: which.
    """
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for event in events:
        if window.start <= event.time < window.end:
            first, last = spans.get((event.edge, event.boot), (event.time, event.time))
            spans[event.edge, event.boot] = min(first, event.time), max(last, event.time)
    found, reached = set[str](), dict[str, int]()
    for (edge, _), (first, last) in sorted(spans.items(), key=lambda life: life[1]):
        if min(reached.get(edge, first), last) - first > TWINS_MS:
            found.add(edge)
        reached[edge] = max(reached.get(edge, last), last)
    return len(found)


def together(intervals: Iterable[tuple[int, int]]) -> int:
    """Return how long any of the intervals lasted, in their unit; one that ends before it begins is empty."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        total += max(0, end - begin)
        reached = end if reached is None else max(reached, end)
    return total
