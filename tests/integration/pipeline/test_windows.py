"""The statistics computed by Spark equal those of the reference, to the last bit."""

import os
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from diem.protocol.traffic import Accessed, TrafficEvent, Type, encode
from learning.costs import Costs
from learning.jobs import tables
from learning.jobs.statistics import write
from learning.jobs.warehouse import Warehouse, all_statistics, read_window
from learning.placement.instance import from_events, read_statistics
from learning.placement.options import PlanOptions
from learning.placement.planner import plan
from learning.statistics import reference
from learning.statistics.model import window_json
from learning.statistics.parsing import sequence_number
from learning.statistics.reference import Arrival
from learning.statistics.sampling import MAX_SUBSCRIPTIONS
from learning.statistics.window import Window
from tests.support.required import in_cluster
from tests.support.spark_session import as_users_run
from tests.support.traffic import BEGIN, MINUTE, Life, generated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOWS = (Window(BEGIN + 30 * MINUTE + 17, BEGIN + 50 * MINUTE), Window(BEGIN - MINUTE, BEGIN))
SAMPLED = Window(BEGIN + 40 * MINUTE, BEGIN + 60 * MINUTE)
MOST = 100
"""Subscriptions of it beyond which its sets are those of a sample."""
COSTS = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)


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


def spread(event: TrafficEvent) -> TrafficEvent:
    """Return an event with pseudonyms of all 64 bits, as recorded ones are."""
    client, connection = (
        f"{int(each, 16) * 0x9E3779B97F4A7C15 % (1 << 64):016x}" if each else ""
        for each in (event.client, event.connection)
    )
    return event._replace(client=client, connection=connection)


@pytest.fixture(scope="module")
def arrivals() -> list[Arrival]:
    made = [*generated(1), *(Arrival(event, event.time) for event in (*accesses(20), *twin(60)))]
    return [arrival._replace(event=spread(arrival.event)) for arrival in made]


@pytest.fixture(scope="module")
def warehouse(spark: "SparkSession", arrivals: list[Arrival], tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The statistics of all windows, of which `make cluster` computes the first as users do."""
    events, warehouse = table(spark, arrivals).persist(), Warehouse(tmp_path_factory.mktemp("warehouse"))
    as_users = "RUN_CLUSTER" in os.environ
    ways: tuple[AbstractContextManager[None], ...] = (as_users_run(spark) if as_users else nullcontext(), nullcontext())
    for window, way in zip(WINDOWS, ways, strict=True):
        with way:
            write(events, window, warehouse.statistics / window.name)
    write(events, SAMPLED, warehouse.statistics / SAMPLED.name, MOST)
    events.unpersist()
    return warehouse


@pytest.mark.cluster
def test_statistics_in_spark_equal_the_reference(warehouse: Warehouse, arrivals: list[Arrival]) -> None:
    for window in (*WINDOWS, SAMPLED):
        most = MOST if window == SAMPLED else MAX_SUBSCRIPTIONS
        expected, folder = reference.statistics(arrivals, window, most), warehouse.statistics / window.name
        assert (expected.summary.halvings > 0) == (window == SAMPLED)
        for name in ("endpoints", "sets", "waste"):
            read = [tuple(row.values()) for row in pq.read_table(folder / f"{name}.parquet").to_pylist()]
            if name == "sets":
                read = [(tuple(endpoints), *others) for endpoints, *others in read]
            assert read == [tuple(row) for row in getattr(expected, name)], (name, window)
        assert read_window(folder) == window_json(window, expected.summary)
    # The input covers all irregular cases.
    expected = reference.statistics(arrivals, WINDOWS[0])
    summary = expected.summary
    assert min(summary.duplicates, summary.late, summary.unended, summary.sets) > 5
    named = {name for event, _ in arrivals for name in event.endpoints}
    assert named - {row.endpoint for row in expected.endpoints}
    assert sum(row.clients for row in expected.sets) < summary.clients
    assert summary.twins == 1
    assert all_statistics(warehouse) == [
        warehouse.statistics / window.name for window in sorted((*WINDOWS, SAMPLED), key=lambda w: w.end)
    ]


@in_cluster("it takes 12 s of CPU time")
def test_a_plan_from_statistics_of_spark_equals_that_from_events(warehouse: Warehouse, arrivals: list[Arrival]) -> None:
    window = WINDOWS[0]
    options = PlanOptions(servers=(2,), current_partitions=2, epsilon=0.3, hot_budget=0.0)
    from_all = from_events((encode(event) for event, _ in arrivals), window)
    instance = read_statistics(warehouse.statistics / window.name)
    expected, found = plan(from_all, options, COSTS), plan(instance, options, COSTS)
    assert instance.endpoints == from_all.endpoints
    assert found.placement.tobytes() == expected.placement.tobytes()
    assert (found.partitions, found.pays, found.why) == (expected.partitions, expected.pays, expected.why)
    assert len(set(found.placement.tolist())) > 1
