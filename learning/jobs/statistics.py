"""Computes the statistics of a window in Spark: the same as :mod:`learning.statistics.reference`, at any scale.

The column ``at`` is an event's time in Unix ms. Second job of the pipeline, after ``ingest``.

Events are shuffled once, by client, where repeats are left out, the subscriptions of each connection become intervals,
and these are united. Endpoints are there by their rank among all confirmed names; a connection itself is the interval
of the rank :data:`CONNECTED`. Tables of a row for each endpoint or process are completed in this process.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812

from learning.jobs import history, tables
from learning.jobs.delta_table import row_groups
from learning.jobs.spark_options import spark_path
from learning.jobs.spark_session import SparkFailed
from learning.jobs.warehouse import WINDOW_FILE, NoTraffic, Warehouse
from learning.statistics import reference
from learning.statistics.constants import HISTORY_MS, LATE_MS, MIN_HELD_MS, MINUTE_MS, SILENCE_MS
from learning.statistics.model import Summary, WasteRow, window_json
from learning.statistics.sampling import HASH_BITS, MAX_SUBSCRIPTIONS, count_halvings
from learning.statistics.window import Window

CONNECTED: Final = -1
_INPUTS: Final = "_inputs"
"""Temporary folder of tables that every task needs."""


def last_window(warehouse: Warehouse, span_ms: int) -> Window:
    """Return the window of ``span_ms`` that ends with the last event, or now if that event is ahead of our clock.

    It is shorter if nothing was recorded at its start (:func:`learning.statistics.reference.recorded_since`). Read from
    the files without Spark.

    Raises:
        NoTraffic: there is no event.
    """
    files = tables.event_files(warehouse)
    day = max((file.day for file in files), default=None)
    last = max((group.last for group in row_groups(file.path for file in files if file.day == day)), default=None)
    if last is None:
        raise NoTraffic(warehouse.root)
    end = min(last + 1, time.time_ns() // 1_000_000)
    window = Window(end - span_ms, end)
    from_ms = window.start - SILENCE_MS
    since_day = datetime.fromtimestamp(max(from_ms, 0) / 1000, UTC).date()
    earliest = []
    for group in row_groups(file.path for file in files if file.day >= since_day):
        if group.first < end and group.last >= from_ms:
            at, since = group.read("time"), group.read("since")
            within = pc.and_(pc.greater_equal(at, from_ms), pc.less(at, end))
            earliest.append(pc.min(pc.coalesce(since, at).filter(within)).as_py())
    return window.since(min((at for at in earliest if at is not None), default=None))


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
    files, at = tables.event_files(warehouse), history.due(warehouse, window)
    events, folder = history.read(spark, warehouse, files, window, warn), warehouse.statistics / (name or window.name)
    signs = write(events, window, folder, at=at)
    if at is not None:
        history.save(warehouse, files, events, window, at=at, signs=signs)
    return folder


def write(
    events: DataFrame, window: Window, folder: Path, most: int = MAX_SUBSCRIPTIONS, at: int | None = None
) -> list[reference.Sign]:
    """Compute the statistics of a window into ``folder``; existing ones stay until the new ones are complete.

    Returns the signs of lives and endpoints before a time within the window.

    Args:
        events: the table ``events``, with repeats, from at least 7 days before the window on, or those of
            :func:`learning.jobs.history.read`.
        window: the window.
        folder: a folder of this machine, which executors have, too.
        most: subscriptions beyond which the sets are those of a sample of the clients.
        at: that time, in Unix ms; None: there are no signs.

    Raises:
        SparkFailed: an executor wrote to a folder of its own.
    """
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    (new / _INPUTS).mkdir(parents=True)
    with _persisted() as persist:
        timed = events.withColumn("at", F.unix_millis("time"))
        summary, signs = _write_tables(timed, window, new, persist, most=most, before=at or 0)
    shutil.rmtree(new / _INPUTS)
    content = json.dumps(window_json(window, summary), indent=2)
    (new / WINDOW_FILE).write_text(f"{content}\n", encoding="utf-8")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return signs


Persist = Callable[[DataFrame], DataFrame]


@contextmanager
def _persisted() -> Iterator[Persist]:
    """Yield a function that persists a frame until the end, on disk if memory is short."""
    frames: list[DataFrame] = []

    def persist(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist())
        return frame

    try:
        yield persist
    finally:
        for frame in frames:
            frame.unpersist()


def _write_tables(
    events: DataFrame, window: Window, folder: Path, persist: Persist, *, most: int, before: int
) -> tuple[Summary, list[reference.Sign]]:
    """Write the tables of docs/traffic.md section 3.4; return the counts of ``window.json``, and signs."""
    inputs = folder / _INPUTS
    recent = events.where(F.col("at").between(window.start - HISTORY_MS, window.end - 1))
    is_sign = F.col("at").between(before - HISTORY_MS, before - 1)
    lives = _lives(recent, window, is_sign)
    reports = persist(_reports(events, window))
    confirmed = _confirmed_names(recent, reports, is_sign)
    names = confirmed["endpoint"].combine_chunks()
    ranked = pa.table({"endpoint": names, "rank": np.arange(len(names), dtype=np.int32)})
    ranks = _broadcast(events, ranked, inputs / "names.parquet")
    ends = _broadcast(events, _ends(lives, window), inputs / "lives.parquet")
    intervals = subscription_intervals(recent, window, ends, ranks)
    held = persist(_unite(intervals, window))
    counted = _count(reports)
    sums = _sum_clients(held)
    used, subscriptions = _write_endpoints(names, sums, _total(reports, ranks, counted, window), window, folder)
    _write_waste(counted, folder)
    if len(used) < len(names):
        index = pa.table({"rank": used, "index": np.arange(len(used), dtype=np.int32)})
        indexed = held.join(_broadcast(events, index, inputs / "index.parquet"), "rank", "left")
    else:
        indexed = held.withColumn("index", F.when(F.col("rank") >= 0, F.col("rank")))
    # There may be as many rows as clients: each task sorts a range and writes a file.
    sets, halvings = folder / "sets.parquet", count_halvings(subscriptions, most)
    pseudonym = F.lpad(F.lower(F.hex("client")), 16, "0")
    sampled = indexed.where(F.shiftright(F.crc32(pseudonym), HASH_BITS - halvings) == 0) if halvings else indexed
    subscription_sets(sampled).orderBy("endpoints").write.parquet(spark_path(sets))
    written = list(sets.glob("part-*"))
    if not written:
        raise SparkFailed(f"the table sets is not in {folder}: do all workers have the warehouse at this path?")
    rows = sum(pq.read_metadata(file).num_rows for file in written)
    summary = _summary(sums, counted, lives, (rows, len(used)))._replace(halvings=halvings)
    return summary, _signs(lives, confirmed)


def _broadcast(frame: DataFrame, table: pa.Table, file: Path) -> DataFrame:
    """Return a small table of this process for a broadcast join."""
    # A frame made from rows would start Python workers.
    pq.write_table(table, file)
    return F.broadcast(frame.sparkSession.read.schema(_DDL[file.stem]).parquet(spark_path(file)))


_DDL: Final = {
    "lives": "boot string, until_at bigint, killed boolean",
    "names": "endpoint string, rank int",
    "index": "rank int, index int",
}


def _lives(recent: DataFrame, window: Window, is_sign: Column) -> list[dict[str, Any]]:
    """Return the times of each incarnation: edge, boot, last, sign; and first_within and last_within the window."""
    within = F.when(F.col("at") >= window.start, F.col("at"))
    times = recent.groupBy("edge", "boot").agg(
        F.max("at").alias("last"),
        F.max(F.when(is_sign, F.col("at"))).alias("sign"),
        F.min(within).alias("first_within"),
        F.max(within).alias("last_within"),
    )
    rows: list[dict[str, Any]] = times.toArrow().to_pylist()
    return rows


def _ends(lives: list[dict[str, Any]], window: Window) -> pa.Table:
    """Return the end of sessions without a disconnect, by incarnation: boot, until_at, killed."""
    last_seen, edges = dict[str, int](), dict[str, str]()
    for life in lives:
        last_seen[life["boot"]] = max(life["last"], last_seen.get(life["boot"], 0))
        edges[life["boot"]] = max(life["edge"], edges.get(life["boot"], ""))
    ends = reference.life_ends(last_seen, edges, window)
    columns = [list(ends), [at for at, _ in ends.values()], [killed for _, killed in ends.values()]]
    types = (pa.string(), pa.int64(), pa.bool_())
    return pa.table(list(map(pa.array, columns, types)), names=["boot", "until_at", "killed"])


def _reports(events: DataFrame, window: Window) -> DataFrame:
    """Return the distinct events without a client that count: edge, middle, updates, times, delay.

    ``middle`` and ``updates`` are null unless the middle (ms) of counts is in the window, ``times`` and ``delay``
    unless the event's time is.
    """
    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    counts = (F.col("type") == "counts") & (middle >= window.start) & (middle < window.end)
    within = F.col("at").between(window.start, window.end - 1)
    delay = F.unix_millis("arrived") - F.col("at")
    rows = events.where(F.col("type").isin("counts", "access") & (counts | within)).select(
        "id",
        "edge",
        F.when(counts, middle).alias("middle"),
        F.when(counts, F.col("updates")).alias("updates"),
        F.when(within, F.lit(1)).alias("times"),
        F.when(within, delay).alias("delay"),
    )
    # An event's delay is that of its first arrival.
    return rows.groupBy("id").agg(
        *(F.first(name).alias(name) for name in ("edge", "middle", "updates")),
        F.sum("times").alias("times"),
        F.min("delay").alias("delay"),
    )


class _Counted(NamedTuple):
    """Sums over the reports."""

    waste: dict[str, Counter[str]]
    """By edge: taken, delivered, discarded."""
    frames: Counter[int]
    """By minute."""
    events: Counter[str]
    """Events, repeats and late ones of the window."""


def _count(reports: DataFrame) -> _Counted:
    """Return the sums over the reports, which are few for each process and minute."""

    def total(value: Any) -> Any:  # noqa: ANN401  # columns of Spark
        return F.aggregate("updates", F.lit(0).cast("bigint"), lambda sum_, each: sum_ + value(each))

    per_report = reports.select(
        "edge",
        F.floor(F.col("middle") / MINUTE_MS).alias("minute"),
        F.size("updates").alias("named"),
        total(lambda each: each["taken"]).alias("taken"),
        total(lambda each: each["delivered"]).alias("delivered"),
        total(lambda each: F.when(each["delivered"] == 0, each["taken"]).otherwise(0)).alias("discarded"),
        (F.col("times") > 0).cast("int").alias("events"),
        (F.col("times") - 1).alias("repeats"),
        (F.col("delay") > LATE_MS).cast("int").alias("late"),
    )
    sums = ("named", "taken", "delivered", "discarded", "events", "repeats", "late")
    rows = per_report.groupBy("edge", "minute").agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums))
    found = _Counted({}, Counter(), Counter())
    for row in rows.toArrow().to_pylist():
        found.events.update({name: row[name] for name in ("events", "repeats", "late")})
        if row["minute"] is not None:
            own = found.waste.setdefault(row["edge"], Counter())
            own.update({name: row[name] for name in ("taken", "delivered", "discarded")})
            if row["named"] > 0:
                found.frames[row["minute"]] += row["delivered"]
    return found


def _total(reports: DataFrame, ranks: DataFrame, counted: _Counted, window: Window) -> pa.Table:
    """Return the sums of each endpoint: rank, updates, taken, delivered, busy.

    Updates are those of the edge that received most in each minute.
    """
    frames = counted.frames
    busy_minutes = sorted(frames, key=lambda minute: (-frames[minute], minute))[: window.busy_minutes]
    is_busy = F.col("minute").isin(busy_minutes) if busy_minutes else F.lit(False)
    named = reports.select("edge", F.floor(F.col("middle") / MINUTE_MS).alias("minute"), F.inline("updates"))
    rows = named.join(ranks, "endpoint").drop("endpoint").repartition("rank")
    by_edge = rows.groupBy("rank", "minute", "edge").agg(_sum("taken"), _sum("delivered"))
    by_minute = by_edge.groupBy("rank", "minute").agg(F.max("taken").alias("updates"), _sum("taken"), _sum("delivered"))
    busy = F.sum(F.when(is_busy, F.col("updates")).otherwise(0)).alias("busy")
    return by_minute.groupBy("rank").agg(*map(_sum, ("updates", "taken", "delivered")), busy).toArrow()


def _sum(name: str) -> Any:  # noqa: ANN401  # a column
    return F.sum(name).alias(name)


def _confirmed_names(recent: DataFrame, reports: DataFrame, is_sign: Column) -> pa.Table:
    """Return the endpoints that others than clients confirm (docs/traffic.md section 3.2), sorted: endpoint, sign."""
    sign = F.when(is_sign, F.col("at")).alias("sign")
    named = recent.select(F.explode(tables.confirmed_names()).alias("endpoint"), sign)
    # Counts of the window may be later than the window.
    counted = reports.select(F.explode("updates.endpoint").alias("endpoint"), F.lit(None))
    return named.union(counted).groupBy("endpoint").agg(F.max("sign").alias("sign")).toArrow().sort_by("endpoint")


def _signs(lives: list[dict[str, Any]], confirmed: pa.Table) -> list[reference.Sign]:
    """Return the last signs of lives and endpoints before a time."""
    of_lives = {(life["edge"], life["boot"]): life["sign"] for life in lives if life["sign"] is not None}
    known = confirmed.drop_null()
    return reference.signs(of_lives, dict(zip(*(known[each].to_pylist() for each in known.column_names), strict=True)))


def subscription_intervals(recent: DataFrame, window: Window, ends: DataFrame, names: DataFrame) -> DataFrame:
    """Return the intervals of sessions and of their subscriptions to confirmed endpoints.

    Args:
        recent: events from 7 days before the window until its end, with repeats.
        window: the window.
        ends: boot, until_at, killed.
        names: endpoint, rank.

    Returns:
        client, rank, start and end (Unix ms, within the window). Of a session, whose rank is :data:`CONNECTED`, also
        sharers, unended, and the number of its events, repeats and late ones in the window; its interval is null if
        empty.
    """
    order = Over.partitionBy("client", "connection").orderBy("at", "number", "id", "arrived")
    whole = order.rowsBetween(Over.unboundedPreceding, Over.unboundedFollowing)
    is_end, within = F.col("type") == "disconnect", F.col("at") >= window.start
    late = (F.unix_millis("arrived") - F.col("at")) > LATE_MS

    def count(condition: Any) -> Any:  # noqa: ANN401  # columns
        return F.count_if(within & condition).over(whole)

    events = (
        recent.where(F.col("connection").isNotNull())
        # Pseudonyms as numbers: rows are sorted three times by them.
        .withColumns({name: F.conv(name, 16, -10).cast("bigint") for name in ("client", "connection")})
        .select("connection", "at", "number", "id", "arrived", "type", "client", "boot", "sharers", "endpoints")
        .repartition("client")
        .withColumns(
            {
                "previous": F.lag("id").over(order),
                "boot": F.first("boot").over(whole),
                "disconnected": F.min(F.when(is_end, F.col("at"))).over(whole),
                "sharers": F.coalesce(F.max("sharers").over(whole), F.lit(1)),
            }
        )
        # Repeats have the same content: they are neighbours.
        .withColumn("repeated", F.coalesce(F.col("previous") == F.col("id"), F.lit(False)))
        .withColumns(
            {
                "events": count(~F.col("repeated")),
                "repeats": count(F.col("repeated")),
                "late": count(~F.col("repeated") & late),
            }
        )
        # Sessions that ended before the window, a fifth of those after a history, have no interval in it.
        .where(F.col("disconnected").isNull() | (F.col("events") + F.col("repeats") > 0))
        .join(ends, "boot", "inner")
    )
    session = F.when(F.col("previous").isNull(), F.array(F.lit(None).cast("string")))
    changed = F.when(~F.col("repeated"), F.array_distinct("endpoints"))
    none = F.array().cast("array<string>")
    rows = events.select(
        *("connection", "at", "number", "client", "sharers", "events", "repeats", "late"),
        (F.col("type") == "subscribe").alias("on"),
        F.coalesce("disconnected", "until_at").alias("session_end"),
        (F.col("disconnected").isNull() & F.col("killed")).alias("unended"),
        F.explode(F.concat(F.coalesce(session, none), F.coalesce(changed, none))).alias("endpoint"),
    )
    is_session = F.col("endpoint").isNull()
    ranked = (
        rows.join(names, "endpoint", "left")
        .withColumns({"rank": F.when(is_session, CONNECTED).otherwise(F.col("rank")), "on": is_session | F.col("on")})
        .where(F.col("rank").isNotNull())
    )
    # The latest first: one pass finds both neighbours of a row.
    changes = Over.partitionBy("client", "connection", "rank").orderBy(F.desc("at"), F.desc("number"))
    later = changes.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    begins = ranked.withColumns(
        {
            "before": F.coalesce(F.lead("on").over(changes), F.lit(False)),
            "off": F.last(F.when(~F.col("on"), F.col("at")), ignorenulls=True).over(later),
        }
    ).where(F.col("on") & ~F.col("before"))
    start, end = F.greatest("at", F.lit(window.start)), F.least("off", "session_end", F.lit(window.end))
    is_session, lasts = F.col("rank") == CONNECTED, start < end
    return begins.where(is_session | lasts).select(
        "client",
        "rank",
        F.when(lasts, start).alias("start"),
        F.when(lasts, end).alias("end"),
        F.when(is_session & lasts, F.col("sharers")).alias("sharers"),
        F.when(is_session & lasts, F.col("unended").cast("int")).alias("unended"),
        *(F.when(is_session, F.col(name)).alias(name) for name in ("events", "repeats", "late")),
    )


def _unite(intervals: DataFrame, window: Window) -> DataFrame:
    """Return the length of the union of each client's intervals: client, rank, ms, and sums over its sessions.

    Intervals of sessions are by the ``minute`` of the window that they begin in, with the greatest ``until`` of the
    minutes after them, as the minutes of all clients are united, too. ``clients`` is 1 in one of a client's rows.
    """
    # The minute first, which is in the order of starts: sorted so, rows are also summed without a hash table.
    by_client = Over.partitionBy("client", "rank").orderBy("minute", "start", "end")
    earlier = by_client.rowsBetween(Over.unboundedPreceding, -1)
    is_session = F.col("rank") == CONNECTED
    minute, until = (F.floor((at - window.start) / MINUTE_MS) for at in (F.col("start"), F.col("end") - 1))
    united = (
        intervals.withColumn("minute", F.when(is_session, minute))
        .withColumn("reached", F.max("end").over(earlier))
        # greatest ignores the first row's null
        .withColumn("ms", F.greatest(F.lit(0), F.col("end") - F.greatest("start", "reached")))
        .withColumns(
            {
                "until": F.when(is_session, until + 1),
                "sessions": F.when(is_session & F.col("start").isNotNull(), 1),
                "clients": F.when(is_session & F.col("start").isNotNull() & F.col("reached").isNull(), 1),
            }
        )
    )
    return united.groupBy("client", "rank", "minute").agg(
        _sum("ms"), F.max("sharers").alias("sharers"), F.max("until").alias("until"), *map(_sum, _OF_SESSIONS)
    )


_OF_SESSIONS: Final = ("sessions", "clients", "unended", "events", "repeats", "late")


def _sum_clients(held: DataFrame) -> pa.Table:
    """Return the sums over clients, by rank and, of sessions, minute."""
    sums = (_sum("ms"), F.count("*").alias("rows"), F.max("until").alias("until"), *map(_sum, _OF_SESSIONS))
    return held.groupBy("rank", "minute").agg(*sums).toArrow()


def _write_endpoints(
    names: pa.Array, sums: pa.Table, totals: pa.Table, window: Window, folder: Path
) -> tuple[pa.Array, int]:
    """Write the table ``endpoints``; return the ranks of its rows, and the number of subscriptions of clients."""
    by_rank = sums.filter(pc.greater_equal(sums["rank"], 0))
    held_ms = np.zeros(len(names), np.int64)
    held_ms[by_rank["rank"].to_numpy()] = by_rank["ms"].to_numpy()
    rank = totals["rank"].to_numpy()
    found = {name: np.zeros(len(names), np.int64) for name in ("updates", "taken", "delivered", "busy")}
    for name, values in found.items():
        values[rank] = totals[name].to_numpy()
    used = held_ms > 0
    used[rank] = True
    table = pa.table(
        {
            "endpoint": names,
            "rate": found["updates"] * 1000 / window.ms,
            "subscribers": held_ms / window.ms,
            "taken": found["taken"],
            "delivered": found["delivered"],
            "busy_rate": found["busy"] * 1000 / (window.busy_minutes * MINUTE_MS),
        }
    )
    pq.write_table(table.filter(pa.array(used)), folder / "endpoints.parquet")
    return pa.array(np.flatnonzero(used).astype(np.int32)), int(by_rank["rows"].to_numpy().sum())


def subscription_sets(held: DataFrame) -> DataFrame:
    """Return the table ``sets``: endpoints (indices), weight, clients.

    Args:
        held: client, rank, index (null for sessions), ms and sharers, one row for each rank of a client, or several for
            sessions.
    """
    is_held = (F.col("rank") >= 0) & (F.col("ms") >= MIN_HELD_MS)
    of_client = held.groupBy("client").agg(
        F.sort_array(F.collect_list(F.when(is_held, F.col("index")))).alias("endpoints"),
        F.sum(F.when(F.col("rank") == CONNECTED, F.col("ms"))).alias("ms"),
        F.max("sharers").alias("sharers"),
    )
    return (
        of_client.withColumn("seconds", F.expr("ms div (1000 * sharers)"))
        .where((F.col("seconds") > 0) & (F.size("endpoints") > 0))
        .groupBy("endpoints")
        .agg(F.sum("seconds").alias("weight"), F.count("*").alias("clients"))
    )


def _write_waste(counted: _Counted, folder: Path) -> None:
    """Write the table ``waste``: updates that each process received, delivered and discarded."""
    rows = [reference.waste_row(edge, own) for edge, own in sorted(counted.waste.items())]
    types = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.float64())
    columns = [pa.array([row[place] for row in rows], type_) for place, type_ in enumerate(types)]
    pq.write_table(pa.table(columns, names=list(WasteRow._fields)), folder / "waste.parquet")


def _summary(sums: pa.Table, counted: _Counted, lives: list[dict[str, Any]], rows: tuple[int, int]) -> Summary:
    by_minute = sums.filter(pc.equal(sums["rank"], CONNECTED)).to_pylist()
    total = {name: sum(row[name] or 0 for row in by_minute) for name in _OF_SESSIONS}
    spans = {
        (life["edge"], life["boot"]): (life["first_within"], life["last_within"])
        for life in lives
        if life["first_within"] is not None
    }
    sets, endpoints = rows
    return Summary(
        events=total["events"] + counted.events["events"],
        duplicates=total["repeats"] + counted.events["repeats"],
        late=total["late"] + counted.events["late"],
        sessions=total["sessions"],
        unended=total["unended"],
        clients=total["clients"],
        sets=sets,
        endpoints=endpoints,
        twins=reference.count_overlapping_lives(spans),
        active_minutes=reference.union_length(
            (row["minute"], row["until"]) for row in by_minute if row["minute"] is not None
        ),
    )
