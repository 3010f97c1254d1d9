"""What is measured of one system, in turn with the floor and DIEM's mode single, which run meanwhile."""

import asyncio
import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from experiments.peers.clients import Clients
from experiments.peers.contenders import BROKER, Contender, Refused, Update, update
from tests.bench.procfs import pss_kib, rss_kib
from tests.support.size import sized

SETTLE_S: Final = 0.03
ARRIVED_S: Final = 1.0
REFUSED_S: Final = 0.05
"""Pause of a writer that was refused."""
EIGHT: Final = 8
HOT: Final = {kind: [f"/{kind}/hot/{number}" for number in range(EIGHT)] for kind in ("plain", "inline")}
MANY: Final = [f"/plain/many/{number}" for number in range(EIGHT)]
TEN: Final = [*HOT["plain"], *HOT["inline"][:2]]
BULK: Final = 50
IDLE_SLICES: Final = 5
STORM: Final = 31415.9
"""A value that no other update has."""
WIDE: Final = "wide"


class Size(NamedTuple):
    """Size of a run."""

    clients: int
    many: int
    """Clients of a larger group; 0 for none."""
    rounds: int
    ticks: int
    warm_up: int
    """Ticks before a block: after a pause Linux acknowledges 16 segments one by one, at the server's expense."""
    payloads: tuple[int, ...]
    """Bytes of data in an update; 0 for none."""
    endpoints: int
    """With 5 subscribers each."""
    idle_s: float
    publications: int
    storm_s: float
    """Longest wait for clients to have what was published meanwhile, once all are connected again."""


SIZE: Final = sized(
    Size(1000, 5000, 3, 16, 20, (0, 100, 1500, 4000), 1000, 2.0, 200, 15.0),
    Size(1000, 0, 1, 8, 8, (0, 1500), 1000, 1.0, 40, 5.0),
    Size(20, 0, 1, 2, 2, (0, 1500), 20, 0.2, 4, 3.0),
)


class Cell(NamedTuple):
    """One kind of block: ``each`` endpoints change in a tick, with so many bytes of data."""

    group: str
    size: int
    each: int

    @property
    def name(self) -> str:
        if self.group == WIDE:
            return f"{SIZE.endpoints:,} endpoints with 5 clients each"
        data = f"{self.size:,} B" if self.size else "no data"
        return f"{SIZE.many if self.group == 'many' else SIZE.clients:,} clients, {data}, {self.each} a tick"


CELLS: Final = (
    *(Cell("hot", size, each) for size in SIZE.payloads for each in (1, EIGHT)),
    *(Cell("many", 0, each) for each in (1, EIGHT) if SIZE.many),
    Cell(WIDE, 0, SIZE.endpoints // 5),
)


class Block(NamedTuple):
    """What one frame has cost."""

    cpu_us: dict[str, float]
    """By kind of process, above what it takes without load."""
    tick_ms: float
    """Until all clients have a tick."""

    @property
    def total_us(self) -> float:
        return sum(self.cpu_us.values())


@dataclass
class Side:
    """A system with its groups of clients."""

    contender: Contender
    groups: dict[str, Clients] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    """CPU seconds a second."""
    _turn: int = 0

    async def block(self, cell: Cell) -> Block:
        """Publish tick by tick, each when all clients have the one before."""
        clients = self.groups[cell.group]
        await clients.resume()
        for _ in range(SIZE.warm_up):
            await clients.tick(self._updates(cell)[:1])
        await asyncio.sleep(SETTLE_S)
        before, began = self.contender.cpu(), monotonic()
        ticks = SIZE.ticks if cell.each == 1 else max(2, SIZE.ticks // 4)
        frames = sum([await clients.tick(self._updates(cell)) for _ in range(ticks)])
        seconds = monotonic() - began
        await asyncio.sleep(SETTLE_S)
        spent = self.above_idle(before, began)
        return Block({kind: cpu / frames * 1e6 for kind, cpu in spent.items()}, seconds / ticks * 1000)

    def above_idle(self, before: Mapping[str, float], began: float) -> dict[str, float]:
        """Return the CPU since then by kind of process, without what it takes without load."""
        seconds = monotonic() - began
        now = self.contender.cpu()
        return {kind: cpu - before.get(kind, 0.0) - self.idle.get(kind, 0.0) * seconds for kind, cpu in now.items()}

    def _updates(self, cell: Cell) -> list[Update]:
        if cell.group == WIDE:
            self._turn = (self._turn + 1) % 5
            return [update(name) for name in _wide()[self._turn * cell.each :][: cell.each]]
        names = MANY if cell.group == "many" else HOT["inline" if cell.size else "plain"]
        return [update(name, cell.size) for name in names[: cell.each]]

    async def measure_idle(self) -> None:
        """Measure the CPU while nothing happens: the median of slices, since some have upkeep."""
        slices: list[dict[str, float]] = []
        for _ in range(IDLE_SLICES):
            before, began = self.contender.cpu(), monotonic()
            await asyncio.sleep(SIZE.idle_s / IDLE_SLICES)
            seconds = monotonic() - began
            slices.append({kind: (cpu - before.get(kind, 0.0)) / seconds for kind, cpu in self.contender.cpu().items()})
        self.idle = {kind: statistics.median(each[kind] for each in slices) for kind in slices[0]}


class Connect(NamedTuple):
    """How clients are connected."""

    stack: AsyncExitStack
    program: Path
    core: int | None

    async def group(self, contender: Contender, wishes: Sequence[Sequence[str]]) -> Clients:
        return await Clients.connect(self.stack, contender, wishes, self.program, self.core)


def _wide() -> list[str]:
    return [f"/plain/wide/{number}" for number in range(SIZE.endpoints)]


async def prepare(connect: Connect, contender: Contender, *, groups: Sequence[str] = ("hot", "many", WIDE)) -> Side:
    """Connect all clients of a system, and measure it idle."""
    side = Side(contender)
    wide = _wide()
    await contender.publish([update(name) for name in (*HOT["plain"], *HOT["inline"], *MANY, *wide)])
    # Where a log lies between, they arrive later than they are accepted.
    await asyncio.sleep(ARRIVED_S)
    # Of each fifth one, so that a tick changes one of a client's.
    own = [[wide[(i + part * len(wide) // 5) % len(wide)] for part in range(5)] for i in range(SIZE.clients)]
    wishes = {"hot": [[*HOT["plain"], *HOT["inline"]]] * SIZE.clients, "many": [MANY] * SIZE.many, WIDE: own}
    for name in groups:
        if wishes[name]:
            side.groups[name] = await connect.group(contender, wishes[name])
            await side.groups[name].join()
    await side.measure_idle()
    return side


async def memory(connect: Connect, contender: Contender) -> dict[str, float]:
    """Return the memory of connections in KiB, without the broker's; the system has had no client yet."""

    def kib() -> float:
        return 1024 * sum(mib for kind, mib in contender.memory_mib(rss_kib).items() if kind != BROKER)

    await contender.publish([update(name) for name in TEN])
    await asyncio.sleep(ARRIVED_S)
    fresh, held = kib(), {"at rest, MiB": round(sum(contender.memory_mib(pss_kib).values()), 1)}
    async with AsyncExitStack() as stack:
        clients = await connect._replace(stack=stack).group(contender, [TEN] * SIZE.clients)
        await asyncio.sleep(0.3)
        held["connection, KiB"] = round((kib() - fresh) / SIZE.clients, 1)
        await clients.join()
        held["with 10 subscriptions, KiB"] = round((kib() - fresh) / SIZE.clients, 1)
        held["connected within, s"] = round(clients.seconds, 2)
        held["connections"] = clients.connections
    return held


async def publishing(side: Side) -> dict[str, float]:
    """Return the CPU of an update that nobody watches, in us: one after another, and 50 at once."""
    found = {}
    for name, each in (("one at a time, us", 1), (f"{BULK} at once, us", BULK)):
        names = [f"/plain/unwatched/{number}" for number in range(each)]
        await side.contender.publish([update(endpoint) for endpoint in names])
        before, began = side.contender.cpu(), monotonic()
        count = SIZE.publications if each == 1 else max(2, SIZE.publications // 10)
        for _ in range(count):
            await side.contender.publish([update(endpoint) for endpoint in names])
        await asyncio.sleep(SETTLE_S * 3)
        found[name] = round(sum(side.above_idle(before, began).values()) / (count * each) * 1e6, 1)
    return found


async def storm(side: Side) -> dict[str, Any]:
    """Kill what holds the connections, publish meanwhile, and see when all clients are back with the newest update."""
    clients, endpoint = side.groups["hot"], HOT["inline"][0]
    await clients.resume()
    await clients.tick([update(endpoint)])
    began, refused = monotonic(), 0

    async def write() -> float:
        nonlocal refused
        while True:
            with contextlib.suppress(Refused):
                await side.contender.publish([update(endpoint, value=STORM)])
                return monotonic() - began
            refused += 1
            await asyncio.sleep(REFUSED_S)

    clients.forget(f'"value":{STORM}')
    writing: asyncio.Task[float] | None = None
    crashing = asyncio.create_task(side.contender.crash())
    try:
        # The first write when the processes are dead: what one of them accepts before is another story.
        await asyncio.sleep(0.1)
        writing = asyncio.create_task(write())
        await crashing
        ready = monotonic() - began
        limit = monotonic() + SIZE.storm_s * 4
        while (after := await clients.after(endpoint)).open < clients.connections or after.last_open_s == 0:
            if monotonic() > limit:
                break
            await asyncio.sleep(0.02)
        limit = monotonic() + SIZE.storm_s
        while (after := await clients.after(endpoint)).marked < clients.count and monotonic() < limit:
            await asyncio.sleep(0.02)
        accepted = await writing
    finally:
        for task in (crashing, writing):
            if task is not None:
                task.cancel()
    return {
        "server ready, s": round(ready, 2),
        "last client connected, s": round(after.last_open_s, 2),
        "connected": after.open,
        "update accepted, s": round(accepted, 2),
        "writes refused before": refused,
        "last client has it, s": round(after.last_marked_s, 2) if after.marked else None,
        "clients without it": clients.count - after.marked,
        "attempts refused": after.refused,
    }


async def session(
    connect: Connect, contender: Contender, base: Mapping[str, Side], step: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one system; ``base`` has the floor and DIEM's single with their clients."""
    name = contender.name
    step(f"{name}: memory of connections")
    found: dict[str, Any] = {"keeps": contender.keeps, "memory": await memory(connect, contender)}
    async with AsyncExitStack() as stack:
        side = await prepare(connect._replace(stack=stack), contender)
        found["cells"] = {}
        for cell in CELLS:
            step(f"{name}: {cell.name}")
            sides = [each for each in (*base.values(), side) if cell.group in each.groups]
            # Again each time: a JVM and an interpreter take less and less.
            await asyncio.gather(*(each.measure_idle() for each in sides))
            rounds: list[dict[str, list[Block]]] = []
            for _ in range(SIZE.rounds):
                rounds.append({each.contender.name: [] for each in sides})
                # There and back: what drifts hits all alike.
                for each in [*sides, *reversed(sides)] if SIZE.rounds > 1 else sides:
                    rounds[-1].setdefault(_name(each, side), []).append(await each.block(cell))
            found["cells"][cell.name] = _summary(rounds, [*base])
        found["idle_ms_per_s"] = {kind: round(1000 * cpu, 2) for kind, cpu in side.idle.items()}
        step(f"{name}: updates that nobody watches")
        found["publish"] = await publishing(side)
        step(f"{name}: killed")
        found["storm"] = await storm(side)
    return found


def _name(each: Side, measured: Side) -> str:
    return "measured" if each is measured else each.contender.name


def _summary(rounds: Sequence[Mapping[str, Sequence[Block]]], base: Sequence[str]) -> dict[str, Any]:
    blocks = [block for each in rounds for block in each["measured"]]
    us = [statistics.mean(block.total_us for block in each["measured"]) for each in rounds]
    shown: dict[str, Any] = {
        "us": round(statistics.median(us), 2),
        "by kind": {
            kind: round(statistics.median(block.cpu_us.get(kind, 0.0) for block in blocks), 2)
            for kind in dict.fromkeys(kind for block in blocks for kind in block.cpu_us)
        },
        "tick, ms": round(statistics.median(block.tick_ms for block in blocks), 1),
    }
    for name in base:
        beside = [statistics.mean(b.total_us for b in each[name]) for each in rounds if each.get(name)]
        if beside:
            shown[f"{name}, us"] = round(statistics.median(beside), 2)
            shown[f"x {name}"] = round(statistics.median(a / b for a, b in zip(us, beside, strict=True)), 3)
            shown[f"x {name}, rounds"] = [round(a / b, 3) for a, b in zip(us, beside, strict=True)]
    return shown
