"""The statistics computed by Spark equal those of the reference, to the last bit."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from diem.protocol.traffic import Accessed, TrafficEvent, Type
from metadata.jobs import tables
from metadata.jobs.statistics import CachedFrames, statistics, write
from metadata.jobs.warehouse import Warehouse, all_statistics, read_window
from metadata.statistics import reference
from metadata.statistics.model import window_json
from metadata.statistics.parsing import sequence_number
from metadata.statistics.reference import Arrival
from metadata.statistics.window import Window
from tests.support.traffic import BEGIN, MINUTE, Life, generated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def table(spark: "SparkSession", arrivals: list[Arrival]) -> "DataFrame":
    """The table ``events``, as ``ingest`` writes it."""
    made = []
    for event, at in arrivals:
        is_counts = event.type == "counts"
        updates = [(name, *counted) for name, counted in event.updates.items()] if is_counts else None
        requests = [tuple(each) for each in event.requests] or None
        is_client = bool(event.connection)
        who = (event.client, event.connection, list(event.endpoints) or None) if is_client else (None, None, None)
        times = (None, None) if is_client else (moment(event.since), moment(event.until))
        common = (
            event.id,
            str(event.type),
            event.edge,
            event.incarnation,
            sequence_number(event.id),
            moment(event.time),
            moment(at),
        )
        # Files of earlier releases have neither.
        more = (list(event.unknown) or None, event.sharers if event.sharers > 1 else None)
        rest = (updates, requests, *more, None, None, None, "events", moment(event.time).date())
        made.append((*common, *who, *times, *rest))
    return spark.createDataFrame(made, tables.SCHEMA)


def accesses(sequence_number: int) -> list[TrafficEvent]:
    """Accesses to a Data Service: events without a client."""
    asked = (Accessed("abcd1234", "free", "/e1", 3, 1),)
    ends = [BEGIN + (20 + n) * MINUTE for n in range(sequence_number)]
    return [
        TrafficEvent(Type.ACCESS, f"0000000000d1-{n}", end, "data", since=end - MINUTE, until=end, requests=asked)
        for n, end in enumerate(ends)
    ]


def twin(minutes: int) -> list[TrafficEvent]:
    """Counts of a second process with the name of the first, and of one whose overlap is as short as a restart."""
    two, short = Life("proxy-1", 0xC2, BEGIN, BEGIN), Life("websocket-2", 0xB2, BEGIN, BEGIN)
    ends = [BEGIN + n * MINUTE + 500 for n in range(1, minutes)]
    said = [short.counts(BEGIN + 40 * MINUTE - each, BEGIN + 40 * MINUTE, e1=(5, 5)) for each in (1000, 2000)]
    return [*(two.counts(end - MINUTE, end, e1=(7, 0)) for end in ends), *said]


def test_statistics_in_spark_equal_the_reference(spark: "SparkSession", tmp_path: Path) -> None:
    arrivals = [*generated(1), *(Arrival(event, event.time) for event in (*accesses(20), *twin(60)))]
    events, warehouse = table(spark, arrivals).persist(), Warehouse(tmp_path)
    windows = (Window(BEGIN + 30 * MINUTE + 17, BEGIN + 50 * MINUTE), Window(BEGIN - MINUTE, BEGIN))
    for window in windows:
        expected = reference.statistics(arrivals, window)
        cache = CachedFrames()
        computed = statistics(events, window, cache, pairs=True)
        folder = write(computed, window, warehouse.statistics / window.name)
        cache.free()
        for name in ("endpoints", "sets", "pairs", "waste"):
            read = [tuple(row.values()) for row in pq.read_table(folder / f"{name}.parquet").to_pylist()]
            if name == "sets":
                read = [(tuple(endpoints), *others) for endpoints, *others in read]
            assert read == [tuple(row) for row in getattr(expected, name)], (name, window)
        assert read_window(folder) == window_json(window, expected.summary)
    events.unpersist()
    # The input covers all irregular cases.
    summary = reference.statistics(arrivals, windows[0]).summary
    assert min(summary.duplicates, summary.late, summary.unended, summary.sets) > 5
    named = {name for event, _ in arrivals for name in event.endpoints}
    expected = reference.statistics(arrivals, windows[0])
    assert named - {row.endpoint for row in expected.endpoints}
    assert sum(row.clients for row in expected.sets) < summary.clients
    assert summary.twins == 1
    assert all_statistics(warehouse) == [
        warehouse.statistics / window.name for window in sorted(windows, key=lambda w: w.end)
    ]
