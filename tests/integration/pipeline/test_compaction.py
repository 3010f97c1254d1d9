"""The files of past days are merged into one, and every line stays exactly once."""

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
"""Day of the generated events."""
LATER = date(2026, 1, 2)
LATEST = date(2999, 1, 1)
"""Later than the day of lines quarantined during the test."""


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

    def ids(self) -> Counter[str]:
        return Counter(row["id"] for row in tables.events(self.spark, self.warehouse).select("id").collect())

    def bad(self) -> int:
        return tables.quarantine(self.spark, self.warehouse).count()


@pytest.fixture(autouse=True)
def low_thresholds(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have Spark compact its log every third batch, and compact a day from three files on."""
    monkeypatch.setattr(compaction, "MIN_FILES", 3)
    interval = "spark.sql.streaming.fileSink.log.compactInterval"
    spark.conf.set(interval, 3)
    yield
    spark.conf.unset(interval)


@pytest.fixture
def no_earlier_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compact", lambda *_: 0)


@pytest.mark.usefixtures("no_earlier_compaction")
def test_files_of_past_days_are_merged_and_rows_stay_the_same(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event for event, _ in generated(4, clients=10)]
    traffic = FileTraffic(spark, tmp_path)
    traffic.read(events[:300], 2)
    assert compact(spark, traffic.sink, LATER) == 0, "Spark has not compacted its log yet"
    traffic.read(events[300:], 2)
    before, rows = data_files(traffic.sink), tables.events(spark, traffic.warehouse).collect()
    assert compact(spark, traffic.sink, DAY) == 0, "the day is not over"
    fewer = compact(spark, traffic.sink, LATER)
    after = data_files(traffic.sink)
    assert len(before) - len(after) == fewer > 1
    assert sorted(tables.events(spark, traffic.warehouse).collect()) == sorted(rows)
    assert (traffic.ids(), traffic.bad()) == (Counter(event.id for event in events), 4)
    assert all(file.exists() for file in before), "a query may be reading them"
    assert compact(spark, traffic.sink, LATER) == 0, "a second run changes nothing"

    # Spark continues its log, beyond its next compaction; late lines are of the same day.
    traffic.read(events[:40], 3)
    assert traffic.ids() == Counter(event.id for event in (*events, *events[:40]))
    compact(spark, traffic.sink, LATER)
    assert traffic.ids() == Counter(event.id for event in (*events, *events[:40]))
    monkeypatch.setattr(compaction, "REMOVAL_DELAY_S", -1.0)
    compact(spark, traffic.sink, LATER)
    assert sorted(traffic.sink.glob("table=*/day=*/*.parquet")) == data_files(traffic.sink)
    assert (sum(traffic.ids().values()), traffic.bad()) == (len(events) + 40, 7)


@pytest.mark.usefixtures("no_earlier_compaction")
@pytest.mark.parametrize("dies_in", ["_merge_files", "_replace_log", "_sync"])
def test_an_interrupted_compaction_changes_nothing(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    events = [event for event, _ in generated(5, clients=5)]
    traffic = FileTraffic(spark, tmp_path)
    traffic.read(events, 3)
    before, whole, calls = data_files(traffic.sink), getattr(compaction, dies_in), 0

    def cut(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 1 or dies_in == "_replace_log":
            raise KeyboardInterrupt
        return whole(*arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(compaction, dies_in, cut)
        compact(spark, traffic.sink, LATEST)
    assert data_files(traffic.sink) == before
    assert traffic.ids() == Counter(event.id for event in events)
    assert compact(spark, traffic.sink, LATEST) > 0
    assert traffic.ids() == Counter(event.id for event in events)


@pytest.mark.usefixtures("no_earlier_compaction")
def test_moved_tables_are_compacted_in_their_new_folder(spark: "SparkSession", tmp_path: Path) -> None:
    events = [event for event, _ in generated(6, clients=5)]
    traffic = FileTraffic(spark, tmp_path)
    traffic.read(events, 3)
    moved = Warehouse(tmp_path / "moved")
    traffic.warehouse.root.rename(moved.root)
    assert compact(spark, moved.sink(traffic.source.name), LATER) > 0
    found = Counter(row["id"] for row in tables.events(spark, moved).select("id").collect())
    assert found == Counter(event.id for event in events)


def test_past_days_are_compacted_before_a_source_is_read(spark: "SparkSession", tmp_path: Path) -> None:
    assert datetime.now(UTC).date() > DAY
    events = [event for event, _ in generated(7, clients=5)]
    traffic = FileTraffic(spark, tmp_path)
    traffic.read(events[::2], 3)
    assert last_compact(traffic.sink) is not None
    assert len(data_files(traffic.sink, EVENTS)) == 3
    traffic.read(events[1::2], 1)
    assert len(data_files(traffic.sink, EVENTS)) == 2
    assert traffic.ids() == Counter(event.id for event in events)


class Enough(Exception):  # not an error
    """The test has seen what it needs."""


def test_a_follower_compacts_at_the_end_of_a_day(
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

    monkeypatch.setattr(module, "compact", lambda _spark, _sink, day, keep: days.append((day, keep)))
    monkeypatch.setattr(module, "_today", lambda: today[0])
    write(traffic.source.folder, "first.jsonl", events[::2])
    with pytest.raises(Enough):
        ingest(spark, traffic.source, traffic.warehouse, on_batch, follow_s=0.1, keep_days=9)
    assert days == [(DAY, 9), (LATER, 9)]
    assert traffic.ids() == Counter(event.id for event in events)


def test_faulty_files_of_past_days_do_not_keep_traffic_from_being_read(spark: "SparkSession", tmp_path: Path) -> None:
    events = [event for event, _ in generated(9, clients=5)]
    traffic = FileTraffic(spark, tmp_path)
    traffic.read(events[::2], 3)
    data_files(traffic.sink, EVENTS)[0].unlink()
    with structlog.testing.capture_logs() as logs:
        traffic.read(events[1::2], 1)
    assert [line["event"] for line in logs] == ["the files of past days cannot be compacted"]
    assert len(data_files(traffic.sink, EVENTS)) == 4
