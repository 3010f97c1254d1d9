"""Planning input: statistics of the pipeline, or recorded traffic itself where there is little."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.plans.asked import PlanRequest
from deploy.plans.recorded import NoTrafficToPlan, read_recorded
from deploy.terminal import Terminal
from diem.process.faults import ConfigurationError
from metadata.jobs.warehouse import Warehouse
from metadata.jobs.windows import WINDOW_FILE, BadStatistics, all_statistics, read_window
from metadata.statistics.window import Window, iso

if TYPE_CHECKING:
    from metadata.placement.instance import Instance

HOUR_MS: Final = 3_600_000
_NEEDED: Final = ("numpy", "scipy")


@dataclass(eq=False)
class NoPlanner(ConfigurationError):
    """What computes plans is not installed."""

    template = "plans need {missing}, which is not installed: `make spark` installs what they need"

    missing: str


@dataclass(frozen=True)
class PlanningInput:
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
    twins: int = 0
    """Names that two processes had at once."""


def need_planner() -> None:
    """Raise `NoPlanner` unless plans can be made here."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise NoPlanner(" and ".join(missing))


def learn(asked: PlanRequest, terminal: Terminal) -> PlanningInput:
    """Read traffic: the folder that was named, or what there is in a state directory's `traffic`.

    The latest statistics when no window is named; those of a window by Spark; else the files that no pipeline has read.

    Raises:
        NoTrafficToPlan: there is none.
        TrafficUnreadable: a file cannot be read.
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

    wanted = pipeline.WindowOptions(window, None)
    found = pipeline.run(warehouse, None, wanted, terminal, memory="1g", cores=2)
    if found is None:
        raise AssertionError("statistics were wanted")
    return found


def _of_statistics(folder: Path, spark: bool | None) -> PlanningInput:
    if importlib.util.find_spec("pyarrow") is None:
        raise NoPlanner("pyarrow")
    from metadata.jobs.planning import is_large  # noqa: PLC0415  # it needs numpy
    from metadata.placement.reading import read_endpoints, read_statistics  # noqa: PLC0415

    window = read_window(folder)
    try:
        if not window["sets"]:
            raise NoTrafficToPlan(folder, "in its window no client was subscribed to anything")
        on_spark = is_large(folder) if spark is None else spark
        instance = read_endpoints(folder) if on_spark else read_statistics(folder)
    except (OSError, ValueError, LookupError) as error:  # of pyarrow, too
        raise BadStatistics(folder, str(error).partition("\n")[0]) from error
    return PlanningInput(
        instance,
        str(window["from"]),
        str(window["to"]),
        int(window["events"]),
        int(window["clients"]),
        int(window["sets"]),
        f"statistics in {folder}",
        folder if on_spark else None,
        # Those of earlier releases say nothing of it.
        int(window.get("twins", 0)),
    )


def _of_files(folder: Path, window: Window | int) -> PlanningInput:
    from metadata.placement.reading import of_statistics  # noqa: PLC0415  # it needs numpy

    found, files = read_recorded(folder, window)
    return PlanningInput(
        of_statistics(found),
        iso(found.window.start),
        iso(found.window.end),
        found.summary.events,
        found.summary.clients,
        found.summary.sets,
        f"{files} file{'' if files == 1 else 's'} in {folder}",
        twins=found.summary.twins,
    )
