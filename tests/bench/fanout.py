"""``make bench-fanout``: the cost of a delivery, a client and an update for the WebSocket server (docs/performance.md).

CPU is a multiple of a floor written in C and measured in the same run; QUICK=1 makes it short.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import native, phases
from tests.bench.drain import draining, own_core, probing
from tests.bench.figures import figure, goal
from tests.bench.phases import HOT, Plan
from tests.bench.report import Report
from tests.bench.servers import Block, Diem, Peer, Target, diem, peer, python
from tests.load.bench import Goal, write
from tests.support.commandline import parser
from tests.support.size import sized

FULL = Plan(clients=1000, rounds=7, ticks=80, foreign_batches=20, idle_clients=2000)
QUICK = Plan(clients=1000, rounds=2, ticks=16, foreign_batches=2, idle_clients=1000)
SMOKE = Plan(clients=20, rounds=1, ticks=2, foreign_batches=1, idle_clients=20)
PLAN = sized(FULL, QUICK, SMOKE)
ONE, EIGHT = "one update per client and tick", "eight updates per client and tick"
A, AGAIN = "diem", "diem again"
DOCUMENT_X = 1.03
"""Cost of a document, of that of a series: equal, or as far apart as two measurements of the same."""
PEERS = {"websockets.broadcast": "peer_broadcast", "uvicorn+starlette": "peer_starlette"}
Rounds = list[dict[str, Block]]


class Bench:
    """One run: all servers run at the same time and are measured in turn."""

    def __init__(self, plan: Plan, directory: Path, report: Report) -> None:
        self.plan = plan
        self.report = report
        self.figures: dict[str, Any] = {}
        self.goals: list[Goal] = []
        self._directory = directory
        self._drain = native.program("drain")
        self._core, self._other = own_core()

    async def run(self) -> None:
        self.report.step("memory of idle connections")
        await self._memory()
        async with contextlib.AsyncExitStack() as stack:
            self.report.step("starting the servers and connecting their clients")
            targets = await self._start(stack)
            one, eight = await self._deliveries(targets)
            self._judge_deliveries(one, eight)
            await self._foreign(targets[A].server)
            await self._requests(targets[A])
            await self._stalled({name: targets[name] for name in (A, AGAIN)}, one)
        self.report.step("updates with data")
        await self._data()

    async def _start(self, stack: contextlib.AsyncExitStack) -> dict[str, Target]:
        servers: dict[str, Peer | Diem] = {
            "floor": await stack.enter_async_context(peer(native.program("floor"), core=self._core))
        }
        for name in (A, AGAIN):
            directory = self._directory / name.replace(" ", "-")
            directory.mkdir()
            servers[name] = await stack.enter_async_context(diem(directory, core=self._core))
        for name, module in PEERS.items():
            servers[name] = await stack.enter_async_context(peer(*python(module), core=self._core))
        targets: dict[str, Target] = {}
        memory: dict[str, float] = {}
        for net, (name, server) in enumerate(servers.items(), 1):
            clients = draining(self._drain, server.port, self.plan.clients, net=net, core=self._other)
            drain, memory[name] = await phases.per_connection(
                server.pid,
                lambda clients=clients: stack.enter_async_context(clients),  # type: ignore[misc]
            )
            drain.send_all(phases.subscribe(*HOT))
            if name in (A, AGAIN):
                await drain.reach(replies=drain.count)
            probe = None
            if name != "floor":
                probe = await stack.enter_async_context(probing(server.port))
                await probe.subscribe(*HOT)
            targets[name] = Target(server, drain, probe)
        self.figures["kib_per_connection"] = {name: round(kib, 2) for name, kib in memory.items() if name != "floor"}
        await asyncio.sleep(0.5)
        return targets

    async def _deliveries(self, targets: dict[str, Target]) -> tuple[Rounds, Rounds]:
        one: Rounds = []
        eight: Rounds = []
        for number in range(1, self.plan.rounds + 1):
            self.report.step(f"{ONE}, round {number}")
            one.append(await phases.interleaved(targets, HOT[:1], self.plan.ticks))
            self.report.step(f"{EIGHT}, round {number}")
            eight.append(await phases.interleaved(targets, HOT, max(2, self.plan.ticks // 8)))
        return one, eight

    def _judge_deliveries(self, one: Rounds, eight: Rounds) -> None:
        for title, rounds in ((ONE, one), (EIGHT, eight)):
            ratio = {name: phases.ratios(rounds, name, "floor") for name in rounds[0]}
            self.figures[title] = {
                "cpu_per_delivery_x_floor": ratio,
                "floor_us": figure([blocks["floor"].cpu_us for blocks in rounds]),
                "writes_per_delivery": {n: round(_writes(rounds, n), 4) for n in rounds[0]},
            }
        self.figures["a_a"] = phases.ratios(one, AGAIN, A)
        broadcast, starlette = (phases.ratios(one, A, name) for name in PEERS)
        single, many = (self.figures[title]["cpu_per_delivery_x_floor"][A] for title in (ONE, EIGHT))
        self.goals += [
            goal("CPU per delivery, one update per tick", "x C floor", 1.15, single),
            goal("CPU per delivery, eight updates per tick", "x C floor", 0.25, many),
            goal("CPU per delivery against websockets.broadcast", "x", 0.5, broadcast),
            goal("CPU per delivery against uvicorn + Starlette", "x", 0.333, starlette),
            Goal("write calls per delivery, one update per tick", "", 1.01, _writes(one, A)),
            Goal("write calls per delivery, eight updates per tick", "", 0.13, _writes(eight, A)),
        ]

    async def _memory(self) -> None:
        directory = self._directory / "memory"
        directory.mkdir()
        cores = (self._core, self._other)
        kib = await phases.memory(directory, self._drain, cores, self.plan.idle_clients)
        for name, data in (("authenticated", False), ("authenticated_data", True)):
            with_token = directory / name
            with_token.mkdir()
            kib[name] = await phases.memory_with_token(
                with_token, self._drain, cores, self.plan.idle_clients, data=data
            )
        self.figures["memory"] = kib
        self.goals += [
            Goal("memory of an idle connection", "KiB", 6.0, kib["idle"]),
            Goal("memory of a connection with 10 subscriptions", "KiB", 8.0, kib["subscribed"]),
            Goal("memory of an authenticated connection with 10 subscriptions", "KiB", 8.0, kib["authenticated"]),
            Goal("memory of the same with data in updates", "KiB", 8.0, kib["authenticated_data"]),
            Goal("memory held for a client that does not read", "KiB", 64 + len(phases.FILL) * 128 / 1024, kib["held"]),
        ]

    async def _data(self) -> None:
        directory = self._directory / "data"
        directory.mkdir()
        rounds = await phases.with_data(directory, self._drain, (self._core, self._other), self.plan)
        document = phases.ratios(rounds, phases.DOCUMENT, phases.SERIES)
        again = phases.ratios(rounds, phases.SERIES_AGAIN, phases.SERIES)
        series = figure([blocks[phases.SERIES].cpu_us for blocks in rounds])
        self.figures["data"] = {"series_us": series, "document_x": document, "a_a": again}
        bound = max(DOCUMENT_X, round(max(max(x, 1 / x) for x in again.rounds), 3))
        self.goals.append(goal("CPU per delivery of a document, of a series of the same size", "x", bound, document))

    async def _foreign(self, server: Any) -> None:
        rounds = []
        for number in range(1, self.plan.rounds + 1):
            self.report.step(f"updates that nobody subscribed to, round {number}")
            rounds.append(await phases.foreign(server, max(1, self.plan.foreign_batches // self.plan.rounds)))
        self.figures["foreign_update_us"] = figure(rounds)
        self.goals.append(goal("an update that nobody subscribed to", "us", 1.5, self.figures["foreign_update_us"]))

    async def _requests(self, target: Target) -> None:
        rounds = []
        # Each client may send 20 messages at once, and has sent one.
        for number in range(1, min(self.plan.rounds, 4) + 1):
            self.report.step(f"subscribe and unsubscribe, round {number}")
            rounds.append(await phases.requests(target, 2))
        self.figures["request_us"] = figure(rounds)
        self.goals.append(goal("subscribe or unsubscribe of one endpoint", "us", 15, self.figures["request_us"]))

    async def _stalled(self, pair: dict[str, Target], one: Rounds) -> None:
        rounds = []
        for number in range(1, self.plan.rounds + 1):
            self.report.step(f"1 % of the clients do not read, round {number}")
            rounds.append(await phases.stalled(pair, self._drain, self._other, self.plan.ticks))
        cpu, writes = figure([r.cpu for r in rounds]), figure([r.writes for r in rounds])
        self.figures["stalled"] = {"cpu_x": cpu, "writes_x": writes}
        # As far as two runs of the same lie apart, seen from both sides.
        spread = max(max(x, 1 / x) for x in (blocks[AGAIN].cpu_us / blocks[A].cpu_us for blocks in one))
        self.goals += [
            goal("CPU per delivery with 1 % not reading (A/A spread)", "x", round(spread, 3), cpu),
            goal("write calls with 1 % not reading", "x", 1.01, writes),
        ]


def _writes(rounds: Rounds, name: str) -> float:
    return statistics.median(blocks[name].writes for blocks in rounds)


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/fanout.json", quick="").parse_args(argv)
    steps = 3 + 4 * PLAN.rounds + min(PLAN.rounds, 4)
    with tempfile.TemporaryDirectory() as directory, Report(steps) as report:
        try:
            bench = Bench(PLAN, Path(directory), report)
            asyncio.run(bench.run())
        except native.NoCompiler as error:
            print(error, file=sys.stderr)
            return 1
    for title in (ONE, EIGHT):
        report.figures(f"CPU per delivery, {title}, x C floor", bench.figures[title]["cpu_per_delivery_x_floor"])
    report.goals(bench.goals)
    print(f"written: {write('fanout', {'figures': bench.figures}, bench.goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
