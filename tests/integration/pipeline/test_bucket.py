"""Tables in a bucket, at an S3 service that is a process of its own."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError

from learning.jobs import delta_table, statistics, tables
from learning.jobs.bucket import (
    BucketPath,
    BucketUnavailable,
    Folder,
    open_binary,
    remove_tree,
    spark_settings,
    temporary,
)
from learning.jobs.checkpoint import last_committed
from learning.jobs.delta_table import OtherWriter, committed_files, data_files
from learning.jobs.erasure import erase
from learning.jobs.history import find, histories, read
from learning.jobs.ingest import ingest
from learning.jobs.maintenance import MIN_FILES, maintain
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import EVENTS, Warehouse, read_window, status, warehouse_at
from learning.statistics import reference
from learning.statistics.model import window_json
from learning.statistics.reference import Arrival
from learning.statistics.window import Window
from tests.integration.pipeline.s3_server import S3Server
from tests.support.delta import QUERY, bad, being_written, event, ids, schema, stage, write
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.traffic import BEGIN, MINUTE, generated
from tests.support.traffic import write as write_traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY, TODAY = date(2026, 1, 1), date(2026, 1, 2)
FIRST = Window(BEGIN + 15 * MINUTE, BEGIN + 50 * MINUTE)
SECOND = Window(FIRST.end, BEGIN + 80 * MINUTE)
WITHIN_S = 10 * PATIENCE_S


def observed(root: Folder) -> list[object]:
    """What the methods return that both kinds of folders have."""
    (root / "a" / "b=1").mkdir(parents=True)
    for name in ("a/b=1/x.parquet", "a/b=1/y.txt", "c.json"):
        (root / name).write_bytes(name.encode())
    found: list[object] = [
        sorted(each.relative_to(root).parts for each in root.glob(pattern))
        for pattern in ("*", "*/b=*/*.parquet", "*/*", "a/none/*")
    ]
    found += [(each.exists(), each.is_dir()) for each in (root / "a", root / "c.json", root / "none")]
    with open_binary(root / "c.json") as opened:
        found += [opened.read(), (root / "c.json").stat().st_size, (root / "c.json").read_text("utf-8")]
    (root / "c.json").rename(root / "a" / "d.json")  # type: ignore[arg-type]  # both are of one kind
    found += [(root / "c.json").exists(), (root / "a" / "d.json").read_bytes()]
    with pytest.raises(FileNotFoundError):
        (root / "c.json").stat()
    remove_tree(root / "a")
    remove_tree(root / "never")
    return [*found, (root / "a").exists()]


def test_a_place_in_a_bucket_has_the_methods_of_a_folder(bucket: BucketPath, tmp_path: Path) -> None:
    assert observed(bucket) == observed(tmp_path)


def test_tables_are_committed_compacted_and_erased_as_on_a_disk(bucket: BucketPath, tmp_path: Path) -> None:
    here = Warehouse(tmp_path, bucket)
    sink = here.sink("files-1")
    with here.lock("files-1"):
        delta_table.prepare(sink, schema(), here.writer())
        for number in range(MIN_FILES):
            write(sink, number, [event(f"e{number}", DAY, f"{number:016x}"), bad("x", TODAY)])
        stage(sink, [event("interrupted", DAY)])
        assert [delta_table.is_committed(sink, QUERY, n) for n in (MIN_FILES - 1, MIN_FILES)] == [True, False]
        assert maintain(sink, TODAY) == MIN_FILES - 1
        delta_table.prepare(sink, schema("more"), here.writer())
    assert not being_written(sink)
    assert ids(sink) == sorted(f"e{number}" for number in range(MIN_FILES))
    found = status(here, "files-1")
    assert (found.events, found.quarantine) == (MIN_FILES, {"not JSON": MIN_FILES})
    assert erase(here, tmp_path / "in", {f"{3:016x}"}) == (1, 0)
    assert "e3" not in ids(sink)
    # Neither the file of its row nor those that were compacted are left, nor what was searched for.
    assert {file.path.name for file in committed_files(sink, EVENTS)} == {
        file.name for file in (sink / "table=events" / f"day={DAY}").glob("*.parquet")
    }
    log = b"".join(file.read_bytes() for file in (sink / "_delta_log").glob("*.json"))
    assert f"{3:016x}".encode() not in log


def test_of_two_writers_of_one_version_the_second_fails(bucket: BucketPath) -> None:
    from deltalake import CommitProperties, DeltaTable, Transaction  # noqa: PLC0415

    delta_table.prepare(bucket, schema())

    def append(table: DeltaTable) -> None:
        properties = CommitProperties(app_transactions=[Transaction(QUERY, 0)])
        table.create_write_transaction([], "append", table.schema(), ["table", "day"], commit_properties=properties)

    one, other = delta_table.open_table(bucket), delta_table.open_table(bucket)
    append(one)
    with pytest.raises(DeltaError, match="oncurrent"):
        append(other)


def test_another_state_directory_is_refused(bucket: BucketPath, tmp_path: Path) -> None:
    mine, other = (warehouse_at(bucket, tmp_path / name) for name in ("mine", "other"))
    with mine.lock("files-1"):
        delta_table.prepare(mine.sink("files-1"), schema(), mine.writer())
    with mine.lock("files-1"):
        assert mine.sources() == other.sources() == ["files-1"]
    with pytest.raises(OtherWriter, match="another state directory"), other.lock("files-1"):
        raise AssertionError


def test_temporary_results_of_killed_processes_are_removed_after_a_day(bucket: BucketPath) -> None:
    now = time.time_ns() // 1_000_000
    of_yesterday, of_today = bucket / f"{now - 86_500_000}-a", bucket / f"{now - 1000}-b"
    for each in (of_yesterday, of_today):
        (each / "part").write_bytes(b"rows")
    assert temporary(bucket).parent == bucket
    assert [each.exists() for each in (of_yesterday, of_today)] == [False, True]


def diem(folder: Path, bucket: BucketPath, *more: str) -> list[str]:
    """The command that reads ``in`` of a folder into a bucket."""
    places = ("--state-dir", str(folder / "state"), "--warehouse", str(bucket), "--input", str(folder / "in"))
    # The events are of a day that is long over.
    options = ("--source", "files", "--remove", "--memory", "512m", "--keep-days", "36500")
    return [sys.executable, "-m", "deploy", "pipeline", "run", *places, *options, *more]


def test_without_its_service_nothing_is_read_and_nothing_lost(
    bucket: BucketPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_traffic(tmp_path / "in", "0.jsonl", [each for each, _ in generated(1, clients=5)])
    before = file.read_bytes()
    bucket.require_bucket()
    missing = BucketPath("no-such-bucket", "warehouse")
    for use in (missing.require_bucket, lambda: missing.write_bytes(b"")):
        with pytest.raises(BucketUnavailable, match=r"s3://no-such-bucket/warehouse cannot be used"):
            use()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    run = subprocess.run(diem(tmp_path, bucket), check=False, capture_output=True, text=True)
    assert (run.returncode, "Traceback" in run.stderr) == (1, False), run.stderr
    assert f"the bucket of {bucket}" in run.stderr
    assert "nothing is lost" in run.stderr
    assert file.read_bytes() == before


@contextmanager
def connected(spark: "SparkSession") -> Iterator[None]:
    """Let a session that runs already use the service that the environment names."""
    settings = {name.removeprefix("spark.hadoop."): value for name, value in spark_settings(None).items()}
    settings |= {"fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"]}
    settings |= {"fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"]}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def has_statistics(folder: Path, arrivals: list[Arrival], window: Window) -> bool:
    """Compare the statistics of a window with those of the reference."""
    expected = reference.statistics(arrivals, window)
    rows = pq.read_table(folder / "sets.parquet").to_pylist()
    sets = [(tuple(row["endpoints"]), row["weight"], row["clients"]) for row in rows]
    endpoints = [tuple(row.values()) for row in pq.read_table(folder / "endpoints.parquet").to_pylist()]
    return (read_window(folder), sets, endpoints) == (
        window_json(window, expected.summary),
        list(map(tuple, expected.sets)),
        list(map(tuple, expected.endpoints)),
    )


@pytest.mark.skipif("RUN_CLUSTER" not in os.environ, reason="it takes half a minute of CPU time: make cluster")
def test_statistics_and_histories_are_those_of_a_disk(
    spark: "SparkSession", bucket: BucketPath, tmp_path: Path
) -> None:
    here, source = Warehouse(tmp_path / "warehouse", bucket), FileSource(tmp_path / "in")
    events = [each for each, _ in generated(3, clients=30)]
    at = write_traffic(source.folder, "0.jsonl", events).stat().st_mtime_ns // 1_000_000
    arrivals, warnings = [Arrival(each, at) for each in events], list[str]()
    with connected(spark):
        assert ingest(spark, source, here, remove=True) == len(events)
        folder = statistics.compute(spark, here, FIRST, warn=warnings.append)
        assert folder.parent == here.root / "statistics"
        assert has_statistics(folder, arrivals, FIRST)
        # The next window reads the history that the first one has left, and what came since.
        (history,) = histories(here)
        assert history.parent == bucket / "_history"
        recorded = tables.events(spark, here)
        assert find(recorded, here, SECOND, warnings.append) == history
        since = sum(each.time >= int(history.name) for each in events)
        assert since < read(recorded, here, SECOND, warnings.append).count() < len(events)
    assert not warnings
    assert not list(source.folder.iterdir())


@pytest.mark.skipif("RUN_CLUSTER" not in os.environ, reason="it takes a minute of CPU time: make cluster")
def test_each_event_counts_once_after_the_driver_was_killed_in_mid_batch(
    s3: S3Server, bucket: BucketPath, tmp_path: Path
) -> None:
    here, source = warehouse_at(bucket, tmp_path / "state" / "traffic"), FileSource(tmp_path / "in")
    sink, log = here.sink(source.name), tmp_path / "log"
    events = [each for each, _ in generated(1, clients=20)]
    for number in range(3):
        write_traffic(source.folder, f"{number}.jsonl", events[number::3])
    command = diem(tmp_path, bucket, "--no-statistics", "--cores", "2")
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as driver:
        deadline = time.monotonic() + WITHIN_S
        while not being_written(sink):
            assert driver.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for process in (*psutil.Process(driver.pid).children(recursive=True), psutil.Process(driver.pid)):
            process.kill()
    assert last_committed(here.checkpoint(source.name)) is None
    assert not ids(sink)
    assert len(list(source.folder.iterdir())) == 3

    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert run.returncode == 0, run.stderr
    assert Counter(ids(sink)) == Counter(each.id for each in events)
    assert not list(source.folder.iterdir())
    assert not being_written(sink)
    assert data_files(sink, EVENTS)
