"""Rebuilds the sessions of connections in Spark (docs/traffic.md section 3.1); times are Unix ms in `at`."""

from typing import TYPE_CHECKING

from metadata.statistics.constants import DUPLICATE_OVERLAP_MS, HISTORY_MS, SILENCE_MS
from metadata.statistics.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def known(events: "DataFrame", window: Window) -> "DataFrame":
    """Return the events that sessions are made of."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return events.where((F.col("at") >= window.start - HISTORY_MS) & (F.col("at") < window.end))


def sessions(events: "DataFrame", window: Window) -> "DataFrame":
    """Return the sessions that lasted in the window: connection, client, start, end, unended, sharers.

    Args:
        events: distinct, those of :func:`known`.
        window: which.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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
    found = own.join(_ends(events, window), "boot").select(
        "connection", "client", "start", end.alias("end"), unended.alias("unended"), "sharers"
    )
    return found.where(F.greatest("start", F.lit(window.start)) < F.least("end", F.lit(window.end)))


def held(events: "DataFrame", lasting: "DataFrame") -> "DataFrame":
    """Return who held which endpoint, and when: client, endpoint, start, end; of an endpoint there may be several.

    Args:
        events: distinct, those of :func:`known`.
        lasting: sessions; events that are not of one of them are left out.
    """
    from pyspark.sql import Window as Over  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

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


def proven(events: "DataFrame") -> "DataFrame":
    """Return the endpoints that there are, as far as anybody but clients says (docs/traffic.md section 3.2).

    The column is `endpoint`; names are there several times.

    Args:
        events: distinct, those of :func:`known`.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    none = F.array().cast("array<string>")
    registered = F.array_except("endpoints", F.coalesce("unknown", none))
    named = F.concat(
        F.when(F.col("type") == "subscribe", registered).otherwise(none),
        F.coalesce(F.col("updates.endpoint"), none),
        F.coalesce(F.col("requests.endpoint"), none),
    )
    return events.select(F.explode(named).alias("endpoint"))


def clipped(intervals: "DataFrame", window: Window) -> "DataFrame":
    """Return what of intervals (start, end) lies in the window; the end of an empty one is not after its start."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return intervals.withColumns(
        {
            "start": F.greatest("start", F.lit(window.start)),
            "end": F.least("end", F.lit(window.end)),
        }
    )


def together(intervals: "DataFrame", *keys: str) -> "DataFrame":
    """Return for how long (`ms`) any of the intervals of a key lasted; keys with nothing are left out."""
    from pyspark.sql import Window as Over  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    earlier = Over.partitionBy(*keys).orderBy("start", "end").rowsBetween(Over.unboundedPreceding, -1)
    begin = F.greatest("start", F.max("end").over(earlier))  # greatest passes over the null of the first
    more = F.greatest(F.lit(0), F.col("end") - begin).alias("more")
    totals = intervals.select(*keys, more).groupBy(*keys).agg(F.sum("more").alias("ms"))
    return totals.where(F.col("ms") > 0)


def twins(distinct: "DataFrame", window: Window) -> "DataFrame":
    """Return how many edges are two processes at once, by the events of their lives in the window: one row, `twins`."""
    from pyspark.sql import Window as Over  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    within = distinct.where((F.col("at") >= window.start) & (F.col("at") < window.end))
    lives = within.groupBy("edge", "boot").agg(F.min("at").alias("first"), F.max("at").alias("last"))
    earlier = Over.partitionBy("edge").orderBy("first", "last").rowsBetween(Over.unboundedPreceding, -1)
    reached = lives.withColumn("reached", F.max("last").over(earlier))  # null for the first one
    both = reached.where(F.least("reached", "last") - F.col("first") > DUPLICATE_OVERLAP_MS).where(
        F.col("reached").isNotNull()
    )
    return both.agg(F.count_distinct("edge").alias("twins"))


def _ends(events: "DataFrame", window: Window) -> "DataFrame":
    """Until when sessions without an end of their own last, by life: boot, until_at, killed."""
    from pyspark.sql import Window as Over  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    signs = events.groupBy("boot").agg(F.max("edge").alias("edge"), F.max("at").alias("sign"))
    latest = F.row_number().over(Over.partitionBy("edge").orderBy(F.desc("sign"), F.desc("boot"))) == 1
    alive = F.col("latest") & (F.col("sign") >= window.end - SILENCE_MS)
    return signs.withColumn("latest", latest).select(
        "boot", F.when(alive, window.end).otherwise(F.col("sign")).alias("until_at"), (~alive).alias("killed")
    )
