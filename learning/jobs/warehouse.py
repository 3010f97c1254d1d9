"""The pipeline's warehouse on disk (docs/traffic.md section 2): layout, writer lock and status; needs no Spark.

Row counts need delta-rs and PyArrow, usage reports need PyArrow.
"""

import fcntl
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from diem.errors import ConfigurationError, DiemError
from learning.jobs.delta_table import LOG, committed_files, open_parquet
from learning.statistics.model import UsageRow
from learning.statistics.parsing import reason_kind

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

    template = "the statistics in {folder} cannot be used ({reason}): remove the folder, and compute them again"

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

    @property
    def history(self) -> Path:
        """Folder of condensed histories; readers of tables skip names that begin with an underscore."""
        return self.root / "_history"

    def sources(self) -> list[str]:
        """Return the sources with committed batches."""
        return sorted(log.parent.name for log in self.root.glob(f"*/{LOG}"))

    @contextmanager
    def lock(self, source: str) -> Iterator[None]:
        """Lock a source against other pipelines; the lock ends with this process in any case.

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
    files: int | None
    """Number of files of both tables; like the rest, None without delta-rs."""
    size: int | None
    """Size of these files in bytes."""
    events: int | None
    """Rows."""
    quarantine: Mapping[str, int] | None
    """Rows by kind of reason."""


def status(warehouse: Warehouse, name: str) -> SourceStatus:
    """Return the status of a source of a warehouse."""
    progress = _read_progress(warehouse.progress(name))
    return SourceStatus(
        name,
        str(progress.get("where", "-")),
        progress.get("number"),
        progress.get("at"),
        progress.get("lines"),
        progress.get("seconds"),
        *_of_tables(warehouse.sink(name)),
    )


def _of_tables(sink: Path) -> tuple[int, int, int, Mapping[str, int]] | tuple[None, None, None, None]:
    """Return ``files``, ``size``, ``events`` and ``quarantine`` of a source."""
    if importlib.util.find_spec("deltalake") is None:
        return None, None, None, None
    files = committed_files(sink)
    events = sum(file.rows for file in files if file.kind == EVENTS)
    # The reasons in a manually removed file are lost.
    quarantine = [file.path for file in files if file.kind == QUARANTINE and file.path.exists()]
    return len(files), sum(file.size for file in files), events, _count_reasons(quarantine)


def _read_progress(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _count_reasons(files: list[Path]) -> Mapping[str, int]:
    kinds = Counter[str]()
    for file in files:
        with open_parquet(file) as opened:
            reasons = opened.read(columns=["reason"])["reason"].to_pylist()
        kinds.update(map(reason_kind, reasons))
    return dict(sorted(kinds.items()))


def warehouse_at(place: Path | None, folder: Path) -> Warehouse:
    """Return the warehouse in a folder (absolute); None: that in the ``folder`` of recorded traffic (absolute)."""
    return Warehouse(folder / "warehouse" if place is None else place)


def all_statistics(warehouse: Warehouse) -> list[Path]:
    """Return the folders of all statistics, sorted by the end of their window."""
    return sorted(statistics_in(warehouse.statistics), key=lambda folder: (read_window(folder)["to"], folder.name))


def statistics_in(folder: Path) -> list[Path]:
    """Return the folders of statistics in a folder, in any order."""
    return [file.parent for file in folder.glob(f"[!.]*/{WINDOW_FILE}")]


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
    with open_parquet(file) as opened:
        return [UsageRow(**row) for row in opened.read().to_pylist()]
