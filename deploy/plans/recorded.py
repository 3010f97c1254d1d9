"""Recorded traffic in files, read without Spark: which of them a window needs, and which are too old for any."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from diem.errors import DiemError
from diem.process.faults import ConfigurationError
from diem.protocol.traffic import BadEvent
from metadata.jobs.sources import complete_files
from metadata.statistics import judging, plain
from metadata.statistics.figures import Statistics
from metadata.statistics.rules import DAY_MS, HISTORY_MS
from metadata.statistics.window import Window, iso

MOST_BYTES: Final = 256 << 20
"""Of files that are read without Spark: some minutes, and some GB of memory."""
NEEDED_MS: Final = HISTORY_MS + DAY_MS
"""Files that were complete longer before a window have nothing for it: its sessions begin 7 days before it at most, and
an event is in a file within a day."""


@dataclass(eq=False)
class NoTrafficToPlan(DiemError):
    """There is no traffic to learn from, or nobody looked at anything in it."""

    template = "there is nothing to learn from in {folder}: {why}"
    retriable = True

    folder: Path
    why: str


@dataclass(eq=False)
class TrafficTooLarge(ConfigurationError):
    """There are too many files to read them without Spark."""

    folder: Path
    size: int

    def __str__(self) -> str:
        """Return the text."""
        return (
            f"{self.folder} has {self.size >> 20} MiB, too much without Spark: `diem pipeline run`, "
            "then plan from its statistics"
        )


class TrafficUnreadable(DiemError):
    """A file of traffic cannot be read; a pipeline removes those that it has read."""

    retriable = True

    def __init__(self, error: OSError) -> None:
        self.file = error.filename
        self.reason = error.strerror or str(error)
        super().__init__(error)

    def __str__(self) -> str:
        return f"recorded traffic cannot be read: {self.file}: {self.reason}"


def read_recorded(folder: Path, window: Window | int) -> tuple[Statistics, int]:
    """Return the statistics of a window, or of the last one of a length (ms), and how many files they are of.

    Raises:
        NoTrafficToPlan: there are no events, or no client was subscribed to anything.
        TrafficUnreadable: a file cannot be read.
        TrafficTooLarge: there is too much for this way.
    """
    try:
        files = _needed(folder, window)
        if (size := sum(file.stat().st_size for file in files)) > MOST_BYTES:
            raise TrafficTooLarge(folder, size)
        arrivals = list(_arrivals(_lines(files)))
    except OSError as error:
        raise TrafficUnreadable(error) from error
    if not arrivals:
        raise NoTrafficToPlan(
            folder,
            "there is no traffic yet (`diem pipeline run` reads what is in Kafka; files are complete after a minute)",
        )
    if isinstance(window, int):
        end = min(max(arrival.event.time for arrival in arrivals) + 1, _now())
        window = Window(end - window, end)
    found = plain.statistics(arrivals, window)
    if not found.sets:
        raise NoTrafficToPlan(
            folder, f"from {iso(window.start)} to {iso(window.end)} no client was subscribed to anything"
        )
    return found, len(files)


def remove_old(folder: Path, age_ms: int) -> int:
    """Remove files that have been complete for longer, and return how many; who has no rights, removes none.

    Only for whoever has read them, and where no pipeline does: that one removes what it has read by itself.
    """
    before, removed = _now() - age_ms, 0
    for file in complete_files(folder):
        with suppress(OSError):
            if _completed(file) < before:
                file.unlink()
                removed += 1
    return removed


def _needed(folder: Path, window: Window | int) -> list[Path]:
    completed = {file: _completed(file) for file in complete_files(folder)}
    if not completed:
        return []
    # The last window ends with the last event, and that was recorded before its file was complete.
    start = window.start if isinstance(window, Window) else max(completed.values()) - window
    return [file for file, at in completed.items() if at >= start - NEEDED_MS]


def _completed(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


def _now() -> int:
    return time.time_ns() // 1_000_000


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        yield from file.read_bytes().split(b"\n")


def _arrivals(lines: Iterable[bytes]) -> Iterator[plain.Arrival]:
    """Return the events among lines, the others left out: the pipeline's table `quarantine` says why."""
    now = _now()
    for line in lines:
        try:
            event = judging.judge(line, now)
        except BadEvent:
            continue
        yield plain.Arrival(event, event.time)
