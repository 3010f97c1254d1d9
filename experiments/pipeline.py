"""``make bench-pipeline``: what statistics of an hour cost after a long history and without any, and what a line costs.

The goal is that of the design: a window of an hour after a week at a million events an hour takes at most 1.5 times the
CPU time of that window alone, which writes no condensed history. All is measured in one session, after a window that
warms it up. The tables of the past are written directly; its condensed history is made from its last two hours, because
sessions last 20 minutes. Files of hours more than a day before the window are links to those of the last day: windows
read no more of them than their footers. Lines are read in turns, as they are and as if none were canonical; the last
turn of each counts.

``EVENTS`` is the number of events an hour, ``HOURS`` that of hours before the window, ``LINES`` that of lines read.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from deploy.kafka import java
from experiments import pipeline_tables
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
from tests.support.traffic import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: Final = int(os.environ.get("EVENTS", sized(1_000_000, 100_000, 1000)))
HOURS: Final = int(os.environ.get("HOURS", sized(168, 24, 2)))
LINES: Final = int(os.environ.get("LINES", sized(200_000, 50_000, 500)))
WARM_UP: Final = sized(5_000, 5_000, 100)
"""Lines that are read before those that are measured."""
GOAL: Final = 1.5
MAX_READ: Final = sized(5_000_000, 5_000_000, 0)
"""Events of history up to which the window is also computed from all of them."""
_FULL: Final = SparkSettings("local[2]", (("spark.driver.memory", "2g"),))
# Compiled, the queries of a window of a few rows take half a minute.
_SMOKE: Final = SparkSettings("local[1]", (("spark.driver.memory", "768m"), *INTERPRETED.items()))
SETTINGS: Final = sized(_FULL, _FULL, _SMOKE)

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
    for name in sized(("first", "alone"), ("first", "alone"), ("alone",)):
        report.step(f"the window alone, {name}" if name == "first" else "the window alone")
        yield name, spent(lambda: compute(spark, alone, last, "bench"))
    shutil.rmtree(alone.root)
    report.step(f"tables of the {HOURS} hours before it, too")
    pipeline_tables.make(spark, past, EVENTS, 0, HOURS + 1)
    report.step("the condensed history")
    pipeline_tables.condense(spark, past, Window(end - HOUR_MS, end))
    report.step("the window after it")
    yield "after", spent(lambda: compute(spark, past, last, "bench"))
    if EVENTS * HOURS <= MAX_READ:
        shutil.rmtree(past.root / "_history")
        report.step("the window after all events")
        yield "after all", spent(lambda: compute(spark, past, last, "bench"))


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/pipeline.json", quick="").parse_args(argv)
    if SIZE is RunSize.SMOKE:
        os.environ["JDK_JAVA_OPTIONS"] = JVM_OPTIONS
    found = dict[str, Figures]()
    shape = {"events_per_hour": EVENTS, "hours": HOURS, "lines": LINES}
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder,
        scratch_folder() as scratch,
        Report(11 if SIZE is RunSize.SMOKE else 13 if EVENTS * HOURS <= MAX_READ else 12) as report,
        open_spark(SparkOptions(scratch, SETTINGS, java=java.find())) as spark,
    ):
        for name, figures in measure(spark, Path(folder), report):
            figures["us_per_event"] = round(figures["cpu_s"] / (LINES if name in WAYS else EVENTS) * 1e6, 2)
            found[name] = figures
            # A run takes long: what it has measured stays if it is interrupted.
            write_report("pipeline", {**shape, "steps": found}, [])
    report.rows("CPU of lines read, and of a window of an hour", found)
    ratio = found["after"]["cpu_s"] / found["alone"]["cpu_s"]
    goals = [Goal(f"the window after {HOURS} hours, of the window alone", "x", GOAL, round(ratio, 3))]
    report.goals(goals)
    print(f"written: {write_report('pipeline', {**shape, 'steps': found}, goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
