"""Costs of the roles that only a whole system has: Data Service, publisher, broker, Broadcast node and nginx.

One system of mode x-broadcast and one of mode x get blocks of known composition through the REST interface, and what
each kind of process spends on them is fitted. The Broadcast node is measured with one server behind it and with three.
A composite without any load shows what it and the metadata service spend on being there.
"""

import asyncio
import contextlib
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from experiments.cost_target import Block, Target, cpu_seconds
from experiments.loads import MIX, Load, Schedule, mean_parts, settle, subscriptions
from experiments.published import Writer
from experiments.regression import Estimate
from learning.modes.configuration import Size
from tests.bench.drain import draining
from tests.bench.procfs import pss_kib
from tests.load.processes import children
from tests.load.system import System
from tests.support.size import sized

MODES: Final = ("x-broadcast", "x")
COMPOSITE: Final = "z-composite"
IDLE_SLICES, IDLE_S = sized((4, 2.0), (4, 2.0), (2, 0.2))
CLIENTS: Final = sized(400, 400, 100)
READERS: Final = (1, 3)
"""Servers that read from the Broadcast node."""
BATCH: Final = 50
"""Most datasets of one request."""
REST: Final = Load(0, 0)
LOADS: Final = (REST, Load(0, 10), Load(0, 40), Load(10, 10), Load(20, 20), Load(20, 40), MIX)
PARTS: Final = mean_parts(LOADS, Size().partitions)
"""Partitions that a write has parts for, on average."""
UNWATCHED: Final = (REST, Load(0, 10), Load(0, 40))
_OPTIONS: Final = ("--servers", "1", "--max-servers", str(READERS[-1]), "--traffic", "off")
_SETTINGS: Final = {
    "DIEM_WEBSOCKET_CONNECTION_RATE_PER_ADDRESS": "10000",
    "DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS": "1000",
}


class Roles:
    """Blocks of both systems, and the costs fitted to them."""

    def __init__(self, directory: Path, program: Path, cores: tuple[int | None, int | None], rounds: int) -> None:
        self.targets: dict[str, Target] = {}
        self.memory_kib: dict[str, dict[str, float]] = {}
        """Resident memory of each kind of process with clients and endpoints, by mode."""
        self._idle: dict[str, Estimate] = {}
        self._directory = directory
        self._program = program
        self._cores = cores
        self._rounds = rounds

    async def measure(self, mode: str) -> None:
        """Run one system and measure its blocks."""
        options = (*_OPTIONS, "--nginx", "--clients-per-address", "1000")
        async with contextlib.AsyncExitStack() as stack:
            system = await stack.enter_async_context(System(mode, self._directory / mode, options, _SETTINGS))
            _, port, _ = system.servers[0]
            clients = draining(self._program, port, CLIENTS, net=1, core=self._cores[1])
            drain = await stack.enter_async_context(clients)
            writer = Writer(system.process("data").public_port or 0, system.write_key)
            stack.callback(writer.close)

            async def write(names: Sequence[str]) -> None:
                for start in range(0, len(names), BATCH):
                    await writer.put(names[start : start + BATCH])

            target = Target(_pids(system), drain, write, LOADS)
            await settle(drain, subscriptions([10, 20], CLIENTS), write)
            schedule = Schedule(random.Random(1))
            await self._blocks(target, LOADS, schedule)
            self.memory_kib[mode] = _by_kind({name: pss_kib(pid) for name, pid in target.pids.items()})
            _count_readers(target.blocks, READERS[0])
            if mode == "x-broadcast":
                await system.scale(READERS[1])
                more = Target(_pids(system), drain, write, UNWATCHED)
                await self._blocks(more, UNWATCHED, schedule)
                _count_readers(more.blocks, READERS[1])
                target.blocks += [(load, there, _by_kind(cpu)) for load, there, cpu in more.blocks]
            target.blocks = [(load, there, _by_kind(cpu)) for load, there, cpu in target.blocks]
        self.targets[mode] = target

    async def measure_idle(self) -> None:
        """Run a composite, and measure its processes while nothing happens."""
        options = ("--servers", "1", "--max-servers", "1", "--traffic", "off")
        async with System(COMPOSITE, self._directory / COMPOSITE, options) as system:
            found = await system.everything()
            pids = {process.name.rpartition("/")[2]: process.pid for process in found if process.pid is not None}
            self.memory_kib[COMPOSITE] = _by_kind({name: pss_kib(pid) for name, pid in pids.items()})
            spent: dict[str, list[float]] = defaultdict(list)
            for _ in range(IDLE_SLICES):
                before, began = cpu_seconds(pids), monotonic()
                await asyncio.sleep(IDLE_S)
                seconds, after = monotonic() - began, cpu_seconds(pids)
                for kind, cpu in _by_kind({name: after[name] - before[name] for name in pids}).items():
                    spent[kind].append(cpu / seconds)
        for kind, cpu_s in spent.items():
            self._idle[kind] = Estimate(statistics.mean(cpu_s), statistics.stdev(cpu_s) / len(cpu_s) ** 0.5)

    async def _blocks(self, target: Target, loads: Sequence[Load], schedule: Schedule) -> None:
        for number in range(self._rounds):
            for load in reversed(loads) if number % 2 else loads:
                await target.block(load, schedule)

    def estimates(self) -> dict[str, Estimate]:
        """Return the costs of each role, in seconds; those of the publisher are what mode x takes more of."""
        broadcast, x = (self.targets[mode] for mode in MODES)
        readers = ["reader_updates", "reader_writes"]
        data = broadcast.fitted(process="data", without=["frames", *readers])
        published = x.fitted(process="data", without=["frames", *readers])
        node = broadcast.fitted(process="broadcast", without=["frames"])
        broker = x.fitted(process="kafka", without=["frames", *readers])
        gates = [each.fitted(process="nginx", without=["updates", *readers]) for each in (broadcast, x)]
        return {
            "data_update_us": data["updates"],
            "data_write_us": data["writes"],
            "data_idle_us_per_s": data["seconds"],
            "publisher_update_us": _difference(published["updates"], data["updates"]),
            "publisher_idle_us_per_s": _difference(published["seconds"], data["seconds"]),
            "publisher_write_us": _difference(published["writes"], data["writes"]),
            "broadcast_update_us": node["updates"],
            "broadcast_write_us": node["writes"],
            "broadcast_reader_update_us": node["reader_updates"],
            "broadcast_reader_write_us": node["reader_writes"],
            "broadcast_idle_us_per_s": node["seconds"],
            "broker_update_us": broker["updates"],
            "broker_part_us": broker["writes"].divided(PARTS),
            "broker_idle_us_per_s": broker["seconds"],
            "nginx_frame_us": _mean([each["frames"] for each in gates]),
            "nginx_write_us": _mean([each["writes"] for each in gates]),
            "nginx_idle_us_per_s": _mean([each["seconds"] for each in gates]),
            **{f"{kind}_idle_us_per_s": self._idle[kind] for kind in ("metadata", "composite")},
        }

    def errors(self) -> dict[str, float]:
        """Return the errors for mixed loads, which nothing is fitted to, in percent of their cost above idle."""
        readers = ["reader_updates", "reader_writes"]
        without = {"data": ["frames", *readers], "nginx": ["updates", *readers]}
        return {
            f"{process} of {mode}": target.off(target.fitted(process=process, without=names), process=process)
            for mode, target in self.targets.items()
            for process, names in without.items()
        }


def _pids(system: System) -> dict[str, int]:
    """Return the processes with their children, numbered: nginx has workers."""
    found: dict[str, int] = {}
    for process in system.processes():
        if process.pid is not None:
            kind = process.name.rstrip("-0123456789")
            for pid in (process.pid, *children(process.pid)):
                found[f"{kind}-{len(found)}"] = pid
    return found


def _by_kind(amounts: Mapping[str, float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for name, amount in amounts.items():
        total[name.rstrip("-0123456789")] += amount
    return dict(total)


def _count_readers(blocks: list[Block], readers: int) -> None:
    """Add to the quantities of each block what the Broadcast node sends to its ``readers``."""
    blocks[:] = [
        (load, {**there, **{f"reader_{name}": readers * there[name] for name in ("updates", "writes")}}, cpu)
        for load, there, cpu in blocks
    ]


def _difference(more: Estimate, less: Estimate) -> Estimate:
    return Estimate(max(0.0, more.value - less.value), (more.error**2 + less.error**2) ** 0.5)


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    count = len(estimates)
    error = sum(each.error**2 for each in estimates) ** 0.5 / count
    return Estimate(sum(each.value for each in estimates) / count, error)
