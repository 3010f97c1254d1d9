"""On a standalone cluster, whose executors are processes of their own, results are those of one machine."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from deploy.kafka import java
from deploy.kafka.java import NoJava
from diem.protocol.traffic import encode
from learning.jobs.checkpoint import last_committed
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import read_window, warehouse_at
from learning.placement.instance import from_events
from learning.placement.planner import plan
from learning.statistics import reference
from learning.statistics.model import window_json
from learning.statistics.reference import Arrival
from tests.integration.pipeline import cluster_driver
from tests.integration.pipeline.cluster_driver import COSTS, OPTIONS, PLACEMENT, WINDOW
from tests.support.delta import being_written, ids
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster, unavailable
from tests.support.spark_cluster import Cluster, spark_cluster
from tests.support.traffic import generated, write

pytestmark = [
    in_cluster("it takes minutes of CPU time"),
    pytest.mark.takes(40),
    pytest.mark.xdist_group("spark_cluster"),
]
WITHIN_S = 10 * PATIENCE_S
FILES = 110
"""Two batches."""
INTERRUPTED = 130


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        import pyspark  # noqa: PLC0415  # an extra

        found = java.find()
    except (ImportError, NoJava) as error:
        unavailable("Spark", error)
    with spark_cluster(tmp_path_factory.mktemp("cluster"), found, Path(pyspark.__path__[0])) as running:
        yield running


class Run:
    """The pipeline's source and warehouse in a folder, and the command that runs it on the cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.source = FileSource(folder / "in")
        state = folder / "state"
        self.warehouse = warehouse_at(folder / "warehouse", state / "traffic")
        self.sink = self.warehouse.sink(self.source.name)
        folder.mkdir(exist_ok=True)
        self._log = folder / "log"
        places = ("--state-dir", str(state), "--warehouse", self.warehouse.root.as_uri())
        self.arguments = [
            "pipeline",
            "run",
            *places,
            "--input",
            str(self.source.folder),
            *cluster.settings().arguments(),
        ]

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def diem(self, *more: str) -> "subprocess.Popen[bytes]":
        return self.start(sys.executable, "-m", "deploy", *self.arguments, *more)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until_said(self, process: "subprocess.Popen[bytes]", text: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while text not in self.said:
            assert process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def ends(self, process: "subprocess.Popen[bytes]") -> int:
        try:
            return process.wait(WITHIN_S)
        finally:
            process.kill()

    def kill_in_batch(self, process: "subprocess.Popen[bytes]", *, executor: bool) -> None:
        """Kill an executor, or the driver's JVM, while a batch is being written."""
        deadline = time.monotonic() + WITHIN_S
        while process.poll() is None:
            assert time.monotonic() < deadline
            if being_written(self.sink):
                found = self.cluster.executors() if executor else _jvms(process)
                for victim in found[:1]:
                    victim.suspend()
                    if being_written(self.sink):
                        victim.kill()
                        return
                    victim.resume()
            time.sleep(0.01)
        raise AssertionError(self.said)


def _jvms(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    return [each for each in psutil.Process(process.pid).children(recursive=True) if each.name() == "java"]


def test_a_warehouse_that_is_not_shared_is_refused_and_nothing_is_lost(cluster: Cluster) -> None:
    run = Run(cluster, cluster.private)
    file = write(run.source.folder, "0.jsonl", [event for event, _ in generated(1, clients=5)])
    before = file.read_bytes()
    if not cluster.is_private:
        pytest.skip("a mount namespace is not permitted")
    assert run.ends(run.diem("--remove")) == 2
    assert "on a disk that all workers have at this path; nothing was read" in run.said, run.said
    assert file.read_bytes() == before
    assert not list(run.warehouse.root.rglob("*.parquet"))
    assert last_committed(run.warehouse.checkpoint(run.source.name)) is None


def test_results_are_those_of_one_machine_although_a_driver_and_an_executor_are_killed(cluster: Cluster) -> None:
    run = Run(cluster, cluster.shared)
    arrivals = record(run)

    driver = run.diem("--follow", "--every", "0.1", "--keep")
    run.kill_in_batch(driver, executor=False)
    assert (run.ends(driver), "Spark's JVM died: run it again" in run.said) == (1, True), run.said
    driver = run.start(*cluster.submit(), cluster_driver.__file__, str(cluster.shared))
    run.kill_in_batch(driver, executor=True)
    assert run.ends(driver) == 0, run.said

    require_results(run, arrivals)
    made = plan(from_events((encode(event) for event, _ in arrivals), WINDOW), OPTIONS, COSTS)
    assert (cluster.shared / PLACEMENT).read_bytes() == made.placement.tobytes()
    assert len(set(made.placement.tolist())) > 1


def test_a_run_without_a_free_executor_says_so_and_can_be_interrupted(cluster: Cluster) -> None:
    first, second = (Run(cluster, cluster.shared / name) for name in ("first", "second"))
    follower = first.diem("--follow")
    try:
        first.until_said(follower, "reading 0 files")
        waiting = second.diem()
        second.until_said(waiting, f"waiting for executors of {cluster.master}: ")
        waiting.send_signal(signal.SIGINT)
        assert second.ends(waiting) == INTERRUPTED, second.said
        assert "Traceback" not in second.said
    finally:
        follower.send_signal(signal.SIGINT)
        assert first.ends(follower) == 0, first.said


def test_a_setting_that_java_refuses_ends_a_run_with_one_line(cluster: Cluster) -> None:
    run = Run(cluster, cluster.shared / "third")
    logged = ("--conf", "spark.eventLog.enabled=true", "--conf", "spark.eventLog.dir=file:/nowhere")
    assert run.ends(run.diem("--source", "none", "--master", "local[1]", *logged)) == 1
    *begun, error = run.said.splitlines()
    assert (begun, "/nowhere" in error) == (["starting Spark"], True), run.said


def record(run: Run) -> list[Arrival]:
    """Write the files that a run is to read."""
    arrivals, events = list[Arrival](), [event for event, _ in generated(1, clients=40)]
    for number in range(FILES):
        part = events[number::FILES]
        arrived = write(run.source.folder, f"{number}.jsonl", part).stat().st_mtime_ns // 1_000_000
        arrivals += (Arrival(event, arrived) for event in part)
    return arrivals


def require_results(run: Run, arrivals: list[Arrival]) -> Path:
    """Compare tables and statistics with what was recorded; return the folder of the statistics."""
    assert not list(run.source.folder.iterdir())
    assert Counter(ids(run.sink)) == Counter(event.id for event, _ in arrivals)
    folder, expected = run.warehouse.statistics / WINDOW.name, reference.statistics(arrivals, WINDOW)
    assert read_window(folder) == window_json(WINDOW, expected.summary)
    for name in ("endpoints", "sets", "waste"):
        rows = [tuple(row.values()) for row in pq.read_table(folder / f"{name}.parquet").to_pylist()]
        assert [(tuple(first) if name == "sets" else first, *others) for first, *others in rows] == [
            tuple(row) for row in getattr(expected, name)
        ], name
    return folder
