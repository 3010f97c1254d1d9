"""``make bench-bridge``: the cost of a record for a bridge, relative to aiokafka's own loop, and the time of a rebuild.

Both loops read the same topic in turns, in this process, whose CPU time is measured; the broker is another process.
QUICK=1 makes it short.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from bridge.consumer import assign, consuming, name_of, poll
from bridge.records import Records
from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from tests.bench.catchup import catch_up
from tests.bench.figures import figure
from tests.bench.report import Report
from tests.bench.topic import PARTITIONS, fill
from tests.load.bench import Goal, table, write
from tests.support.commandline import parser
from tests.support.local_cluster import LocalCluster
from tests.support.size import sized

RATIO: Final[float] = 0.6
REBUILD_SECONDS: Final[float] = 15.0
LIMIT: Final = 120.0
"""Time-out of one measurement, in seconds."""


class Plan(NamedTuple):
    """Size of the measurement."""

    records: int
    rounds: int
    rebuilt: int


FULL = Plan(records=1_000_000, rounds=5, rebuilt=3_000_000)
QUICK = Plan(records=200_000, rounds=2, rebuilt=300_000)
SMOKE = Plan(records=5_000, rounds=1, rebuilt=20_000)
WORKLOADS = {"10,000 endpoints": 10_000, "100,000 endpoints": 100_000}
"""With few endpoints a poll has many versions of each, most of which are conflated; with many, none is."""


async def bare(options: KafkaOptions, ends: dict[str, int]) -> float:
    """Return the CPU seconds of a loop that only calls ``getmany``."""
    async with consuming(options, "bare", len(ends)) as consumer:
        began = time.process_time()
        assign(consumer, dict.fromkeys(ends, 0))
        left = sum(ends.values())
        while left:
            left -= sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
        return time.process_time() - began


async def ours(options: KafkaOptions, ends: dict[str, int]) -> float:
    """Return the CPU seconds of a bridge's loop from the poll to the frames, which are dropped."""
    bad: list[object] = []
    records = Records(bad.append)
    async with consuming(options, "bridge", len(ends)) as consumer:
        began = time.process_time()
        position = dict.fromkeys(ends, 0)
        assign(consumer, position)
        while position != ends:
            for each in await poll(consumer, 0.5):
                name = name_of(each.partition)
                records.encode(name, position[name], each.next, each.records)
                position[name] = each.next
        spent = time.process_time() - began
    counts = records.counts
    if bad or counts.consumed != sum(ends.values()):
        raise AssertionError(f"not what was written: {asdict(counts)}")
    return spent


Loop = Callable[[KafkaOptions, dict[str, int]], Awaitable[float]]
LOOPS: dict[str, Loop] = {"getmany alone": bare, "bridge": ours}


async def measure(options: KafkaOptions, ends: dict[str, int], plan: Plan, report: Report, title: str) -> Any:
    """Measure records per CPU second of both loops alternately, and their ratio in each round."""
    speed: dict[str, list[float]] = {name: [] for name in LOOPS}
    for number in range(1, plan.rounds + 1):
        report.step(f"{title}, round {number}")
        for name, loop in LOOPS.items():
            async with asyncio.timeout(LIMIT):
                speed[name].append(sum(ends.values()) / await loop(options, ends))
    ratios = [a / b for a, b in zip(speed["bridge"], speed["getmany alone"], strict=True)]
    return {
        "records_per_cpu_second": {n: round(statistics.median(v)) for n, v in speed.items()},
        "ratio": figure(ratios),
    }


async def run(plan: Plan, directory: Path, report: Report) -> tuple[dict[str, Any], list[Goal]]:
    """Run the whole bench."""
    report.step("starting Kafka")
    figures: dict[str, Any] = {}
    goals: list[Goal] = []
    async with LocalCluster(directory / "kafka") as cluster:
        for title, endpoints in WORKLOADS.items():
            report.step(f"writing {plan.records:,} records of {title}")
            options = KafkaOptions(
                cluster.bootstrap_servers, topic_prefix=f"b{endpoints}.", partitions=PARTITIONS, replication=1
            )
            ends = await fill(options, plan.records, endpoints)
            figures[title] = found = await measure(options, ends, plan, report, title)
            goals.append(
                Goal(f"records per CPU second, {title}", "x getmany", RATIO, found["ratio"].median, at_least=True)
            )
        report.step(f"writing {plan.rebuilt:,} records")
        options = KafkaOptions(cluster.bootstrap_servers, topic_prefix="r.", partitions=PARTITIONS, replication=1)
        await fill(options, plan.rebuilt, 10_000)
        report.step("a rebuild from all of them")
        figures["rebuild"] = rebuilt = await catch_up(options, directory, endpoints=10_000)
        goals.append(Goal("rebuild of 10,000 endpoints", "s", REBUILD_SECONDS, rebuilt["seconds"]))
    return figures, goals


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/bridge.json", quick="").parse_args(argv)
    plan = sized(FULL, QUICK, SMOKE)
    steps = 3 + len(WORKLOADS) * (1 + plan.rounds)
    with tempfile.TemporaryDirectory() as directory, Report(steps) as report:
        try:
            figures, goals = uvloop.run(run(plan, Path(directory), report))
        except DiemError as error:
            print(error, file=sys.stderr)
            return 1
    for title in WORKLOADS:
        for name, speed in figures[title]["records_per_cpu_second"].items():
            print(f"{title}, {name}: {speed:,} records per CPU second")
    print(table(goals))
    print(f"written: {write('bridge', {'plan': plan._asdict(), **figures}, goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
