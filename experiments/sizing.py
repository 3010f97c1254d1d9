"""``make bench-sizing``: the sizing model (docs/sizing.md) against real clusters of 3 and 5 brokers.

Measures what replication adds to a record (equation 10, also with four replica fetchers), for how long partitions have
no leader after kill -9 of a broker, and metadata none after kill -9 of a controller (equation 11, two session
timeouts), and what records cost in bytes, time and CPU time (equations 3 to 6 and 9). Each equation is fitted to 70 %
of the configurations and judged by the others: it holds, holds with another constant, or does not.

Controllers are processes of their own, so that one can be killed without the other. The report is written after every
measurement; a run that was interrupted continues there, unless ``--fresh`` is given. Times depend on what else runs
on the machine, whose load is in the report; bytes and CPU times do not.
"""

import asyncio
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from diem.errors import DiemError
from experiments import sizing_laws, sizing_measure
from experiments.picture import Bar, Group, Row, draw
from experiments.sizing_cluster import SizingCluster
from experiments.sizing_fit import CONSTANT, TOLERANCE, Assessment, Point, Verdict, assess
from experiments.sizing_laws import LAWS, Law
from experiments.sizing_measure import Layout, NotMeasured
from tests.bench.figures import figure
from tests.bench.report import WIDTH_OF_FILES, Report
from tests.load.bench import FOLDER, Goal
from tests.load.bench import write as write_report
from tests.support.commandline import parser
from tests.support.size import SIZE, RunSize, sized

WRITTEN: Final = FOLDER / "sizing.json"
BROKERS: Final = (3, 5)
REPLICAS: Final = (2, 3)
PARTITIONS: Final = sized((30, 100, 300, 1000, 3000), (30, 300), (30, 300))
LOST: Final = sized((30, 300, 1000, 3000), (30, 300), (30, 300))
"""Partitions that are there when a broker or a controller is killed."""
TIMEOUTS_S: Final = (9, 3)
FETCHERS: Final = (1, 4)
BLOCKS, ROUNDS = sized((3, 5), (1, 3), (1, 1))
TRANSFER_BYTES: Final = sized(16_000_000, 2_000_000, 100_000)
RECORDS: Final = sized((10_000, 30_000), (2_000, 6_000), (100, 300))
FAILURES: Final = (DiemError, KafkaError, NotMeasured, OSError, TimeoutError, asyncio.IncompleteReadError)
BUSY: Final = 4.0
"""Load of a core beyond which elapsed times are mostly those of other programs."""
ATTEMPTS: Final = 3
"""Of a measurement whose cluster did not do what it should; then the run goes on without it."""


class Task(NamedTuple):
    """One measurement of one configuration."""

    kind: str
    configuration: Mapping[str, int]

    @property
    def name(self) -> str:
        """The configuration, for people and as the key in the report."""
        return " ".join(f"{name}={value}" for name, value in self.configuration.items())

    @property
    def key(self) -> str:
        """Key of the result."""
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True)
class Part:
    """Measurements on one cluster; those of the same partitions and replicas share a topic, in this order."""

    brokers: int
    session_s: int
    fetchers: int
    tasks: tuple[Task, ...]

    @property
    def settings(self) -> dict[str, str]:
        """The brokers' settings."""
        return {
            "broker.session.timeout.ms": str(self.session_s * 1000),
            "num.replica.fetchers": str(self.fetchers),
        }


def parts() -> list[Part]:
    """Return all measurements, grouped by cluster; bytes and CPU times, for which no other program matters, first."""
    long, short = TIMEOUTS_S
    if SIZE is RunSize.SMOKE:
        return [Part(BROKERS[0], short, FETCHERS[0], _one_of_each(BROKERS[0], short))]
    found = [Part(n, long, FETCHERS[0], (*_transfers(n), *_consumers(n))) for n in BROKERS]
    for n in BROKERS:
        of_topics = [task for r, p in _topics() for task in _of_topic(n, r, p, long)]
        found.append(Part(n, long, FETCHERS[0], tuple(of_topics)))
    for n in BROKERS:
        losses = [Task("broker", {"n": n, "r": r, "p": p, "session_s": short}) for r, p in _topics() if _lost(r, p)]
        found.append(Part(n, short, FETCHERS[0], tuple(losses)))
    for n in BROKERS[:1] if SIZE is RunSize.QUICK else BROKERS:
        latencies = [Task("latency", {"n": n, "r": r, "p": p, "fetchers": FETCHERS[1]}) for r, p in _topics()]
        found.append(Part(n, long, FETCHERS[1], tuple(latencies)))
    return found


def _one_of_each(n: int, session_s: int) -> tuple[Task, ...]:
    """Return a task of each kind; the broker is killed last."""
    one = {"n": n, "r": 2, "p": PARTITIONS[0]}
    return (
        Task("transfer", {**one, "g": 1, "p": 1}),
        Task("single", {**one, "p": 1}),
        Task("consumers", {**one, "p": 1, "k": 1, "records": RECORDS[0]}),
        Task("latency", {**one, "fetchers": FETCHERS[0]}),
        Task("controller", one),
        Task("broker", {**one, "session_s": session_s}),
    )


def _topics() -> list[tuple[int, int]]:
    return [*product(REPLICAS, PARTITIONS)]


def _lost(r: int, p: int) -> bool:
    """Return whether processes are killed beside a topic; with ``QUICK=1`` beside every other one."""
    return p in LOST and (SIZE is RunSize.FULL or (r, p) in zip(REPLICAS, LOST, strict=True))


def _of_topic(n: int, r: int, p: int, session_s: int) -> list[Task]:
    """Return what is measured on one topic: the broker is killed last."""
    found = [Task("latency", {"n": n, "r": r, "p": p, "fetchers": FETCHERS[0]})]
    if _lost(r, p):
        found.append(Task("controller", {"n": n, "r": r, "p": p}))
        if SIZE is RunSize.FULL or (r, p) == (REPLICAS[-1], LOST[-1]):
            found.append(Task("broker", {"n": n, "r": r, "p": p, "session_s": session_s}))
    return found


def _transfers(n: int) -> list[Task]:
    quick = SIZE is RunSize.QUICK
    groups, counts = ((0, 2), (1, n)) if quick else ((0, 1, 2), (1, n - 1, n, 2 * n, 12 * n))
    return [Task("transfer", {"n": n, "r": r, "g": g, "p": p}) for r in REPLICAS for p in counts for g in groups]


def _consumers(n: int) -> list[Task]:
    pairs = ((1, 1), (4, 1), (4, 2)) if SIZE is RunSize.QUICK else ((1, 1), (2, 1), (2, 2), (12, 1), (12, 2), (12, 4))
    tasks = [Task("single", {"n": n, "r": r, "p": 1}) for r in REPLICAS]
    found = [
        Task("consumers", {"n": n, "r": 2, "p": p, "k": k, "records": records}) for p, k in pairs for records in RECORDS
    ]
    return [*tasks, *found]


class Bench:
    """One run: what is measured, and the file."""

    def __init__(self, report: Report, directory: Path, before: Mapping[str, Any]) -> None:
        self._report = report
        self._directory = directory
        self.results: dict[str, dict[str, Any]] = dict(before)
        self.failures: dict[str, str] = {}

    async def run(self, all_parts: Sequence[Part]) -> None:
        """Measure what is not measured yet; what fails again and again is left out, and named in the report."""
        for part in all_parts:
            left = [task for task in part.tasks if task.key not in self.results]
            for _ in range(len(part.tasks) - len(left)):
                self._report.step("measured before")
            attempts = Counter[str]()
            while left and attempts.total() < 2 * ATTEMPTS:
                try:
                    await self._measure(part, left)
                except FAILURES as error:
                    failed = next(task for task in left if task.key not in self.results)
                    attempts[failed.key] += 1
                    self.failures[failed.key] = f"{type(error).__name__} {error}".strip()
                    print(f"{failed.key}: {self.failures[failed.key]}", file=sys.stderr)
                left = [task for task in left if task.key not in self.results and attempts[task.key] < ATTEMPTS]

    async def _measure(self, part: Part, tasks: Sequence[Task]) -> None:
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            async with SizingCluster(Path(directory), part.brokers, part.settings) as cluster:
                for topic, same in groupby(tasks, key=_topic):
                    async with sizing_measure.topic_of(cluster, *topic) as layout:
                        for task in same:
                            await self._one(cluster, layout, task)

    async def _one(self, cluster: SizingCluster, layout: Layout, task: Task) -> None:
        self._report.step(task.key)
        found = await MEASURE[task.kind](cluster, layout, task.configuration)
        self.failures.pop(task.key, None)
        self.results[task.key] = {
            "kind": task.kind,
            "name": task.name,
            "configuration": dict(task.configuration),
            "found": found,
        }
        write(self, {})


def _topic(task: Task) -> tuple[int, int]:
    return task.configuration["p"], task.configuration["r"]


async def _latency(cluster: SizingCluster, layout: Layout, _at: Mapping[str, int]) -> object:
    return await sizing_measure.latency(cluster, layout, BLOCKS, ROUNDS)


async def _broker(cluster: SizingCluster, layout: Layout, _at: Mapping[str, int]) -> object:
    found = await sizing_measure.broker_loss(cluster, layout)
    await cluster.restart(found["victim"])
    return found


async def _controller(cluster: SizingCluster, layout: Layout, _at: Mapping[str, int]) -> object:
    found = await sizing_measure.controller_loss(cluster, layout)
    await cluster.restart(found["victim"])
    return found


async def _transfer(cluster: SizingCluster, layout: Layout, at: Mapping[str, int]) -> object:
    return await sizing_measure.transfer(cluster, layout, at["g"], TRANSFER_BYTES)


async def _single(cluster: SizingCluster, layout: Layout, _at: Mapping[str, int]) -> object:
    return await sizing_measure.single_partition(cluster, layout, TRANSFER_BYTES)


async def _consume(cluster: SizingCluster, layout: Layout, at: Mapping[str, int]) -> object:
    async with sizing_measure.topic_of(cluster, len(layout.partitions), at["r"]) as own:
        return await sizing_measure.consumption(cluster, own, at["records"], at["k"])


MEASURE: Final[Mapping[str, Callable[[SizingCluster, Layout, Mapping[str, int]], Awaitable[object]]]] = {
    "latency": _latency,
    "broker": _broker,
    "controller": _controller,
    "transfer": _transfer,
    "single": _single,
    "consumers": _consume,
}


def assessments(results: Sequence[Mapping[str, Any]]) -> dict[str, Assessment | str]:
    """Return what the measurements say of each equation; a reason where they are too few.

    Elapsed times decide nothing where other programs kept the machine busy.
    """
    found: dict[str, Assessment | str] = {}
    load = statistics.median(loads(results)) if results else 0.0
    busy = load > BUSY * (os.cpu_count() or 1)
    for name, law in LAWS.items():
        points = list(law.points(results))
        try:
            assessed = assess(points, law.form)
        except ValueError as error:
            found[name] = f"too few measurements: {error}"
            continue
        if law.timed and busy:
            reason = (
                f"the machine was busy, with a load of {load:.0f}; otherwise: {assessed.verdict}, {assessed.reason}"
            )
            assessed = replace(assessed, verdict=Verdict.UNDECIDED, reason=reason)
        found[name] = assessed
    return found


def goals(results: Sequence[Mapping[str, Any]], found: Mapping[str, Assessment | str]) -> list[Goal]:
    """Return what must be so whatever the verdicts: bytes are as computed, and writes outlive a controller."""
    goals = []
    for name in ("4", "5, one way", "6"):
        assessed = found[name]
        if isinstance(assessed, Assessment):
            goals.append(Goal(f"equation {name}: error of held-out points", "%", 10.0, 100 * assessed.error))
    loss = found["11"]
    if isinstance(loss, Assessment):
        timeout = loss.estimates["session timeout"]
        goals.append(Goal("equation 11: detection, in session timeouts", "x", 1.25, timeout.value))
        goals.append(Goal("equation 11: error of held-out points", "%", 100 * TOLERANCE, 100 * loss.error))
    if gaps := sizing_laws.write_gaps(results):
        goals.append(Goal("longest wait of a write while a controller is lost, median", "s", 1.0, figure(gaps).median))
    return goals


def write(bench: Bench, found: Mapping[str, Assessment | str]) -> None:
    """Write the report, and its picture once there are verdicts."""
    results = list(bench.results.values())
    ratios = sizing_laws.fetcher_ratios(results)
    report = {
        "circumstances": circumstances(results),
        "verdicts": {name: _verdict(LAWS[name], each) for name, each in found.items()},
        "fetchers": {
            "delay with 4 over delay with 1": figure([*ratios.values()]) if ratios else None,
            "of each": ratios,
        },
        "rates": sizing_laws.single_partition_rates(results),
        "not_measured": bench.failures,
        "results": bench.results,
    }
    path = write_report("sizing", report, goals(results, found) if found else [])
    if found:
        path.with_suffix(".svg").write_text(picture(results, found), encoding="utf-8")


def _verdict(law: Law, found: Assessment | str) -> dict[str, Any]:
    about = {"quantity": law.quantity, "unit": law.unit, "on_one_machine": law.on_one_machine, "timed": law.timed}
    expected = {"term": law.form.term, "expected": law.form.expected}
    return about | expected | ({"verdict": None, "reason": found} if isinstance(found, str) else found.as_json())


def circumstances(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the figures depend on: commit, date, cores and the load of the machine while it was measured."""
    measured = loads(results)
    return {
        "commit": _commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "cores": os.cpu_count(),
        "machine_load": figure(measured) if measured else None,
        "nice": os.nice(0),
    }


@cache
def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def loads(results: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the machine's load during every measurement."""
    found = [result["found"] for result in results]
    return [each["load"] for one in found for each in (one if isinstance(one, list) else [one])]


def picture(results: Sequence[Mapping[str, Any]], found: Mapping[str, Assessment | str]) -> str:
    """Draw, for each equation, the measured medians beside the fit and the equation with its own constant."""
    groups = []
    for name, assessed in found.items():
        law = LAWS[name]
        if isinstance(assessed, str):
            continue
        by_name: dict[str, list[Point]] = {}
        for point in law.points(results):
            by_name.setdefault(point.configuration, []).append(point)
        rows = [Row(label, _bars(law, assessed, points)) for label, points in by_name.items()]
        groups.append(Group(f"Equation {name}: {law.quantity}, {law.unit or 'share'}: {assessed.verdict}", rows))
    return draw("The sizing model on real clusters", ("measured (median)", "fitted", "as printed"), groups)


def _bars(law: Law, assessed: Assessment, points: Sequence[Point]) -> tuple[Bar | None, ...]:
    measured = figure([point.value for point in points], samples=1).median if len(points) > 1 else points[0].value
    terms = points[0].terms
    fitted = sum(
        estimate.value * (1.0 if name == CONSTANT else terms[name]) for name, estimate in assessed.estimates.items()
    )
    expected = law.form.expected
    printed = Bar({"as printed": expected * terms[law.form.term]}) if expected else None
    return Bar({"measured": measured}), Bar({"fitted": fitted}), printed


def show(bench: Bench, report: Report, found: Mapping[str, Assessment | str]) -> None:
    """Print verdicts, rates and goals."""
    results = list(bench.results.values())
    table = Table("equation", "quantity", "constant", "95 %", "held out", "verdict", title="Verdicts")
    for name, each in found.items():
        law = LAWS[name]
        if isinstance(each, str):
            table.add_row(name, law.quantity, "", "", "", each)
            continue
        constant = each.estimates[law.form.term]
        interval = f"{constant.low:.3g} - {constant.high:.3g}"
        said = f"{each.verdict}: {each.reason}"
        table.add_row(name, law.quantity, f"{constant.value:.3g}", interval, f"{each.error:.0%}", said)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    console.print(table)
    rows = {name: {"value": round(value, 2)} for name, value in sizing_laws.single_partition_rates(results).items()}
    report.rows("One partition", rows)
    report.goals(goals(results, found))


@asynccontextmanager
async def _scratch() -> AsyncIterator[Path]:
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WRITTEN.parent, prefix="sizing-", ignore_cleanup_errors=True) as name:
        yield Path(name).absolute()


async def _run(report: Report, before: Mapping[str, Any], all_parts: Sequence[Part]) -> Bench:
    async with _scratch() as directory:
        bench = Bench(report, directory, before)
        await bench.run(all_parts)
        return bench


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/sizing.json and its picture, and print the verdicts."""
    quick = "30 and 300 partitions, short transfers: under five minutes, instead of 40"
    command = parser(__spec__, __doc__, report="build/bench/sizing.json and .svg", quick=quick)
    command.add_argument("--fresh", action="store_true", help="measure everything, not only what the report lacks")
    given = command.parse_args(argv)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # brokers are killed here
    before: dict[str, Any] = {}
    if WRITTEN.exists() and not given.fresh:
        report_before = orjson.loads(WRITTEN.read_bytes())
        if report_before.get("size") == SIZE:
            before = report_before["results"]
    all_parts = parts()
    try:
        with Report(sum(len(part.tasks) for part in all_parts)) as report:
            bench = asyncio.run(_run(report, before, all_parts))
    except KeyboardInterrupt:
        print("interrupted: the same command continues", file=sys.stderr)
        return 130
    found = assessments(list(bench.results.values()))
    write(bench, found)
    show(bench, report, found)
    print(f"written: {WRITTEN} and {WRITTEN.with_suffix('.svg')}")
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
