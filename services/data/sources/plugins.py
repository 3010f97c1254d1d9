"""Types of sources that other packages bring, by the entry point group ``diem.sources``: type name to class."""

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from diem.errors import ConfigurationError
from diem.process.clock import Clock
from services.data.sources.source import Source
from services.data.sources.tables import SourceTable

GROUP: Final = "diem.sources"


class SourceType(Protocol):
    """What an entry point names: a class that makes sources from tables of its own kind."""

    Config: type[SourceTable]
    """The model of its ``[[source]]`` table."""

    def __call__(self, config: Any, clock: Clock, /) -> Source:  # noqa: ANN401  # of Config
        """Make one source; faults of the configuration are ValueErrors."""
        ...


@dataclass(eq=False)
class BadPlugin(ConfigurationError):
    """A type of source that is installed but cannot be used."""

    template = "the type of source {kind!r} cannot be used: {reason}"

    kind: str
    reason: str


def find(kind: str) -> SourceType | None:
    """The installed type of that name, loaded; None when there is none. Only what is asked for is ever loaded.

    Raises:
        BadPlugin: two packages have it, it cannot be imported, or it has no Config.
    """
    points = entry_points(group=GROUP, name=kind)
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        names = sorted({point.dist.name if point.dist else point.value for point in points})
        raise BadPlugin(kind, f"it is in several packages: {', '.join(names)}")
    (point, *_) = points
    try:
        found = point.load()
    except Exception as error:
        raise BadPlugin(kind, f"{point.value}: {type(error).__name__}: {error}"[:300]) from error
    table = getattr(found, "Config", None)
    if not (callable(found) and isinstance(table, type) and issubclass(table, SourceTable)):
        raise BadPlugin(kind, f"{point.value} is no class with a Config that is a SourceTable")
    made: SourceType = found
    return made


def installed() -> list[str]:
    """The names of all types that packages bring, not loaded."""
    return sorted({point.name for point in entry_points(group=GROUP)})
