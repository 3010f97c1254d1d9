"""The JVM is killed in the middle of a batch; readers of the tables still see each event once.

What reads on is a JVM that runs already: `make cluster` runs the command again (test_bucket).
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq

from diem.protocol.traffic import Type
from learning.jobs.checkpoint import last_committed
from learning.jobs.delta_table import data_files
from learning.jobs.ingest import ingest
from learning.jobs.sources import FileSource
from learning.jobs.spark_options import SparkSettings
from learning.jobs.warehouse import EVENTS, QUARANTINE, Warehouse
from tests.support.delta import being_written
from tests.support.patience import PATIENCE_S
from tests.support.spark_session import INTERPRETED
from tests.support.traffic import BEGIN, Life, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN_S = 10 * PATIENCE_S
"""The JVM needs 10 s of CPU time until it writes; a busy machine gives it a fifth of the time."""
BEFORE, FILES, LINES = 5, 100, 20
"""Files of the batch before the one in which the JVM is killed, and of that one."""


class Pipeline:
    """``diem pipeline run`` on files, in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.source = FileSource(directory / "in")
        self.warehouse = Warehouse(directory / "state" / "traffic" / "warehouse")
        self.name = self.source.name
        self._log = directory / "log"
        where = ("--state-dir", str(directory / "state"), "--source", "files", "--input", str(self.source.folder))
        # The events are of a day that is long over: they would be dropped.
        options = ("--no-statistics", "--keep-days", "36500")
        spark = SparkSettings(memory="512m", cores=1, conf=tuple(INTERPRETED.items())).arguments()
        self._argv = [sys.executable, "-m", "deploy", "pipeline", "run", *where, *options, *spark]

    def killed(self) -> tuple[int, str]:
        """Run, and kill the JVM within the next batch; return the code and the log."""
        with self._log.open("wb") as log, subprocess.Popen(self._argv, stdout=log, stderr=log) as process:
            deadline = time.monotonic() + WITHIN_S
            while process.poll() is None and not (self.writes() and self._kill(process.pid)):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            code = process.wait(timeout=WITHIN_S)
        return code, self._log.read_text()

    def record(self, files: range) -> None:
        """Write files of traffic."""
        life = Life("websocket-1", 0xA + files.start, BEGIN, BEGIN)
        for number in files:
            events = [life.event(Type.CONNECT, BEGIN, 1, number) for _ in range(LINES)]
            write(self.source.folder, f"{number}.jsonl", events, b"bad")

    def committed(self) -> int | None:
        """Return the number of the last batch that is committed."""
        return last_committed(self.warehouse.checkpoint(self.name))

    def writes(self) -> bool:
        """Whether a batch is being written."""
        return being_written(self.warehouse.sink(self.name))

    def _kill(self, parent: int) -> bool:
        """Kill the JVM, unless the batch has been committed in the meantime: then continue."""
        for child in psutil.Process(parent).children(recursive=True):
            # Spark's Python workers come and go.
            with suppress(psutil.NoSuchProcess):
                if "java" in child.name():
                    child.suspend()
                    if not self.writes():
                        child.resume()
                        return False
                    child.kill()
        return True


def test_each_event_counts_once_after_the_jvm_was_killed_in_mid_batch(spark: "SparkSession", tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.record(range(BEFORE))
    ingest(spark, pipeline.source, pipeline.warehouse)
    pipeline.record(range(BEFORE, BEFORE + FILES))
    assert (pipeline.writes(), pipeline.committed()) == (False, 0)

    code, said = pipeline.killed()
    assert (code, "Spark's JVM died: run it again" in said, "Traceback" in said) == (1, True, False), said
    assert (pipeline.writes(), pipeline.committed()) == (True, 0)
    ingest(spark, pipeline.source, pipeline.warehouse)
    assert (pipeline.writes(), pipeline.committed()) == (False, 1)

    sink = pipeline.warehouse.sink(pipeline.name)
    ids = [each for file in data_files(sink, EVENTS) for each in pq.read_table(file)["id"].to_pylist()]
    assert len(ids) == len(set(ids)) == (BEFORE + FILES) * LINES
    places = [each for file in data_files(sink, QUARANTINE) for each in pq.read_table(file)["source"].to_pylist()]
    assert len(places) == len(set(places)) == BEFORE + FILES
