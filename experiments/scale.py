"""``make bench-scale``: x-broadcast on a shared port with as many clients as this machine carries.

Clients (``tests/bench/swarm.c``) come from 50 an address and reconnect by the protocol's rules. All of them are judged:
a second after a version was accepted, each that has been live for as long must have it. One system grows in steps; at
its full size one endpoint is written each second for ten minutes, clients come and go, some read 1 KB/s, a server is
killed, one is drained, and all connections are reset at once. Then curves over endpoints, subscriptions and servers,
and outages of a server alone, whose system has one core and whose clients the other; and one with six times the updates
that its core can send, while more clients come. ``QUICK=1``: 2,000 clients, seconds instead of minutes, fewer curves.
"""

import asyncio
import contextlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import uvloop

from experiments.document import document, revision, table
from experiments.picture import Bar, Group, Row, draw
from experiments.swarm import Delivery, Subscriptions, Swarm, Writer, swarming
from tests.bench import native, procfs
from tests.bench.drain import pin
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.load.system import System
from tests.support.commandline import parser
from tests.support.size import sized

PER_ADDRESS: Final = 60
"""Most clients of an address: ten more than there are, since one may return before its last connection is closed."""
FILES: Final = 19_700
"""Clients that a server may have with 20,000 open files."""
ROUND_S: Final = 26.0
"""Time in which each client is pinged once."""
ALL: Final = Subscriptions("/scale/")
SLOW: Final = Subscriptions("/slow/", 10, 10, data=True)
SLOW_BYTES_PER_S, SLOW_BUFFER, SLOW_DATA = 1000, 4096, 3000
SLOW_NET: Final = 100
LATE_S: Final = 1.0
WEBSOCKET: Final = "websocket"
WHOLE: Final = ("hold", "churn", "slow", "kill", "drain", "cut")
PARTS: Final = (*WHOLE, "endpoints", "subscriptions", "servers", "outages", "overload")
TITLE: Final = "DIEM with many clients"


class Size(NamedTuple):
    """Size of a run."""

    steps: tuple[int, ...]
    servers: int
    rate: float
    """Dials a second."""
    idle_s: float
    step_s: float
    hold_s: float
    churn_s: float
    churn: float
    slow: int
    slow_s: float
    limit_s: float
    """Longest wait until all are live."""
    curve: int
    """Clients of the curves over endpoints, subscriptions and servers."""
    endpoints: tuple[int, ...]
    subscriptions: tuple[int, ...]
    of_servers: tuple[int, ...]
    curve_s: float
    outages: tuple[int, ...]
    overload: tuple[int, int, float]
    """Clients, others that come, and seconds before they do."""


SIZE: Final = sized(
    Size(
        steps=(5000, 20_000, 50_000, 100_000),
        servers=7,
        rate=2500,
        idle_s=ROUND_S,
        step_s=15,
        hold_s=600,
        churn_s=600,
        churn=2000,
        slow=300,
        slow_s=30,
        limit_s=240,
        curve=5000,
        endpoints=(10, 100, 1000, 10_000),
        subscriptions=(1, 10, 100),
        of_servers=(1, 2, 4),
        curve_s=8,
        outages=(5000, 10_000, 19_500),
        overload=(17_000, 2500, 10),
    ),
    Size(
        steps=(500, 2000),
        servers=3,
        rate=1000,
        idle_s=2,
        step_s=3,
        hold_s=5,
        churn_s=4,
        churn=40,
        slow=50,
        slow_s=6,
        limit_s=30,
        curve=300,
        endpoints=(10, 100),
        subscriptions=(),
        of_servers=(),
        curve_s=2,
        outages=(1000,),
        overload=(1500, 300, 3),
    ),
    Size(
        steps=(60, 120),
        servers=2,
        rate=300,
        idle_s=0.5,
        step_s=1,
        hold_s=1,
        churn_s=1,
        churn=20,
        slow=5,
        slow_s=1,
        limit_s=30,
        curve=50,
        endpoints=(10,),
        subscriptions=(1,),
        of_servers=(),
        curve_s=0.5,
        outages=(50,),
        overload=(40, 10, 0.5),
    ),
)


class Scene(NamedTuple):
    """A running system with its clients."""

    system: System
    swarm: Swarm
    writer: Writer
    clients: int
    """All of them."""


class Meter:
    """CPU of all processes from now on."""

    def __init__(self, system: System, swarm: Swarm) -> None:
        self._system = system
        self._swarm = swarm
        self._before = self._spent()
        self._began = time.monotonic()

    def read(self) -> dict[str, float]:
        """Return milliseconds a second by kind of process."""
        lasted = time.monotonic() - self._began
        used: dict[str, float] = {}
        for (kind, pid), seconds in self._spent().items():
            spent = (seconds - self._before.get((kind, pid), 0.0)) / lasted * 1000
            used[kind] = round(used.get(kind, 0.0) + spent, 2)
        return used

    def _spent(self) -> dict[tuple[str, int], float]:
        spent = {}
        for kind, pid in [*pids(self._system), *(("clients", pid) for pid in self._swarm.pids)]:
            with contextlib.suppress(OSError):
                spent[kind, pid] = procfs.cpu_seconds(pid)
        return spent


def pids(system: System) -> Iterator[tuple[str, int]]:
    """Yield the processes of a system: kind and process id."""
    yield "diem up", system.supervisor_pid
    for process in system.processes():
        if process.pid is not None:
            yield process.name.rstrip("-0123456789"), process.pid


class Memory(NamedTuple):
    """Memory in KiB."""

    servers: float
    """Resident in the servers."""
    machine: float
    """Of everything, the kernel's share included."""

    @classmethod
    def now(cls, system: System) -> "Memory":
        """Measure."""
        held = sum(procfs.rss_kib(pid) for kind, pid in pids(system) if kind == WEBSOCKET)
        found = psutil.virtual_memory()
        return cls(held, (found.total - found.available) / 1024)


def system_cpu(used: Mapping[str, float]) -> float:
    """Return the sum without the clients."""
    return sum(spent for kind, spent in used.items() if kind != "clients")


def delivered(deliveries: Sequence[Delivery], clients: int) -> dict[str, Any]:
    """Return when the last client had a version, and how many were missed by clients that had been live before it."""
    lasts = sorted(each.last_s for each in deliveries) or [0.0]
    return {
        "versions": len(deliveries),
        "last client, median, s": round(statistics.median(lasts), 3),
        "last client, p95, s": lasts[int(0.95 * (len(lasts) - 1))],
        "last client, slowest, s": lasts[-1],
        "missed": sum(max(0, clients - each.clients) for each in deliveries),
    }


class Scale:
    """One run."""

    def __init__(self, folder: Path, report: Report, parts: Sequence[str], steps: Sequence[int], hold_s: float) -> None:
        self.found: dict[str, Any] = {}
        self.goals: list[Goal] = []
        self.about = {
            "began": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
            "revision": revision(),
            "load before": _load(),
        }
        self._folder = folder
        self._report = report
        self._parts = parts
        self._steps = steps
        self._hold_s = hold_s
        self._stale = 0
        self._judgements = 0

    async def run(self) -> None:
        """Measure all parts."""
        if not {*self._parts}.isdisjoint(WHOLE):
            async with self._start("x-broadcast", servers=SIZE.servers) as system:
                await self._whole(system)
        for part, curve in (("endpoints", self._endpoints), ("subscriptions", self._subscriptions)):
            if part in self._parts:
                self.found[part] = await curve()
                self.write()
        if "servers" in self._parts:
            self.found["servers"] = {str(number): await self._servers(number) for number in SIZE.of_servers}
            self.write()
        if "outages" in self._parts:
            self.found["outages"] = {}
            for clients in SIZE.outages:
                self.found["outages"][str(clients)] = await self._outage(clients)
                self.write()
        if "overload" in self._parts:
            self.found["overload"] = await self._overload(*SIZE.overload)
            self.write()

    # One system, all clients

    async def _whole(self, system: System) -> None:
        most = self._steps[-1]
        async with AsyncExitStack() as stack:
            before = Memory.now(system)
            swarm = await stack.enter_async_context(swarming(system, most, ALL))
            writer = Writer(system, swarm, 1.0)
            # What has just started has work left.
            await asyncio.sleep(SIZE.idle_s / 5)
            meter = Meter(system, swarm)
            await asyncio.sleep(SIZE.idle_s / 2)
            self.found["at rest"] = {"CPU, ms/s": meter.read(), "servers, MiB": round(before.servers / 1024, 1)}
            self.found["steps"] = {}
            for clients in self._steps:
                self.found["steps"][str(clients)] = await self._step(Scene(system, swarm, writer, clients), before)
                self.write()
            parts = {
                "hold": self._hold,
                "churn": self._churn,
                "slow": self._slow,
                "kill": self._kill,
                "drain": self._drain,
            }
            for name, part in {**parts, "cut": self._cut}.items():
                if name in self._parts:
                    load = _load()
                    self.found[name] = await part(Scene(system, swarm, writer, most)) | {"load before": load}
                    self.write()
            await self._control(swarm)
            self.write()

    async def _step(self, scene: Scene, before: Memory) -> dict[str, Any]:
        system, swarm, _, clients = scene
        self._report.step(f"{clients} clients connect")
        began, meter = time.monotonic(), Meter(system, swarm)
        opened = (await self._state(swarm))["live"]
        swarm.open(clients, SIZE.rate)
        course = await swarm.reach(clients, SIZE.limit_s)
        took = time.monotonic() - began
        used = meter.read()
        self._judge(course.counts)
        self._report.step(f"{clients} clients without updates")
        await asyncio.sleep(SIZE.idle_s / 5)
        held, state, meter = Memory.now(system), await self._state(swarm), Meter(system, swarm)
        await asyncio.sleep(SIZE.idle_s)
        idle, state = meter.read(), await self._state(swarm)
        rest = self.found["at rest"]["CPU, ms/s"]
        self._report.step(f"{clients} clients with one update a second")
        updates = await self._broadcast(scene, SIZE.step_s)
        return {
            "live": state["live"],
            "connect, s": round(took, 1),
            "connects a second": round((clients - opened) / took),
            "until live, p50, s": course.counts["latency_p50"],
            "until live, p99, s": course.counts["latency_p99"],
            "refused": course.counts["refused"],
            "CPU of a connect, us": round(system_cpu(used) * took * 1000 / max(1, clients - opened)),
            "its client's, us": round(used["clients"] * took * 1000 / max(1, clients - opened)),
            "servers, KiB a client": round((held.servers - before.servers) / clients, 2),
            "servers, MiB": round(held.servers / 1024, 1),
            "machine, KiB a client": round((held.machine - before.machine) / clients, 2),
            "machine, MiB": round((held.machine - before.machine) / 1024),
            "idle CPU, ms/s for 1,000": round((system_cpu(idle) - system_cpu(rest)) / clients * 1000, 2),
            "idle frames a client and second": round(state["frames"] / clients / SIZE.idle_s, 3),
            "idle CPU of clients, ms/s for 1,000": round(idle["clients"] / clients * 1000, 2),
            "idle lost": state["lost"],
            "updates": updates,
            "load": _load(),
        }

    async def _broadcast(self, scene: Scene, seconds: float) -> dict[str, Any]:
        system, swarm, writer, _ = scene
        await self._state(swarm)
        await writer.deliveries()
        meter = Meter(system, swarm)
        async with writer.writing():
            await asyncio.sleep(seconds)
        used = meter.read()
        await asyncio.sleep(2 * LATE_S)
        state = await self._state(swarm)
        frames = max(1, state["updates"])
        found = delivered(await writer.deliveries(), state["live"])
        return found | {
            "CPU, ms/s": used,
            "CPU of an update to a client, us": round(system_cpu(used) * seconds * 1000 / frames, 2),
            "its client's, us": round(used["clients"] * seconds * 1000 / frames, 2),
            "lost": state["lost"],
            "stale": state["stale"],
            "backwards": state["backwards"],
        }

    async def _hold(self, scene: Scene) -> dict[str, Any]:
        self._report.step(f"{scene.clients} clients with one update a second for {self._hold_s:g} s")
        before = Memory.now(scene.system)
        found = await self._broadcast(scene, self._hold_s)
        after = Memory.now(scene.system)
        self.goals += [
            Goal("updates missed by a client while all are held", "", 0, found["missed"]),
            Goal("connections lost meanwhile", "", 0, found["lost"]),
            Goal("update to all until its last client, median", "s", LATE_S, found["last client, median, s"]),
            Goal("the same, slowest", "s", 2 * LATE_S, found["last client, slowest, s"]),
        ]
        return found | {"seconds": self._hold_s, "servers grew, MiB": round((after.servers - before.servers) / 1024, 1)}

    async def _churn(self, scene: Scene) -> dict[str, Any]:
        system, swarm, writer, clients = scene
        found: dict[str, Any] = {"wanted a second": SIZE.churn}
        for name, updates in (("without updates", False), ("with one update a second", True)):
            self._report.step(f"of {clients} clients {SIZE.churn:g} a second leave and come, {name}")
            await self._state(swarm)
            await writer.deliveries()
            meter, began = Meter(system, swarm), time.monotonic()
            swarm.churn(SIZE.churn)
            async with writer.writing() if updates else contextlib.nullcontext():
                await asyncio.sleep(SIZE.churn_s)
            used, lasted = meter.read(), time.monotonic() - began
            swarm.churn(0)
            state = await self._state(swarm)
            course = await swarm.reach(clients, SIZE.limit_s)
            self._judge(course.counts)
            deliveries = await writer.deliveries()
            found[name] = {
                "connects a second": round(state["connected"] / lasted),
                "until live, p50, s": state["latency_p50"],
                "until live, p99, s": state["latency_p99"],
                "refused": state["refused"] + course.counts["refused"],
                "gave up": state["unanswered"],
                "live at the end": state["live"],
                "stale": state["stale"] + course.counts["stale"],
                "all live after the end, s": course.reached(clients, began + lasted),
                "CPU, ms/s": used,
                "CPU of a connect and leave, us": round(system_cpu(used) * lasted * 1000 / max(1, state["connected"])),
                "closes": state["closes"],
            } | ({k: v for k, v in delivered(deliveries, 0).items() if k != "missed"} if updates else {})
        self.goals.append(Goal("clients refused while they come and go", "", 0, found["without updates"]["refused"]))
        return found

    async def _slow(self, scene: Scene) -> dict[str, Any]:
        system, swarm, writer, _ = scene
        self._report.step(f"{SIZE.slow} clients read {SLOW_BYTES_PER_S} B/s of {SLOW.endpoints * SLOW_DATA} B/s")
        async with swarming(system, SIZE.slow, SLOW, first_net=SLOW_NET, receive_buffer=SLOW_BUFFER) as readers:
            fast = Writer(system, readers, 1.0, batch=SLOW.endpoints, size=SLOW_DATA)
            readers.open(SIZE.slow, SIZE.rate)
            await readers.reach(SIZE.slow, SIZE.limit_s)
            await self._state(swarm)
            before = Memory.now(system)
            readers.slow(SLOW_BYTES_PER_S)
            async with fast.writing(), writer.writing():
                await asyncio.sleep(SIZE.slow_s)
                held = Memory.now(system)
            beside = await self._state(swarm)
            others = delivered(await writer.deliveries(), beside["live"])
            slow = await readers.state()
            readers.slow(0)
            course = await readers.reach(SIZE.slow, SIZE.limit_s)
            # Judgements that are still due are of the time before.
            await asyncio.sleep(2 * LATE_S)
            await readers.state()
            readers.newest(max(fast.written, default=0), time.monotonic())
            await asyncio.sleep(2 * LATE_S)
            after = await readers.state()
        self.goals += [
            Goal("updates missed by the others beside slow readers", "", 0, others["missed"]),
            Goal(
                "slow readers without the newest version once they read",
                "",
                0,
                after["stale"] + SIZE.slow - after["live"],
            ),
        ]
        return {
            "readers": SIZE.slow,
            "closed": slow["closes"] or {},
            "servers, KiB a reader": round((held.servers - before.servers) / SIZE.slow, 1),
            "machine, KiB a reader": round((held.machine - before.machine) / SIZE.slow, 1),
            "all live again, s": course.reached(SIZE.slow, course.live[0][0]),
            "stale at the end": after["stale"],
            "others": others,
        }

    async def _kill(self, scene: Scene) -> dict[str, Any]:
        self._report.step("a server is killed")
        return await self._loss(scene, "after a kill", await _clients(scene.system, 1), _kill)

    async def _drain(self, scene: Scene) -> dict[str, Any]:
        self._report.step("a server is drained")
        held = await _clients(scene.system, SIZE.servers)

        async def drain(system: System) -> None:
            await system.scale(SIZE.servers - 1)

        found = await self._loss(scene, "after a drain", held, drain)
        await scene.system.scale(SIZE.servers)
        return found

    async def _cut(self, scene: Scene) -> dict[str, Any]:
        self._report.step("all connections are reset")

        async def cut(_system: System) -> None:
            scene.swarm.cut()

        return await self._loss(scene, "after a reset of all", scene.clients, cut)

    async def _loss(
        self, scene: Scene, name: str, lost: int, happen: Callable[[System], Coroutine[None, None, None]]
    ) -> dict[str, Any]:
        """Lose clients, and wait until all are live again."""
        system, swarm, writer, clients = scene
        await self._state(swarm)
        await writer.deliveries()
        meter, began = Meter(system, swarm), time.monotonic()
        async with writer.writing():
            happening = asyncio.create_task(happen(system))
            course = await swarm.reach(clients, SIZE.limit_s, lost=lost)
            used, lasted = meter.read(), time.monotonic() - began
            await happening
            await asyncio.sleep(2 * LATE_S)
        counts = course.counts
        self._judge(counts)
        last = await self._state(swarm)
        others = delivered(await writer.deliveries(), 0)
        self.goals += [
            Goal(f"clients that are not live {name}", "", 0, clients - last["live"]),
            Goal(f"clients that were live, without the newest version {name}", "", 0, counts["stale"] + last["stale"]),
        ]
        if lost < clients or system.mode == "single":
            # Where all return to servers that share their cores with the clients, these wait for a core.
            slowest = others["last client, slowest, s"]
            self.goals.append(Goal(f"updates of live clients {name}, the latest", "s late", LATE_S, slowest))
        return {
            "lost": counts["lost"],
            "half of them live, s": course.reached(clients - lost / 2, began),
            "99 % live, s": course.reached(clients - lost / 100, began),
            "all lost and live, s": round(lasted, 2) if last["live"] >= clients else None,
            "attempts for each": round(counts["attempts"] / max(1, counts["lost"]), 2),
            "refused": counts["refused"],
            "gave up": counts["unanswered"],
            "CPU, s": {kind: round(spent * lasted / 1000, 2) for kind, spent in used.items()},
            "CPU for each, us": round(system_cpu(used) * lasted * 1000 / max(1, counts["lost"])),
            "stale": counts["stale"] + last["stale"],
            "closes": counts["closes"],
            **{name: value for name, value in others.items() if name != "missed"},
        }

    async def _control(self, swarm: Swarm) -> None:
        """Show that the oracle finds stale clients."""
        self._report.step("control of the oracle")
        await self._state(swarm)
        swarm.newest(1 << 60, time.monotonic())
        await asyncio.sleep(2 * LATE_S)
        found = await swarm.state()
        self.found["control"] = {"live": found["live"], "stale": found["stale"]}
        self.found["oracle"] = {"judgements": self._judgements, "stale": self._stale}
        self.goals += [
            Goal("clients without the newest version, in all judgements of the oracle", "", 0, self._stale),
            Goal("clients found without a version that nobody wrote", "", found["live"], found["stale"], at_least=True),
        ]

    # Curves

    async def _endpoints(self) -> dict[str, Any]:
        found = {}
        async with self._start("x-broadcast", servers=2) as system:
            for number in SIZE.endpoints:
                self._report.step(f"{number} endpoints")
                each = min(10, number)
                subscriptions = Subscriptions(f"/e{number}/", number, each)
                found[str(number)] = await self._curve(system, subscriptions, SIZE.curve, max(1, number // each))
        return found

    async def _subscriptions(self) -> dict[str, Any]:
        found = {}
        for number in SIZE.subscriptions:
            self._report.step(f"{number} subscriptions each")
            async with self._start("x-broadcast", servers=2) as system:
                subscriptions = Subscriptions("/s/", 10 * number, number)
                found[str(number)] = await self._curve(system, subscriptions, SIZE.curve, 10)
        return found

    async def _servers(self, number: int) -> dict[str, Any]:
        self._report.step(f"{number} servers")
        async with self._start("x-broadcast", servers=number) as system:
            return await self._curve(system, ALL, SIZE.curve, 1)

    async def _curve(self, system: System, of: Subscriptions, clients: int, batch: int) -> dict[str, Any]:
        """Measure clients of which each gets a frame with every write, from one of ``batch`` endpoints."""
        before = Memory.now(system)
        async with swarming(system, clients, of) as swarm:
            swarm.open(clients, SIZE.rate)
            course = await swarm.reach(clients, SIZE.limit_s)
            held = Memory.now(system)
            writer = Writer(system, swarm, 0.5, batch=batch)
            async with writer.writing():
                await asyncio.sleep(1)
                await self._state(swarm)
                writer.updates()
                meter = Meter(system, swarm)
                await asyncio.sleep(SIZE.curve_s)
                used, state, updates = meter.read(), await self._state(swarm), writer.updates()
            frames = max(1, state["updates"])
            return {
                "live": course.live[-1][1],
                "servers, KiB a client": round((held.servers - before.servers) / clients, 2),
                "updates a second": round(updates / SIZE.curve_s, 1),
                "frames a second": round(frames / SIZE.curve_s),
                "servers, us a frame": round(used[WEBSOCKET] * SIZE.curve_s * 1000 / frames, 2),
                "system, us a frame": round(system_cpu(used) * SIZE.curve_s * 1000 / frames, 2),
                "CPU, ms/s": used,
                "stale": state["stale"],
            }

    # Outages of a server alone

    async def _outage(self, clients: int) -> dict[str, Any]:
        self._report.step(f"a server alone is killed, {clients} clients")
        async with self._alone(clients) as (system, swarm):
            swarm.open(clients, SIZE.rate)
            await swarm.reach(clients, SIZE.limit_s)
            scene = Scene(system, swarm, Writer(system, swarm, 0.2), clients)
            await asyncio.sleep(1)
            killed = system.process(f"{WEBSOCKET}-1").pid
            found = await self._loss(scene, f"after an outage of {clients}", clients, _kill)
            pid = system.process(f"{WEBSOCKET}-1").pid or 0
            found["new server, s of CPU"] = round(procfs.cost(pid).cpu, 2)
            found["new server waited for a core, s"] = round(procfs.cost(pid).waited, 2)
            assert pid != killed
        if clients == 10_000:
            self.goals.append(Goal("10,000 clients live after an outage", "s", 8.0, found["all lost and live, s"]))
        return found

    async def _overload(self, clients: int, others: int, seconds: float) -> dict[str, Any]:
        """Write thirty times a second, of which a core can send five to so many clients, and let others come."""
        self._report.step(f"thirty updates a second to {clients} clients of a server alone")
        async with self._alone(clients + others) as (system, swarm):
            swarm.open(clients, SIZE.rate)
            await swarm.reach(clients, SIZE.limit_s)
            await self._state(swarm)
            # Each waits for its answers.
            writers = [Writer(system, swarm, 0.1) for _ in range(3)]
            meter, began = Meter(system, swarm), time.monotonic()
            async with AsyncExitStack() as writing:
                for writer in writers:
                    await writing.enter_async_context(writer.writing())
                await asyncio.sleep(seconds)
                swarm.open(clients + others, SIZE.rate)
                came = time.monotonic()
                course = await swarm.reach(clients + others, SIZE.limit_s)
                used, lasted = meter.read(), time.monotonic() - began
            await asyncio.sleep(2 * LATE_S)
            last = await self._state(swarm)
        counts = course.counts
        self._judge(counts)
        live = course.reached(clients + others, came)
        stale = counts["stale"] + last["stale"]
        self.goals += [
            Goal("clients lost by an overloaded server", "", 0, counts["lost"] + last["lost"]),
            Goal("clients of an overloaded server without a version a second old", "", 0, stale),
            Goal("all that come to an overloaded server live after", "s", 10.0, live),
        ]
        return {
            "clients": clients,
            "others": others,
            "all live, s": live,
            "attempts": counts["attempts"],
            "gave up": counts["unanswered"],
            "lost": counts["lost"] + last["lost"],
            "stale": stale,
            "frames a client and second": round(counts["frames"] / (clients * lasted), 2),
            "CPU, ms/s": used,
        }

    @contextlib.asynccontextmanager
    async def _alone(self, clients: int) -> AsyncIterator[tuple[System, Swarm]]:
        """Start a system of one server on one core, and clients that do not yet dial on another."""
        cores = sorted(os.sched_getaffinity(0))
        own, other = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
        with _pinned(own):
            start = self._start("single")
            system = await start.__aenter__()
        try:
            async with swarming(system, clients, ALL, core=other) as swarm:
                yield system, swarm
        finally:
            await start.__aexit__(None, None, None)

    @contextlib.asynccontextmanager
    async def _start(self, mode: str, servers: int | None = None) -> AsyncIterator[System]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        options = ["--traffic", "off", "--clients-per-address", str(PER_ADDRESS)]
        if servers is not None:
            options += ["--servers", str(servers)]
        async with System(
            mode, folder, options, {"DIEM_WEBSOCKET_CAPACITY": str(FILES), "DIEM_DRAIN_SECONDS": "30"}
        ) as system:
            yield system

    async def _state(self, swarm: Swarm) -> dict[str, Any]:
        state = await swarm.state()
        self._judge(state)
        return state

    def _judge(self, state: Mapping[str, Any]) -> None:
        self._stale += state["stale"]
        self._judgements += state["judgements"]

    def write(self) -> Path:
        """Write what has been measured so far, and the page."""
        figures = {"about": self.about, "parameters": SIZE._asdict(), "found": self.found}
        written = write("scale", figures, self.goals)
        written.with_suffix(".html").write_text(page(figures, self.goals), encoding="utf-8")
        return written


async def _clients(system: System, number: int) -> int:
    """Return the clients of a server."""
    return int((await system.ask(f"{WEBSOCKET}-{number}", "GET", "/status")).json()["clients"])


async def _kill(system: System) -> None:
    await system.kill(f"{WEBSOCKET}-1")


@contextlib.contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    pin(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _load() -> str:
    return " ".join(f"{each:.1f}" for each in os.getloadavg())


CURVES: Final = (
    (
        "steps",
        "More clients",
        ("servers, KiB a client", "idle CPU, ms/s for 1,000", "CPU of a connect, us", "until live, p99, s"),
    ),
    ("steps", "One update to all", ("updates: CPU of an update to a client, us", "updates: last client, median, s")),
    ("endpoints", "More endpoints", ("system, us a frame", "servers, us a frame", "updates a second")),
    ("subscriptions", "More subscriptions", ("servers, KiB a client", "servers, us a frame")),
    ("servers", "More servers", ("system, us a frame", "servers, us a frame")),
    ("outages", "A server alone is killed", ("half of them live, s", "all lost and live, s", "CPU for each, us")),
)
WITH_TABLE: Final = frozenset(title for name, title, _ in CURVES if name != "steps" or title == "One update to all")
"""One for each kind of rows."""
NAMES: Final = {
    "hold": "One update a second to all",
    "churn": "Clients leave and come",
    "slow": "Slow readers",
    "kill": "A server is killed",
    "drain": "A server is drained",
    "cut": "All connections are reset",
    "overload": "A server alone is sent more than it can send",
}


def page(figures: Mapping[str, Any], goals: Sequence[Goal]) -> str:
    """Return the report."""
    found, about = figures["found"], figures["about"]
    parts = [
        f"<h1>{TITLE}</h1>",
        f"<p>{escape('; '.join(f'{name}: {value}' for name, value in about.items()))}.</p>",
        "<h2>Goals</h2>",
        table(
            ["", "goal", "measured"],
            [
                [each.name, f"{each.goal:g} {each.unit}", f"{each.measured}{'' if each.reached else ' (missed)'}"]
                for each in goals
            ],
        ),
    ]
    for name, title, columns in CURVES:
        if rows := found.get(name):
            parts += [f"<h2>{title}</h2>", draw(title, columns, [Group("", _bars(rows, columns))])]
            if title in WITH_TABLE:
                parts.append(_rows(rows))
    for name, title in NAMES.items():
        if name in found:
            parts += [f"<h2>{title}</h2>", _rows({"": found[name]})]
    return document(TITLE, parts)


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{before}{name}: ") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return flat


def _bars(rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> list[Row]:
    flat = {key: _flat(row) for key, row in rows.items()}
    return [
        Row(f"{int(key):,}", [None if row.get(name) is None else Bar({"": row[name]}) for name in columns])
        for key, row in flat.items()
    ]


def _rows(rows: Mapping[str, Mapping[str, Any]]) -> str:
    flat = {key: _flat(row) for key, row in rows.items()}
    names = dict.fromkeys(name for row in flat.values() for name in row)
    return table(["", *rows], [[name, *(f"{row.get(name, '')}" for row in flat.values())] for name in names])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/scale.json and its page, and print the goals."""
    options = parser(
        __spec__, __doc__, report="build/bench/scale.json and .html", quick="2,000 clients, seconds instead of minutes"
    )
    options.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="these parts; default: all")
    options.add_argument("--clients", type=int, nargs="+", default=SIZE.steps, help="steps of the system that grows")
    options.add_argument("--hold", type=float, default=SIZE.hold_s, help="seconds with one update a second")
    arguments = options.parse_args(argv)
    curves = (SIZE.endpoints, SIZE.subscriptions, SIZE.of_servers, SIZE.outages)
    steps = 3 * len(arguments.clients) + 9 + sum(map(len, curves))
    with tempfile.TemporaryDirectory(prefix="diem-scale-") as folder, Report(steps) as report:
        try:
            scale = Scale(Path(folder), report, arguments.only, arguments.clients, arguments.hold)
            uvloop.run(scale.run())
        except native.NoCompiler as error:
            print(error, file=sys.stderr)
            return 1
        report.goals(scale.goals)
    print(f"written: {scale.write()} and .html")
    return exit_code(scale.goals)


if __name__ == "__main__":
    sys.exit(main())
