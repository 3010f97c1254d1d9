"""Content of a warehouse and progress in its sources; needs no Spark, and PyArrow only for row counts."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metadata.jobs.logs import data_files
from metadata.jobs.warehouse import EVENTS, QUARANTINE, Warehouse
from metadata.statistics.parsing import reason_kind


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source."""

    name: str
    where: str
    batch: int | None
    """The last one; None when only Spark's logs know of it."""
    at: str | None
    """When that was begun."""
    lines: int | None
    """In that batch."""
    seconds: float | None
    """That it took."""
    files: int
    """Of both tables."""
    size: int
    """Bytes of them."""
    events: int | None
    """Rows; None without PyArrow."""
    quarantine: Mapping[str, int] | None
    """Rows by kind of reason; None without PyArrow."""


def status(warehouse: Warehouse, name: str) -> SourceStatus:
    """Return the status of a source of a warehouse."""
    noted = _noted(warehouse.progress(name))
    sink = warehouse.sink(name)
    files = _there(data_files(sink))
    return SourceStatus(
        name,
        str(noted.get("where", "-")),
        noted.get("number"),
        noted.get("at"),
        noted.get("lines"),
        noted.get("seconds"),
        len(files),
        sum(file.stat().st_size for file in files),
        _rows(_there(data_files(sink, EVENTS))),
        _reasons(_there(data_files(sink, QUARANTINE))),
    )


def _there(files: list[Path]) -> list[Path]:
    # Whoever removes some by hand is to see what is left.
    return [file for file in files if file.exists()]


def _noted(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _rows(files: list[Path]) -> int | None:
    try:
        from pyarrow import parquet  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return sum(int(parquet.read_metadata(file).num_rows) for file in files)


def _reasons(files: list[Path]) -> Mapping[str, int] | None:
    try:
        from pyarrow import parquet  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    found = Counter[str]()
    for file in files:
        reasons = parquet.ParquetFile(file).read(columns=["reason"])["reason"].to_pylist()
        found.update(map(reason_kind, reasons))
    return dict(sorted(found.items()))
