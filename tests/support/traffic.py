"""Traffic as recorded by several processes, with faults, generated from a seed."""

import random
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from diem.protocol.traffic import Counted, TrafficEvent, Type, encode
from learning.statistics.reference import Arrival

BEGIN = 1_767_225_600_000
"""2026-01-01."""
MINUTE = 60_000


class Life:
    """One life of an edge, which numbers its events."""

    def __init__(self, edge: str, boot: int, begin: int, end: int, *, killed: bool = False) -> None:
        self.edge = edge
        self.boot = f"{boot:012x}"
        self.begin = begin
        self.end = end
        self.killed = killed
        self._numbers = count()

    def event(self, type_: Type, at: int, client: int = 0, connection: int = 0, *endpoints: str) -> TrafficEvent:
        event_id = f"{self.boot}-{next(self._numbers)}"
        event = TrafficEvent(type_, event_id, at, self.edge, endpoints=endpoints)
        if type_ is Type.COUNTS:
            return event
        return event._replace(client=f"{client:016x}", connection=f"{connection:016x}")

    def counts(self, since: int, until: int, **updates: tuple[int, int]) -> TrafficEvent:
        named = {f"/{name}": Counted(*value) for name, value in updates.items()}
        return self.event(Type.COUNTS, until)._replace(since=since, until=until, updates=named)


def generated(seed: int, *, minutes: int = 90, clients: int = 60) -> list[Arrival]:
    """Generate the events of three edges, one of which is killed, in order of arrival: some late, repeated or lost."""
    chance = random.Random(seed)
    end = BEGIN + minutes * MINUTE
    died = BEGIN + minutes // 2 * MINUTE + 12_345
    lives = [
        Life("websocket-1", 0xA1, BEGIN, died, killed=True),
        Life("websocket-1", 0xA2, died + 5000, end),
        Life("websocket-2", 0xB1, BEGIN, end),
        Life("proxy-1", 0xC1, BEGIN, end - 10 * MINUTE, killed=True),
    ]
    events = [event for life in lives for event in _counted(life, chance)]
    connections = count(1)
    for client in range(clients):
        for _ in range(chance.randint(1, 4)):
            events += _connected(chance.choice(lives), client, next(connections), chance)
    return _arrived(events, chance)


def _counted(life: Life, chance: random.Random) -> Iterator[TrafficEvent]:
    since = life.begin
    for until in range(life.begin // MINUTE * MINUTE + MINUTE, life.end, MINUTE):
        names = chance.sample(range(30), chance.randint(0, 12))
        rates = {f"e{name}": (n := chance.randint(0, 40), n * chance.randint(0, 3)) for name in names}
        yield life.counts(since, until, **rates)
        since = until


def _connected(life: Life, client: int, connection: int, chance: random.Random) -> Iterator[TrafficEvent]:
    at = chance.randrange(life.begin, life.end)
    yield life.event(Type.CONNECT, at, client, connection)
    for _ in range(chance.randint(0, 12)):
        # Small steps too: several events of one millisecond, and endpoints that are held for less than a second.
        at += chance.choice((0, 1, 400, 999, 1000, chance.randrange(20 * MINUTE)))
        names = [f"/e{name}" for name in chance.sample(range(30), chance.randint(1, 6))]
        # Those of a stranger, some of which come to be later: beyond 30 there are counts of none.
        invented = [f"/e{name}" for name in chance.sample(range(25, 60), chance.choice((0, 0, 1, 3)))]
        if at < life.end:
            type_ = chance.choice((Type.SUBSCRIBE, Type.SUBSCRIBE, Type.UNSUBSCRIBE))
            event = life.event(type_, at, client, connection, *dict.fromkeys([*names, *invented]))
            unknown = tuple(dict.fromkeys(invented)) if type_ is Type.SUBSCRIBE else ()
            yield event._replace(unknown=unknown, sharers=chance.choice((1, 1, 1, 2, 40)))
    at += chance.randrange(30 * MINUTE)
    if at < life.end or not life.killed:
        yield life.event(Type.DISCONNECT, min(at, life.end), client, connection)


def _arrived(events: list[TrafficEvent], chance: random.Random) -> list[Arrival]:
    arrivals = []
    for event in events:
        if chance.random() < 0.03:
            continue
        for _ in range(2 if chance.random() < 0.1 else 1):
            delay = chance.choice((0, 10, 2000, 299_999, 300_001, 20 * MINUTE))
            arrivals.append(Arrival(event, event.time + delay))
    return sorted(arrivals, key=lambda arrival: (arrival.at, arrival.event.id))


def write(folder: Path, name: str, events: Iterable[TrafficEvent], *others: bytes) -> Path:
    """Write a complete file of events and other lines to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_bytes(b"".join(line + b"\n" for line in (*map(encode, events), *others)))
    return hidden.rename(folder / name)
