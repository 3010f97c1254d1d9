"""Windows after a condensed history: what they read, and what invalidates it (docs/traffic.md section 3.5)."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812

from diem.protocol.traffic import TrafficEvent
from learning.jobs import statistics, tables
from learning.jobs.delta_table import CommittedFile
from learning.jobs.history import LATENESS_MS, condense, due, find, histories, read, save
from learning.jobs.ingest import ingest
from learning.jobs.sources import FileSource
from learning.jobs.warehouse import Warehouse, read_window
from learning.statistics import reference
from learning.statistics.model import window_json
from learning.statistics.reference import Arrival, Sign
from learning.statistics.window import Window
from tests.integration.pipeline.test_windows import table
from tests.support.required import in_cluster
from tests.support.traffic import BEGIN, MINUTE, Life, generated, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST = Window(BEGIN + 15 * MINUTE, BEGIN + 50 * MINUTE)
SECOND = Window(FIRST.end, BEGIN + 80 * MINUTE)


def kept(events: Iterable[TrafficEvent]) -> list[tuple[str, str | None, str | None]]:
    return sorted((event.id, event.client or None, event.connection or None) for event in events)


def test_spark_condenses_history_as_the_reference_does(spark: "SparkSession") -> None:
    life = Life("websocket-2", 0xE1, BEGIN, BEGIN)
    ahead = life.counts(FIRST.end - MINUTE, FIRST.end + MINUTE, e1=(1, 1))._replace(time=FIRST.end - MINUTE)
    arrivals = [*generated(1), Arrival(ahead, ahead.time)]
    every = table(spark, arrivals).select(*tables.EVENT_COLUMNS).persist()
    events, known = list({arrival.event.id: arrival.event for arrival in arrivals}.values()), every
    for at in (FIRST.start, FIRST.end):
        (expected, _), found = reference.condense(events, at), condense(known, at).persist()
        assert sorted({tuple(row) for row in found.select("id", "client", "connection").collect()}) == kept(expected)
        # The next one is made from this one and what came since.
        events = [*expected, *(event for event in events if event.time >= at)]
        known = found.unionByName(every.where(F.unix_millis("time") >= at))
    spark.catalog.clearCache()
    assert ahead in expected


def signs(history: Path) -> list[Sign]:
    rows = pq.read_table(history / "events.parquet" / "part-signs.parquet").to_pylist()
    assert {row["type"] for row in rows} == {"counts"}
    lives = [(row["edge"], row["boot"], round(row["time"].timestamp() * 1000)) for row in rows]
    return [
        Sign(*life, tuple(each["endpoint"] for each in row["updates"])) for life, row in zip(lives, rows, strict=True)
    ]


class Recorded:
    """Files of traffic, read into a warehouse."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark, self._source = spark, FileSource(folder / "in")
        self.warehouse, self.arrivals = Warehouse(folder / "warehouse"), list[Arrival]()
        self.warnings: list[str] = []

    def read(self, name: str, events: list[TrafficEvent]) -> list[CommittedFile]:
        """Read more events; return the files of all."""
        at = write(self._source.folder, f"{name}.jsonl", events).stat().st_mtime_ns // 1_000_000
        self.arrivals += (Arrival(event, at) for event in events)
        ingest(self._spark, self._source, self.warehouse)
        return tables.event_files(self.warehouse)

    def has_statistics_of_all(self, window: Window) -> bool:
        """Compute a window, and compare it with the reference for all events."""
        folder = statistics.compute(self._spark, self.warehouse, window, warn=self.warnings.append)
        expected = reference.statistics(self.arrivals, window)
        rows = pq.read_table(folder / "sets.parquet").to_pylist()
        sets = [(tuple(row["endpoints"]), row["weight"], row["clients"]) for row in rows]
        endpoints = [tuple(row.values()) for row in pq.read_table(folder / "endpoints.parquet").to_pylist()]
        return (read_window(folder), sets, endpoints) == (
            window_json(window, expected.summary),
            list(map(tuple, expected.sets)),
            list(map(tuple, expected.endpoints)),
        )

    def distinct(self) -> Collection[TrafficEvent]:
        return {arrival.event.id: arrival.event for arrival in self.arrivals}.values()

    def found(self, files: list[CommittedFile], window: Window) -> Path | None:
        return find(files, self.warehouse, window, self.warnings.append)

    def unread(self, files: list[CommittedFile], window: Window) -> "DataFrame":
        return read(self._spark, self.warehouse, files, window, self.warnings.append)

    def save(self, files: list[CommittedFile], window: Window) -> Path | None:
        """Write the history after a window, if one is due, from all events."""
        if (at := due(self.warehouse, window)) is None:
            return None
        _, signs = reference.condense(self.distinct(), at)
        events = tables.events(self._spark, self.warehouse, files)
        return save(self.warehouse, files, events, window, at=at, signs=signs)


def test_a_history_of_a_clock_that_was_ahead_does_not_prevent_later_ones(spark: "SparkSession", tmp_path: Path) -> None:
    recorded = Recorded(spark, tmp_path)
    events = recorded.read("first", [event for event, _ in generated(3, clients=30)])
    ahead = recorded.warehouse.history / str(4_000_000_000_000)
    ahead.mkdir(parents=True)
    assert recorded.save(events, FIRST) is not None


@in_cluster("it takes 15 s of CPU time")
def test_a_window_after_a_history_reads_what_came_since_until_the_history_is_not_valid(
    spark: "SparkSession", tmp_path: Path
) -> None:
    recorded, events = Recorded(spark, tmp_path), [event for event, _ in generated(3, clients=30)]
    late = next(event for event in events if event.time < FIRST.end - LATENESS_MS)
    events = [event for event in events if event.id != late.id]
    # The border of the tables is not that of the histories.
    border = FIRST.end + 3 * MINUTE
    events_now = recorded.read("first", [event for event in events if event.time < border])
    first, at = recorded.save(events_now, FIRST), FIRST.end - LATENESS_MS
    assert first is not None
    assert (first.name, histories(recorded.warehouse)) == (str(at), [first])

    # Once more, with repeats on both sides of the border.
    repeats = [event for event in events if at <= event.time < border][::7]
    events_now = recorded.read("second", [*repeats, *(event for event in events if event.time >= border)])
    assert recorded.found(events_now, Window(at - 1, SECOND.end)) is None, "it begins before the history"
    unread = recorded.unread(events_now, SECOND)
    old = unread.where(F.unix_millis("time") < at).count()
    assert 0 < old < sum(event.time < at for event in events)
    assert unread.count() == old + len(repeats) + sum(at <= event.time for event in events)
    assert recorded.has_statistics_of_all(SECOND)
    second = recorded.warehouse.root / "_history" / str(SECOND.end - LATENESS_MS)
    assert histories(recorded.warehouse) == [first, second]
    _, expected = reference.condense(recorded.distinct(), int(second.name))
    assert signs(second) == expected
    assert recorded.save(events_now, FIRST) is None, "there is a later one"
    assert not recorded.warnings

    # A file of rows, then that of their digests, is damaged.
    third = Window(SECOND.end, SECOND.end + MINUTE)
    assert recorded.found(events_now, third) == second
    (part, *_) = (second / "events.parquet").glob("part-*")
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert recorded.found(events_now, third) == first
    (first / "history.json").write_text("[]")
    assert recorded.found(events_now, third) is None
    assert histories(recorded.warehouse) == []
    assert [warning.count("it is damaged") for warning in recorded.warnings] == [1, 1]

    # Made from all events again, and then there is an event of before.
    recorded.warnings.clear()
    assert recorded.save(events_now, FIRST) == first
    content = json.loads((first / "history.json").read_text())
    assert content["rows"] == sum(event.time < at for event in events)
    events_now = recorded.read("late", [late])
    assert recorded.unread(events_now, SECOND).count() == len(recorded.arrivals)
    assert [warning.count("rows of its time since it was made: +1") for warning in recorded.warnings] == [1]
    assert histories(recorded.warehouse) == []
