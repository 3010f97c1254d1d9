"""Lines become rows of the two tables, each exactly once."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from diem.errors import DiemError
from learning.jobs import checkpoint, tables
from learning.jobs.checkpoint import last_committed, read_files
from learning.jobs.delta_table import data_files
from learning.jobs.ingest import CommittedBatch, ingest
from learning.jobs.sources import FileSource
from learning.jobs.statistics import last_window
from learning.jobs.warehouse import EVENTS, QUARANTINE, Warehouse, status
from learning.statistics.constants import DAY_MS
from learning.statistics.reference import recorded_since
from learning.statistics.window import Window
from tests.support.traffic import generated, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = b'{"type":"counts","id":"00000000000a-1","edge":"e","since":1,"until":2,"time":%d,"updates":%s}'
BAD = {
    b"": "not JSON",
    b'{"type":"connect"': "not JSON",
    b"[]": "an event is a JSON object",
    b'{"type":"dance"}': "no such type: 'dance'",
    b'{"type":"connect","id":"00000000000a-1","time":1767225600000,"edge":"e"}': "client, connection",
    COUNTS % (1_767_225_600_000, b'{"x":[1,1]}'): "not an endpoint: 'x'",
    COUNTS % (1_767_225_600, b"{}"): "in the past",
    COUNTS % (9_767_225_600_000, b"{}"): "in the future",
    b"\xff\xfe": "not JSON",
    b"x" * 70_000: "longer than",
}


def test_each_line_is_in_exactly_one_table_once(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, source = Warehouse(tmp_path / "a warehouse"), FileSource(tmp_path / "in", files_per_batch=2)
    events = [event for event, _ in generated(2, clients=20)]
    parts = [events[n::5] for n in range(5)]
    batches: list[CommittedBatch] = []
    for number, part in enumerate(parts[:3]):
        write(source.folder, f"{number}.jsonl", part, *(BAD if number == 1 else ()))
    write(source.folder, "half.jsonl.part", events)
    assert ingest(spark, source, warehouse, batches.append) == sum(map(len, parts[:3])) + len(BAD)
    assert [batch.number for batch in batches] == [0, 1]
    assert ingest(spark, source, warehouse) == 0
    # Killed after the commit of the tables, and before Spark's own: the batch is repeated.
    for file in (warehouse.checkpoint(source.name) / "commits").glob("*1*"):
        file.unlink()
    assert last_committed(warehouse.checkpoint(source.name)) == 0
    assert (ingest(spark, source, warehouse), last_committed(warehouse.checkpoint(source.name))) == (0, 1)
    monkeypatch.setattr(checkpoint, "MAX_REMOVED", 4)
    for number, part in enumerate(parts[3:], 3):
        write(source.folder, f"{number}.jsonl", part)
        assert ingest(spark, source, warehouse, remove=True) == len(part)
        assert [file.name for file in source.folder.iterdir()] == ["half.jsonl.part"]
        # The last run found that the files before it are gone, and their names are forgotten.
        assert len(read_files(warehouse.checkpoint(source.name))) == (4 if number == 3 else 1)

    read = tables.events(spark, warehouse).collect()
    assert sorted(row["id"] for row in read) == sorted(event.id for event in events)
    quarantined = {row["raw"]: row for row in tables.quarantine(spark, warehouse).collect()}
    assert len(quarantined) == len(BAD)
    for line, reason in BAD.items():
        row = quarantined[line.decode("utf-8", "replace")[:4096]]
        assert reason in row["reason"]
        assert row["source"].endswith("/in/1.jsonl")
    # The same rows are in the committed files.
    sink = warehouse.sink(source.name)
    names = [name for file in data_files(sink, EVENTS) for name in pq.read_table(file)["id"].to_pylist()]
    assert sorted(names) == sorted(event.id for event in events)
    assert sum(pq.read_metadata(file).num_rows for file in data_files(sink, QUARANTINE)) == len(BAD)
    shown = status(warehouse, source.name)
    assert (shown.where, shown.events, shown.files) == (str(source.folder), len(events), len(data_files(sink)))
    assert (shown.batch, shown.lines) == (last_committed(warehouse.checkpoint(source.name)), len(parts[4]))
    assert shown.quarantine is not None
    assert (sum(shown.quarantine.values()), shown.quarantine["not JSON"]) == (len(BAD), 3)
    end = max(event.time for event in events) + 1
    assert last_window(warehouse, 1000).end == end
    longer = Window(end - DAY_MS, end)
    # Nothing was recorded at its start, which both implementations leave out.
    assert last_window(warehouse, DAY_MS) == longer.since(recorded_since(events, longer)) != longer


def test_a_source_is_locked_against_other_pipelines(spark: "SparkSession", tmp_path: Path) -> None:
    warehouse, source = Warehouse(tmp_path / "warehouse"), FileSource(tmp_path / "in")
    with warehouse.lock(source.name), pytest.raises(DiemError, match="stop it first"):
        ingest(spark, source, warehouse)


def test_a_moved_warehouse_is_read_and_continued(spark: "SparkSession", tmp_path: Path) -> None:
    before, now = tmp_path / "before", tmp_path / "now"
    source = FileSource(tmp_path / "in")
    events = [event for event, _ in generated(3, clients=5)]
    write(source.folder, "0.jsonl", events[::2])
    ingest(spark, source, Warehouse(before))
    before.rename(now)
    write(source.folder, "1.jsonl", events[1::2])
    ingest(spark, source, Warehouse(now))
    read = tables.events(spark, Warehouse(now)).collect()
    assert sorted(row["id"] for row in read) == sorted(event.id for event in events)
    assert status(Warehouse(now), source.name).events == len(events)
