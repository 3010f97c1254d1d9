"""The JVM is killed in the middle of a batch; readers of the tables still see each event once."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from diem.protocol.traffic import Type
from metadata.jobs.checkpoint import last_committed
from metadata.jobs.delta_table import data_files
from metadata.jobs.sources import FileSource
from metadata.jobs.warehouse import EVENTS, QUARANTINE, Warehouse
from tests.support.delta import being_written
from tests.support.patience import PATIENCE_S
from tests.support.traffic import BEGIN, Life, write

WITHIN_S = 10 * PATIENCE_S
"""The JVM needs 25 s of CPU time until its second batch; a busy machine gives it a fifth of the time."""
FILES, LINES = 210, 20
"""Three batches."""


class Pipeline:
    """``diem pipeline run`` on files, in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "in"
        self.warehouse = Warehouse(directory / "state" / "traffic" / "warehouse")
        self.name = FileSource(self.folder).name
        self._log = directory / "log"
        where = ("--state-dir", str(directory / "state"), "--source", "files", "--input", str(self.folder))
        # The events are of a day that is long over: a second run would drop them.
        options = ("--no-statistics", "--memory", "512m", "--keep-days", "36500")
        self._argv = [sys.executable, "-m", "deploy", "pipeline", "run", *where, *options]

    def run(self, kill_after: int | None = None) -> tuple[int, str]:
        """Run to the end, or kill the JVM within the batch after ``kill_after``; return the code and the log."""
        with self._log.open("wb") as log, subprocess.Popen(self._argv, stdout=log, stderr=log) as process:
            deadline = time.monotonic() + WITHIN_S
            while process.poll() is None and kill_after is not None:
                assert time.monotonic() < deadline
                last = last_committed(self.warehouse.checkpoint(self.name))
                if (-1 if last is None else last) >= kill_after and self.writes() and self._kill(process.pid):
                    break
                time.sleep(0.01)
            code = process.wait(timeout=WITHIN_S)
        return code, self._log.read_text()

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


@pytest.mark.takes(40)
def test_each_event_counts_once_after_the_jvm_was_killed_in_mid_batch(tmp_path: Path) -> None:
    pipeline, life = Pipeline(tmp_path), Life("websocket-1", 0xA, BEGIN, BEGIN)
    for number in range(FILES):
        events = [life.event(Type.CONNECT, BEGIN, 1, number) for _ in range(LINES)]
        write(pipeline.folder, f"{number}.jsonl", events, b"bad")

    code, said = pipeline.run(kill_after=0)
    assert (code, "Spark's JVM died: run it again" in said, "Traceback" in said) == (1, True, False), said
    assert pipeline.writes()
    code, said = pipeline.run()
    assert (code, last_committed(pipeline.warehouse.checkpoint(pipeline.name))) == (0, 2), said

    assert not pipeline.writes()
    sink = pipeline.warehouse.sink(pipeline.name)
    ids = [each for file in data_files(sink, EVENTS) for each in pq.read_table(file)["id"].to_pylist()]
    assert len(ids) == len(set(ids)) == FILES * LINES
    places = [each for file in data_files(sink, QUARANTINE) for each in pq.read_table(file)["source"].to_pylist()]
    assert len(places) == len(set(places)) == FILES
