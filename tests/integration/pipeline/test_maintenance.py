"""Past days are merged and old ones dropped while sources are read; tests/unit/learning/jobs/test_maintenance.py."""

from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from diem.protocol.traffic import TrafficEvent
from learning.jobs import ingest as module
from learning.jobs import maintenance, tables
from learning.jobs.delta_table import data_files
from learning.jobs.ingest import CommittedBatch, ingest
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import EVENTS, Warehouse
from tests.support.required import in_cluster
from tests.support.traffic import generated, write

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DAY = date(2026, 1, 1)
"""Day of the generated events."""
LATER = date(2026, 1, 2)


class FileTraffic:
    """A source whose files are read one by one, each in a batch of its own."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self.spark, self.warehouse = spark, Warehouse(folder / "a warehouse")
        self.source = FileSource(folder / "in", files_per_batch=1)
        self.sink = self.warehouse.sink(self.source.name)
        self._written = 0

    def read(self, events: list[TrafficEvent], files: int) -> None:
        for part in range(files):
            write(self.source.folder, f"{self._written:04}.jsonl", events[part::files], b"nonsense")
            self._written += 1
        ingest(self.spark, self.source, self.warehouse)

    def rows(self) -> "list[Row]":
        return sorted(tables.events(self.spark, self.warehouse).collect())

    def ids(self) -> Counter[str]:
        return Counter(row["id"] for row in self.rows())


@in_cluster("it takes 10 s of CPU time")
def test_past_days_are_merged_before_a_source_is_read_and_rows_stay_the_same(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "MIN_FILES", 3)
    events = [event for event, _ in generated(4, clients=10)]
    traffic = FileTraffic(spark, tmp_path)
    traffic.read(events[::2], 3)
    assert len(data_files(traffic.sink, EVENTS)) == 3
    before = traffic.rows()
    (new,) = events[1:2]
    traffic.read([new], 1)
    assert len(data_files(traffic.sink, EVENTS)) == 2
    after = traffic.rows()
    assert [row for row in after if row["id"] != new.id] == before, "every column as Spark wrote it"
    assert traffic.ids() == Counter(event.id for event in (*events[::2], new))
    assert tables.quarantine(spark, traffic.warehouse).count() == 4

    with structlog.testing.capture_logs() as logs:
        data_files(traffic.sink, EVENTS)[0].unlink()
        monkeypatch.setattr(maintenance, "MIN_FILES", 2)
        traffic.read(events[3:4], 1)
    assert [line["event"] for line in logs] == ["the files of past days cannot be compacted"]
    assert len(data_files(traffic.sink, EVENTS)) == 3, "new traffic is read all the same"


class Enough(Exception):  # not an error
    """The test has seen what it needs."""


def test_a_follower_maintains_the_tables_at_the_end_of_a_day(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event for event, _ in generated(8, clients=5)]
    traffic, today, batches = FileTraffic(spark, tmp_path), [DAY], list[CommittedBatch]()
    days = list[tuple[date, int]]()

    def on_batch(batch: CommittedBatch) -> None:
        batches.append(batch)
        if len(batches) == 2:
            raise Enough
        today[0] = LATER
        write(traffic.source.folder, "later.jsonl", events[1::2])

    monkeypatch.setattr(module, "maintain", lambda _sink, day, keep: days.append((day, keep)))
    monkeypatch.setattr(module, "_today", lambda: today[0])
    write(traffic.source.folder, "first.jsonl", events[::2])
    with pytest.raises(Enough):
        ingest(spark, traffic.source, traffic.warehouse, on_batch, follow_s=0.1, keep_days=9)
    assert days == [(DAY, 9), (LATER, 9)]
    assert traffic.ids() == Counter(event.id for event in events)
