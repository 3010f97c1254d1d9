"""``make bench-cost``: the constants of a server's load, L = sum of rate x (a + b x subscribers) + kappa x connections.

One server with its bridge and one proxy, as processes, get blocks of known composition in turn; what an
update, a frame and a write cost is fitted to their CPU, and held against a mixed load that nothing was fitted to.
Beside them stand servers that only have idle connections, for one turn of the wheel that pings them. Then
whole systems show the costs of the Data Service, its publisher, the broker, the Broadcast node and nginx.
QUICK=1: one round of the loads (two of the systems), and 8 s of the wheel's 25.
"""

import asyncio
import contextlib
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from experiments.bridge_pair import PARTITIONS, bridge_pair, writing
from experiments.cost_roles import MODES, Roles
from experiments.cost_target import Target
from experiments.idle import Idle
from experiments.loads import MIX, Load, Schedule, Write, mean_parts, settle, subscriptions
from experiments.regression import Estimate
from tests.bench import native
from tests.bench.drain import Drain, draining, own_core
from tests.bench.proxy import Kind, Proxied, proxied
from tests.bench.report import Report
from tests.load.bench import Goal, write
from tests.support.commandline import parser
from tests.support.local_cluster import LocalCluster
from tests.support.size import sized

ROUNDS: Final = sized(3, 1, 1)
IDLE_SLICES, IDLE_SECONDS = sized((5, 5.0), (4, 2.0), (2, 0.5))
IDLE: Final = sized((0, 200, 1000), (0, 1000), (0, 20))
"""Numbers of connections."""
WITHIN: Final = 20.0
"""Allowed error of the model, in percent, for a load that is not part of the fit."""
REST: Final = Load(0, 0)
SERVER: Final = [REST, *(Load(0, size) for size in (10, 40, 200)), *(Load(n, 20) for n in (10, 25, 50)), MIX]
PROXY: Final = [REST, Load(10, 10), Load(10, 20), Load(20, 10), Load(20, 20), MIX]
PARTS: Final = mean_parts(SERVER, PARTITIONS)
"""Partitions that a write has parts for, on average."""
CLIENTS: Final = {
    "server": sized(1000, 1000, 250),
    "proxy": sized(400, 400, 100),
}


def writer(proxy: Proxied) -> Write:
    """Return a function that writes to the server behind a proxy."""

    async def write(names: Sequence[str]) -> None:
        proxy.publish(*names)

    return write


class Bench:
    """One run: all processes up at the same time."""

    def __init__(self, directory: Path, report: Report) -> None:
        self.report = report
        self.estimates: dict[str, Estimate] = {}
        self.goals: list[Goal] = []
        self.targets: dict[str, Target] = {}
        self.memory_kib: dict[str, dict[str, float]] = {}
        self._directory = directory
        self._drain = native.program("drain")
        self._cores = own_core()

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self.report.step("starting Kafka, the processes and their clients")
            cluster = await stack.enter_async_context(LocalCluster(self._directory / "kafka"))
            options = KafkaOptions(cluster.bootstrap_servers, partitions=PARTITIONS, replication=1)
            await asyncio.gather(self._server(stack, options), self._proxy(stack))
            idle = Idle(self._directory, self._drain, self._cores, IDLE)
            await idle.start(stack)
            await asyncio.sleep(0.5)
            idling = asyncio.create_task(idle.measure(IDLE_SLICES, IDLE_SECONDS))
            schedule = Schedule(random.Random(1))
            for number in range(1, ROUNDS + 1):
                for name in CLIENTS:
                    target = self.targets[name]
                    self.report.step(f"{name}, round {number}")
                    # There and back: what drifts hits all loads alike.
                    for load in target.loads if number % 2 else [*reversed(target.loads)]:
                        await target.block(load, schedule)
            self.report.step("idle connections, to the end of a turn of the wheel")
            self.estimates |= await idling
        roles = Roles(self._directory, self._drain, self._cores, sized(6, 2, 1))
        for mode in MODES:
            self.report.step(f"a whole system, {mode}")
            await roles.measure(mode)
        self.report.step("a composite without load")
        await roles.measure_idle()
        self.estimates |= roles.estimates()
        for name, off in roles.errors().items():
            self.goals.append(Goal(f"predicted against measured CPU of a mixed load, {name}", "% off", WITHIN, off))
        self.targets |= roles.targets
        self.memory_kib = roles.memory_kib
        self._judge()

    def _folder(self, name: str) -> Path:
        folder = self._directory / name
        folder.mkdir()
        return folder

    async def _clients(self, stack: contextlib.AsyncExitStack, port: int, count: int) -> Drain:
        clients = draining(self._drain, port, count, net=1, core=self._cores[1])
        return await stack.enter_async_context(clients)

    async def _server(self, stack: contextlib.AsyncExitStack, options: KafkaOptions) -> None:
        topic = await stack.enter_async_context(writing(options))
        server = await stack.enter_async_context(bridge_pair(self._folder("bridged"), options, self._cores[0]))
        drain = await self._clients(stack, server.port, CLIENTS["server"])
        await self._target("server", Target(server.pids, drain, topic.write, SERVER))

    async def _proxy(self, stack: contextlib.AsyncExitStack) -> None:
        started = await stack.enter_async_context(proxied(self._folder("proxy"), Kind("unix"), self._cores))
        drain = await self._clients(stack, started.port, CLIENTS["proxy"])
        pids = {"proxy": started.pid, "server": started.server_pid}
        await self._target("proxy", Target(pids, drain, writer(started), PROXY))

    async def _target(self, name: str, target: Target) -> None:
        levels = sorted({load.subscribers for load in target.loads if load.subscribers > 0})
        await settle(target.drain, subscriptions(levels, CLIENTS[name]), target.write)
        self.targets[name] = target

    def _judge(self) -> None:
        server, proxy = (self.targets[name] for name in CLIENTS)
        fits = {
            ("server", None): server.fitted(),
            # What a proxy is sent of an update is one frame that all of its clients share.
            ("proxy", "proxy"): proxy.fitted(process="proxy", without=["updates"]),
        }
        of_server, of_proxy = fits.values()
        of_bridge = server.fitted(process="bridge")
        self.estimates |= {
            "update_us": of_server["updates"],
            "update_us_bridge": of_bridge["updates"],
            "delivery_us": of_server["frames"],
            "write_us": of_server["writes"],
            "write_us_bridge": of_bridge["writes"],
            "bridge_part_us": of_bridge["writes"].divided(PARTS),
            "server_part_us": server.fitted(process="server")["writes"].divided(PARTS),
            "idle_us_per_s": of_server["seconds"],
            "idle_us_per_s_bridge": of_bridge["seconds"],
            "proxy_idle_us_per_s": of_proxy["seconds"],
            "proxy_frame_us": of_proxy["frames"],
            "proxy_write_us": of_proxy["writes"],
        }
        for (name, process), estimates in fits.items():
            off = self.targets[name].off(estimates, process=process)
            of = f"{name}, its server" if process == "server" else name
            self.goals.append(Goal(f"predicted against measured CPU of a mixed load, {of}", "% off", WITHIN, off))

    def figures(self) -> dict[str, float]:
        """Return the constants in microseconds, each with its standard error."""
        values = {name: round(each.value * 1e6, 3) for name, each in self.estimates.items()}
        return values | {f"{name}_se": round(each.error * 1e6, 3) for name, each in self.estimates.items()}

    def blocks(self) -> dict[str, list[dict[str, Any]]]:
        """Return the blocks of the fit."""
        return {
            name: [{"load": [*load], **there, "cpu_s": dict(cpu)} for load, there, cpu in target.blocks]
            for name, target in self.targets.items()
        }


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/cost.json", quick="").parse_args(argv)
    with tempfile.TemporaryDirectory() as directory, Report(2 + len(CLIENTS) * ROUNDS + len(MODES) + 1) as report:
        try:
            bench = Bench(Path(directory), report)
            asyncio.run(bench.run())
        except (native.NoCompiler, DiemError) as error:
            print(error, file=sys.stderr)
            return 1
    figures = bench.figures()
    report.rows(
        "Microseconds", {n: {"value": figures[n], "standard error": figures[f"{n}_se"]} for n in bench.estimates}
    )
    report.goals(bench.goals)
    result = {"figures": figures, "memory_kib": bench.memory_kib, "blocks": bench.blocks()}
    print(f"written: {write('cost', result, bench.goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
