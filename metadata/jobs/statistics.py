"""Compute the statistics of a window in Spark: the same as :mod:`metadata.statistics.reference`, for any size.

Times are Unix ms in ``at``. Sessions of connections are rebuilt first (docs/traffic.md section 3.1), then the tables.
"""

import json
import shutil
import time
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812

from metadata.jobs import tables
from metadata.jobs.warehouse import WINDOW_FILE, NoTraffic, Warehouse
from metadata.statistics.constants import (
    DUPLICATE_OVERLAP_MS,
    HISTORY_MS,
    LARGE_SET,
    LATE_MS,
    MAX_PAIRS,
    MIN_HELD_MS,
    MINUTE_MS,
    SILENCE_MS,
)
from metadata.statistics.model import Summary, window_json
from metadata.statistics.window import Window

ORDERS: Final = {
    "endpoints": ("endpoint",),
    "sets": ("endpoints",),
    "pairs": ("weight", "first", "second"),
    "waste": ("edge",),
}
"""Sort order of each table's rows, in one file; weights descend."""


class Tables(NamedTuple):
    """The tables of docs/traffic.md section 3.4, in any order, and the counts of `window.json`."""

    endpoints: DataFrame
    sets: DataFrame
    pairs: DataFrame
    waste: DataFrame
    summary: Summary


class CachedFrames:
    """Frames that are used more than once: persisted until :meth:`free`, on disk where memory is short."""

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
    """Return the window of a length that ends with the last event, or now if that is ahead of our clock.

    Raises:
        NoTraffic: there is no event.
    """
    last = tables.events(spark, warehouse).agg(F.unix_millis(F.max("time")).alias("at")).first()
    if last is None or last["at"] is None:
        raise NoTraffic(warehouse.root)
    end = min(last["at"] + 1, time.time_ns() // 1_000_000)
    return Window(end - span_ms, end)


def compute(spark: SparkSession, warehouse: Warehouse, window: Window, name: str | None = None) -> Path:
    """Compute and write the statistics of a window; return their folder, which appears once complete.

    Args:
        spark: a session.
        warehouse: whose events.
        window: which.
        name: of the folder; what is there under it is replaced.
    """
    kept = CachedFrames()
    try:
        found = statistics(_events(spark, warehouse, window), window, kept)
        return write(found, window, warehouse.statistics / (name or window.name))
    finally:
        kept.free()


def _events(spark: SparkSession, warehouse: Warehouse, window: Window) -> DataFrame:
    first, last = _day(window.start - HISTORY_MS), _day(window.end) + timedelta(days=1)
    return tables.events(spark, warehouse).where(F.col("day").between(F.lit(first), F.lit(last)))


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()


def write(found: Tables, window: Window, folder: Path) -> Path:
    """Write statistics; existing ones stay until the new ones are complete."""
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    for name, order in ORDERS.items():
        frame = (
            getattr(found, name).repartition(1).sortWithinPartitions(*order, ascending=[c != "weight" for c in order])
        )
        frame.write.parquet(str(new / f"{name}.parquet"))
    content = json.dumps(window_json(window, found.summary), indent=2)
    (new / WINDOW_FILE).write_text(f"{content}\n", encoding="utf-8")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder


def statistics(events: DataFrame, window: Window, kept: CachedFrames) -> Tables:
    """Return the statistics of a window.

    Args:
        events: the table `events`, with repeats, at least from 7 days before the window on.
        window: which.
        kept: frees what the tables are computed from, when they are written.
    """
    found = events.select("*", F.unix_millis("time").alias("at"))
    distinct = kept(found.dropDuplicates(["id"]))
    recent = session_events(distinct, window)
    lasting = kept(sessions(recent, window))
    connected = kept(_connected(lasting, window))
    counts = kept(_counts(distinct, window))
    proven = confirmed_endpoints(recent).union(counts.select("endpoint")).distinct()
    holding = subscription_intervals(recent, lasting).join(proven, "endpoint", "left_semi")
    held = kept(union_length(clip(holding, window), "client", "endpoint"))
    endpoints = kept(_endpoints(held, counts, window))
    numbered = kept(_number_endpoints(endpoints))
    sets = kept(_sets(held, connected, numbered))
    return Tables(
        endpoints,
        sets,
        _pairs(sets, numbered),
        _waste(counts),
        _summary(found, window, (lasting, connected, sets, endpoints), count_duplicate_recorders(distinct, window)),
    )


def _connected(lasting: DataFrame, window: Window) -> DataFrame:
    """Columns: client, ms, sharers."""
    sharers = lasting.groupBy("client").agg(F.max("sharers").alias("sharers"))
    return union_length(clip(lasting, window), "client").join(sharers, "client")


def _counts(distinct: DataFrame, window: Window) -> DataFrame:
    """Columns: edge, middle (ms), and of one endpoint: endpoint, taken, delivered. One row of nulls without any."""
    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    rows = distinct.where(F.col("type") == "counts").select("edge", middle.alias("middle"), "updates")
    within = rows.where((F.col("middle") >= window.start) & (F.col("middle") < window.end))
    return within.select("edge", "middle", F.inline_outer("updates"))


def _endpoints(held: DataFrame, counts: DataFrame, window: Window) -> DataFrame:
    counted = counts.where(F.col("endpoint").isNotNull())
    minute = F.floor(F.col("middle") / MINUTE_MS).alias("minute")
    by_edge = counted.groupBy("endpoint", minute, "edge").agg(
        F.sum("taken").alias("taken"), F.sum("delivered").alias("delivered")
    )
    by_minute = by_edge.groupBy("endpoint", "minute").agg(
        F.max("taken").alias("updates"), F.sum("taken").alias("taken"), F.sum("delivered").alias("delivered")
    )
    total = by_minute.groupBy("endpoint").agg(*(F.sum(name).alias(name) for name in ("updates", "taken", "delivered")))
    holding = held.groupBy("endpoint").agg(F.sum("ms").alias("ms"))
    return (
        total.join(holding, "endpoint", "full")
        .fillna(0)
        .select(
            "endpoint",
            (F.col("updates") * 1000 / window.ms).alias("rate"),
            (F.col("ms") / window.ms).alias("subscribers"),
            "taken",
            "delivered",
        )
    )


def _number_endpoints(endpoints: DataFrame) -> DataFrame:
    # One task sorts them all: there are some hundred thousand endpoints at most.
    index = F.row_number().over(Over.orderBy("endpoint")) - 1
    return endpoints.select("endpoint", index.alias("index"))


def _sets(held: DataFrame, connected: DataFrame, numbered: DataFrame) -> DataFrame:
    of_client = (
        held.where(F.col("ms") >= MIN_HELD_MS)
        .join(numbered, "endpoint")
        .groupBy("client")
        .agg(F.sort_array(F.collect_list("index")).alias("endpoints"))
    )
    return (
        of_client.join(connected, "client")
        .withColumn("seconds", F.expr("ms div (1000 * sharers)"))
        .where("seconds > 0")
        .groupBy("endpoints")
        .agg(F.sum("seconds").alias("weight"), F.count("*").alias("clients"))
    )


def _pairs(sets: DataFrame, numbered: DataFrame) -> DataFrame:
    firsts = sets.where(F.size("endpoints") <= LARGE_SET).withColumn("first", F.explode("endpoints"))
    greater = F.filter("endpoints", lambda other: other > F.col("first"))
    heaviest = (
        firsts.select("first", F.explode(greater).alias("second"), "weight", "clients")
        .groupBy("first", "second")
        .agg(F.sum("weight").alias("weight"), F.sum("clients").alias("clients"))
        .orderBy(F.desc("weight"), "first", "second")
        .limit(MAX_PAIRS)
    )
    names = {
        which: numbered.select(F.col("index").alias(which), F.col("endpoint").alias(f"name_{which}"))
        for which in ("first", "second")
    }
    return (
        heaviest.join(names["first"], "first")
        .join(names["second"], "second")
        .select(F.col("name_first").alias("first"), F.col("name_second").alias("second"), "weight", "clients")
    )


def _waste(counts: DataFrame) -> DataFrame:
    discarded = F.when(F.col("delivered") == 0, F.col("taken")).otherwise(0)
    totals = counts.groupBy("edge").agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("taken", "delivered")),
        F.coalesce(F.sum(discarded), F.lit(0)).alias("discarded"),
    )
    share = F.when(F.col("taken") > 0, F.col("discarded") / F.col("taken")).otherwise(0.0)
    return totals.select("*", share.alias("share"))


def _summary(
    found: DataFrame,
    window: Window,
    parts: tuple[DataFrame, DataFrame, DataFrame, DataFrame],
    twins: DataFrame,
) -> Summary:
    lasting, connected, sets, endpoints = parts
    within = (F.col("at") >= window.start) & (F.col("at") < window.end)
    # Of repeats, the one that came first says how late the event was.
    once = (
        found.where(within)
        .groupBy("id")
        .agg(F.count("*").alias("times"), F.min(F.unix_millis("arrived") - F.col("at")).alias("delay"))
    )
    number = F.count("*")
    rows = (
        once.agg(
            number.alias("events"),
            (F.coalesce(F.sum("times"), F.lit(0)) - number).alias("duplicates"),
            F.count_if(F.col("delay") > LATE_MS).alias("late"),
        ),
        lasting.agg(number.alias("sessions"), F.count_if("unended").alias("unended")),
        connected.agg(number.alias("clients")),
        sets.agg(number.alias("sets"), F.count_if(F.size("endpoints") > LARGE_SET).alias("large_sets")),
        endpoints.agg(number.alias("endpoints")),
        twins,
    )
    # Each is one row: together they are one job.
    (counted,) = reduce(DataFrame.crossJoin, rows).collect()
    return Summary(**{name: counted[name] for name in Summary._fields})


def session_events(events: DataFrame, window: Window) -> DataFrame:
    """Return the events that sessions are rebuilt from."""
    return events.where((F.col("at") >= window.start - HISTORY_MS) & (F.col("at") < window.end))


def sessions(events: DataFrame, window: Window) -> DataFrame:
    """Return the sessions that lasted in the window: connection, client, start, end, unended, sharers.

    Args:
        events: distinct, those of :func:`session_events`.
        window: which.
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
    found = own.join(_session_ends(events, window), "boot").select(
        "connection", "client", "start", end.alias("end"), unended.alias("unended"), "sharers"
    )
    return found.where(F.greatest("start", F.lit(window.start)) < F.least("end", F.lit(window.end)))


def subscription_intervals(events: DataFrame, lasting: DataFrame) -> DataFrame:
    """Return subscription intervals: client, endpoint, start, end; several per client and endpoint are possible.

    Args:
        events: distinct, those of :func:`session_events`.
        lasting: sessions; events that are not of one of them are left out.
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
    turns = changes.withColumn("before", before).where(F.col("on") != F.col("before"))
    spans = turns.withColumn("off", F.lead("at").over(order)).where("on")
    ends = F.coalesce(F.least("off", "end"), F.col("end"))
    return spans.join(lasting, "connection").select("client", "endpoint", F.col("at").alias("start"), ends.alias("end"))


def confirmed_endpoints(events: DataFrame) -> DataFrame:
    """Return the endpoints confirmed by anybody but clients (docs/traffic.md section 3.2).

    The column is `endpoint`; names are there several times.

    Args:
        events: distinct, those of :func:`session_events`.
    """
    none = F.array().cast("array<string>")
    registered = F.array_except("endpoints", F.coalesce("unknown", none))
    named = F.concat(
        F.when(F.col("type") == "subscribe", registered).otherwise(none),
        F.coalesce(F.col("updates.endpoint"), none),
        F.coalesce(F.col("requests.endpoint"), none),
    )
    return events.select(F.explode(named).alias("endpoint"))


def clip(intervals: DataFrame, window: Window) -> DataFrame:
    """Clip intervals (start, end) to the window; the end of an empty one is not after its start."""
    return intervals.withColumns(
        {
            "start": F.greatest("start", F.lit(window.start)),
            "end": F.least("end", F.lit(window.end)),
        }
    )


def union_length(intervals: DataFrame, *keys: str) -> DataFrame:
    """Return the length (`ms`) of the union of each key's intervals; keys with none are left out."""
    earlier = Over.partitionBy(*keys).orderBy("start", "end").rowsBetween(Over.unboundedPreceding, -1)
    begin = F.greatest("start", F.max("end").over(earlier))  # greatest passes over the null of the first
    more = F.greatest(F.lit(0), F.col("end") - begin).alias("more")
    totals = intervals.select(*keys, more).groupBy(*keys).agg(F.sum("more").alias("ms"))
    return totals.where(F.col("ms") > 0)


def count_duplicate_recorders(distinct: DataFrame, window: Window) -> DataFrame:
    """Count names used by two processes at once, by their incarnations' events in the window: one row, `twins`."""
    within = distinct.where((F.col("at") >= window.start) & (F.col("at") < window.end))
    lives = within.groupBy("edge", "boot").agg(F.min("at").alias("first"), F.max("at").alias("last"))
    earlier = Over.partitionBy("edge").orderBy("first", "last").rowsBetween(Over.unboundedPreceding, -1)
    reached = lives.withColumn("reached", F.max("last").over(earlier))  # null for the first one
    both = reached.where(F.least("reached", "last") - F.col("first") > DUPLICATE_OVERLAP_MS).where(
        F.col("reached").isNotNull()
    )
    return both.agg(F.count_distinct("edge").alias("twins"))


def _session_ends(events: DataFrame, window: Window) -> DataFrame:
    """Return the end of sessions without a disconnect, by incarnation: boot, until_at, killed."""
    signs = events.groupBy("boot").agg(F.max("edge").alias("edge"), F.max("at").alias("sign"))
    latest = F.row_number().over(Over.partitionBy("edge").orderBy(F.desc("sign"), F.desc("boot"))) == 1
    alive = F.col("latest") & (F.col("sign") >= window.end - SILENCE_MS)
    return signs.withColumn("latest", latest).select(
        "boot", F.when(alive, window.end).otherwise(F.col("sign")).alias("until_at"), (~alive).alias("killed")
    )
