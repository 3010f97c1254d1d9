"""Traffic for ``bench-pipeline``: tables of many hours, written directly, and files of events to read."""

import os
import random
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from itertools import count, product
from typing import TYPE_CHECKING, Final

from diem.protocol.traffic import TrafficEvent, Type
from learning.jobs.spark_options import spark_path
from learning.jobs.warehouse import Warehouse
from learning.statistics.window import Window
from tests.support.traffic import Life

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BEGIN_MS: Final = 1_767_225_600_000
"""2026-01-01."""
HOUR_MS: Final = 3_600_000
SOURCE: Final = "files-0"
EVENTS_PER_ENDPOINT: Final = 100
"""In an hour."""
SUBSCRIBED: Final = 8
"""Endpoints of a session; half of them are those of its group."""
SESSION_MS: Final = 20 * 60_000
EDGES: Final = 4
NAMED: Final = 200
"""Endpoints in an event of counts."""


def hour(spark: "SparkSession", number: int, events: int) -> "DataFrame":
    """Return the events of an hour: sessions with three each, and the counts of every edge and minute."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  # needs Spark
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from learning.jobs.tables import SCHEMA  # noqa: PLC0415

    endpoints = events // EVENTS_PER_ENDPOINT
    parts = endpoints // NAMED
    sessions = (events - EDGES * 60 * parts) // 3
    start = BEGIN_MS + number * HOUR_MS

    def event(kind: str, order: int, ms: "Column", rows: "DataFrame", **columns: "Column") -> "DataFrame":
        own = F.col("k") * 4 + order + number * events * 4
        fields = {"type": F.lit(kind), "number": own, "id": F.concat(F.col("boot"), F.lit("-"), own)}
        times = {"time": F.timestamp_millis(ms), "arrived": F.timestamp_millis(ms + 1000)}
        edge = F.concat(F.lit("websocket-"), F.col("k") % EDGES)
        return rows.withColumn("boot", F.format_string("%012x", F.col("k") % EDGES + 1)).withColumns(
            {"edge": edge, "kind": F.lit("events"), **fields, **times, **columns}
        )

    clients = spark.range(sessions).withColumnRenamed("id", "k")
    at = F.lit(start) + F.floor(F.col("k") * HOUR_MS / sessions)
    who = {
        "client": F.format_string("%016x", F.col("k") % 100_000 + number // 24 * 100_000),
        "connection": F.format_string("%016x", F.col("k") + number * sessions),
    }
    group = F.pmod(F.hash("k"), F.lit(endpoints // SUBSCRIBED))
    chosen = [
        group * SUBSCRIBED + each if each % 2 else F.pmod(F.hash("k", F.lit(each)), F.lit(endpoints))
        for each in range(SUBSCRIBED)
    ]
    names = F.array(*(F.concat(F.lit("/endpoint/"), index) for index in chosen))

    reports = spark.range(EDGES * 60 * parts).withColumnRenamed("id", "k")
    minute = F.lit(start) + F.floor(F.col("k") / (EDGES * parts)) * 60_000
    part = F.floor(F.col("k") / EDGES) % parts
    updates = F.transform(
        F.sequence(F.lit(0), F.lit(NAMED - 1)),
        lambda n: F.struct(
            F.concat(F.lit("/endpoint/"), part * NAMED + n).alias("endpoint"),
            F.lit(7).cast("long").alias("taken"),
            F.lit(9).cast("long").alias("delivered"),
        ),
    )
    interval = {"since": F.timestamp_millis(minute), "until": F.timestamp_millis(minute + 60_000)}
    made = reduce(
        lambda one, other: DataFrame.unionByName(one, other, allowMissingColumns=True),
        (
            event("connect", 0, at, clients, **who),
            event("subscribe", 1, at + 10, clients, **who, endpoints=names),
            event("disconnect", 2, at + SESSION_MS, clients, **who),
            event("counts", 3, minute + 60_000, reports, **interval, updates=updates),
        ),
    ).withColumn("day", F.to_date("time"))
    columns = {name: F.col(name) for name in made.columns}
    schema = spark.createDataFrame([], SCHEMA).schema.fields
    return made.select(*(columns.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in schema))


def make(spark: "SparkSession", warehouse: Warehouse, events: int, first: int, after: int) -> None:
    """Write the tables of the hours from ``first`` until ``after``, a few files each, with a commit for each hour.

    The last 25 are computed; files of those before are links to theirs, under the right day.
    """
    from pyspark.sql import Observation  # noqa: PLC0415  # needs Spark
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from learning.jobs import delta_table, tables  # noqa: PLC0415

    sink = warehouse.sink(SOURCE)
    delta_table.prepare(sink, tables.schema_json())
    computed = max(first, after - 25)
    made: dict[int, list[delta_table.CommittedFile]] = {}
    for number in range(computed, after):
        known = set(delta_table.committed_files(sink))
        staged, written = sink / delta_table.STAGING / str(number), Observation()
        rows = hour(spark, number, events).coalesce(2).observe(written, F.count(F.lit(1)).alias("rows"))
        rows.write.partitionBy("kind", "day").parquet(spark_path(staged))
        delta_table.commit(sink, staged, SOURCE, number, written.get["rows"])
        made[number] = [file for file in delta_table.committed_files(sink) if file not in known]
    for number in range(first, computed):
        days = (computed - number + 23) // 24
        staged = sink / delta_table.STAGING / str(number)
        linked = made[number + 24 * days]
        for file in linked:
            folder = staged / f"kind={file.kind}" / f"day={file.day - timedelta(days)}"
            folder.mkdir(parents=True, exist_ok=True)
            os.link(file.path, folder / f"{number}-{file.path.name}")
        delta_table.commit(sink, staged, SOURCE, number, sum(file.rows for file in linked))


def condense(spark: "SparkSession", warehouse: Warehouse, window: Window) -> None:
    """Write the condensed history after a window from the two hours before its end: sessions last 20 minutes."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # needs Spark

    from learning.jobs import history, statistics, tables  # noqa: PLC0415  # they need Spark

    files = tables.event_files(warehouse)
    begin = window.end - 2 * HOUR_MS
    of_two_days = tables.events(spark, warehouse, files).where(
        F.col("day") >= F.to_date(F.timestamp_millis(F.lit(begin)))
    )
    recent = of_two_days.where(F.col("time") >= F.timestamp_millis(F.lit(begin)))
    at = window.end - history.LATENESS_MS
    signs = statistics.write(recent, window, warehouse.statistics / "before", at=at)
    history.save(warehouse, files, recent, window, at=at, signs=signs)


def recorded(boot: int, count: int) -> Iterator[TrafficEvent]:
    """Return events in the shares of real traffic: mostly subscriptions, and counts of 200 endpoints."""
    life = Life("websocket-1", boot, BEGIN_MS, BEGIN_MS)
    kinds = (Type.CONNECT, Type.SUBSCRIBE, Type.UNSUBSCRIBE, Type.DISCONNECT)
    counted = {f"endpoint/{each}": (7, 9) for each in range(NAMED)}
    for number in range(count):
        at, kind = BEGIN_MS + number, kinds[number % 4]
        names = [f"/endpoint/{number * 31 % 10_000 + each}" for each in range(SUBSCRIBED * (number % 4 in {1, 2}))]
        is_counts = number % 100 == 0
        yield life.counts(at - 60_000, at, **counted) if is_counts else life.event(kind, at, number, number, *names)


def visits(events: int) -> Iterator[TrafficEvent]:
    """Yield an hour's events, without an end: the counts of every edge and minute, then sessions in no order.

    Clients come back, stay for different times and end some of their subscriptions. Some events come twice, and the
    ends of some sessions never. There are clients and endpoints for ``events`` of them.
    """
    chance, end = random.Random(events), BEGIN_MS + HOUR_MS
    endpoints = events // EVENTS_PER_ENDPOINT // SUBSCRIBED * SUBSCRIBED + SUBSCRIBED
    lives = [Life(f"edge-{each}", each + 1, BEGIN_MS, end) for each in range(EDGES)]
    for since in range(BEGIN_MS, end, 60_000):
        for life, first in product(lives, range(0, endpoints, NAMED)):
            named = range(first, min(first + NAMED, endpoints))
            yield life.counts(
                since, since + 60_000, **{f"endpoint/{each}": (7, chance.randrange(30)) for each in named}
            )
    for connection in count(1 << 32):
        life, who = chance.choice(lives), (chance.randrange(events // 5), connection)
        group = chance.randrange(0, endpoints, SUBSCRIBED)
        own = [group + each if each % 2 else chance.randrange(endpoints) for each in range(SUBSCRIBED)]
        names = [f"/endpoint/{each}" for each in dict.fromkeys(own)]
        at = chance.randrange(BEGIN_MS, end)
        yield life.event(Type.CONNECT, at, *who)
        yield (begun := life.event(Type.SUBSCRIBE, at + 10, *who, *names))
        if chance.random() < 0.05:
            yield begun
        at += 20 + int(chance.expovariate(1 / SESSION_MS))
        if at < end:
            yield life.event(Type.UNSUBSCRIBE, at, *who, *names[: SUBSCRIBED // 2])
        at += int(chance.expovariate(1 / SESSION_MS))
        if at < end and chance.random() < 0.95:
            yield life.event(Type.DISCONNECT, at, *who)
