"""What plans are learnt from: the statistics of the pipeline, or recorded traffic itself where there is little."""

import importlib.util
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.plans.asked import Asked
from deploy.terminal import Terminal
from diem.errors import DiemError
from diem.process.faults import ConfigurationError
from diem.protocol.traffic import BadEvent
from metadata.jobs.sources import PATTERN
from metadata.jobs.warehouse import Warehouse
from metadata.jobs.windows import WINDOW_FILE, BadStatistics, all_statistics, read_window
from metadata.statistics import judging, plain
from metadata.statistics.window import Window, iso

if TYPE_CHECKING:
    from metadata.placement.instance import Instance

HOUR_MS: Final = 3_600_000
MOST_BYTES: Final = 256 << 20
"""Of files that are read without Spark: some minutes, and some GB of memory."""
_NEEDED: Final = ("numpy", "scipy")


class NoPlanner(ConfigurationError):
    """What computes plans is not installed."""

    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(missing)

    def __str__(self) -> str:
        return f"plans need {self.missing}, which is not installed: `make spark` installs what they need"


class NothingLearnt(DiemError):
    """There is no traffic to learn from."""

    retriable = True

    def __init__(self, folder: Path, hint: str) -> None:
        self.folder = folder
        self.hint = hint
        super().__init__(folder, hint)

    def __str__(self) -> str:
        return f"there is no traffic yet in {self.folder}: {self.hint}"


class TooMuch(ConfigurationError):
    """There are too many files to read them without Spark."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        super().__init__(folder, size)

    def __str__(self) -> str:
        return (
            f"{self.folder} has {self.size >> 20} MiB, too much without Spark: `diem pipeline run`, "
            "then plan from its statistics"
        )


class NotRead(DiemError):
    """A file of traffic cannot be read; a pipeline removes those that it has read."""

    retriable = True

    def __init__(self, error: OSError) -> None:
        self.file = error.filename
        self.reason = error.strerror or str(error)
        super().__init__(error)

    def __str__(self) -> str:
        return f"recorded traffic cannot be read: {self.file}: {self.reason}"


@dataclass(frozen=True)
class Learnt:
    """Traffic of a window."""

    instance: "Instance"
    """Without its subscription sets where they are to stay in Spark."""
    start: str
    """ISO 8601, as `end`."""
    end: str
    events: int
    clients: int
    sets: int
    source: str
    """What it was read from, for people."""
    for_spark: Path | None = None
    """Folder of the statistics to plan from on Spark; None: they are in `instance`."""


def need_planner() -> None:
    """Raise `NoPlanner` unless plans can be made here."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NoPlanner(" and ".join(missing))


def learn(asked: Asked, terminal: Terminal) -> Learnt:
    """Read traffic: the folder that was named, or what there is in a state directory's `traffic`.

    The latest statistics when no window is named; those of a window by Spark; else the files that no pipeline has read.

    Raises:
        NothingLearnt: there is none.
        NotRead: a file cannot be read.
        BadStatistics: a table of them is missing or broken.
        ConfigurationError: something is not installed, or there is too much without Spark.
        DiemError: Spark could not do it.
    """
    folder = asked.traffic.absolute()
    if (folder / WINDOW_FILE).is_file():
        return _of_statistics(folder, asked.spark)
    warehouse = Warehouse(folder / "warehouse")
    if asked.window is None and (found := all_statistics(warehouse)):
        return _of_statistics(found[-1], asked.spark)
    window = asked.window or HOUR_MS
    if asked.spark or (asked.spark is None and warehouse.sources()):
        return _of_statistics(_computed(warehouse, window, terminal), asked.spark)
    return _of_files(folder / "in" if (folder / "in").is_dir() else folder, window)


def _computed(warehouse: Warehouse, window: Window | int, terminal: Terminal) -> Path:
    from deploy import pipeline  # noqa: PLC0415  # it takes long to import

    wanted = pipeline.Wanted(window, None)
    found = pipeline.run(warehouse, None, wanted, terminal, memory="1g", cores=2)
    if found is None:
        raise AssertionError("statistics were wanted")
    return found


def _of_statistics(folder: Path, spark: bool | None) -> Learnt:
    if importlib.util.find_spec("pyarrow") is None:
        raise NoPlanner("pyarrow")
    from metadata.jobs.planning import is_large  # noqa: PLC0415  # it needs numpy
    from metadata.placement.reading import read_endpoints, read_statistics  # noqa: PLC0415

    window = read_window(folder)
    try:
        if not window["sets"]:
            raise NothingLearnt(folder, "in its window no client was subscribed to anything")
        on_spark = is_large(folder) if spark is None else spark
        instance = read_endpoints(folder) if on_spark else read_statistics(folder)
    except (OSError, ValueError, LookupError) as error:  # of pyarrow, too
        raise BadStatistics(folder, str(error).partition("\n")[0]) from error
    return Learnt(
        instance,
        str(window["from"]),
        str(window["to"]),
        int(window["events"]),
        int(window["clients"]),
        int(window["sets"]),
        f"statistics in {folder}",
        folder if on_spark else None,
    )


def _of_files(folder: Path, window: Window | int) -> Learnt:
    from metadata.placement.reading import of_statistics  # noqa: PLC0415  # it needs numpy

    files = sorted(folder.glob(PATTERN))
    try:
        size = sum(file.stat().st_size for file in files)
        if size > MOST_BYTES:
            raise TooMuch(folder, size)
        arrivals = list(_arrivals(_lines(files)))
    except OSError as error:
        raise NotRead(error) from error
    if not arrivals:
        raise NothingLearnt(folder, "`diem pipeline run` reads what is in Kafka; files are complete after a minute")
    if isinstance(window, int):
        end = min(max(arrival.event.time for arrival in arrivals) + 1, time.time_ns() // 1_000_000)
        window = Window(end - window, end)
    found = plain.statistics(arrivals, window)
    if not found.sets:
        raise NothingLearnt(
            folder, f"from {iso(window.start)} to {iso(window.end)} no client was subscribed to anything"
        )
    return Learnt(
        of_statistics(found),
        iso(window.start),
        iso(window.end),
        found.summary.events,
        found.summary.clients,
        found.summary.sets,
        f"{len(files)} file{'' if len(files) == 1 else 's'} in {folder}",
    )


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        yield from file.read_bytes().split(b"\n")


def _arrivals(lines: Iterable[bytes]) -> Iterator[plain.Arrival]:
    """Return the events among lines, the others left out: the pipeline's table `quarantine` says why."""
    now = time.time_ns() // 1_000_000
    for line in lines:
        try:
            event = judging.judge(line, now)
        except BadEvent:
            continue
        yield plain.Arrival(event, event.time)
