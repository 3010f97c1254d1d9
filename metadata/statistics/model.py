"""Rows of the tables of statistics (docs/traffic.md section 3.4)."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple

from diem.protocol.update import iso
from metadata.statistics.window import Window

FORMAT: Final = "diem.statistics/1"


class EndpointRow(NamedTuple):
    """One endpoint."""

    endpoint: str
    rate: float
    """Updates/s."""
    subscribers: float
    """Clients, time-weighted mean."""
    taken: int
    delivered: int


class SetRow(NamedTuple):
    """The clients with one set."""

    endpoints: tuple[int, ...]
    """Indices, ascending."""
    weight: int
    """Seconds that they were connected."""
    clients: int


class PairRow(NamedTuple):
    """Two endpoints of one set."""

    first: str
    second: str
    weight: int
    clients: int


class WasteRow(NamedTuple):
    """One process."""

    edge: str
    taken: int
    delivered: int
    discarded: int
    share: float


class Summary(NamedTuple):
    """The counts of `window.json`."""

    events: int
    duplicates: int
    late: int
    sessions: int
    unended: int
    clients: int
    sets: int
    endpoints: int
    large_sets: int
    twins: int
    """Names that two processes had at once: what both took is added up as if one had."""


class UsageRow(NamedTuple):
    """One row of the usage report; rows are sorted by these fields."""

    day: date
    """UTC, of the middle of the event's interval."""
    key: str
    """Empty for readers without an API key."""
    plan: str
    endpoint: str
    """Empty for requests that are of no endpoint."""
    answered: int
    refused: int


@dataclass(frozen=True)
class Statistics:
    """All tables of a window, in their order."""

    window: Window
    summary: Summary
    endpoints: tuple[EndpointRow, ...]
    sets: tuple[SetRow, ...]
    pairs: tuple[PairRow, ...]
    waste: tuple[WasteRow, ...]


def window_json(window: Window, summary: Summary) -> dict[str, Any]:
    """Return the content of `window.json`."""
    return {"format": FORMAT, "from": iso(window.start), "to": iso(window.end), **summary._asdict()}


def duplicate_recorders_warning(count: int) -> str:
    """Return a warning, for people, about names that two processes used at once."""
    names = "1 name was" if count == 1 else f"{count} names were"
    return (
        f"{names} had by two processes at once: what they took is counted twice. "
        "Give each process a name of its own (DIEM_TRAFFIC_EDGE)"
    )
