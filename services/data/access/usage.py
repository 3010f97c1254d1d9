"""Counts what was asked for, by key, plan and endpoint: for events, for metrics and for the keys themselves; pure."""

from collections import Counter
from typing import Final, NamedTuple

from diem.protocol.traffic import Accessed

MAX_CELLS: Final = 10_000
"""Of one interval between two events, and of the endpoints that keys are told of."""


class Cell(NamedTuple):
    """What requests are counted by: ``key`` is empty without one, ``endpoint`` for what has no endpoint."""

    key: str
    plan: str
    endpoint: str


class Count(NamedTuple):
    """Requests of a cell."""

    answered: int = 0
    """Those that the plan has, whatever the answer."""
    refused: int = 0
    """Those beyond its quota, or its endpoints."""


class Usage:
    """Of at most 10,000 cells; requests of more are counted without their endpoint, and how many is counted."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Requests by plan and outcome: as many as there are plans."""
        self.merged = 0
        """Requests whose endpoint was left out."""
        self._cells: dict[Cell, Count] = {}
        self._day = -1
        self._today: dict[str, Counter[str]] = {}
        self._named = 0

    def add(self, cell: Cell, outcome: str, day: int, *, refused: bool) -> None:
        """Count one request. ``outcome`` is one of a few words, ``day`` is in days since 1970."""
        self.outcomes[cell.plan, outcome] += 1
        if cell not in self._cells and len(self._cells) >= MAX_CELLS:
            self.merged += 1
            cell = cell._replace(endpoint="")
        answered, were_refused = self._cells.get(cell, Count())
        self._cells[cell] = Count(answered + (not refused), were_refused + refused)
        if cell.key and not refused:
            self._name(cell, day)

    def take(self) -> list[Accessed]:
        """What was counted since the last time, as entries of events."""
        return [Accessed(*cell, *count) for cell, count in self.swap().items()]

    def swap(self) -> dict[Cell, Count]:
        """What was counted since the last time."""
        cells, self._cells = self._cells, {}
        return cells

    def today(self, key: str, day: int) -> Counter[str]:
        """Answered requests of a key by endpoint, of a day, in this life of the process."""
        return self._today.get(key, Counter()) if day == self._day else Counter()

    def forget(self, key: str) -> None:
        """A key is gone."""
        self._named -= len(self._today.pop(key, ()))

    def _name(self, cell: Cell, day: int) -> None:
        if day != self._day:
            self._day, self._named = day, 0
            self._today.clear()
        counts = self._today.setdefault(cell.key, Counter())
        endpoint = cell.endpoint
        if endpoint not in counts:
            if self._named >= MAX_CELLS:
                endpoint = ""
            self._named += endpoint not in counts
        counts[endpoint] += 1
