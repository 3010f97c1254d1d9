"""Rows of the tables of statistics (docs/traffic.md section 3.4)."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple

from diem.protocol.update import iso
from learning.statistics.window import Window

FORMAT: Final = "diem.statistics/1"


class EndpointRow(NamedTuple):
    """One endpoint."""

    endpoint: str
    rate: float
    """Updates per second."""
    subscribers: float
    """Time-weighted mean number of clients."""
    taken: int
    """Updates received by all processes."""
    delivered: int
    """Frames sent to clients."""
    busy_rate: float
    """Updates per second in the busy minutes."""


class SetRow(NamedTuple):
    """The clients with one subscription set."""

    endpoints: tuple[int, ...]
    """Indices in the table of endpoints, ascending."""
    weight: int
    """Seconds for which these clients were connected, in total."""
    clients: int


class WasteRow(NamedTuple):
    """Updates that one process received, delivered, and received without any subscriber."""

    edge: str
    taken: int
    delivered: int
    discarded: int
    """Updates received for endpoints without a delivery in the same report."""
    share: float
    """``discarded`` / ``taken``."""


class Summary(NamedTuple):
    """The counts of ``window.json``."""

    events: int
    duplicates: int
    late: int
    sessions: int
    unended: int
    clients: int
    sets: int
    endpoints: int
    twins: int
    """Names that two processes used at once; their counts are added up as if they were one process."""
    active_minutes: int
    """Minutes of the window, counted from its start, in which any client was connected."""
    halvings: int = 0
    """How often the clients were halved for the table of sets (:mod:`learning.statistics.sampling`)."""


class UsageRow(NamedTuple):
    """One row of the usage report; rows are sorted by these fields."""

    day: date
    """UTC, of the middle of the event's interval."""
    key: str
    """Empty for readers without an API key."""
    plan: str
    endpoint: str
    """Empty for requests without an endpoint."""
    answered: int
    refused: int


@dataclass(frozen=True)
class Statistics:
    """All tables of a window, sorted."""

    window: Window
    summary: Summary
    endpoints: tuple[EndpointRow, ...]
    sets: tuple[SetRow, ...]
    waste: tuple[WasteRow, ...]


def window_json(window: Window, summary: Summary) -> dict[str, Any]:
    """Return the content of ``window.json``."""
    return {"format": FORMAT, "from": iso(window.start), "to": iso(window.end), **summary._asdict()}


def duplicate_recorders_warning(count: int) -> str:
    """Return a warning, for people, about names that two processes used at once."""
    names = "1 name was" if count == 1 else f"{count} names were"
    return (
        f"{names} had by two processes at once: what they took is counted twice. "
        "Give each process a name of its own (DIEM_TRAFFIC_EDGE)"
    )
