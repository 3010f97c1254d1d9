"""Computes the statistics of a window in Spark: the same as :mod:`learning.statistics.reference`, at any scale.

The column ``at`` is an event's time in Unix ms. Sessions of connections are rebuilt first (docs/traffic.md section
3.1), then the tables are computed from them. Second job of the pipeline, after ``ingest``.
"""

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812

from learning.jobs import history, tables
from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import SparkFailed
from learning.jobs.warehouse import WINDOW_FILE, NoTraffic, Warehouse
from learning.statistics.constants import (
    DUPLICATE_OVERLAP_MS,
    HISTORY_MS,
    LATE_MS,
    MIN_HELD_MS,
    MINUTE_MS,
    SILENCE_MS,
)
from learning.statistics.model import Summary, window_json
from learning.statistics.window import Window

ORDERS: Final = {
    "endpoints": ("endpoint",),
    "sets": ("endpoints",),
    "waste": ("edge",),
}
"""Sort columns of each table."""


class Tables(NamedTuple):
    """The tables of docs/traffic.md section 3.4, with rows in any order, and the counts of ``window.json``."""

    endpoints: DataFrame
    sets: DataFrame
    waste: DataFrame
    summary: Summary
    events: DataFrame
    """The distinct input events, with ``at``; cached."""


class CachedFrames:
    """Reused frames: persisted until :meth:`free`, on disk if memory is short."""

    def __init__(self) -> None:
        self._frames: list[Any] = []

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Persist a frame."""
        self._frames.append(frame.persist())
        return frame

    def free(self) -> None:
        """Unpersist all frames."""
        for frame in self._frames:
            frame.unpersist()


def last_window(spark: SparkSession, warehouse: Warehouse, span_ms: int) -> Window:
    """Return the window of ``span_ms`` that ends with the last event, or now if that event is ahead of our clock.

    It is shorter if nothing was recorded at its start (:func:`learning.statistics.reference.recorded_since`).

    Raises:
        NoTraffic: there is no event.
    """
    events = tables.events(spark, warehouse)
    # Days are in the names of folders: of all but the last one only the footers of the files are read.
    day = events.agg(F.max("day").alias("day")).first()
    latest = events.where(F.col("day") == F.lit(None if day is None else day["day"]))
    last = latest.agg(F.unix_millis(F.max("time")).alias("at")).first()
    if last is None or last["at"] is None:
        raise NoTraffic(warehouse.root)
    end = min(last["at"] + 1, time.time_ns() // 1_000_000)
    window = Window(end - span_ms, end)
    from_ms = window.start - SILENCE_MS
    since_day = events.where(F.col("day") >= F.lit(datetime.fromtimestamp(max(from_ms, 0) / 1000, UTC).date()))
    at = F.unix_millis("time")
    recorded = since_day.where((at >= from_ms) & (at < window.end)).agg(
        F.min(F.coalesce(F.unix_millis("since"), at)).alias("since")
    )
    first = recorded.first()
    return window.since(None if first is None else first["since"])


def compute(
    spark: SparkSession,
    warehouse: Warehouse,
    window: Window,
    name: str | None = None,
    warn: Callable[[str], None] = lambda _text: None,
) -> Path:
    """Compute and write the statistics of a window; return their folder, which appears once complete.

    A condensed history (:mod:`learning.jobs.history`) is read instead of old events, and one is written for the windows
    after this one.

    Args:
        spark: the session.
        warehouse: source of the events, and destination.
        window: the window.
        name: name of the folder, which is replaced if it exists; by default that of the window.
        warn: called with a sentence for each unusable history.
    """
    cache = CachedFrames()
    try:
        table = tables.events(spark, warehouse)
        computed = statistics(history.read(table, warehouse, window, warn), window, cache)
        folder = write(computed, window, warehouse.statistics / (name or window.name))
        history.save(table, warehouse, computed.events, window)
        return folder
    finally:
        cache.free()


def write(computed: Tables, window: Window, folder: Path) -> Path:
    """Write statistics to ``folder``; existing ones stay until the new ones are complete.

    Args:
        computed: the tables.
        window: their window.
        folder: a folder of this machine.

    Raises:
        SparkFailed: an executor wrote to a folder of its own.
    """
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    for name in ORDERS:
        _sorted(name, getattr(computed, name)).write.parquet(spark_path(new / f"{name}.parquet"))
        if not any((new / f"{name}.parquet").glob("part-*")):
            raise SparkFailed(f"the table {name} is not in {new}: do all workers have the warehouse at this path?")
    content = json.dumps(window_json(window, computed.summary), indent=2)
    (new / WINDOW_FILE).write_text(f"{content}\n", encoding="utf-8")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder


def _sorted(name: str, frame: DataFrame) -> DataFrame:
    """Return the rows of a table in order, also across the files by name."""
    if name == "sets":
        # There may be as many rows as clients: each task sorts a range and writes a file.
        return frame.orderBy(*ORDERS[name])
    return frame.repartition(1).sortWithinPartitions(*ORDERS[name])


def statistics(events: DataFrame, window: Window, cache: CachedFrames) -> Tables:
    """Return the statistics of a window.

    Args:
        events: the table ``events``, with repeats, from at least 7 days before the window on, or those of
            :func:`learning.jobs.history.read`.
        window: the window.
        cache: holds the intermediate frames; freed by the caller once the tables are written.
    """
    timed = events.select("*", F.unix_millis("time").alias("at"))
    distinct = cache(timed.dropDuplicates(["id"]))
    recent = session_events(distinct, window)
    lasting = cache(sessions(recent, window))
    connected = cache(_connected(lasting, window))
    counts = cache(_counts(distinct, window))
    confirmed = confirmed_endpoints(recent).union(counts.select("endpoint")).distinct()
    intervals = subscription_intervals(recent, lasting).join(confirmed, "endpoint", "left_semi")
    held = cache(union_length(clip(intervals, window), "client", "endpoint"))
    endpoints = cache(_endpoints(held, counts, window))
    numbered = cache(_number_endpoints(endpoints))
    sets = cache(_sets(held, connected, numbered))
    return Tables(
        endpoints,
        sets,
        _waste(counts),
        _summary(timed, window, (lasting, connected, sets, endpoints), count_duplicate_recorders(distinct, window)),
        distinct,
    )


def _connected(lasting: DataFrame, window: Window) -> DataFrame:
    """Return the time that each client was connected: client, ms, sharers."""
    sharers = lasting.groupBy("client").agg(F.max("sharers").alias("sharers"))
    connected = union_length(clip(lasting, window), "client")
    return connected.join(sharers, "client", "inner").select("client", "ms", "sharers")


def _counts(distinct: DataFrame, window: Window) -> DataFrame:
    """Return the counted updates: edge, middle (ms), endpoint, taken, delivered.

    A report without updates is one row whose last three columns are null.
    """
    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    rows = distinct.where(F.col("type") == "counts").select("edge", middle.alias("middle"), "updates")
    within = rows.where((F.col("middle") >= window.start) & (F.col("middle") < window.end))
    return within.select("edge", "middle", F.inline_outer("updates"))


def _endpoints(held: DataFrame, counts: DataFrame, window: Window) -> DataFrame:
    """Return the table ``endpoints``; rates are of the edge that received most in each minute."""
    counted = counts.where(F.col("endpoint").isNotNull())
    minute = F.floor(F.col("middle") / MINUTE_MS).alias("minute")
    by_edge = counted.groupBy("endpoint", minute, "edge").agg(
        F.sum("taken").alias("taken"), F.sum("delivered").alias("delivered")
    )
    by_minute = by_edge.groupBy("endpoint", "minute").agg(
        F.max("taken").alias("updates"), F.sum("taken").alias("taken"), F.sum("delivered").alias("delivered")
    )
    frames = by_minute.groupBy("minute").agg(F.sum("delivered").alias("frames"))
    busy_minutes = frames.orderBy(F.desc("frames"), "minute").limit(window.busy_minutes)
    is_busy = F.col("frames").isNotNull()
    total = (
        by_minute.join(F.broadcast(busy_minutes), "minute", "left")
        .groupBy("endpoint")
        .agg(
            *(F.sum(name).alias(name) for name in ("updates", "taken", "delivered")),
            F.sum(F.when(is_busy, F.col("updates")).otherwise(0)).alias("busy"),
        )
    )
    subscribed = held.groupBy("endpoint").agg(F.sum("ms").alias("ms"))
    return (
        total.join(subscribed, "endpoint", "full")
        .fillna(0)
        .select(
            "endpoint",
            (F.col("updates") * 1000 / window.ms).alias("rate"),
            (F.col("ms") / window.ms).alias("subscribers"),
            "taken",
            "delivered",
            (F.col("busy") * 1000 / (window.busy_minutes * MINUTE_MS)).alias("busy_rate"),
        )
    )


def _number_endpoints(endpoints: DataFrame) -> DataFrame:
    """Return the endpoints with their index in order of name: endpoint, index."""
    # Sorted by one task: a few hundred thousand endpoints take a second.
    index = F.row_number().over(Over.orderBy("endpoint")) - 1
    return endpoints.select("endpoint", index.alias("index"))


def _sets(held: DataFrame, connected: DataFrame, numbered: DataFrame) -> DataFrame:
    """Return the table ``sets``: endpoints (indices), weight, clients."""
    of_client = (
        held.where(F.col("ms") >= MIN_HELD_MS)
        .join(numbered, "endpoint", "inner")
        .groupBy("client")
        .agg(F.sort_array(F.collect_list("index")).alias("endpoints"))
    )
    return (
        of_client.join(connected, "client", "inner")
        .withColumn("seconds", F.expr("ms div (1000 * sharers)"))
        .where(F.col("seconds") > 0)
        .groupBy("endpoints")
        .agg(F.sum("seconds").alias("weight"), F.count("*").alias("clients"))
        .select("endpoints", "weight", "clients")
    )


def _waste(counts: DataFrame) -> DataFrame:
    """Return the table ``waste``: updates that each process received, delivered and discarded."""
    discarded = F.when(F.col("delivered") == 0, F.col("taken")).otherwise(0)
    totals = counts.groupBy("edge").agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("taken", "delivered")),
        F.coalesce(F.sum(discarded), F.lit(0)).alias("discarded"),
    )
    share = F.when(F.col("taken") > 0, F.col("discarded") / F.col("taken")).otherwise(0.0)
    return totals.select("edge", "taken", "delivered", "discarded", share.alias("share"))


def _summary(
    timed: DataFrame,
    window: Window,
    parts: tuple[DataFrame, DataFrame, DataFrame, DataFrame],
    twins: DataFrame,
) -> Summary:
    lasting, connected, sets, endpoints = parts
    within = (F.col("at") >= window.start) & (F.col("at") < window.end)
    # An event's delay is that of its first arrival.
    once = (
        timed.where(within)
        .groupBy("id")
        .agg(F.count("*").alias("times"), F.min(F.unix_millis("arrived") - F.col("at")).alias("delay"))
    )
    number = F.count("*")
    rows = (
        _active_minutes(lasting, window),
        once.agg(
            number.alias("events"),
            (F.coalesce(F.sum("times"), F.lit(0)) - number).alias("duplicates"),
            F.count_if(F.col("delay") > LATE_MS).alias("late"),
        ),
        lasting.agg(number.alias("sessions"), F.count_if("unended").alias("unended")),
        connected.agg(number.alias("clients")),
        sets.agg(number.alias("sets")),
        endpoints.agg(number.alias("endpoints")),
        twins,
    )
    # Each is one row: joined, they are one job.
    (counted,) = reduce(DataFrame.crossJoin, rows).collect()
    return Summary(**{name: counted[name] for name in Summary._fields})


def _active_minutes(lasting: DataFrame, window: Window) -> DataFrame:
    """Return the number of minutes in which any client was connected: one row, ``active_minutes``."""
    first, last = (F.floor((column - window.start) / MINUTE_MS) for column in (F.col("start"), F.col("end") - 1))
    clipped = clip(lasting, window).select(first.alias("start"), (last + 1).alias("end"))
    # One row for each minute in which a session begins: no more than one task merges.
    spans = clipped.groupBy("start").agg(F.max("end").alias("end")).withColumn("all", F.lit(True))
    return union_length(spans, "all").agg(F.coalesce(F.sum("ms"), F.lit(0)).alias("active_minutes"))


def session_events(events: DataFrame, window: Window) -> DataFrame:
    """Return the events for rebuilding sessions."""
    return events.where((F.col("at") >= window.start - HISTORY_MS) & (F.col("at") < window.end))


def sessions(events: DataFrame, window: Window) -> DataFrame:
    """Return the sessions that lasted in the window: connection, client, start, end, unended, sharers.

    Args:
        events: distinct, those of :func:`session_events`.
        window: the window.
    """
    order = F.struct("at", "number")
    own = (
        events.where(F.col("connection").isNotNull())
        .groupBy("connection")
        .agg(
            F.min_by("client", order).alias("client"),
            F.min_by("boot", order).alias("boot"),
            F.min("at").alias("start"),
            F.min(F.when(F.col("type") == "disconnect", F.col("at"))).alias("disconnected"),
            F.coalesce(F.max("sharers"), F.lit(1)).alias("sharers"),
        )
    )
    end, unended = F.coalesce("disconnected", "until_at"), F.col("disconnected").isNull() & F.col("killed")
    return (
        own.join(_session_ends(events, window), "boot", "inner")
        .where(F.greatest("start", F.lit(window.start)) < F.least(end, F.lit(window.end)))
        .select("connection", "client", "start", end.alias("end"), unended.alias("unended"), "sharers")
    )


def subscription_intervals(events: DataFrame, lasting: DataFrame) -> DataFrame:
    """Return subscription intervals: client, endpoint, start, end; several per client and endpoint are possible.

    Args:
        events: distinct, those of :func:`session_events`.
        lasting: result of :func:`sessions`; events of other sessions are left out.
    """
    changes = events.where(F.col("endpoints").isNotNull()).select(
        "connection",
        "at",
        "number",
        (F.col("type") == "subscribe").alias("on"),
        F.explode(F.array_distinct("endpoints")).alias("endpoint"),
    )
    order = Over.partitionBy("connection", "endpoint").orderBy("at", "number")
    before = F.coalesce(F.lag("on").over(order), F.lit(False))
    transitions = changes.withColumn("before", before).where(F.col("on") != F.col("before"))
    begins = transitions.withColumn("off", F.lead("at").over(order)).where(F.col("on"))
    ends = F.coalesce(F.least("off", "end"), F.col("end"))
    return begins.join(lasting, "connection", "inner").select(
        "client", "endpoint", F.col("at").alias("start"), ends.alias("end")
    )


def confirmed_endpoints(events: DataFrame) -> DataFrame:
    """Return the endpoints confirmed not only by clients (docs/traffic.md section 3.2): endpoint, with repeats.

    Args:
        events: distinct, those of :func:`session_events`.
    """
    return events.select(F.explode(tables.confirmed_names()).alias("endpoint"))


def clip(intervals: DataFrame, window: Window) -> DataFrame:
    """Clip ``start`` and ``end`` of intervals to the window; the end of an empty one is not after its start."""
    return intervals.withColumns(
        {
            "start": F.greatest("start", F.lit(window.start)),
            "end": F.least("end", F.lit(window.end)),
        }
    )


def union_length(intervals: DataFrame, *keys: str) -> DataFrame:
    """Return the length of the union of each key's intervals: keys, ms; keys whose intervals are empty are left out."""
    earlier = Over.partitionBy(*keys).orderBy("start", "end").rowsBetween(Over.unboundedPreceding, -1)
    begin = F.greatest("start", F.max("end").over(earlier))  # greatest ignores the first row's null
    more = F.greatest(F.lit(0), F.col("end") - begin).alias("more")
    totals = intervals.select(*keys, more).groupBy(*keys).agg(F.sum("more").alias("ms"))
    return totals.where(F.col("ms") > 0).select(*keys, "ms")


def count_duplicate_recorders(distinct: DataFrame, window: Window) -> DataFrame:
    """Count names used by two processes at once, by their incarnations' events in the window: one row, ``twins``."""
    within = distinct.where((F.col("at") >= window.start) & (F.col("at") < window.end))
    incarnations = within.groupBy("edge", "boot").agg(F.min("at").alias("first"), F.max("at").alias("last"))
    earlier = Over.partitionBy("edge").orderBy("first", "last").rowsBetween(Over.unboundedPreceding, -1)
    reached = incarnations.withColumn("reached", F.max("last").over(earlier))  # null in the first row
    overlapping = reached.where(F.col("reached").isNotNull()).where(
        F.least("reached", "last") - F.col("first") > DUPLICATE_OVERLAP_MS
    )
    return overlapping.agg(F.count_distinct("edge").alias("twins"))


def _session_ends(events: DataFrame, window: Window) -> DataFrame:
    """Return the end of sessions without a disconnect, by incarnation: boot, until_at, killed."""
    seen = events.groupBy("boot").agg(F.max("edge").alias("edge"), F.max("at").alias("last_seen"))
    latest = F.row_number().over(Over.partitionBy("edge").orderBy(F.desc("last_seen"), F.desc("boot"))) == 1
    alive = F.col("latest") & (F.col("last_seen") >= window.end - SILENCE_MS)
    return seen.withColumn("latest", latest).select(
        "boot", F.when(alive, window.end).otherwise(F.col("last_seen")).alias("until_at"), (~alive).alias("killed")
    )
