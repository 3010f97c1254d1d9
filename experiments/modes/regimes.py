"""Regimes of load in which the scaling modes differ, and generated traces of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Final, Protocol

from diem.protocol.traffic import MAX_COUNTED, MAX_NAMES, Counted, TrafficEvent, Type
from tests.load.interests import Interests
from tests.load.trace import Trace

START_MS: Final = 1_750_000_020_000
"""Time of the first event: a full minute, so that a trace of less than one lies in it."""
MAX_SECONDS: Final = 60.0
EDGE: Final = "generator"


@dataclass(frozen=True)
class Regime:
    """A load. Every client has ``subscriptions`` of the ``endpoints``, which change equally often."""

    name: str
    meaning: str
    clients: int
    subscriptions: int
    endpoints: int
    updates: int
    """A second."""
    batch: int = 50
    """Updates that are written together."""
    to_topic: bool = False
    """Written straight to the topic of updates: more than a Data Service accepts."""
    work_us: int = 0
    """CPU that a server spends on each update, besides what it does with it."""
    communities: int = 0
    """Groups of clients with common interests; 0: any interests."""
    swaps: float = 1.0
    """Swaps of an endpoint a second, of all clients."""
    visits: float = 0.2
    """Clients a second that leave; another one comes for each."""
    file: str | None = None
    """A recorded trace, instead of a generated one."""

    @property
    def frames_per_update(self) -> float:
        """Mean number of clients that are sent an update."""
        return self.clients * self.subscriptions / self.endpoints

    @classmethod
    def recorded(cls, file: str, trace: Trace) -> "Regime":
        """Return the regime of a recorded trace."""
        load = trace.load()
        clients, each, rate = round(load.clients), round(load.subscriptions), round(load.updates)
        return cls("recorded", file, clients, each, len(trace.endpoints), rate, trace.batch, file=file)

    def smaller(self, factor: int) -> "Regime":
        """Return it with a part of the clients, endpoints and updates: the same frames for each update."""
        return replace(
            self,
            clients=self.clients // factor,
            endpoints=self.endpoints // factor,
            updates=self.updates // factor,
            batch=max(1, self.batch // factor) if self.to_topic else self.batch,
        )


R1: Final = Regime("R1", "many watch much", clients=300, subscriptions=10, endpoints=200, updates=300)
R2: Final = Regime(
    "R2", "few watch much", clients=500, subscriptions=10, endpoints=20_000, updates=20_000, batch=2_000, to_topic=True
)
# As many as one message may name: 100. Nobody swaps, because everybody has everything.
R3: Final = Regime(
    "R3", "the page: all watch the same", clients=150, subscriptions=100, endpoints=100, updates=150, swaps=0.0
)
# Half of the updates of R1: at 1,000 us, four servers on the X axis need 0.6 cores for them.
R4: Final = tuple(
    replace(R1, name=f"R4-{us}us", meaning=f"an update costs a server {us:,} us more", updates=150, work_us=us)
    for us in (100, 1000)
)
# As R2, but as many updates as a Data Service accepts: for modes without Kafka, too.
R2_STORED: Final = Regime(
    "R2s", "few watch much, as much as is stored", clients=125, subscriptions=10, endpoints=5_000, updates=1_000
)
R5: Final = replace(R1, name="R5", meaning="as R1, in groups of clients with common interests", communities=8)
REGIMES: Final[tuple[Regime, ...]] = (R1, R2, R2_STORED, R3, *R4, R5)


def endpoints_of(regime: Regime) -> list[str]:
    """Return the names of the endpoints."""
    return [f"/modes/{number:06}" for number in range(regime.endpoints)]


def generate(regime: Regime, seconds: float, seed: int) -> Iterator[TrafficEvent]:
    """Yield the events of a trace by time: the clients come at its start, then some swap, leave and come.

    Raises:
        ValueError: it is longer than a minute, by which counts are compared.
    """
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"a generated trace has up to {MAX_SECONDS:.0f} s, not {seconds:g}")
    names, random = endpoints_of(regime), Random(seed)
    interests = Interests(names, regime.communities, seed)
    ids, numbers = count(1), count(regime.clients)
    incarnation = f"{random.getrandbits(48):012x}"
    wants: dict[int, list[str]] = {}

    def event(type_: Type, time_ms: int, client: int | None = None, endpoints: Sequence[str] = ()) -> TrafficEvent:
        whose = "" if client is None else f"{(seed << 32) + client & 0xFFFFFFFFFFFFFFFF:016x}"
        number = f"{incarnation}-{next(ids)}"
        return TrafficEvent(type_, number, time_ms, EDGE, whose, whose, tuple(endpoints))

    def come(client: int, time_ms: int) -> Iterator[TrafficEvent]:
        wants[client] = interests.first(client, regime.subscriptions, random)
        yield event(Type.CONNECT, time_ms, client)
        for first in range(0, len(wants[client]), MAX_NAMES):
            yield event(Type.SUBSCRIBE, time_ms, client, wants[client][first : first + MAX_NAMES])

    for client in range(regime.clients):
        yield from come(client, START_MS)
    happening = [(random.uniform(0.0, seconds), "swap") for _ in range(round(regime.swaps * seconds))]
    happening += [(random.uniform(0.0, seconds), "visit") for _ in range(round(regime.visits * seconds))]
    for time, what in sorted(happening):
        time_ms = START_MS + 1 + int(time * 1000)
        client = random.choice(sorted(wants))
        if what == "swap":
            old, new = random.choice(wants[client]), interests.another(client, wants[client], random)
            wants[client].remove(old)
            wants[client].append(new)
            yield event(Type.SUBSCRIBE, time_ms, client, [new])
            yield event(Type.UNSUBSCRIBE, time_ms, client, [old])
        else:
            del wants[client]
            yield event(Type.DISCONNECT, time_ms, client)
            yield from come(next(numbers), time_ms)
    yield from _counted(regime, names, seconds, random, event)


class _Event(Protocol):
    """Creates the next event."""

    def __call__(
        self, type_: Type, time_ms: int, client: int | None = None, endpoints: Sequence[str] = ()
    ) -> TrafficEvent: ...


def _counted(
    regime: Regime, names: Sequence[str], seconds: float, random: Random, event: _Event
) -> Iterator[TrafficEvent]:
    """Yield the counts of the whole trace: as equal as whole numbers can be."""
    since, until = START_MS, START_MS + int(seconds * 1000)
    each, more = divmod(round(regime.updates * seconds), len(names))
    often = set(random.sample(names, more))
    for first in range(0, len(names), MAX_COUNTED):
        updates = {name: Counted(each + (name in often), 0) for name in names[first : first + MAX_COUNTED]}
        yield event(Type.COUNTS, until)._replace(since=since, until=until, updates=updates)
