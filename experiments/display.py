"""``make bench-display``: what it costs to bring data to the eye, as a multiple of the notification alone.

In modes single, x and z-proxy, clients display one hot endpoint, and 1,000 endpoints with 5 subscriptions each. Rounds
interleave updates without data (twice, which shows the error), updates with data, and updates without data that are
followed by a GET of the version at nginx, which caches it: in mode x the system's, else one of the benchmark. CPU is
that of all processes of the system but the broker, above their idle, for each displayed update; times are from the
request of the write. At last another writer shows whether the load hurts it: in turn without load, beside each of the
above, and beside the same writes without clients and a process that only takes as much CPU. ``QUICK=1``: fewer clients
and rounds.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import httpx
import orjson
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from deploy import nginx
from deploy.topology import PublicAddress
from experiments.picture import Bar, Group, Row, draw
from experiments.published import Accepted, Refused, Writer
from experiments.viewers import Counts, Fetching, Viewers, viewing
from tests.bench import native
from tests.bench.drain import Lost, pin
from tests.bench.figures import Figure, figure, goal
from tests.bench.procfs import cost
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.load.processes import children
from tests.load.system import System
from tests.support.commandline import parser
from tests.support.ports import free_port
from tests.support.size import sized

MODES: Final = {"single": (), "x": ("--nginx", "--servers", "2", "--max-servers", "2"), "z-proxy": ("--servers", "2")}
BATCH: Final = 50
"""Most datasets of one request."""
SUBSCRIPTIONS: Final = 5
SETTLE_S: Final = 0.05
PROBE_EVERY_S: Final = 0.02
TURN_S: Final = sized(1.0, 1.0, 0.1)
"""For which the other writer writes beside a load, before it is the turn of the next one."""
START_S: Final = 20.0
IDLE_ENDPOINT: Final = "/display/idle/0"
UNSEEN: Final = "unseen"
"""Endpoints below ``/display/unseen`` have no subscribers."""
INLINE: Final = 6144
"""Longest dataset in an update, in bytes: as the simulated market has it."""
BROKER: Final = "kafka"
"""Its CPU is shown, but not in the sums: it is the same for all clients, and its compiler's threads are far more."""
TITLE: Final = "What displayed data costs"
COLUMNS: Final = ("CPU for each displayed update, us", "time until it is displayed; of a PUT, ms", "bytes of it")
CPU_GOAL, CACHED_GOAL, TIME_GOAL, GETS_GOAL, PUT_GOAL = 1.8, 6.0, 1.5, 2.0, 3.0


class Size(NamedTuple):
    """Size of a run."""

    processes: int
    clients: int
    """Of each process."""
    sampled: int
    """Of each process: clients that take the time."""
    fetchers: int
    """Of each process: connections for GET."""
    endpoints: int
    rounds: int
    ticks: int
    """Of a block; in each tick every client is sent one update."""
    fetched_ticks: int
    idle_s: float
    """Time in which the CPU of idle processes is measured."""
    turns: int
    """Of each shape: how often the other writer writes beside each load."""


FULL: Final = Size(4, 2500, 50, 200, 1000, 5, 8, 2, 8.0, 4)
QUICK: Final = Size(2, 600, 100, 100, 200, 2, 12, 3, 2.0, 1)
SMOKE: Final = Size(1, 20, 5, 5, 20, 1, 2, 1, 0.2, 1)


class Variant(NamedTuple):
    """A way to bring data to the clients of a block, or only the notification."""

    name: str
    kind: str
    """Endpoints below ``/display/<kind>`` are changed."""
    fetching: Fetching = "off"


ALONE: Final = Variant("notification alone", "plain")
AGAIN: Final = Variant("notification again", "plain")
WITH_DATA: Final = Variant("data inline", "inline")
FETCHED: Final = Variant("notification and GET", "plain", "version")
VARIANTS: Final = (ALONE, WITH_DATA, FETCHED, AGAIN)
IDLE: Final = "idle"
EQUAL: Final = "equal load, no clients"
"""The same writes to endpoints that nobody displays, each followed by as much CPU as its notification takes."""


class Shape(NamedTuple):
    """Which endpoints a tick changes, and the clients of each."""

    name: str
    endpoints: int
    each_tick: int

    def names(self, kind: str) -> list[str]:
        return [f"/display/{kind}/{self.endpoints}/{number}" for number in range(self.endpoints)]


@dataclass
class Block:
    """What a block of updates has cost; CPU in microseconds for each displayed update, times in milliseconds."""

    cpu_us: dict[str, float]
    notified_ms: list[list[float]]
    """Of the clients of each write, as in ``displayed_ms``."""
    displayed_ms: list[list[float]]
    bytes: float
    gets: float
    """GETs that reached the Data Service, for each version."""
    seconds: float

    @property
    def total_us(self) -> float:
        return sum(cpu for kind, cpu in self.cpu_us.items() if kind != BROKER)

    @property
    def others_us(self) -> float:
        """CPU of all processes but the Data Service."""
        return sum(cpu for kind, cpu in self.cpu_us.items() if kind != "data")


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of measured values; 0 without any."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


@dataclass
class Puts:
    """The requests of the other writer beside a load."""

    ms: list[float] = field(default_factory=list)
    """How long each of them took."""
    waited_ms: float = 0.0
    """For which threads of the Data Service were ready meanwhile, and had no core."""


@dataclass
class Probe:
    """Another writer: how long its requests take."""

    writer: Writer
    data_pid: int
    puts: dict[str, dict[str, Puts]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Puts)))
    """By shape and load."""
    refused: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def writing(self, shape: Shape, load: str) -> AsyncIterator[None]:
        """Write at a steady rate while the block is open; at its end wait for the last answer."""
        puts, before = self.puts[shape.name][load], cost(self.data_pid)
        ended = asyncio.Event()
        task = asyncio.create_task(self._write(puts, ended))
        try:
            yield
        finally:
            ended.set()
            await task
            self.writer.close()
            puts.waited_ms += (cost(self.data_pid) - before).waited * 1000

    async def _write(self, puts: Puts, ended: asyncio.Event) -> None:
        due = monotonic()
        while not ended.is_set():
            try:
                puts.ms.append((await self.writer.put([IDLE_ENDPOINT])).seconds * 1000)
            except Refused as error:
                self.refused.append(str(error))
            due = max(due + PROBE_EVERY_S, monotonic())
            await asyncio.sleep(due - monotonic())


class Run:
    """One system with its clients, measured in blocks."""

    def __init__(self, system: System, viewers: Viewers, cache: asyncio.subprocess.Process | None, size: Size) -> None:
        self.system = system
        self.viewers = viewers
        self.size = size
        self._cache = cache
        data = system.process("data")
        self.writer = Writer(data.public_port or 0, system.write_key)
        self.probe = Probe(Writer(data.public_port or 0, system.write_key), data.pid or 0)
        self.idle: dict[str, float] = {}
        """CPU seconds a second of each kind of process."""
        self._turn: Counter[str] = Counter()

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far of each kind of process."""
        spent: dict[str, float] = defaultdict(float)
        for process in self.system.processes():
            if process.pid is not None:
                spent[process.name.rstrip("-0123456789")] += _tree(process.pid)
        if self._cache is not None:
            spent["nginx"] += _tree(self._cache.pid)
        return spent

    async def gets(self) -> int:
        """Return the GETs that the Data Service has answered."""
        lines = (await self.system.ask("data", "GET", "/metrics")).text.splitlines()
        found = [line for line in lines if line.startswith('diem_http_requests_total{method="GET"')]
        return sum(int(float(line.split()[-1])) for line in found)

    async def prepare(self, shapes: Sequence[Shape]) -> None:
        """Write every endpoint once, and subscribe the clients."""
        names = [IDLE_ENDPOINT] + [
            name for shape in shapes for kind in ("plain", "inline") for name in shape.names(kind)
        ]
        for start in range(0, len(names), BATCH):
            await self.writer.put(names[start : start + BATCH])
        wanted = 0
        for number in range(self.viewers.count):
            for kind in ("plain", "inline"):
                mine = [name for shape in shapes for name in _own(shape, kind, number)]
                wanted += len(mine)
                await self.viewers.subscribe(number, mine, data=kind == "inline")
        await self.viewers.reach(names[1:])
        if self.viewers.counts.with_data * 2 != wanted:
            raise Lost(f"of {wanted} retained updates {self.viewers.counts.with_data} had data, not half of them")
        # The Data Service keeps the datasets in memory that were read once.
        await self.viewers.fetch(FETCHED.fetching)
        for shape in shapes:
            for _ in range(shape.endpoints // shape.each_tick):
                await self._tick(shape, FETCHED)
        await self.viewers.samples()

    async def measure_idle(self) -> None:
        """Measure CPU while nothing happens."""
        await asyncio.sleep(1.0)
        before, began = self.cpu(), monotonic()
        await asyncio.sleep(self.size.idle_s)
        seconds = monotonic() - began
        self.idle = {kind: (spent - before.get(kind, 0.0)) / seconds for kind, spent in self.cpu().items()}

    async def measure_puts(self, shape: Shape, alone: Sequence[Block], core: int | None) -> None:
        """Measure the writes of another writer without and beside each load, in turns."""
        busy_s = statistics.median(block.others_us for block in alone) * self.viewers.count / 1e6
        for _ in range(shape.endpoints // shape.each_tick):
            await self._write(shape, UNSEEN)
        for _ in range(self.size.turns):
            await asyncio.sleep(SETTLE_S)
            async with self.probe.writing(shape, IDLE):
                await asyncio.sleep(TURN_S)
            async with burning(core) as burner:
                until = monotonic() + TURN_S
                async with self.probe.writing(shape, EQUAL):
                    while monotonic() < until:
                        await self._write(shape, UNSEEN, lambda share: burner.begin(busy_s * share))
                        await burner.wait()
            for variant in VARIANTS:
                await self.viewers.fetch(variant.fetching)
                until = monotonic() + TURN_S
                async with self.probe.writing(shape, variant.name):
                    while monotonic() < until:
                        await self._tick(shape, variant)
        await self.viewers.samples()

    async def block(self, shape: Shape, variant: Variant) -> Block:
        """Change endpoints tick by tick, each when all clients have what was changed before."""
        ticks = self.size.ticks if variant.fetching == "off" else self.size.fetched_ticks
        await self.viewers.fetch(variant.fetching)
        # Not counted: what the block before has left, and what a pause makes dearer.
        await self._tick(shape, variant)
        await self.viewers.samples()
        accepted: list[Accepted] = []
        arrived, gets = self.viewers.counts, await self.gets()
        before, began = self.cpu(), monotonic()
        for _ in range(ticks):
            accepted += await self._tick(shape, variant)
        await asyncio.sleep(SETTLE_S)
        seconds, after = monotonic() - began, self.cpu()
        gets, arrived = await self.gets() - gets, self.viewers.counts - arrived
        versions = sum(len(each.versions) for each in accepted)
        self._check(arrived, variant)
        spent = {kind: after[kind] - before.get(kind, 0.0) - self.idle.get(kind, 0.0) * seconds for kind in after}
        notified, displayed = await self._times(accepted)
        return Block(
            cpu_us={kind: cpu / arrived.updates * 1e6 for kind, cpu in spent.items()},
            notified_ms=notified,
            displayed_ms=displayed,
            bytes=(arrived.update_bytes + arrived.fetched_bytes) / arrived.updates,
            gets=gets / versions,
            seconds=seconds,
        )

    async def _tick(self, shape: Shape, variant: Variant) -> list[Accepted]:
        accepted = await self._write(shape, variant.kind)
        changed = [name for each in accepted for name in each.versions]
        await self.viewers.reach(changed, changed if variant.fetching != "off" else ())
        return accepted

    async def _write(
        self, shape: Shape, kind: str, written: Callable[[float], None] = lambda _share: None
    ) -> list[Accepted]:
        """Change the endpoints whose turn it is; ``written`` is called after each request with its share of them."""
        names = shape.names(kind)
        first = self._turn[names[0]] * shape.each_tick % len(names)
        self._turn[names[0]] += 1
        changed = names[first : first + shape.each_tick]
        accepted = []
        for at in range(0, len(changed), BATCH):
            batch = changed[at : at + BATCH]
            accepted.append(await self.writer.put(batch))
            written(len(batch) / len(changed))
        return accepted

    def _check(self, arrived: Counts, variant: Variant) -> None:
        with_data = arrived.updates if variant.kind == "inline" else 0
        fetched = 0 if variant.fetching == "off" else arrived.updates
        if (arrived.with_data, arrived.fetched) != (with_data, fetched):
            raise Lost(f"{variant.name}: {arrived}")

    async def _times(self, accepted: Sequence[Accepted]) -> tuple[list[list[float]], list[list[float]]]:
        """Return the milliseconds until the clients of each write were notified, and until they had data."""
        writes = {(name, version): each.sent for each in accepted for name, version in each.versions.items()}
        notified, displayed = defaultdict(list), defaultdict(list)
        for sample in await self.viewers.samples():
            sent = writes[sample.endpoint, sample.version]
            late = (sample.at - sent) * 1000
            if sample.kind in "ud":
                notified[sent].append(late)
            if sample.kind in "df":
                displayed[sent].append(late)
        return [*notified.values()], [*displayed.values()]


def _tree(pid: int) -> float:
    return sum(cost(each).cpu for each in (pid, *children(pid)))


def _own(shape: Shape, kind: str, number: int) -> list[str]:
    """Return the endpoints of one client."""
    names = shape.names(kind)
    if len(names) == 1:
        return names
    # One of each fifth, so that each tick changes one of them.
    return [names[(number + i * len(names) // SUBSCRIPTIONS) % len(names)] for i in range(SUBSCRIPTIONS)]


class Measured(NamedTuple):
    """What one mode has shown."""

    clients: int
    rounds: dict[str, list[dict[str, Block]]]
    """Blocks by variant, of each round, by shape."""
    probe: Probe
    idle: dict[str, float]


async def measure(mode: str, size: Size, folder: Path, report: Report, *, compressed: bool) -> Measured:
    """Run one mode."""
    cores = sorted(os.sched_getaffinity(0))
    program = native.program("viewers")
    shapes = (
        Shape("one hot endpoint", 1, 1),
        Shape(f"{size.endpoints:,} endpoints", size.endpoints, size.endpoints // 5),
    )
    report.step(f"{mode}: starting, and connecting {size.processes * size.clients} clients")
    async with contextlib.AsyncExitStack() as stack:
        # Processes inherit the core on which they are started.
        pin(os.getpid(), cores[0] if len(cores) > 1 else None)
        options = ("--traffic", "off", *MODES[mode])
        system = await stack.enter_async_context(System(mode, folder, options, _settings(), _tables()))
        _, port, path = system.servers[0]
        cache, http_port = None, system.page[1]
        if mode != "x":
            cache, http_port = await stack.enter_async_context(caching(folder / "nginx", system))
        pin(os.getpid(), cores[1] if len(cores) > 1 else None)
        # Before the others: a server has room for 10,000 clients.
        await _check_welcome(port, path)
        viewers = await stack.enter_async_context(
            viewing(
                program,
                port,
                path,
                http_port,
                processes=size.processes,
                each=size.clients,
                sampled=size.sampled,
                fetchers=size.fetchers,
                core=cores[1] if len(cores) > 1 else None,
                compressed=compressed,
            )
        )
        run = Run(system, viewers, cache, size)
        await run.prepare(shapes)
        report.step(f"{mode}: idle")
        await run.measure_idle()
        rounds: dict[str, list[dict[str, Block]]] = {shape.name: [] for shape in shapes}
        for number in range(1, size.rounds + 1):
            for shape in shapes:
                report.step(f"{mode}: {shape.name}, round {number}")
                # In turn each comes first, after the pause between two shapes.
                order = VARIANTS[number % 4 :] + VARIANTS[: number % 4]
                rounds[shape.name].append({each.name: await run.block(shape, each) for each in order})
        for shape in shapes:
            report.step(f"{mode}: {shape.name}, another writer")
            alone = [blocks[each.name] for blocks in rounds[shape.name] for each in (ALONE, AGAIN)]
            await run.measure_puts(shape, alone, cores[0] if len(cores) > 1 else None)
        run.writer.close()
    os.sched_setaffinity(0, cores)
    return Measured(size.processes * size.clients, rounds, run.probe, run.idle)


@contextlib.asynccontextmanager
async def caching(directory: Path, system: System) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run nginx as ``diem up`` has it in front of a Data Service; yield it, and its port."""
    port, (_, server_port, _) = free_port(), system.servers[0]
    directory.mkdir()
    plan = nginx.NginxPlan(
        directory=directory,
        port=port,
        data=(f"127.0.0.1:{system.process('data').public_port}",),
        slots=(f"127.0.0.1:{server_port}",),
        workers=os.cpu_count() or 1,
        open_files=nginx.open_files(),
        cache=nginx.new_cache(directory),
        hosts=PublicAddress().page_hosts,
    )
    nginx.write(directory, nginx.render(plan))
    process = await asyncio.create_subprocess_exec(*nginx.argv(nginx.find(), directory))
    try:
        async with asyncio.timeout(START_S), httpx.AsyncClient(trust_env=False) as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await http.get(f"http://127.0.0.1:{port}/")
                    break
                await asyncio.sleep(0.05)
        yield process, port
    finally:
        process.terminate()
        await process.wait()
        nginx.remove_cache(directory)


class Burner:
    """A process that takes CPU on request, see ``busy.py``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout
        self._open = 0

    def begin(self, seconds: float) -> None:
        """Have it take so much CPU, after what it has been asked for before."""
        self._requests.write(f"{seconds}\n".encode())
        self._open += 1

    async def wait(self) -> None:
        """Wait until it has taken all of it."""
        for _ in range(self._open):
            await self._answers.readline()
        self._open = 0


@contextlib.asynccontextmanager
async def burning(core: int | None) -> AsyncIterator[Burner]:
    """Run a :class:`Burner`."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*(sys.executable, "-m", "experiments.busy"), stdin=pipe, stdout=pipe)
    try:
        pin(process.pid, core)
        burner = Burner(process)
        burner.begin(0.0)
        await burner.wait()
        yield burner
    finally:
        process.kill()
        await process.wait()


def _settings() -> dict[str, str]:
    rates = {f"DIEM_{edge}_CONNECTION_RATE_PER_ADDRESS": "100000" for edge in ("WEBSOCKET", "PROXY")}
    reads = {f"DIEM_DATA_READ_{name}": "1000000" for name in ("RATE", "BURST", "RATE_LOOPBACK", "BURST_LOOPBACK")}
    trusted = {"DIEM_DATA_TRUSTED_PROXIES": '["127.0.0.1/32"]'}
    return {**rates, **reads, **trusted, "DIEM_DATA_ANONYMOUS_READS": "on"}


def _tables() -> str:
    limits = {"/display/plain": 0, "/display/inline": INLINE}
    return "".join(f'[[inline]]\nprefix = "{prefix}"\nmax_bytes = {limit}\n' for prefix, limit in limits.items())


async def _check_welcome(port: int, path: str) -> None:
    """Check that clients may ask for data. Raises ``Lost``."""
    url = f"ws://127.0.0.1:{port}{path}"
    async with connect(url, subprotocols=[Subprotocol("diem.v1.json")], proxy=None, compression=None) as connection:
        welcome = orjson.loads(await connection.recv())
        if welcome.get("data") is not True:
            raise Lost(f"no data for clients: {welcome}")


def ratio(rounds: Sequence[Mapping[str, Block]], variant: Variant) -> Figure:
    """Return the CPU of a variant as a multiple of the notification alone: the mean of both of its blocks."""
    return figure(
        [
            2 * blocks[variant.name].total_us / (blocks[ALONE.name].total_us + blocks[AGAIN.name].total_us)
            for blocks in rounds
        ]
    )


def time_ratio(rounds: Sequence[Mapping[str, Block]]) -> Figure:
    """Return p99 of the time to inline data as a multiple of the time to the notification alone."""
    return figure(
        [
            typical(blocks[WITH_DATA.name].displayed_ms, 0.99)
            / typical(blocks[ALONE.name].notified_ms + blocks[AGAIN.name].notified_ms, 0.99)
            for blocks in rounds
        ]
    )


def typical(writes: Sequence[Sequence[float]], share: float) -> float:
    """Return the median over writes of a quantile of their clients; 0 without any.

    A block has few writes, so a quantile of all of its clients together would be that of its slowest write.
    """
    return statistics.median(quantile(clients, share) for clients in writes) if writes else 0.0


def goals_of(mode: str, measured: Measured) -> list[Goal]:
    """Return the goals of one mode."""
    goals = []
    for shape, rounds in measured.rounds.items():
        at = f"{mode}, {shape}"
        inline, fetched, times = ratio(rounds, WITH_DATA), ratio(rounds, FETCHED), time_ratio(rounds)
        gets = figure([blocks[FETCHED.name].gets for blocks in rounds])
        goals += [
            goal(f"{at}: CPU with data, of the notification", "x", CPU_GOAL, inline),
            goal(f"{at}: CPU with GET, of the notification", "x", CACHED_GOAL, fetched),
            goal(f"{at}: p99 until data, of the notification", "x", TIME_GOAL, times),
            goal(f"{at}: GETs of the Data Service for a version", "", GETS_GOAL, gets),
            Goal(f"{at}: p99 of PUT, of the idle system", "x", PUT_GOAL, put_ratio(measured.probe, shape, IDLE)),
        ]
    return [*goals, Goal(f"{mode}: refused writes", "", 0, len(measured.probe.refused))]


def put_ratio(probe: Probe, shape: str, base: str) -> float:
    """Return p99 of PUT beside all loads of the system as a multiple of that in another state."""
    puts = probe.puts[shape]
    loaded = [ms for variant in VARIANTS for ms in puts[variant.name].ms]
    return round(quantile(loaded, 0.99) / quantile(puts[base].ms, 0.99), 3)


def rows_of(rounds: Sequence[Mapping[str, Block]]) -> dict[str, dict[str, float]]:
    """Return the table of one shape: medians over the rounds."""
    rows: dict[str, dict[str, float]] = {}
    for variant in VARIANTS:
        blocks = [each[variant.name] for each in rounds]
        kinds = dict.fromkeys(kind for block in blocks for kind in block.cpu_us)
        notified = [write for block in blocks for write in block.notified_ms]
        displayed = [write for block in blocks for write in block.displayed_ms]
        rows[variant.name] = {
            "CPU, us": figure([block.total_us for block in blocks]).median,
            **{f"- {kind}": figure([block.cpu_us.get(kind, 0.0) for block in blocks]).median for kind in kinds},
            "notified p50, ms": typical(notified, 0.5),
            "notified p99, ms": typical(notified, 0.99),
            "data p50, ms": typical(displayed, 0.5),
            "data p99, ms": typical(displayed, 0.99),
            "data max, ms": max((late for write in displayed for late in write), default=0.0),
            "bytes": figure([block.bytes for block in blocks]).median,
            "GETs": figure([block.gets for block in blocks]).median,
        }
    return {name: {what: round(value, 2) for what, value in row.items()} for name, row in rows.items()}


def groups_of(figures: Mapping[str, Any]) -> list[Group]:
    """Return the picture of the figures of modes."""
    groups = []
    for mode, found in figures.items():
        for shape, shown in found["shapes"].items():
            rows, title = shown["medians"], f"{mode}, {found['clients']:,} clients, {shape}"
            cpu = (rows[ALONE.name]["CPU, us"] + rows[AGAIN.name]["CPU, us"]) / 2
            late = max(rows[ALONE.name]["notified p99, ms"], rows[AGAIN.name]["notified p99, ms"])
            goals = {WITH_DATA.name: (CPU_GOAL * cpu, TIME_GOAL * late), FETCHED.name: (CACHED_GOAL * cpu, None)}
            bars = [_row_of(name, row, *goals.get(name, (None, None))) for name, row in rows.items()]
            times = shown["put_ms"]
            goal = {variant.name: PUT_GOAL * times[IDLE]["p99"] for variant in VARIANTS}
            puts = {load: _times_of(row["p50"], row["p99"], goal.get(load)) for load, row in times.items()}
            groups += [
                Group(title, bars),
                Group("PUT of another writer, beside", [Row(load, (None, bar, None)) for load, bar in puts.items()]),
            ]
    return groups


def _row_of(name: str, row: Mapping[str, float], cpu_goal: float | None, time_goal: float | None) -> Row:
    cpu = {what[2:]: us for what, us in row.items() if what.startswith("- ") and what != f"- {BROKER}"}
    kind = "data" if row["data p99, ms"] else "notified"
    times = _times_of(row[f"{kind} p50, ms"], row[f"{kind} p99, ms"], time_goal)
    return Row(name, (Bar(cpu, cpu_goal), times, Bar({"bytes": row["bytes"]})))


def _times_of(p50: float, p99: float, goal: float | None) -> Bar:
    return Bar({"half within": p50, "99 % within": p99 - p50}, goal)


def put_row(puts: Puts) -> dict[str, float]:
    """Return the row of a load in the table of writes."""
    row = {
        "p50": quantile(puts.ms, 0.5),
        "p99": quantile(puts.ms, 0.99),
        "waits for a core": puts.waited_ms / max(1, len(puts.ms)),
        "count": len(puts.ms),
    }
    return {what: round(value, 2) for what, value in row.items()}


async def run(modes: Sequence[str], size: Size, report: Report, name: str, *, compressed: bool) -> list[Goal]:
    """Measure modes; after each of them write the figures, and a picture beside them. Return the goals."""
    figures: dict[str, Any] = {}
    goals: list[Goal] = []
    for mode in modes:
        with tempfile.TemporaryDirectory(prefix="diem-display-") as folder:
            measured = await measure(mode, size, Path(folder), report, compressed=compressed)
        probe = measured.probe
        figures[mode] = {
            "clients": measured.clients,
            "idle_cpu_s_per_s": measured.idle,
            "refused": probe.refused[:10],
            "shapes": {},
        }
        for shape, rounds in measured.rounds.items():
            shown: dict[str, Any] = {
                "medians": rows_of(rounds),
                "inline_cpu_x": ratio(rounds, WITH_DATA),
                "fetched_cpu_x": ratio(rounds, FETCHED),
                "a_a": figure([blocks[AGAIN.name].total_us / blocks[ALONE.name].total_us for blocks in rounds]),
                "inline_time_x": time_ratio(rounds),
                "put_ms": {load: put_row(puts) for load, puts in probe.puts[shape].items()},
                "put_x_equal_load": put_ratio(probe, shape, EQUAL),
            }
            figures[mode]["shapes"][shape] = shown
            # In two tables, to fit into a line.
            for title, is_cpu in (("CPU", True), ("time", False)):
                rows = {
                    name: {what: v for what, v in row.items() if what.startswith(("CPU", "-")) is is_cpu}
                    for name, row in shown["medians"].items()
                }
                report.rows(f"{mode}, {shape}: {title}", rows)
            report.rows(f"{mode}, {shape}: PUT of another writer, ms", shown["put_ms"])
        goals += goals_of(mode, measured)
        written = write(name, {"compressed": compressed, "parameters": size._asdict(), "modes": figures}, goals)
        written.with_suffix(".svg").write_text(draw(TITLE, COLUMNS, groups_of(figures)), encoding="utf-8")
    return goals


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/display.json and its picture, and print the figures."""
    options = parser(
        __spec__,
        __doc__,
        report="build/bench/display[-MODE][-compressed].json and .svg",
        quick="1,200 clients, two short rounds",
    )
    options.add_argument("--mode", choices=MODES, help="one of them; default: all")
    options.add_argument("--compressed", action="store_true", help="clients offer permessage-deflate, as browsers do")
    arguments = options.parse_args(argv)
    modes = [arguments.mode] if arguments.mode else sized([*MODES], [*MODES], ["z-proxy"])
    size = sized(FULL, QUICK, SMOKE)
    parts = ["display", arguments.mode, "compressed" if arguments.compressed else None]
    name = "-".join(filter(None, parts))
    with Report(len(modes) * (4 + 2 * size.rounds)) as report:
        try:
            goals = asyncio.run(run(modes, size, report, name, compressed=arguments.compressed))
        except native.NoCompiler as error:
            print(error, file=sys.stderr)
            return 1
        report.goals(goals)
    print(f"written: build/bench/{name}.json and .svg")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
