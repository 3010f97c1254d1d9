"""The Spark part of ``make bench-placement``: from unordered subscriptions to a plan, in its own process.

Parquet files of what clients have held are made first, shuffled. Then a process has another one make the sets in
Spark, and plans from them. Its time is taken from its start to its end, and its memory is the sum over it, the other
one and the JVM (resident; what two of them share counts twice).
"""

import contextlib
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.kafka import java
from learning.costs import Costs
from learning.jobs.spark_options import SparkOptions, SparkSettings, spark_path
from learning.jobs.spark_session import adapt_to_size, open_spark
from learning.placement.blocks import Ints, sum_by_cell
from learning.placement.instance import Instance, read_sets
from learning.placement.options import PlanOptions
from learning.placement.planner import plan
from tests.support.commandline import parser
from tests.support.instances import HOUR, Population

CORES: Final = 2
MEMORY: Final = "1536m"
COSTS: Final = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)
_FILES: Final = 8
_EVERY_S: Final = 0.2


def possible() -> bool:
    """Return whether Spark's requirements are installed."""
    try:
        java.find()
    except java.NoJava:
        return False
    return importlib.util.find_spec("pyspark") is not None


def measured(made: Population, leaves: int) -> dict[str, Any]:
    """Return the report of a plan on ``leaves`` servers and partitions, and its resources: s, GiB, and the load."""
    with tempfile.TemporaryDirectory(prefix="diem-bench-") as name:
        _write(made, Path(name))
        before = os.getloadavg()[0]
        start = time.monotonic()
        command = [sys.executable, "-m", "experiments.placement_spark", name, str(leaves)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            spent = _Spent(process.pid)
            spent.start()
            output, _ = process.communicate()
            spent.join()
        wall = time.monotonic() - start
        if process.returncode:
            raise RuntimeError("the plan on Spark failed: what it said is above")
    figures = {
        "wall_s": round(wall, 1),
        "cpu_s": round(sum(spent.cpu.values()), 1),
        "peak_gib": round(spent.peak / 2**30, 2),
    }
    return {**orjson.loads(output), "spent": figures, "machine_load": [before, os.getloadavg()[0]]}


class _Spent(threading.Thread):
    """Resources of a process and its descendants until it ends: peak memory, and CPU time of each."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.peak = 0
        self.cpu: dict[int, float] = {}

    def run(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            while self._process.status() != psutil.STATUS_ZOMBIE:
                all_of_them = [self._process, *self._process.children(recursive=True)]
                self.peak = max(self.peak, sum(map(self._seen, all_of_them)))
                time.sleep(_EVERY_S)

    def _seen(self, process: psutil.Process) -> int:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            self.cpu[process.pid] = times.user + times.system
            return int(process.memory_info().rss)
        return 0


def _write(made: Population, folder: Path) -> None:
    from learning.jobs.statistics import CONNECTED  # noqa: PLC0415  # needs Spark

    pins = folder / "pins"
    pins.mkdir()
    # Numbers in the order of the names, as statistics have them, and the names of `Population.instance`.
    names = [f"/endpoint-{number}" for number in range(made.endpoints)]
    by_name = np.array(sorted(range(made.endpoints), key=names.__getitem__))
    place = np.empty(made.endpoints, np.int64)
    place[by_name] = np.arange(made.endpoints)
    order = np.random.default_rng(0).permutation(made.client.size)
    for number, rows in enumerate(np.array_split(order, _FILES)):
        held = pa.array(place[made.endpoint[rows]].astype(np.int32))
        subscriptions = _rows_of(made.client[rows], held, held)
        # Every client is connected for the whole hour.
        clients = np.arange(number, made.clients, _FILES)
        rank = pa.array(np.full(clients.size, CONNECTED, np.int32))
        connected = _rows_of(clients, rank, pa.nulls(clients.size, pa.int32()))
        rows_of_file = pa.concat_tables([subscriptions, connected])
        pq.write_table(rows_of_file, pins / f"{number}.parquet", row_group_size=rows_of_file.num_rows)
    rates = {"endpoint": [names[each] for each in by_name.tolist()], "rate": made.rate[by_name]}
    pq.write_table(pa.table(rates), folder / "rates.parquet")


def _rows_of(client: Ints, rank: pa.Array, index: pa.Array) -> pa.Table:
    ms, sharers = np.full(client.size, 1000 * HOUR, np.int64), np.ones(client.size, np.int32)
    return pa.table({"client": client, "rank": rank, "index": index, "ms": ms, "sharers": sharers})


def _make_sets(folder: Path) -> None:
    """Make the table of sets, as the statistics of a window do."""
    from learning.jobs.statistics import subscription_sets  # noqa: PLC0415  # needs Spark

    options = SparkOptions(
        folder / "scratch", SparkSettings(f"local[{CORES}]", (("spark.driver.memory", MEMORY),)), java=java.find()
    )
    pins = folder / "pins"
    with open_spark(options) as spark:
        groups = (pq.read_metadata(file).row_group(0) for file in pins.iterdir())
        adapt_to_size(spark, sum(group.total_byte_size for group in groups))
        sets = subscription_sets(spark.read.parquet(spark_path(pins)))
        sets.orderBy("endpoints").write.parquet(spark_path(folder / "sets.parquet"))


def _plan(folder: Path, leaves: int) -> dict[str, Any]:
    """Compute the plan; return the report, and the times of its steps (s)."""
    begun, steps = time.monotonic(), {}

    def step(name: str) -> None:
        steps[name] = round(time.monotonic() - begun, 1)

    rates = pq.read_table(folder / "rates.parquet")
    options = PlanOptions(servers=(leaves,), partitions=leaves, hot_budget=0.0)
    # As `diem pipeline run` and `diem plan` do it: the JVM has ended when the plan is made.
    spark = multiprocessing.get_context("spawn").Process(target=_make_sets, args=(folder,))
    spark.start()
    spark.join()
    step("sets made")
    block = read_sets(folder / "sets.parquet")
    names, rate = rates.column("endpoint").to_pylist(), rates.column("rate").to_numpy()
    subscribers = sum_by_cell(block.pins, np.repeat(block.weights, block.sizes), rates.num_rows)
    instance = Instance.of(names, rate, subscribers / HOUR, block, HOUR)
    step("sets read")
    outcome = plan(instance, options, COSTS)
    step("planned")
    return {**outcome.report, "steps_s": steps, "sha256": sha256(outcome.placement.tobytes()).hexdigest()}


def main(argv: Sequence[str] | None = None) -> int:
    """Plan, and write the report to standard output as JSON."""
    arguments = parser(__spec__, __doc__, report="standard output, as JSON")
    arguments.add_argument("folder", type=Path, help="where the Parquet files are")
    arguments.add_argument("leaves", type=int, help="servers")
    given = arguments.parse_args(argv)
    sys.stdout.buffer.write(orjson.dumps(_plan(given.folder, given.leaves)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
