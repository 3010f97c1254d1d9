"""The pipeline's warehouse on disk (docs/traffic.md section 2): layout, writer lock and status; needs no Spark.

Row counts and usage reports need PyArrow.
"""

import fcntl
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from diem.errors import ConfigurationError, DiemError
from metadata.jobs.sink_log import SINK_LOG, data_files
from metadata.statistics.model import UsageRow
from metadata.statistics.parsing import reason_kind

EVENTS: Final = "events"
QUARANTINE: Final = "quarantine"
WINDOW_FILE: Final = "window.json"


@dataclass(eq=False)
class NoTraffic(DiemError):
    """There are no events to compute statistics from."""

    template = "no event has been recorded yet in {warehouse}: start `diem up` with traffic recorded, then read it"
    retriable = True

    warehouse: Path


@dataclass(eq=False)
class BadStatistics(ConfigurationError):
    """A folder of statistics is incomplete."""

    template = "the statistics in {folder} cannot be used ({reason}): remove the folder, and compute them anew"

    folder: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The folders of one warehouse. ``source`` is always the name of a source."""

    root: Path
    """Absolute."""

    def sink(self, source: str) -> Path:
        """Return the folder of a source's rows, of both tables."""
        return self.root / source

    def checkpoint(self, source: str) -> Path:
        """Return the folder of a source's read positions."""
        return self.root / "_checkpoints" / source

    def progress(self, source: str) -> Path:
        """Return the file that describes the last batch."""
        return self.root / "_progress" / f"{source}.json"

    @property
    def statistics(self) -> Path:
        """Folder of all statistics."""
        return self.root / "statistics"

    def sources(self) -> list[str]:
        """Return the sources with committed batches."""
        return sorted(log.parent.name for log in self.root.glob(f"*/{SINK_LOG}"))

    @contextmanager
    def lock(self, source: str) -> Iterator[None]:
        """Lock a source against other pipelines; the lock ends with this process, however that ends.

        Raises:
            DiemError: another pipeline holds the lock.
        """
        self.checkpoint(source).mkdir(parents=True, exist_ok=True)
        with self.checkpoint(source).with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "stop it first, or read nothing with --source none"
                raise DiemError(f"another `diem pipeline run` reads {source}: {hint}") from None
            yield


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Status of one source."""

    name: str
    where: str
    """Human-readable location."""
    batch: int | None
    """Number of the last batch; like the next three, None if the file of its progress is missing."""
    at: str | None
    """Start of that batch, ISO 8601."""
    lines: int | None
    """Lines of that batch."""
    seconds: float | None
    """Duration of that batch."""
    files: int
    """Number of files of both tables."""
    size: int
    """Size of these files in bytes."""
    events: int | None
    """Rows; None without PyArrow."""
    quarantine: Mapping[str, int] | None
    """Rows by kind of reason; None without PyArrow."""


def status(warehouse: Warehouse, name: str) -> SourceStatus:
    """Return the status of a source of a warehouse."""
    progress = _read_progress(warehouse.progress(name))
    sink = warehouse.sink(name)
    files = _existing(data_files(sink))
    return SourceStatus(
        name,
        str(progress.get("where", "-")),
        progress.get("number"),
        progress.get("at"),
        progress.get("lines"),
        progress.get("seconds"),
        len(files),
        sum(file.stat().st_size for file in files),
        _row_count(_existing(data_files(sink, EVENTS))),
        _count_reasons(_existing(data_files(sink, QUARANTINE))),
    )


def _existing(files: list[Path]) -> list[Path]:
    # Files that were removed by hand do not count.
    return [file for file in files if file.exists()]


def _read_progress(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _row_count(files: list[Path]) -> int | None:
    try:
        from pyarrow import parquet  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return sum(int(parquet.read_metadata(file).num_rows) for file in files)


def _count_reasons(files: list[Path]) -> Mapping[str, int] | None:
    try:
        from pyarrow import parquet  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    kinds = Counter[str]()
    for file in files:
        reasons = parquet.ParquetFile(file).read(columns=["reason"])["reason"].to_pylist()
        kinds.update(map(reason_kind, reasons))
    return dict(sorted(kinds.items()))


def all_statistics(warehouse: Warehouse) -> list[Path]:
    """Return the folders of all statistics, sorted by the end of their window."""
    folders = [file.parent for file in warehouse.statistics.glob(f"[!.]*/{WINDOW_FILE}")]
    return sorted(folders, key=lambda folder: (read_window(folder)["to"], folder.name))


def read_window(folder: Path) -> dict[str, str | int]:
    """Return the content of ``window.json``.

    Raises:
        BadStatistics: the file is missing or incomplete.
    """
    try:
        read: dict[str, str | int] = json.loads((folder / WINDOW_FILE).read_text(encoding="utf-8"))
        read["to"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadStatistics(folder, f"{WINDOW_FILE}: {error}") from error
    return read


def read_report(file: Path) -> list[UsageRow]:
    """Return the rows of a usage report. Needs PyArrow."""
    from pyarrow import parquet  # noqa: PLC0415  # an extra

    return [UsageRow(**row) for row in parquet.ParquetFile(file).read().to_pylist()]
