"""Rows and schemas of the pipeline's tables (docs/traffic.md section 2): parsing lines, and reading them back.

Canonical lines, nearly all, are parsed by Spark's own functions, others in Python, in Spark's tasks.
"""

import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from diem.protocol.traffic import CANONICAL, MAX_EVENT_BYTES, Accessed, BadEvent, TrafficEvent, Type
from learning.jobs.delta_table import KIND, CommittedFile, committed_files
from learning.jobs.executors import require_proof
from learning.jobs.spark_options import spark_path
from learning.jobs.warehouse import EVENTS, QUARANTINE, Warehouse
from learning.statistics.constants import EARLIEST_MS, MAX_AHEAD_MS
from learning.statistics.parsing import parse_event, sequence_number

_UPDATES: Final = "array<struct<endpoint: string, taken: bigint, delivered: bigint>>"
_REQUESTS: Final = "array<struct<key: string, plan: string, endpoint: string, answered: bigint, refused: bigint>>"
PARSED_SCHEMA: Final = (
    "id string, type string, edge string, boot string, number bigint, time bigint, client string, connection string, "
    f"endpoints array<string>, since bigint, until bigint, updates {_UPDATES}, requests {_REQUESTS}, "
    "unknown array<string>, sharers bigint, reason string"
)
"""Result of :func:`parse_row`, times in Unix ms: an event, or only a reason."""
JSON_SCHEMA: Final = (
    "struct<id: string, type: string, edge: string, time: bigint, client: string, connection: string, "
    "endpoints: array<string>, since: bigint, until: bigint, updates: map<string, array<bigint>>, "
    "requests: array<array<string>>, unknown: array<int>, sharers: bigint>"
)
"""Fields of a canonical line."""
EVENT_COLUMNS: Final = (
    *("id", "type", "edge", "boot", "number", "time", "arrived", "client", "connection", "endpoints"),
    *("since", "until", "updates", "requests", "unknown", "sharers", "day"),
)
QUARANTINE_COLUMNS: Final = ("raw", "reason", "source", "arrived", "day")
SCHEMA: Final = (
    "id string, type string, edge string, boot string, number bigint, time timestamp, arrived timestamp, "
    "client string, connection string, endpoints array<string>, since timestamp, until timestamp, "
    f"updates {_UPDATES}, requests {_REQUESTS}, unknown array<string>, sharers bigint, "
    "raw string, reason string, source string, kind string, day date"
)
"""Schema of both tables: the other table's columns are null; the last two are in the files' paths."""
LINES: Final = "lines"
"""Kind of staged rows that are not parsed yet."""
MAX_RAW_CHARS: Final = 4096
"""Maximum number of characters kept of a quarantined line."""
_FIELDS: Final = 16
_HOUR_MS: Final = 3_600_000
_ACCESSED: Final = len(Accessed._fields)
_TIMES: Final = ("time", "since", "until")
_OF_LINE: Final = frozenset({"arrived", "raw", "source", KIND, "day"})
"""Columns that do not come from an event's fields alone."""
_COLUMNS: Final = tuple(
    part.strip().split(" ")[0] for part in SCHEMA.replace(_UPDATES, "").replace(_REQUESTS, "").split(",")
)


def schema_json() -> str:
    """Return :data:`SCHEMA` in JSON. Needs a session."""
    return StructType.fromDDL(SCHEMA).json()


def staged_rows(read: DataFrame) -> DataFrame:
    """Return the rows of canonical lines; of others, their bytes as ``raw``, of the kind :data:`LINES` without a day.

    So each line is parsed once, however many others there are. In the columns of :data:`SCHEMA`.

    Args:
        read: lines (``value``, ``arrived``, ``source``) with the column ``json``.
    """
    is_event = F.col("json").isNotNull()
    own = {
        "raw": F.when(~is_event, F.col("value").cast("string")),
        "source": F.when(~is_event, F.col("source")),
        KIND: F.when(is_event, F.lit(EVENTS)).otherwise(F.lit(LINES)),
        "day": F.to_date(F.timestamp_millis("json.time")),
    }
    columns = own | _json_columns()
    return read.select(*(columns.get(name, F.col(name)).alias(name) for name in _COLUMNS))


def staged_lines(spark: SparkSession, staged: Path) -> DataFrame:
    """Return the other lines from a folder of staged rows: ``value``, ``arrived``, ``source``."""
    rows = spark.read.schema("raw string, arrived timestamp, source string").parquet(spark_path(staged_folder(staged)))
    return rows.select(F.col("raw").cast("binary").alias("value"), "arrived", "source")


def staged_folder(staged: Path) -> Path:
    """Return the folder of the other lines in one of staged rows."""
    return staged / f"{KIND}={LINES}"


def other_rows(lines: DataFrame, proof: Path | None = None) -> DataFrame:
    """Return the rows of lines parsed in Python, in the columns of :data:`SCHEMA`.

    Args:
        lines: ``value``, ``arrived``, ``source``.
        proof: the file that executors must see, lest their results be lost; None in local mode.
    """
    # Row by row: an Arrow UDF would need pandas.
    parse = F.udf(parse_row if proof is None else partial(_parse_where_shared, proof), PARSED_SCHEMA)
    row = parse(F.coalesce("value", F.lit(b"")))
    parsed = lines.select("value", "arrived", "source", row.alias("row")).select("*", "row.*")
    is_event = F.col("reason").isNull()
    line = F.make_valid_utf8(F.col("value").cast("string"))
    times = {name: F.timestamp_millis(F.col(name)) for name in _TIMES}
    return parsed.withColumns(
        times
        | {
            "raw": F.when(~is_event, F.substring(line, 1, MAX_RAW_CHARS)),
            "source": F.when(~is_event, F.col("source")),
            KIND: F.when(is_event, F.lit(EVENTS)).otherwise(F.lit(QUARANTINE)),
            "day": F.to_date(F.when(is_event, times["time"]).otherwise(F.col("arrived"))),
        }
    ).select(*_COLUMNS)


def read_canonical(lines: DataFrame) -> DataFrame:
    """Add the column ``json``: the fields of a canonical line that is an event, else null.

    It covers only some events, with the same fields as :func:`parse_row`.
    """
    line = F.col("value").cast("string")
    is_canonical = (F.octet_length("value") <= MAX_EVENT_BYTES) & line.rlike(rf"\A(?:{CANONICAL})\z")
    read = lines.withColumn("json", F.from_json(F.when(is_canonical, line), JSON_SCHEMA))
    updates, unknown = F.col("json.updates"), F.col("json.unknown")
    # Tasks run later: their clock is ahead of this one. Each other number would be another program to compile.
    begun = time.time_ns() // 1_000_000 // _HOUR_MS * _HOUR_MS
    is_event = (
        F.col("json.time").between(EARLIEST_MS, begun + MAX_AHEAD_MS)
        & (F.col("json.since").isNull() | (F.col("json.since") < F.col("json.until")))
        & (updates.isNull() | (F.size(F.array_distinct(F.map_keys(updates))) == F.size(updates)))
        & (unknown.isNull() | F.forall(unknown, lambda index: index < F.size("json.endpoints")))
    )
    return read.withColumn("json", F.when(is_event, F.col("json")))


def _json_columns() -> dict[str, Column]:
    """Return the columns of an event from the column ``json``; all are null where it is."""
    updates = F.transform(
        F.map_entries("json.updates"),
        lambda entry: F.struct(
            entry["key"].alias("endpoint"),
            F.get(entry["value"], F.lit(0)).alias("taken"),
            F.get(entry["value"], F.lit(1)).alias("delivered"),
        ),
    )
    indices = F.array_sort(F.array_distinct("json.unknown"))
    computed = {
        "boot": F.substring("json.id", 1, 12),
        "number": F.substring("json.id", 14, 16).cast("bigint"),
        "updates": updates,
        "requests": F.transform(
            "json.requests", lambda entry: F.struct(*(F.get(entry, F.lit(place)) for place in range(_ACCESSED)))
        ),
        "unknown": F.transform(indices, lambda index: F.get("json.endpoints", index)),
        "sharers": F.when(F.col("json.client").isNotNull(), F.coalesce("json.sharers", F.lit(1))),
        "reason": F.lit(None),
        **{name: F.timestamp_millis(f"json.{name}") for name in _TIMES},
    }
    fields = cast("StructType", StructType.fromDDL(SCHEMA)).fields
    types = {each.name: each.dataType for each in fields if each.name not in _OF_LINE}
    return {name: computed.get(name, F.col(f"json.{name}")).cast(type_) for name, type_ in types.items()}


def parse_row(line: bytes) -> tuple[Any, ...]:
    """Return the fields of a line, as in :data:`PARSED_SCHEMA`."""
    try:
        event = parse_event(bytes(line), time.time_ns() // 1_000_000)
    except BadEvent as error:
        return (*(None,) * (_FIELDS - 1), str(error))
    common = (event.id, event.type.value, event.edge, event.incarnation, sequence_number(event.id), event.time)
    return (*common, *_fields_by_type(event), None)


def _parse_where_shared(proof: Path, line: bytes) -> tuple[Any, ...]:
    require_proof(proof)
    return parse_row(line)


def _fields_by_type(event: TrafficEvent) -> tuple[Any, ...]:
    """Return the fields from ``client`` to ``sharers``."""
    if event.type is Type.COUNTS:
        updates = [(endpoint, received, delivered) for endpoint, (received, delivered) in event.updates.items()]
        return None, None, None, event.since, event.until, updates, None, None, None
    if event.type is Type.ACCESS:
        return None, None, None, event.since, event.until, None, [tuple(each) for each in event.requests], None, None
    unknown, sharers = list(event.unknown) or None, event.sharers
    return event.client, event.connection, list(event.endpoints) or None, None, None, None, None, unknown, sharers


def event_files(warehouse: Warehouse) -> list[CommittedFile]:
    """Return the files of the table ``events`` of all sources."""
    return [file for source in warehouse.sources() for file in committed_files(warehouse.sink(source), EVENTS)]


def events(spark: SparkSession, warehouse: Warehouse, files: Iterable[CommittedFile] | None = None) -> DataFrame:
    """Return the table ``events``, with repeats: of all sources, or some of :func:`event_files`."""
    return _read(spark, event_files(warehouse) if files is None else files).select(*EVENT_COLUMNS)


def confirmed_names() -> Column:
    """Return, for a row of ``events``, the endpoints that others than clients confirm (docs/traffic.md section 3.2).

    Null if its type has none.
    """
    registered = F.when(F.col("unknown").isNull(), F.col("endpoints")).otherwise(F.array_except("endpoints", "unknown"))
    return F.coalesce(
        F.when(F.col("type") == "subscribe", registered), F.col("updates.endpoint"), F.col("requests.endpoint")
    )


def quarantine(spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    """Return the table ``quarantine`` of all sources."""
    sinks = [warehouse.sink(source) for source in warehouse.sources()]
    files = [file for sink in sinks for file in committed_files(sink, QUARANTINE)]
    return _read(spark, files).select(*QUARANTINE_COLUMNS)


def _read(spark: SparkSession, files: Iterable[CommittedFile]) -> DataFrame:
    """Read files of one kind, with the day in their paths. The column of kinds is null: its name may be another."""
    of_folders = defaultdict[Path, list[str]](list)
    for file in files:
        of_folders[file.path.parents[1]].append(spark_path(file.path))
    frames = [
        spark.read.schema(SCHEMA).option("basePath", spark_path(folder)).parquet(*paths)
        for folder, paths in of_folders.items()
    ]
    # A frame made from rows here, even without any, would start a Python worker in each job.
    return reduce(DataFrame.unionByName, frames) if frames else spark.createDataFrame([], SCHEMA)
