"""``make bench-pipeline``: what statistics of an hour cost after a long history and without any, and what a line costs.

The goal is that of the design: a window of an hour after a week at a million events an hour takes at most 1.5 times the
CPU time of that window alone, which writes no condensed history. All is measured in one session, in turns, of which the
first one warms it up. The tables of the past are written directly; its condensed history is made from its last two
hours, because sessions last 20 minutes. Files of hours more than a day before the window are links to those of the last
day: windows read no more of them than their footers. Lines are read in turns, as they are and as if none were
canonical; the last turn of each counts.

Before that, ``diem pipeline run`` of an hour of files is compared with a script of DuckDB, which makes the same
tables and nothing else (:mod:`experiments.pipeline_duckdb`): each in a process, in turns, with descendants' CPU time.
Of two sizes, an event's cost is the slope. Where DuckDB is not installed, this is left out.

``EVENTS`` is the number of events an hour, ``HOURS`` that of hours before the window, ``LINES`` that of lines read.
"""

import ctypes
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import psutil
import pyarrow.parquet as pq

from deploy.kafka import java
from diem.protocol.update import iso
from experiments import pipeline_duckdb, pipeline_tables
from experiments.pipeline_tables import BEGIN_MS, HOUR_MS
from learning.jobs.sources import FileSource
from learning.jobs.spark_options import SparkOptions, SparkSettings
from learning.jobs.spark_session import open_spark, scratch_folder
from learning.jobs.warehouse import Warehouse
from learning.statistics.window import Window
from tests.bench.report import Report
from tests.load.bench import Goal
from tests.load.bench import write as write_report
from tests.support.commandline import parser
from tests.support.python_parser import no_canonical_lines
from tests.support.size import SIZE, RunSize, sized
from tests.support.spark_session import INTERPRETED, JVM_OPTIONS
from tests.support.traffic import generated, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: Final = int(os.environ.get("EVENTS", sized(1_000_000, 100_000, 1000)))
HOURS: Final = int(os.environ.get("HOURS", sized(168, 24, 2)))
LINES: Final = int(os.environ.get("LINES", sized(200_000, 50_000, 500)))
WARM_UP: Final = sized(5_000, 5_000, 100)
"""Lines that are read before those that are measured."""
GOAL: Final = 1.5
TURNS: Final = sized(4, 3, 1)
MAX_READ: Final = sized(5_000_000, 5_000_000, 0)
"""Events of history up to which the window is also computed from all of them."""
_FULL: Final = SparkSettings("local[2]", (("spark.driver.memory", "2g"),))
# Compiled, the queries of a window of a few rows take half a minute.
_SMOKE: Final = SparkSettings("local[1]", (("spark.driver.memory", "768m"), *INTERPRETED.items()))
SETTINGS: Final = sized(_FULL, _FULL, _SMOKE)

COMPARED: Final = sized({1_000_000: 2, 4_000_000: 1}, {50_000: 2, 100_000: 2}, {500: 1})
"""Events of the hours that DuckDB computes, too, and how often."""
FIXED_S: Final = 25.0
EVENT_US: Final = 35.0
_FILE: Final = 50_000
"""Lines of a file."""
PARTS: Final = ("duckdb", "history")

Figures = dict[str, float]
WAYS: Final = {"lines": nullcontext, "lines in Python": no_canonical_lines}


def cpu_s() -> float:
    """Return the CPU seconds so far of this process and its descendants."""
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    return sum(each.user + each.system + each.children_user + each.children_system for each in times)


def spent(work: Callable[[], object]) -> Figures:
    """Return the CPU and wall seconds of some work."""
    before, began = cpu_s(), time.monotonic()
    work()
    return {"cpu_s": round(cpu_s() - before, 2), "wall_s": round(time.monotonic() - began, 2)}


def measure(spark: "SparkSession", folder: Path, report: Report) -> Iterator[tuple[str, Figures]]:
    """Yield the name and the figures of each step."""
    from learning.jobs.ingest import ingest  # noqa: PLC0415  # it needs Spark
    from learning.jobs.statistics import compute  # noqa: PLC0415

    end = BEGIN_MS + HOURS * HOUR_MS
    last = Window(end, end + HOUR_MS)
    alone, past = Warehouse(folder / "alone"), Warehouse(folder / "past")
    source, read = FileSource(folder / "in"), Warehouse(folder / "read")
    for number, (count, (name, way)) in enumerate(product((WARM_UP, LINES, LINES), WAYS.items())):
        report.step(f"{count:,} {name}")
        write(source.folder, f"{number}.jsonl", pipeline_tables.recorded(number, count))
        with way():
            yield name, spent(lambda: ingest(spark, source, read))
    report.step("tables of the hour")
    pipeline_tables.make(spark, alone, EVENTS, HOURS, HOURS + 1)
    report.step(f"tables of the {HOURS} hours before it, too")
    pipeline_tables.make(spark, past, EVENTS, 0, HOURS + 1)
    report.step("the condensed history")
    pipeline_tables.condense(spark, past, Window(end - HOUR_MS, end))
    kept = shutil.copytree(past.history, folder / "history")
    for turn in range(TURNS):
        report.step("the window alone")
        yield f"alone, {turn}", spent(lambda: compute(spark, alone, last, "bench"))
        report.step("the window after it")
        shutil.rmtree(past.history)
        shutil.copytree(kept, past.history)
        yield f"after, {turn}", spent(lambda: compute(spark, past, last, "bench"))
    if EVENTS * HOURS <= MAX_READ:
        shutil.rmtree(past.history)
        report.step("the window after all events")
        yield "after all", spent(lambda: compute(spark, past, last, "bench"))


def run(command: Sequence[str], log: Path) -> Figures:
    """Run a program; return its wall seconds, and the CPU seconds of it and its descendants.

    Those that it leaves behind, like Spark's JVM, become children of this process, which must have no others.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, began, load = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), os.getloadavg()[0]
    with log.open("wb") as output:
        code = subprocess.run([sys.executable, "-m", *command], stdout=output, stderr=output, check=False).returncode
    wall = time.monotonic() - began
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if code:
        raise RuntimeError(f"{' '.join(command)} failed with {code}: {log.read_text(errors='replace')}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": round(cpu, 2), "wall_s": round(wall, 2), "load": round(load, 1)}


_PR_SET_CHILD_SUBREAPER: Final = 36


def compare(folder: Path, report: Report) -> Iterator[tuple[str, Figures]]:
    """Yield the name and the figures of each run, from an hour's files that are written once a size."""
    window, tables = Window(BEGIN_MS, BEGIN_MS + HOUR_MS), folder / "duckdb"
    tables.mkdir()
    for events, turns in (COMPARED if SIZE is RunSize.SMOKE else {WARM_UP: 1, **COMPARED}).items():
        report.step(f"files of {events:,} events")
        lines, warehouse = folder / f"in-{events}", folder / "warehouse"
        # Irregular cases of all kinds.
        write(lines, "irregular.jsonl", (arrival.event for arrival in generated(1)))
        made = islice(pipeline_tables.visits(events), events)
        for number in range(0, events, _FILE):
            write(lines, f"{number}.jsonl", islice(made, _FILE))
        by_duckdb = [str(each) for each in (lines, tables, window.start, window.end)]
        by_spark = [
            *("--source=files", f"--input={lines}", f"--warehouse={warehouse}", "--keep-days=36500", "--name=bench"),
            *(f"--from={iso(window.start)}", f"--to={iso(window.end)}", f"--state-dir={folder / 'state'}"),
            *(f"--conf={key}={value}" for key, value in SETTINGS.conf if SIZE is RunSize.SMOKE),
        ]
        for turn in range(turns):
            report.step(f"{events:,} events by Spark")
            yield f"Spark, {events}, {turn}", run(["deploy", "pipeline", "run", *by_spark], folder / "log")
            report.step(f"{events:,} events by DuckDB")
            found = run(["experiments.pipeline_duckdb", *by_duckdb], folder / "log")
            differ = sum(not same(warehouse / "statistics" / "bench", tables, each) for each in pipeline_duckdb.TABLES)
            yield f"DuckDB, {events}, {turn}", {**found, "tables_that_differ": differ}
            shutil.rmtree(warehouse)
        shutil.rmtree(lines)


def same(one: Path, other: Path, name: str) -> bool:
    """Return whether a table of statistics is the same in two folders, to the last bit."""
    expected, found = (pq.read_table(each / f"{name}.parquet") for each in (one, other))
    return bool(expected.num_rows) and bool(expected.equals(found.cast(expected.schema)))


def summary(runs: Mapping[str, Figures]) -> tuple[dict[str, Figures], list[Goal]]:
    """Return the means of each program, their slope and fixed cost, and the goals."""
    found: dict[str, Figures] = {}
    for program in ("Spark", "DuckDB"):
        means = {
            events: fmean(runs[f"{program}, {events}, {turn}"]["cpu_s"] for turn in range(turns))
            for events, turns in COMPARED.items()
        }
        found[program] = {f"cpu_s_{events}": round(mean, 2) for events, mean in means.items()}
        if len(means) > 1:
            (few, less), (many, more) = means.items()
            slope = (more - less) / (many - few)
            found[program] |= {"us_per_event": round(slope * 1e6, 2), "fixed_cpu_s": round(less - slope * few, 2)}
    spark, duckdb = found.values()
    found["ratio"] = {name: round(value / duckdb[name], 2) for name, value in spark.items() if name.startswith("cpu_s")}
    differ = max(figures.get("tables_that_differ", 0) for figures in runs.values())
    return found, [
        Goal("tables of Spark that differ from DuckDB's", "tables", 0, differ),
        Goal("fixed CPU time of diem pipeline run", "s", FIXED_S, spark.get("fixed_cpu_s")),
        Goal("CPU time of diem pipeline run for an event more", "us", EVENT_US, spark.get("us_per_event")),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    command = parser(__spec__, __doc__, report="build/bench/pipeline.json", quick="")
    command.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="these parts; default: all")
    parts = set(command.parse_args(argv).only)
    if "duckdb" in parts and importlib.util.find_spec("duckdb") is None:
        print("left out: the comparison with DuckDB, which is not installed (make install-quality)")
        parts.remove("duckdb")
    if SIZE is RunSize.SMOKE:
        os.environ["JDK_JAVA_OPTIONS"] = JVM_OPTIONS
    found: dict[str, Any] = {"events_per_hour": EVENTS, "hours": HOURS, "lines": LINES}
    goals: list[Goal] = []
    steps = len(WAYS) * 3 + 3 + 2 * TURNS + (EVENTS * HOURS <= MAX_READ)
    compared = sum(1 + 2 * turns for turns in COMPARED.values()) + sized(3, 3, 0)
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder,
        Report(steps * ("history" in parts) + compared * ("duckdb" in parts)) as report,
    ):
        # First, without a JVM of this process.
        if "duckdb" in parts:
            runs = found["compared"] = dict[str, Figures]()
            for name, figures in compare(Path(folder), report):
                runs[name] = figures
                # A run takes long: what it has measured stays if it is interrupted.
                write_report("pipeline", found, [])
            found["cost"], goals = summary(runs)
            report.rows("An hour by diem pipeline run and by DuckDB", runs)
            report.rows("Their CPU time", found["cost"])
        if "history" in parts:
            goals.append(history(Path(folder), report, found))
    report.goals(goals)
    print(f"written: {write_report('pipeline', found, goals)}")
    return 0


def history(folder: Path, report: Report, found: dict[str, Any]) -> Goal:
    """Measure lines, and windows with and without a history, into the report's figures."""
    steps = found["steps"] = dict[str, Figures]()
    with scratch_folder() as scratch, open_spark(SparkOptions(scratch, SETTINGS, java=java.find())) as spark:
        for name, figures in measure(spark, folder, report):
            figures["us_per_event"] = round(figures["cpu_s"] / (LINES if name in WAYS else EVENTS) * 1e6, 2)
            steps[name] = figures
            write_report("pipeline", found, [])
    report.rows("CPU of lines read, and of a window of an hour", steps)
    warm = range(min(1, TURNS - 1), TURNS)
    after, alone = (sum(steps[f"{name}, {turn}"]["cpu_s"] for turn in warm) for name in ("after", "alone"))
    ratio = after / alone
    return Goal(f"the window after {HOURS} hours, of the window alone", "x", GOAL, round(ratio, 3))


if __name__ == "__main__":
    sys.exit(main())
