"""Planning input: statistics of the pipeline, or a few recorded traffic files read directly."""

import asyncio
import importlib.util
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.terminal import Terminal, amount
from diem.errors import ConfigurationError, DiemError, FileError, install_command
from diem.kafka.config import KafkaOptions
from diem.protocol.traffic import BadEvent
from diem.protocol.update import iso
from learning.jobs.sources import complete_files
from learning.jobs.spark_options import SparkSettings
from learning.jobs.warehouse import (
    WINDOW_FILE,
    BadStatistics,
    Warehouse,
    all_statistics,
    read_window,
    statistics_in,
    warehouse_at,
)
from learning.planning.context import IntervalFile, PlanRequest
from learning.planning.intervals import read_intervals
from learning.spark import pipeline
from learning.statistics import parsing, reference
from learning.statistics.constants import DAY_MS, HISTORY_MS, MINUTE_MS
from learning.statistics.model import Statistics
from learning.statistics.sampling import MAX_SUBSCRIPTIONS
from learning.statistics.window import Window

if TYPE_CHECKING:
    from learning.placement.instance import Instance

HOUR_MS: Final = 3_600_000
MINUTE_S: Final = MINUTE_MS / 1000
_REQUIRED_PACKAGES: Final = ("numpy", "scipy")


@dataclass(eq=False)
class NoPlanner(ConfigurationError):
    """Packages needed by the planner are not installed."""

    template = f"planning needs {{missing}}: install with `make spark` or `{install_command('plan')}`"

    missing: str


@dataclass(frozen=True)
class PlanningInput:
    """Traffic of a window."""

    instance: "Instance"
    start: str
    """Begin of the window, ISO 8601, like ``end``."""
    end: str
    events: int
    clients: int
    sets: int
    source: str
    """The origin of the data, for people."""
    duplicates: int = 0
    """Number of names used by two processes at once."""
    consumed: int = 0
    """Updates that processes consumed, in total."""
    discarded: int = 0
    """Those without any subscriber at the process."""
    active_minutes: int | None = None
    """Number of minutes with any client connected; None if not counted."""
    earlier: "tuple[tuple[Instance, float], ...]" = ()
    """Windows before, the latest first, each with the share of its influence on a plan."""

    @property
    def minutes(self) -> int:
        """Length of the window in minutes, the last one begun."""
        return math.ceil(self.instance.seconds / MINUTE_S)


def require_planner() -> None:
    """Raise ``NoPlanner`` unless the packages for planning are installed."""
    missing = [name for name in _REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NoPlanner(" and ".join(missing))


def read_input(request: PlanRequest, terminal: Terminal) -> PlanningInput:
    """Read traffic from the requested folder: statistics, or a state directory's ``traffic``; or other people's.

    Of the state directory, without a window, the latest statistics; else those that Spark computes for the window;
    else, where no pipeline has run, the recorded files, or the records of the requested cluster.

    Raises:
        NoTrafficToPlan: there is none.
        TrafficUnreadable: a file cannot be read.
        BadStatistics: a table is missing or broken.
        ConfigurationError: a package is not installed, or there is too much traffic without Spark.
        DiemError: Spark failed.
    """
    if request.intervals is not None:
        return _from_intervals(request.intervals, terminal)
    folder = request.traffic.absolute()
    if (folder / WINDOW_FILE).is_file():
        return _from_statistics(folder)
    warehouse = warehouse_at(request.warehouse, folder)
    if request.window is None and (found := _from_latest(warehouse)) is not None:
        return found
    window = request.window or HOUR_MS
    if request.spark or (request.spark is None and warehouse.sources()):
        return _from_statistics(_run_pipeline(warehouse, window, terminal, request.settings))
    if request.kafka is not None:
        return _from_topic(request.kafka, window, terminal)
    return _from_files(folder / "in" if (folder / "in").is_dir() else folder, window, terminal)


def _run_pipeline(warehouse: Warehouse, window: Window | int, terminal: Terminal, settings: SparkSettings) -> Path:
    wanted = pipeline.WindowOptions(window, None)
    found = pipeline.run(warehouse, None, wanted, terminal, settings)
    if found is None:
        raise AssertionError("statistics were wanted")
    return found


def _from_latest(warehouse: Warehouse, attempts: int = 3) -> PlanningInput | None:
    """Read the latest statistics, if any; again if a pipeline that follows has replaced them meanwhile."""
    try:
        found = all_statistics(warehouse)
        return _from_statistics(found[-1]) if found else None
    except BadStatistics:
        if attempts == 1:
            raise
        return _from_latest(warehouse, attempts - 1)


def _from_statistics(folder: Path) -> PlanningInput:
    if importlib.util.find_spec("pyarrow") is None:
        raise NoPlanner("pyarrow")
    from learning.placement import instance  # noqa: PLC0415  # it needs numpy

    window = read_window(folder)
    try:
        if not window["sets"]:
            raise NoTrafficToPlan(
                folder,
                "in its window no client was subscribed to anything (`diem pipeline run` reads what came since)",
            )
        read = instance.read_statistics(folder)
        consumed, discarded = instance.read_waste(folder)
        if read_window(folder) != window:
            raise BadStatistics(folder, "they were replaced while they were read")
        return PlanningInput(
            read,
            str(window["from"]),
            str(window["to"]),
            int(window["events"]),
            int(window["clients"]),
            int(window["sets"]),
            f"statistics in {folder}",
            int(window["twins"]),
            consumed,
            discarded,
            int(window["active_minutes"]),
            tuple(enough((instance.read_statistics(each), share) for each, share in earlier_statistics(folder))),
        )
    except (OSError, ValueError, LookupError) as error:  # pyarrow's errors derive from these
        raise BadStatistics(folder, str(error).partition("\n")[0]) from error


MAX_WINDOWS: Final = 8
"""Windows that a plan is learnt from, besides the latest, on which it is judged."""
DECAY: Final = 0.7
"""Influence of a window, as a multiple of that of the next one: a change has half of it after two windows."""
OVERLAP: Final = 0.1
"""Allowed overlap of windows, as a share of their length."""


def enough(earlier: "Iterable[tuple[Instance, float]]") -> "Iterator[tuple[Instance, float]]":
    """Yield earlier windows with their shares, the latest first, until endpoints have ample subscribers in them.

    Or until they have as many subscriptions as a plan is made from.
    """
    from learning.placement.options import AMPLE_SUBSCRIBERS  # noqa: PLC0415  # it needs numpy

    known, subscriptions = 0.0, 0
    for instance, share in earlier:
        if not instance.pins.size:
            continue
        yield instance, share
        known += share * instance.sampled_subscribers
        subscriptions += instance.pins.size
        if known >= AMPLE_SUBSCRIBERS or subscriptions >= MAX_SUBSCRIPTIONS:
            return


def earlier_statistics(folder: Path) -> Iterator[tuple[Path, float]]:
    """Yield the statistics beside those in ``folder`` of windows before, the latest first, with their shares."""
    start, end = _interval(folder)
    length, before = end - start, start
    found = ((*_interval(each), each) for each in statistics_in(folder.parent) if each != folder)
    for begin, until, each in sorted(found, key=lambda each: each[1], reverse=True):
        age = (end - until) / length
        if until <= before + OVERLAP * length and age <= MAX_WINDOWS + OVERLAP:
            yield each, DECAY ** (age - 1)
            before = begin


def _interval(folder: Path) -> tuple[float, float]:
    window = read_window(folder)
    start, end = (datetime.fromisoformat(str(window[name])).timestamp() for name in ("from", "to"))
    return start, end


def _from_intervals(request: IntervalFile, terminal: Terminal) -> PlanningInput:
    import numpy as np  # noqa: PLC0415  # an extra

    read = read_intervals(request.file, request.columns, request.pattern, request.held_ms)
    _warn_of_skipped(read.skipped, len(read.found), terminal)
    found = _from_reference(reference.statistics(read.arrivals(), read.window), str(request.file), [])
    # Such files do not say how often endpoints change.
    rate = np.ones(len(found.instance.endpoints))
    return replace(found, instance=replace(found.instance, rate=rate, busy=None), events=len(read.found))


def _from_topic(options: KafkaOptions, window: Window | int, terminal: Terminal) -> PlanningInput:
    from learning.jobs.traffic_topic import recent_records  # noqa: PLC0415  # its client is an extra

    start = window.start if isinstance(window, Window) else _now_ms() - window
    records = asyncio.run(recent_records(options, start - RELEVANT_MS, MAX_BYTES))
    where = f"{options.names.traffic} at {options.bootstrap_servers}"
    found, before = _statistics(_arrivals(records, terminal), window, MAX_WINDOWS, Path(where))
    return _from_reference(found, f"{amount(len(records), 'record')} of {where}", before)


def _from_files(folder: Path, window: Window | int, terminal: Terminal) -> PlanningInput:
    found, files, before = read_recorded(folder, window, terminal)
    return _from_reference(found, f"{amount(files, 'file')} in {folder}", before)


def _from_reference(found: Statistics, source: str, before: list[Statistics]) -> PlanningInput:
    from learning.placement.instance import from_statistics  # noqa: PLC0415  # it needs numpy

    return PlanningInput(
        from_statistics(found),
        iso(found.window.start),
        iso(found.window.end),
        found.summary.events,
        found.summary.clients,
        found.summary.sets,
        source,
        duplicates=found.summary.twins,
        consumed=sum(row.taken for row in found.waste),
        discarded=sum(row.discarded for row in found.waste),
        active_minutes=found.summary.active_minutes,
        earlier=tuple(enough((from_statistics(each), DECAY**age) for age, each in enumerate(before))),
    )


MAX_BYTES: Final = 256 << 20
"""Most bytes to read without Spark: that takes minutes, and some GB of memory."""
RELEVANT_MS: Final = HISTORY_MS + DAY_MS
"""Age before a window from which files are irrelevant: its sessions begin at most 7 days before it, and an event is in
a file within a day."""


@dataclass(eq=False)
class NoTrafficToPlan(DiemError):
    """There is no recorded traffic, or no subscription in it."""

    template = "there is nothing to learn from in {folder}: {why}"
    retriable = True

    folder: Path
    why: str


class TrafficUnreadable(FileError):
    """A file of traffic cannot be read, perhaps removed by a pipeline meanwhile."""

    retriable = True
    template = "recorded traffic cannot be read: {prefix}{reason}"


def read_recorded(folder: Path, window: Window | int, terminal: Terminal) -> tuple[Statistics, int, list[Statistics]]:
    """Return the statistics of a window, or of the last one of a length (ms), and the number of files read.

    For a length also those of the windows before, the latest first, as far as they are recorded and can be read.

    Raises:
        NoTrafficToPlan: there are no events, or no client was subscribed to anything.
        TrafficUnreadable: a file cannot be read.
        ConfigurationError: there is too much to read without Spark.
    """
    try:
        files, most = _relevant_files(folder, window, MAX_WINDOWS), MAX_WINDOWS
        if sum(file.stat().st_size for file in files) > MAX_BYTES:
            files, most = _relevant_files(folder, window, 0), 0
        if (size := sum(file.stat().st_size for file in files)) > MAX_BYTES:
            raise ConfigurationError(
                f"{folder} has {size >> 20} MiB, too much without Spark: `diem pipeline run`, "
                "then plan from its statistics"
            )
        arrivals = _arrivals(_lines(files), terminal)
    except OSError as error:
        raise TrafficUnreadable(error) from error
    found, before = _statistics(arrivals, window, most, folder)
    return found, len(files), before


def _statistics(
    arrivals: list[reference.Arrival], window: Window | int, most: int, folder: Path
) -> tuple[Statistics, list[Statistics]]:
    """Return the statistics of a window, and of ``most`` windows before one that is given by its length."""
    if not arrivals:
        raise NoTrafficToPlan(
            folder,
            "there is no traffic yet (files are complete after a minute; `diem pipeline run` reads what is in Kafka)",
        )
    if isinstance(window, int):
        end = min(max(arrival.event.time for arrival in arrivals) + 1, _now_ms())
        first = min(arrival.event.since or arrival.event.time for arrival in arrivals)
        begins = [end - window * age for age in range(1, most + 2)]
        windows = [Window(begin, begin + window) for begin in begins if begin == begins[0] or begin >= first]
        recorded = reference.recorded_since((arrival.event for arrival in arrivals), windows[0])
        windows[0] = windows[0].since(recorded)
    else:
        windows = [window]
    *before, found = reference.statistics_of(arrivals, windows[::-1])
    window = found.window
    if not found.sets:
        raise NoTrafficToPlan(
            folder, f"from {iso(window.start)} to {iso(window.end)} no client was subscribed to anything"
        )
    return found, before[::-1]


MAX_REMOVED_MS: Final = 3 * DAY_MS
"""Time over which the files removed at once were completed, since a clock may be years ahead for one round."""


def remove_old(folder: Path, age_ms: int) -> int:
    """Remove files that have been complete for longer, and return their number; files that cannot be removed stay.

    For use after reading them, where no pipeline runs: a pipeline itself removes the files that it has read.
    """
    completed: dict[Path, int] = {}
    for file in complete_files(folder):
        with suppress(OSError):
            completed[file] = _completed_ms(file)
    before, removed = min(_now_ms() - age_ms, min(completed.values(), default=0) + MAX_REMOVED_MS), 0
    for file, at in completed.items():
        if at < before:
            with suppress(OSError):
                file.unlink()
                removed += 1
    return removed


def _relevant_files(folder: Path, window: Window | int, earlier: int) -> list[Path]:
    """Return the files that the window may need, and for a length so many earlier ones of it."""
    completed = {file: _completed_ms(file) for file in complete_files(folder)}
    if not completed:
        return []
    # The last window ends with the last event, which was recorded before its file was complete.
    if isinstance(window, Window):
        start = window.start
    else:
        start = min(max(completed.values()), _now_ms()) - window * (1 + earlier)
    return [file for file, at in completed.items() if at >= start - RELEVANT_MS]


def _completed_ms(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        yield from file.read_bytes().split(b"\n")


def _arrivals(lines: Iterable[bytes], terminal: Terminal) -> list[reference.Arrival]:
    """Return the events among lines, and warn of invalid ones (the pipeline's table ``quarantine`` has them)."""
    now, found, skipped = _now_ms(), list[reference.Arrival](), Counter[str]()
    for line in filter(None, lines):
        try:
            event = parsing.parse_event(line, now)
        except BadEvent as error:
            skipped[str(error)] += 1
        else:
            found.append(reference.Arrival(event, event.time))
    _warn_of_skipped(skipped, len(found), terminal)
    return found


_REASONS: Final = 5
"""Reasons named in a warning, the most frequent first."""


def _warn_of_skipped(skipped: Counter[str], found: int, terminal: Terminal) -> None:
    if total := skipped.total():
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in skipped.most_common(_REASONS))
        terminal.warn(f"{total:,} of {total + found:,} lines were skipped: {reasons}")
