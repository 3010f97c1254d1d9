"""The running system that plans are for: its mode, and where its metadata services are."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from deploy import control
from deploy.describe import with_children
from deploy.statedir import StateDir
from deploy.topology import Mode, ProxyMode
from diem.errors import DiemError
from diem.process.faults import ConfigurationError
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Phase

SHARED: Final = ProxyMode.SHARED


@dataclass(eq=False)
class NoPartitions(DiemError):
    """What runs has no partitions to plan."""

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
    """What was given is not the URL of an internal listener."""

    template = "--metadata is http(s)://host:port of an internal listener, not {url!r}"

    url: str


@dataclass(eq=False)
class MigrationInProgress(DiemError):
    """Endpoints are on their way: what is there now is not what will be."""

    template = "endpoints are moving ({phase}): `diem apply` shows how far that is; plan when it is over"
    retriable = True

    phase: str


@dataclass(frozen=True, slots=True)
class System:
    """What is known of it; of one that was not started here, only where it is."""

    metadata: tuple[str, ...]
    """Base URLs of the internal listeners of metadata services."""
    mode: Mode | None = None
    proxy: ProxyMode | None = None
    """How its proxies reach servers; None: there are none, or they did not say."""
    proxies: int = 0


async def find(state: StateDir, url: str | None) -> System:
    """Return the system of the `diem up` in the state directory, or the one that `url` is of.

    Raises:
        BadMetadataUrl: `url` is none.
        NotUp: nothing runs in the state directory.
        ControlFailed: what runs there does not answer.
        NoPartitions: its mode has none.
        NoMetadataService: its metadata service does not run now.
    """
    if url is not None:
        if not _is_base(url):
            raise BadMetadataUrl(url)
        return System((url.rstrip("/"),))
    return of_status(await control.ask(state, "status"))


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # it is looked at only when it is asked for
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.path in {"", "/"}


def of_status(status: dict[str, Any]) -> System:
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
    said = {str(its) for process in proxies if (its := (process.get("report") or {}).get("mode"))}
    return System(tuple(urls), mode, ProxyMode(said.pop()) if len(said) == 1 else None, len(proxies))


def must_rest(now: Snapshot) -> None:
    """Raise `MigrationInProgress` while endpoints are on their way."""
    if now.map.head.phase is not Phase.STABLE:
        raise MigrationInProgress(now.map.head.phase)
