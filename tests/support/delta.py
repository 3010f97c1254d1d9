"""Delta tables of a source, written without Spark: a few columns of the real ones."""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from learning.jobs import delta_table
from learning.jobs.delta_table import STAGING
from learning.jobs.warehouse import EVENTS, QUARANTINE

COLUMNS: Final = ("id", "client", "raw", "reason")
QUERY: Final = "one query"


def schema(*more: str) -> str:
    """Return the schema in JSON, with further columns of text."""
    types = {**dict.fromkeys((*COLUMNS, *more), "string"), "kind": "string", "day": "date"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def event(name: str, day: date, client: str | None = None) -> dict[str, Any]:
    """Return a row of the table of events."""
    return {"id": name, "client": client, "kind": EVENTS, "day": day}


def bad(raw: str, day: date) -> dict[str, Any]:
    """Return a row of the quarantine."""
    return {"raw": raw, "reason": "not JSON", "kind": QUARANTINE, "day": day}


def stage(sink: Path, rows: Iterable[Mapping[str, Any]], *more: str) -> Path:
    """Write files as Spark does for a batch; return their folder."""
    folder, parts = sink / STAGING / uuid.uuid4().hex, defaultdict[Path, list[Mapping[str, Any]]](list)
    for row in rows:
        parts[folder / f"kind={row['kind']}" / f"day={row['day']}"].append(row)
    for part, own in parts.items():
        part.mkdir(parents=True)
        columns = {name: pa.array([row.get(name) for row in own], pa.string()) for name in (*COLUMNS, *more)}
        pq.write_table(pa.table(columns), part / f"part-{uuid.uuid4()}.snappy.parquet")
    return folder


def write(sink: Path, batch: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Commit a batch."""
    made = list(rows)
    delta_table.prepare(sink, schema())
    delta_table.commit(sink, stage(sink, made), QUERY, batch, len(made))


def ids(sink: Path) -> list[str]:
    """Return the ids of all events, sorted."""
    found = list[str]()
    for file in delta_table.data_files(sink, EVENTS):
        found += pq.ParquetFile(file).read(["id"])["id"].to_pylist()
    return sorted(found)


def being_written(sink: Path) -> bool:
    """Return whether Spark is writing the files of a batch."""
    return any((sink / STAGING).glob("*/_temporary/**/*.parquet"))
