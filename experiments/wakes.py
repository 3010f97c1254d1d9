"""``make bench-wakes``: what waking up for a write costs a server and its bridge that are busy.

A write wakes every server that owns a part of it: many servers for few updates each, or few for many. A server with
its bridge gets the same updates and delivers the same frames, in writes of 4, 15 and 60 updates to endpoints of three
partitions: quiet, and with so many updates that it seldom sleeps. The CPU of one more write is fitted to each; writes
that it takes at once need no wake-up of their own, so it may be less when it is busy. QUICK=1: one round.
"""

import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from diem.protocol.partitioners import partition_of
from experiments.bridge_pair import PARTITIONS, Topic, bridge_pair, writing
from experiments.cost_target import SETTLE, cpu_seconds
from experiments.loads import settle
from experiments.regression import Estimate, fit
from tests.bench import native
from tests.bench.drain import Drain, draining, own_core
from tests.bench.report import Report
from tests.load.bench import write
from tests.support.commandline import parser
from tests.support.local_cluster import LocalCluster
from tests.support.size import sized

ROUNDS: Final = sized(4, 1, 1)
OWNED: Final = 3
"""Partitions of the server, of 12."""
ENDPOINTS: Final = sized(1200, 1200, 60)
CLIENTS: Final = sized(1200, 1200, 60)
SUBSCRIBERS: Final = sized(20, 20, 1)
SIZES: Final = (4, 15, 60)
"""Updates in a write."""
RATES: Final = {"quiet": 120, "busy": 1200}
"""Updates a second."""
SECONDS: Final = sized(5.0, 5.0, 0.5)
"""Length of a block."""


def endpoints() -> list[str]:
    """Return the endpoints, all of the first partitions."""
    found: list[str] = []
    number = 0
    while len(found) < ENDPOINTS:
        name = f"/wakes/{number}"
        number += 1
        if partition_of(name.encode(), PARTITIONS) < OWNED:
            found.append(name)
    return found


class Bench:
    """A bridge pair, its clients, and the blocks measured: CPU seconds of each process."""

    def __init__(self, pids: Mapping[str, int], drain: Drain, topic: Topic) -> None:
        self._pids = pids
        self._drain = drain
        self._topic = topic
        self._names = endpoints()
        random.Random(1).shuffle(self._names)
        self.blocks: list[dict[str, Any]] = []

    async def start(self) -> None:
        """Subscribe every client, each endpoint with as many subscribers: others than those of the next 59.

        So no client gets two frames of a write, which would take one system call: only waking up is saved.
        """
        wanted: list[list[str]] = [[] for _ in range(CLIENTS)]
        for at, name in enumerate(self._names):
            for each in range(SUBSCRIBERS):
                wanted[(at * SUBSCRIBERS + each) % CLIENTS].append(name)
        await settle(self._drain, wanted, self._topic.write)

    async def block(self, load: str, size: int) -> None:
        """Write at a steady pace, and wait until all frames have arrived."""
        writes = round(RATES[load] * SECONDS / size)
        # In turn: updates of one endpoint in a row would be conflated.
        names = itertools.cycle(self._names)
        known = (await self._drain.count_now()).updates
        began, before = time.monotonic(), cpu_seconds(self._pids)
        for number in range(1, writes + 1):
            await self._topic.write(list(itertools.islice(names, size)))
            await asyncio.sleep(max(0.0, began + number * SECONDS / writes - time.monotonic()))
        await asyncio.sleep(SETTLE)
        seconds, after = time.monotonic() - began, cpu_seconds(self._pids)
        frames = (await self._drain.count_now()).updates - known
        cpu = {name: after[name] - before[name] for name in after}
        self.blocks.append(
            {"load": load, "size": size, "writes": writes, "frames": frames, "seconds": seconds, "cpu_s": cpu}
        )

    def estimate(self, load: str, process: str | None = None) -> Estimate:
        """Return the CPU seconds of one more write at a load, for one process or for both."""
        mine = [block for block in self.blocks if block["load"] == load]
        # Updates are as many in all blocks, frames almost.
        there = [{"frames": float(block["frames"]), "writes": float(block["writes"])} for block in mine]
        spent = [sum(block["cpu_s"].values()) if process is None else block["cpu_s"][process] for block in mine]
        return fit(there, spent, spent)["writes"]


async def measure(directory: Path, report: Report) -> Bench:
    theirs, ours = own_core()
    async with contextlib.AsyncExitStack() as stack:
        report.step("starting Kafka, the processes and their clients")
        cluster = await stack.enter_async_context(LocalCluster(directory / "kafka"))
        options = KafkaOptions(cluster.bootstrap_servers, partitions=PARTITIONS, replication=1)
        topic = await stack.enter_async_context(writing(options))
        server = await stack.enter_async_context(bridge_pair(directory, options, theirs))
        clients = draining(native.program("drain"), server.port, CLIENTS, net=1, core=ours)
        bench = Bench(server.pids, await stack.enter_async_context(clients), topic)
        await bench.start()
        for number in range(1, ROUNDS + 1):
            for load in RATES:
                report.step(f"{load}, round {number}")
                # There and back: what drifts hits all sizes alike.
                for size in SIZES if number % 2 else reversed(SIZES):
                    await bench.block(load, size)
    return bench


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/wakes.json", quick="").parse_args(argv)
    with tempfile.TemporaryDirectory() as directory, Report(1 + len(RATES) * ROUNDS) as report:
        try:
            bench = asyncio.run(measure(Path(directory), report))
        except (native.NoCompiler, DiemError) as error:
            print(error, file=sys.stderr)
            return 1
    rows = {}
    for load in RATES:
        for process in (None, "bridge", "server"):
            found = bench.estimate(load, process)
            name = f"a write, {load}{', ' if process else ''}{process or ''}"
            rows[name] = {"us": round(found.value * 1e6, 1), "standard error": round(found.error * 1e6, 1)}
    report.rows("Microseconds of CPU", rows)
    print(f"written: {write('wakes', {'figures': rows, 'blocks': bench.blocks}, [])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
