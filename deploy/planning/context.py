"""Context of the planning commands: their command-line values, the running system, and its metadata service."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

import typer

from deploy.cli.options import run_interactive
from deploy.clients.metadata import MetadataService, metadata_service
from deploy.system import control
from deploy.system.description import with_children
from deploy.system.state_dir import StateDir
from deploy.topology import Mode, ProxyMode
from diem.errors import ConfigurationError, DiemError
from diem.process import lifecycle
from diem.process.auth import SharedKey
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Phase
from metadata.statistics.window import Window, parse_span, parse_time

SHARED: Final = ProxyMode.SHARED


@dataclass(eq=False)
class NoPartitions(DiemError):
    """The mode of the running system has no partitions."""

    mode: str

    def __str__(self) -> str:
        """Return the text."""
        modes = ", ".join(mode for mode in Mode if mode.partitioned)
        return f"there is no metadata service: mode {self.mode} has no partitions (those that have: {modes})"


@dataclass(eq=False)
class NoMetadataService(DiemError):
    """The metadata service of a partitioned mode does not run now."""

    template = "no metadata service runs in this {mode} now: `diem status` shows what does"
    retriable = True

    mode: str


@dataclass(eq=False)
class BadMetadataUrl(ConfigurationError):
    """The option is not the URL of an internal listener."""

    template = "--metadata is http(s)://host:port of an internal listener, not {url!r}"

    url: str


@dataclass(eq=False)
class MigrationInProgress(DiemError):
    """Endpoints are moving: the current placement is not final."""

    template = "endpoints are moving ({phase}): `diem apply` shows how far that is; plan when it is over"
    retriable = True

    phase: str


@dataclass(frozen=True, slots=True)
class System:
    """A running system; of one that was not started here, only the URLs are known."""

    metadata: tuple[str, ...]
    """Base URLs of the internal listeners of metadata services."""
    mode: Mode | None = None
    proxy: ProxyMode | None = None
    """Mode of its proxies; None: there are none, or it is not known."""
    proxies: int = 0


async def find_system(state: StateDir, url: str | None) -> System:
    """Return the system of the `diem up` in the state directory, or the one that `url` is of.

    Raises:
        BadMetadataUrl: `url` is none.
        NotUp: nothing runs in the state directory.
        ControlFailed: what runs there does not answer.
        NoPartitions: its mode has none.
        NoMetadataService: its metadata service does not run now.
    """
    if url is not None:
        if not _is_base_url(url):
            raise BadMetadataUrl(url)
        return System((url.rstrip("/"),))
    return system_from_status(await control.request(state, "status"))


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # it is looked at only when it is asked for
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.path in {"", "/"}


def system_from_status(status: dict[str, Any]) -> System:
    """Return the system that a `diem up` says it is.

    Raises:
        NoPartitions: its mode has none.
        NoMetadataService: its metadata service does not run now.
    """
    mode = Mode(status["mode"])
    if not mode.partitioned:
        raise NoPartitions(mode)
    running = [process for _, process in with_children(status["processes"])]
    urls = [process["urls"]["internal"] for process in running if process["process"] == "metadata"]
    if not urls:
        raise NoMetadataService(mode)
    proxies = [process for process in running if process["process"] == "proxy"]
    modes = {str(its) for process in proxies if (its := (process.get("report") or {}).get("mode"))}
    return System(tuple(urls), mode, ProxyMode(modes.pop()) if len(modes) == 1 else None, len(proxies))


def require_stable(now: Snapshot) -> None:
    """Raise `MigrationInProgress` while endpoints are moving."""
    if now.map.head.phase is not Phase.STABLE:
        raise MigrationInProgress(now.map.head.phase)


T = TypeVar("T")
MetadataOption = Annotated[
    str | None,
    typer.Option("--metadata", help="Base URL of a metadata service's internal listener; default: the one up here."),
]
KeyOption = Annotated[Path | None, typer.Option(help="Internal key; default: the state directory's.")]


async def connect(state: StateDir, url: str | None, key_file: Path | None) -> tuple[System, MetadataService]:
    """Return the system that is meant, and its metadata service. Raises what `find` does, `BadKeyFile`."""
    system = await find_system(state, url)
    return system, metadata_service(system.metadata, SharedKey.load(key_file or state.internal_key_file))


def run_step(work: Callable[[], Awaitable[T]]) -> T:
    """Run one step of a command and return its result; ends the command when it fails or is interrupted."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work())

    code = run_interactive(keep)
    if not found:
        # An end that was asked for is none of the work: what comes next in a script is not to go on.
        raise typer.Abort if code == lifecycle.EXIT_OK else typer.Exit(code)
    return found[0]


MAX_SERVERS: Final = 1000
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Options of a plan; None: derived from the traffic or the system."""

    traffic: Path
    window: Window | int | None = None
    """Or the length of the last one, in ms."""
    spark: bool | None = None
    servers: tuple[int, ...] | None = None
    seed: int = 0
    partitions: int | None = None
    hot_budget: float = 0.005
    movement: float | None = None
    """Share of the subscriptions that may move; None: any."""
    costs: Path | None = None


def parse_share(text: str, option: str) -> float:
    """Parse a percentage to a share. Raises `typer.BadParameter`."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise typer.BadParameter(f"{option} is a percentage such as 0.5%, not {text!r}")
    return float(match[1]) / 100


def parse_server_counts(text: str) -> tuple[int, ...]:
    """Parse numbers with commas. Raises `typer.BadParameter`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= MAX_SERVERS for word in words):
        raise typer.BadParameter(f"--servers is numbers from 1 to {MAX_SERVERS} with commas, not {text!r}")
    return tuple(sorted({int(word) for word in words}))


def parse_window(length: str | None, begin: str | None, end: str | None) -> Window | int | None:
    """Parse a window, or its length in ms. Raises `typer.BadParameter`, `BadWindow`."""
    if begin is None and end is None:
        return None if length is None else parse_span(length)
    if end is None:
        raise typer.BadParameter("--from needs --to")
    until = parse_time(end)
    return Window(parse_time(begin) if begin is not None else until - parse_span(length or "1h"), until)
