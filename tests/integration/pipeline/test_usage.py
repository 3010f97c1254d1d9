"""The usage report in Spark equals that of the reference, from the same tables as all other traffic."""

import random
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from diem.protocol.traffic import Accessed, TrafficEvent, Type
from learning.jobs import tables
from learning.jobs.ingest import ingest
from learning.jobs.sources import FileSource
from learning.jobs.usage_report import report
from learning.jobs.warehouse import Warehouse, read_report
from learning.statistics.reference import usage
from tests.support.required import in_cluster
from tests.support.traffic import BEGIN, generated, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000
FIRST, LAST = date(2026, 1, 2), date(2026, 1, 3)


def accesses(seed: int, number: int) -> list[TrafficEvent]:
    """Events of five days and two incarnations of a Data Service, including the last minutes of days."""
    chance = random.Random(seed)
    events: list[TrafficEvent] = []
    for n in range(number):
        until = BEGIN + chance.choice((chance.randrange(5 * DAY), chance.randrange(1, 5) * DAY)) // 60_000 * 60_000
        requests = tuple(
            Accessed(
                chance.choice(("", "abcd1234", "zyxw9876")),
                chance.choice(("free", "gold")),
                chance.choice(("", "/a", "/dam/prices/GR")),
                chance.randrange(1000),
                chance.randrange(5),
            )
            for _ in range(chance.randint(1, 8))
        )
        id_ = f"00000000000{n % 2}-{n}"
        events.append(
            TrafficEvent(Type.ACCESS, id_, until, "data", since=until - 60_000, until=until, requests=requests)
        )
    return events


@in_cluster("it takes 10 s of CPU time")
def test_the_report_equals_the_reference_despite_repeated_events(spark: "SparkSession", tmp_path: Path) -> None:
    warehouse, source = Warehouse(tmp_path / "warehouse"), FileSource(tmp_path / "in", files_per_batch=1)
    events = [*accesses(1, 400), *(event for event, _ in generated(2, clients=5))]
    random.Random(3).shuffle(events)
    write(source.folder, "0.jsonl", events[:300])
    write(source.folder, "1.jsonl", [*events[300:], *events[100:200]])
    assert ingest(spark, source, warehouse) == len(events) + 100
    assert tables.quarantine(spark, warehouse).count() == 0
    stored = {row["id"]: row for row in tables.events(spark, warehouse).where("type = 'access'").collect()}
    for event in events:
        if event.type is Type.ACCESS:
            row = stored[event.id]
            assert tuple(Accessed(**each.asDict()) for each in row["requests"]) == event.requests
            assert (row["client"], row["endpoints"], row["updates"]) == (None, None, None)

    file = report(spark, warehouse, FIRST, LAST)
    assert file == tmp_path / "warehouse" / "usage" / "2026-01-02_2026-01-03.parquet"
    assert read_report(file) == usage(events, FIRST, LAST)
    assert {row.day for row in read_report(file)} == {FIRST, LAST}
    assert [f"{field.name} {field.type}" for field in pq.read_schema(file)] == [
        "day date32[day]",
        "key string",
        "plan string",
        "endpoint string",
        "answered int64",
        "refused int64",
    ]
    # Late events count when the report is computed again; the report is not a source of traffic.
    late = accesses(4, 1)[0]._replace(id="0000000000ff-1", since=BEGIN + DAY, until=BEGIN + DAY + 60_000)
    write(source.folder, "2.jsonl", [late])
    ingest(spark, source, warehouse)
    assert read_report(report(spark, warehouse, FIRST, LAST)) == usage([*events, late], FIRST, LAST)
    assert [path.name for path in file.parent.iterdir() if path.suffix == ".parquet"] == [file.name]
    assert warehouse.sources() == [source.name]


def test_a_report_without_events_has_no_rows(spark: "SparkSession", tmp_path: Path) -> None:
    assert read_report(report(spark, Warehouse(tmp_path / "warehouse"), FIRST, LAST)) == []
