"""``make bench-proxy``: the cost of a delivered frame for a proxy, relative to a server with as many direct clients.

The CPU of the servers behind the proxies is not counted. Proxies reach their servers over Unix sockets, as ``diem up``
has it; one more reaches its server over TCP, as on two machines. QUICK=1 makes it short.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from diem.links.internal import InternalConnection, InternalListener
from diem.process.auth import SharedKey
from diem.protocol.assignment import STABLE, Clone, Owner, Snapshot, encode
from diem.protocol.partition_map import Head, PartitionMap
from proxy.snapshot_client import SUBPROTOCOL
from tests.bench import native, phases
from tests.bench.drain import Lost, draining, own_core, probing
from tests.bench.figures import figure, goal
from tests.bench.phases import HOT
from tests.bench.report import Report
from tests.bench.servers import Block, Diem, Target, _listening, _process, _ready, diem
from tests.load.bench import Goal, write
from tests.support.commandline import parser
from tests.support.ports import free_port
from tests.support.size import sized

CLIENTS: Final = sized(1000, 1000, 20)
ROUNDS, TICKS = sized((7, 80), (2, 16), (1, 2))
ONE, EIGHT = "one update per client and tick", "eight updates per client and tick"
DIRECT = "server, direct clients"


class Kind(NamedTuple):
    """A kind of proxy to measure."""

    transport: str
    goal: float | None = None


PROXIES: Final = {
    "proxy": Kind("unix", 1.15),
    "proxy, TCP": Kind("tcp"),
}
Rounds = list[dict[str, Block]]


class Watch:
    """A snapshot feed with one server that owns everything (a ``ChannelHandler``)."""

    subprotocol = SUBPROTOCOL
    accepting = True

    def __init__(self, url: str) -> None:
        owner = Owner("b001", url, url)
        clone = Clone(STABLE, {owner.server: owner}, {0: owner.server})
        self._text = encode(Snapshot(PartitionMap(Head(1, 0)), {1: clone}))

    def opened(self, connection: InternalConnection) -> None:
        connection.send_text(self._text)

    def received(self, connection: InternalConnection, data: bytes) -> None: ...

    def blocked(self, connection: InternalConnection) -> None: ...

    def resumed(self, connection: InternalConnection) -> None: ...

    def closed(self, connection: InternalConnection) -> None: ...


class Proxied:
    """A proxy under measurement, and the server behind it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, server: Diem) -> None:
        self.pid = process.pid
        self.server_pid = server.pid
        self.port = port
        self._server = server

    def publish(self, *endpoints: str) -> int:
        return self._server.publish(*endpoints)


@contextlib.asynccontextmanager
async def proxied(directory: Path, kind: Kind, cores: tuple[int | None, int | None]) -> AsyncIterator[Proxied]:
    """Run a proxy on the first core, its server on the second."""
    sockets = directory / "sockets" if kind.transport == "unix" else None
    async with diem(directory, core=cores[1], sockets=sockets) as server:
        if sockets is not None and not (sockets / f"{server.internal}.sock").exists():
            raise Lost(f"no socket in {sockets}")
        key = SharedKey.load(directory / "internal.key")
        watch_port, port, internal = free_port(), free_port(), free_port()
        watch = Watch(f"ws://127.0.0.1:{server.internal}/ws")
        listener = InternalListener(
            "127.0.0.1", watch_port, key=key, ready=lambda: None, status=dict, channels={"/watch": watch}
        )
        listener.start()
        settings = {
            "DIEM_INTERNAL_KEY_FILE": directory / "internal.key",
            "DIEM_LOG_LEVEL": "warning",
            "DIEM_INTERNAL_SOCKETS": sockets or "",
            "DIEM_PROXY_PORT": port,
            "DIEM_PROXY_INTERNAL_PORT": internal,
            "DIEM_PROXY_METADATA_URLS": f'["ws://127.0.0.1:{watch_port}/watch"]',
            "DIEM_PROXY_CONNECTION_RATE_PER_ADDRESS": 10_000,
        }
        command = (sys.executable, "-m", "deploy", "run", "proxy")
        async with _process(command, {name: str(value) for name, value in settings.items()}, cores[0]) as process:
            await _listening(process, port)
            await _ready(process, internal)
            yield Proxied(process, port, server)
        listener.stop()


class Bench:
    """One run: all processes up at the same time, measured in turn."""

    def __init__(self, directory: Path, report: Report) -> None:
        self.report = report
        self.figures: dict[str, Any] = {}
        self.goals: list[Goal] = []
        self._directory = directory
        self._drain = native.program("drain")
        self._cores = own_core()

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self.report.step("starting the processes and connecting their clients")
            targets = await self._start(stack)
            one: Rounds = []
            eight: Rounds = []
            for number in range(1, ROUNDS + 1):
                self.report.step(f"{ONE}, round {number}")
                one.append(await phases.interleaved(targets, HOT[:1], TICKS))
                self.report.step(f"{EIGHT}, round {number}")
                eight.append(await phases.interleaved(targets, HOT, max(2, TICKS // 8)))
        self._judge(one, eight)

    async def _start(self, stack: contextlib.AsyncExitStack) -> dict[str, Target]:
        servers: dict[str, Diem | Proxied] = {}
        for number, name in enumerate((DIRECT, *PROXIES)):
            directory = self._directory / str(number)
            directory.mkdir()
            kind = PROXIES.get(name)
            started = proxied(directory, kind, self._cores) if kind else diem(directory, core=self._cores[0])
            servers[name] = await stack.enter_async_context(started)
        targets: dict[str, Target] = {}
        for net, (name, server) in enumerate(servers.items(), 1):
            drain = await stack.enter_async_context(
                draining(self._drain, server.port, CLIENTS, net=net, core=self._cores[1])
            )
            drain.send_all(phases.subscribe(*HOT))
            await drain.reach(replies=drain.count)
            probe = await stack.enter_async_context(probing(server.port))
            await probe.subscribe(*HOT)
            version = server.publish(*HOT)
            await drain.reach(updates=len(HOT) * drain.count)
            await probe.reach(HOT[-1], version)
            targets[name] = Target(server, drain, probe)
        return targets

    def _judge(self, one: Rounds, eight: Rounds) -> None:
        for title, rounds in ((ONE, one), (EIGHT, eight)):
            self.figures[title] = {
                "cpu_per_frame_x_direct": {name: phases.ratios(rounds, name, DIRECT) for name in PROXIES},
                "direct_us": figure([blocks[DIRECT].cpu_us for blocks in rounds]),
            }
        for name, kind in PROXIES.items():
            if kind.goal is not None:
                measured = self.figures[ONE]["cpu_per_frame_x_direct"][name]
                self.goals.append(goal(f"CPU per delivered frame, {name}", "x direct", kind.goal, measured))


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/proxy.json", quick="").parse_args(argv)
    with tempfile.TemporaryDirectory() as directory, Report(1 + 2 * ROUNDS) as report:
        try:
            bench = Bench(Path(directory), report)
            asyncio.run(bench.run())
        except native.NoCompiler as error:
            print(error, file=sys.stderr)
            return 1
    for title in (ONE, EIGHT):
        report.figures(f"CPU per delivered frame, {title}, x direct", bench.figures[title]["cpu_per_frame_x_direct"])
    report.goals(bench.goals)
    transports = {name: kind.transport for name, kind in PROXIES.items()}
    print(f"written: {write('proxy', {'transports': transports, 'figures': bench.figures}, bench.goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
