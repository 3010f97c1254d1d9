"""Context of the planning commands: their options, the running system, and its metadata service."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from deploy.cli.options import run_interactive
from deploy.clients.data_service import base_url
from deploy.clients.metadata import MetadataService, metadata_service
from deploy.system import control
from deploy.system.description import updates_per_commit, with_children
from deploy.system.state_dir import StateDir
from deploy.topology import Mode
from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from diem.process import lifecycle
from diem.process.key_ring import KeyRing
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Phase
from learning.jobs.spark_options import SparkSettings
from learning.statistics.window import Window


@dataclass(frozen=True, slots=True)
class RunningSystem:
    """A running system; if started elsewhere, only the URLs are known."""

    metadata: tuple[str, ...]
    """Base URLs of the internal listeners of metadata services."""
    mode: Mode | None = None
    proxies: int = 0
    batch: float | None = None
    """Number of updates written together; None if unknown."""
    capacity: int | None = None
    """Limit of clients per server; None if unknown."""

    @property
    def has_proxies(self) -> bool:
        """True if clients connect to proxies; False if unknown."""
        return self.mode is not None and self.mode.edge != "websocket"


async def find_system(state: StateDir, url: str | None) -> RunningSystem:
    """Return the system of the ``diem up`` in the state directory, or the one at ``url``.

    Raises:
        BadUrl: ``url`` is not the base URL of an internal listener.
        NotUp: nothing runs in the state directory.
        ControlFailed: the ``diem up`` there does not answer.
        DiemError: its mode has no metadata service, or that does not run now.
    """
    if url is not None:
        return RunningSystem((base_url(url, "--metadata"),))
    return system_from_status(await control.request(state, "status"))


def system_from_status(status: dict[str, Any]) -> RunningSystem:
    """Return the system described by a reply of ``status``.

    Raises:
        DiemError: its mode has no metadata service, or that does not run now.
    """
    mode = Mode(status["mode"])
    if not mode.partitioned:
        others = ", ".join(mode for mode in Mode if mode.partitioned)
        raise DiemError(f"there is no metadata service: mode {mode} has no partitions (those that have: {others})")
    running = [process for _, process in with_children(status["processes"])]
    urls = [process["urls"]["internal"] for process in running if process["process"] == "metadata"]
    if not urls:
        raise DiemError(f"no metadata service runs in this {mode} now: `diem status` shows what does")
    proxies = sum(process["process"] == "proxy" for process in running)
    reports = [process.get("report") or {} for process in running if process["process"] == "websocket"]
    capacity = min((report["capacity"] for report in reports if "capacity" in report), default=None)
    return RunningSystem(tuple(urls), mode, proxies, updates_per_commit(running), capacity)


def require_stable(now: Snapshot) -> None:
    """Raise ``DiemError`` while endpoints are moving: the placement is not final."""
    if (phase := now.map.head.phase) is not Phase.STABLE:
        raise DiemError(f"endpoints are moving ({phase}): plan once that is finished (`diem apply` shows the progress)")


T = TypeVar("T")
MetadataOption = Annotated[
    str | None,
    typer.Option("--metadata", help="Base URL of a metadata service's internal listener. Default: that of `diem up`."),
]
CapacityOption = Annotated[
    str | None,
    typer.Option(
        help="What a server can take: a plan with more is refused. A number of clients (`DIEM_WEBSOCKET_CAPACITY`), or "
        "some of clients=8000,memory=512M,network=50M,cpu=80% (bytes a second; share of its core). Default: clients as "
        "the running servers say, else 10000; 1G, 125M, 70%.",
    ),
]
KeyOption = Annotated[
    Path | None, typer.Option(help="File of the internal key, or of the admin key. Default: the state directory's.")
]


async def connect(state: StateDir, url: str | None, key_file: Path | None) -> tuple[RunningSystem, MetadataService]:
    """Return the system and its metadata service. Raises ``BadKeyFile``, and what ``find_system`` does."""
    system = await find_system(state, url)
    return system, metadata_service(system.metadata, KeyRing.load(key_file or state.internal_key_file))


def run_step(work: Callable[[], Awaitable[T]]) -> T:
    """Run one step of a command and return its result; end the command on failure or interruption."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work())

    code = run_interactive(keep)
    if not found:
        # An interrupted step is incomplete: a script must not continue.
        raise typer.Abort if code == lifecycle.EXIT_OK else typer.Exit(code)
    return found[0]


@dataclass(frozen=True, slots=True)
class IntervalFile:
    """A file of other people's traffic (:mod:`learning.planning.intervals`)."""

    file: Path
    columns: Mapping[str, str]
    """Names in the header of a CSV file, where they are others."""
    pattern: str | None
    """Regular expression of an access log; None: a CSV file."""
    held_ms: int
    """Duration of an interval without an end."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Options of a plan; None: derived from the traffic or the system."""

    traffic: Path
    """Ignored with ``intervals`` or ``kafka``."""
    intervals: IntervalFile | None = None
    kafka: KafkaOptions | None = None
    """Cluster whose traffic is read without Spark."""
    window: Window | int | None = None
    """The window, or the length in ms of the last one."""
    spark: bool | None = None
    servers: tuple[int, ...] | None = None
    seed: int = 0
    partitions: int | None = None
    hot_budget: float = 0.005
    movement: float | None = None
    """Share of the subscriptions that may move; None: any."""
    compare: bool = True
    """True to compare a plan that does not pay within ``movement`` with the best one without it."""
    costs: Path | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Limits of a server by their names in ``Resources``; others are the system's, else the defaults."""
    warehouse: Path | None = None
    """Folder of the pipeline's tables; None: in ``traffic``."""
    settings: SparkSettings = field(default_factory=SparkSettings)
    """Options of Spark, if needed."""
