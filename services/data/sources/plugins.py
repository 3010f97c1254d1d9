"""Finds types of sources in other packages: entry point group ``diem.sources``, type name to class."""

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from diem.errors import ConfigurationError
from diem.process.clock import Clock
from services.data.sources.source import Source
from services.data.sources.tables import SourceTable

GROUP: Final = "diem.sources"


class SourceType(Protocol):
    """The target of an entry point: a class that creates sources from tables of its own model."""

    Config: type[SourceTable]
    """The model of its ``[[source]]`` table."""

    def __call__(self, config: Any, clock: Clock, /) -> Source:  # noqa: ANN401  # of Config
        """Create one source; raises ValueError for faults of the configuration."""
        ...


@dataclass(eq=False)
class BadPlugin(ConfigurationError):
    """An unusable installed type of source."""

    template = "the type of source {kind!r} cannot be used: {reason}"

    kind: str
    reason: str


def find(kind: str) -> SourceType | None:
    """Load and return the installed type of this name; None without one. Other types are not loaded.

    Raises:
        BadPlugin: two packages have the type, it cannot be imported, or it has no Config.
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
        raise BadPlugin(kind, f"{point.value} is not a class with a Config that is a SourceTable")
    made: SourceType = found
    return made


def installed() -> list[str]:
    """Return the names of all installed types, without loading them."""
    return sorted({point.name for point in entry_points(group=GROUP)})
