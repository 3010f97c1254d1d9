"""The files of past days become one, and every line stays where it is: once."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from diem.protocol.traffic import TrafficEvent
from metadata.jobs import compaction, tables
from metadata.jobs import ingest as module
from metadata.jobs.compaction import compact
from metadata.jobs.ingest import CommittedBatch, ingest
from metadata.jobs.sink_log import data_files, last_compact
from metadata.jobs.sources import FileSource
from metadata.jobs.warehouse import EVENTS, Warehouse
from tests.support.traffic import generated, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 1, 1)
"""Of what is generated."""
LATER = date(2026, 1, 2)
LATEST = date(2999, 1, 1)
"""For what was quarantined just now, too."""


class Read:
    """A source of which files are read one by one, each in a batch of its own."""

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

    def ids(self) -> Counter[str]:
        return Counter(row["id"] for row in tables.events(self.spark, self.warehouse).select("id").collect())

    def bad(self) -> int:
        return tables.quarantine(self.spark, self.warehouse).count()


@pytest.fixture(autouse=True)
def hasty(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spark compacts its log every third batch, and three files are many."""
    monkeypatch.setattr(compaction, "MIN_FILES", 3)
    interval = "spark.sql.streaming.fileSink.log.compactInterval"
    spark.conf.set(interval, 3)
    yield
    spark.conf.unset(interval)


@pytest.fixture
def no_earlier_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compact", lambda *_: 0)


@pytest.mark.usefixtures("no_earlier_compaction")
def test_files_of_past_days_become_one_and_nothing_else_changes(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event for event, _ in generated(4, clients=10)]
    read = Read(spark, tmp_path)
    read.read(events[:300], 2)
    assert compact(spark, read.sink, LATER) == 0, "Spark has not compacted its log yet"
    read.read(events[300:], 2)
    before, rows = data_files(read.sink), tables.events(spark, read.warehouse).collect()
    assert compact(spark, read.sink, DAY) == 0, "the day is not over"
    fewer = compact(spark, read.sink, LATER)
    after = data_files(read.sink)
    assert len(before) - len(after) == fewer > 1
    assert sorted(tables.events(spark, read.warehouse).collect()) == sorted(rows)
    assert (read.ids(), read.bad()) == (Counter(event.id for event in events), 4)
    assert all(file.exists() for file in before), "somebody may be reading them"
    assert compact(spark, read.sink, LATER) == 0, "once is enough"

    # Spark goes on with its log, over its next compaction, and what it reads late is of the same day.
    read.read(events[:40], 3)
    assert read.ids() == Counter(event.id for event in (*events, *events[:40]))
    compact(spark, read.sink, LATER)
    assert read.ids() == Counter(event.id for event in (*events, *events[:40]))
    monkeypatch.setattr(compaction, "KEPT_S", -1.0)
    compact(spark, read.sink, LATER)
    assert sorted(read.sink.glob("table=*/day=*/*.parquet")) == data_files(read.sink)
    assert (sum(read.ids().values()), read.bad()) == (len(events) + 40, 7)


@pytest.mark.usefixtures("no_earlier_compaction")
@pytest.mark.parametrize("dies_in", ["_merge_files", "_replace_log", "_sync"])
def test_a_compaction_that_was_cut_short_has_changed_nothing(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    events = [event for event, _ in generated(5, clients=5)]
    read = Read(spark, tmp_path)
    read.read(events, 3)
    before, whole, calls = data_files(read.sink), getattr(compaction, dies_in), 0

    def cut(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 1 or dies_in == "_replace_log":
            raise KeyboardInterrupt
        return whole(*arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(compaction, dies_in, cut)
        compact(spark, read.sink, LATEST)
    assert data_files(read.sink) == before
    assert read.ids() == Counter(event.id for event in events)
    assert compact(spark, read.sink, LATEST) > 0
    assert read.ids() == Counter(event.id for event in events)


@pytest.mark.usefixtures("no_earlier_compaction")
def test_tables_that_were_moved_are_compacted_where_they_are(spark: "SparkSession", tmp_path: Path) -> None:
    events = [event for event, _ in generated(6, clients=5)]
    read = Read(spark, tmp_path)
    read.read(events, 3)
    moved = Warehouse(tmp_path / "moved")
    read.warehouse.root.rename(moved.root)
    assert compact(spark, moved.sink(read.source.name), LATER) > 0
    found = Counter(row["id"] for row in tables.events(spark, moved).select("id").collect())
    assert found == Counter(event.id for event in events)


def test_past_days_are_compacted_before_a_source_is_read(spark: "SparkSession", tmp_path: Path) -> None:
    assert datetime.now(UTC).date() > DAY
    events = [event for event, _ in generated(7, clients=5)]
    read = Read(spark, tmp_path)
    read.read(events[::2], 3)
    assert last_compact(read.sink) is not None
    assert len(data_files(read.sink, EVENTS)) == 3
    read.read(events[1::2], 1)
    assert len(data_files(read.sink, EVENTS)) == 2
    assert read.ids() == Counter(event.id for event in events)


class Enough(Exception):  # it is no error
    """The test has seen what it wanted."""


def test_who_follows_a_source_compacts_when_a_day_is_over(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event for event, _ in generated(8, clients=5)]
    read, today, days, batches = Read(spark, tmp_path), [DAY], list[date](), list[CommittedBatch]()

    def on_batch(batch: CommittedBatch) -> None:
        batches.append(batch)
        if len(batches) == 2:
            raise Enough
        today[0] = LATER
        write(read.source.folder, "later.jsonl", events[1::2])

    monkeypatch.setattr(module, "compact", lambda _spark, _sink, day: days.append(day))
    monkeypatch.setattr(module, "_today", lambda: today[0])
    write(read.source.folder, "first.jsonl", events[::2])
    with pytest.raises(Enough):
        ingest(spark, read.source, read.warehouse, on_batch, follow_s=0.1)
    assert days == [DAY, LATER]
    assert read.ids() == Counter(event.id for event in events)


def test_traffic_is_read_whatever_is_wrong_with_files_of_past_days(spark: "SparkSession", tmp_path: Path) -> None:
    events = [event for event, _ in generated(9, clients=5)]
    read = Read(spark, tmp_path)
    read.read(events[::2], 3)
    data_files(read.sink, EVENTS)[0].unlink()
    with structlog.testing.capture_logs() as logs:
        read.read(events[1::2], 1)
    assert [line["event"] for line in logs] == ["the files of past days stay as they are"]
    assert len(data_files(read.sink, EVENTS)) == 4
