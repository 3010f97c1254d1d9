"""The statistics of a window in Spark: what :mod:`metadata.statistics.plain` computes, for any size."""

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from metadata.jobs import sessions
from metadata.statistics.constants import LARGE_SET, LATE_MS, MAX_PAIRS, MIN_HELD_MS, MINUTE_MS
from metadata.statistics.model import Summary
from metadata.statistics.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Tables(NamedTuple):
    """The tables of docs/traffic.md section 3.4, in any order, and the counts of `window.json`."""

    endpoints: "DataFrame"
    sets: "DataFrame"
    pairs: "DataFrame"
    waste: "DataFrame"
    summary: Summary


class CachedFrames:
    """Frames that are used more than once: kept until they are not needed, on disk where memory does not do."""

    def __init__(self) -> None:
        self._frames: list[Any] = []

    def __call__(self, frame: "DataFrame") -> "DataFrame":
        """Keep one."""
        self._frames.append(frame.persist())
        return frame

    def free(self) -> None:
        """Forget all."""
        for frame in self._frames:
            frame.unpersist()


def statistics(events: "DataFrame", window: Window, kept: CachedFrames) -> Tables:
    """Return the statistics of a window.

    Args:
        events: the table `events`, with repeats, at least from 7 days before the window on.
        window: which.
        kept: frees what the tables are computed from, when they are written.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    found = events.select("*", F.unix_millis("time").alias("at"))
    distinct = kept(found.dropDuplicates(["id"]))
    known = sessions.known(distinct, window)
    lasting = kept(sessions.sessions(known, window))
    connected = kept(_connected(lasting, window))
    counts = kept(_counts(distinct, window))
    proven = sessions.proven(known).union(counts.select("endpoint")).distinct()
    holding = sessions.held(known, lasting).join(proven, "endpoint", "left_semi")
    held = kept(sessions.together(sessions.clipped(holding, window), "client", "endpoint"))
    endpoints = kept(_endpoints(held, counts, window))
    numbered = kept(_numbered(endpoints))
    sets = kept(_sets(held, connected, numbered))
    return Tables(
        endpoints,
        sets,
        _pairs(sets, numbered),
        _waste(counts),
        _summary(found, window, (lasting, connected, sets, endpoints), sessions.twins(distinct, window)),
    )


def _connected(lasting: "DataFrame", window: Window) -> "DataFrame":
    """Columns: client, ms, sharers."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    sharers = lasting.groupBy("client").agg(F.max("sharers").alias("sharers"))
    return sessions.together(sessions.clipped(lasting, window), "client").join(sharers, "client")


def _counts(distinct: "DataFrame", window: Window) -> "DataFrame":
    """Columns: edge, middle (ms), and of one endpoint: endpoint, taken, delivered. One row of nulls without any."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    middle = F.floor((F.unix_millis("since") + F.unix_millis("until")) / 2)
    rows = distinct.where(F.col("type") == "counts").select("edge", middle.alias("middle"), "updates")
    within = rows.where((F.col("middle") >= window.start) & (F.col("middle") < window.end))
    return within.select("edge", "middle", F.inline_outer("updates"))


def _endpoints(held: "DataFrame", counts: "DataFrame", window: Window) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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


def _numbered(endpoints: "DataFrame") -> "DataFrame":
    from pyspark.sql import Window as Over  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    # One task sorts them all: there are some hundred thousand endpoints at most.
    index = F.row_number().over(Over.orderBy("endpoint")) - 1
    return endpoints.select("endpoint", index.alias("index"))


def _sets(held: "DataFrame", connected: "DataFrame", numbered: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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


def _pairs(sets: "DataFrame", numbered: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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


def _waste(counts: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    discarded = F.when(F.col("delivered") == 0, F.col("taken")).otherwise(0)
    totals = counts.groupBy("edge").agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("taken", "delivered")),
        F.coalesce(F.sum(discarded), F.lit(0)).alias("discarded"),
    )
    share = F.when(F.col("taken") > 0, F.col("discarded") / F.col("taken")).otherwise(0.0)
    return totals.select("*", share.alias("share"))


def _summary(
    found: "DataFrame",
    window: Window,
    parts: "tuple[DataFrame, DataFrame, DataFrame, DataFrame]",
    twins: "DataFrame",
) -> Summary:
    from pyspark.sql import DataFrame  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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
