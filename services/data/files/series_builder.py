"""The points of one series, as rows give them, and the dataset that they make."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import chain, pairwise
from operator import eq, ge
from typing import Any

import orjson

from services.data.errors import InvalidDataset, WrongUnit
from services.data.files.instants import MAX_KNOWN, Time
from services.data.files.mapping import Mapping
from services.data.kinds.series import Dataset, Declared, Resolution, iso_seconds, parse_resolution, unit
from services.data.kinds.series.form import END, POINTS, Value, number, seal_content
from services.data.kinds.series.times import instant_of


@dataclass(slots=True)
class SeriesBuilder:
    """Collects points in the order of rows.

    Attributes:
        name: of the endpoint. title: unless one is declared. heading_unit: of the column's heading. place: the noun of
        a row's place. instants, values, places, untils: one a point; ``untils`` are the ends of repeated values, and
        empty without any. units, steps: as the rows give them.
    """

    name: str
    title: str
    heading_unit: str
    place: str
    instants: list[Time] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    untils: list[int] = field(default_factory=list)
    units: dict[str, int] = field(default_factory=dict)
    """Units with the place of the first row that has each."""
    steps: dict[str, int] = field(default_factory=dict)
    """The same for resolutions."""

    def build(self, declared: Declared, mapping: Mapping) -> Dataset:
        """Return the dataset. Raises InvalidDataset, with the place of the row."""
        known = declared.of(self.name)
        step = self._step(known.resolution)
        stated = self._unit(known.unit)
        try:
            convert = declared.conversion(stated, known.quantity)
        except ValueError as error:
            raise InvalidDataset(str(error), "unit") from None
        self._resolve(step, declared)
        self._sort()
        self._merge(mapping)
        if self.untils:
            self._repeat(step)
        if convert.changes:
            self.values = [None if value is None else number(convert(value)) for value in self.values]
        seconds = self._seconds()
        times = declared.times(step)
        self._check(seconds, step)
        if step.is_calendar:
            for index, each in enumerate(seconds):
                self._checked(index, times.check, each)
        content = _content(convert.unit, step.text, seconds, self.values)
        made = seal_content(self.name, content, convert.unit, step, times.zone)
        return made.described(title=known.title or self.title, area=known.area, quantity=known.quantity)

    def _seconds(self) -> list[int]:
        return self.instants  # type: ignore[return-value]  # resolved

    def _at(self, index: int) -> str:
        return f"{self.place} {self.places[index]}"

    def _step(self, declared: str | None) -> Resolution:
        if len(self.steps) > 1:
            first, second = list(self.steps)[:2]
            raise InvalidDataset(
                f"{self.name} has the resolutions {first} and {second} (key: where or name)",
                f"{self.place} {self.steps[second]}",
            )
        found = next(iter(self.steps), None)
        text = declared or found
        if not text:
            raise InvalidDataset("the resolution is missing (key: resolution, as PT1H, PT15M, P1D or irregular)")
        try:
            step = parse_resolution(text)
            if found is not None and parse_resolution(found) != step:
                raise ValueError(f"the resolution is {step.text}, not {found[:20]!r}")
        except ValueError as error:
            raise InvalidDataset(str(error), "resolution") from None
        return step

    def _unit(self, declared: str | None) -> str:
        found = {unit(text): place for text, place in self.units.items() if text}
        if declared is not None:
            found = {**dict.fromkeys([unit(declared)], 0), **found}
        if len(found) > 1:
            first, second = list(found)[:2]
            raise WrongUnit(f"the unit is {first}, not {second[:20]!r}", f"{self.place} {found[second]}")
        stated = next(iter(found), self.heading_unit)
        if not stated:
            raise InvalidDataset("the unit is missing (key: unit, as MW or EUR/MWh; 1 for a plain number)")
        return stated

    def _resolve(self, step: Resolution, declared: Declared) -> None:
        """Resolve local times that the zone's clocks show twice or never, by the order of rows."""
        if datetime not in set(map(type, self.instants)):
            return
        plain = [each for each in self.instants if isinstance(each, int)]
        if plain and plain[0] > plain[-1]:
            for column in (self.instants, self.values, self.places, self.untils):
                column.reverse()
        previous, kept = -1, list[int]()
        for index, each in enumerate(self.instants):
            found = each if isinstance(each, int) else self._local(index, each, declared, previous, step)
            if found is not None:
                self.instants[index] = previous = found
                kept.append(index)
        self._keep(kept)
        if any(first > second for first, second in pairwise(self._seconds())):
            fault = "the times are out of order, and one is in the hour that clocks repeat"
            raise InvalidDataset(f"{fault}: sort the rows, or write offsets", self.name)

    def _local(self, index: int, wall: datetime, declared: Declared, after: int, step: Resolution) -> int | None:
        """Return the instant of a local time; None for a gap in the hour that the clocks skip.

        Tables with a column or row for each hour of the clock have one.
        """
        try:
            if declared.clock is None:
                raise ValueError("a local time needs its zone (key: zone)")
            return declared.clock.resolve(wall, after=after, grid=step.seconds).seconds
        except ValueError as error:
            if self.values[index] is None:
                return None
            raise InvalidDataset(str(error), self._at(index)) from None

    def _sort(self) -> None:
        seconds = self._seconds()
        if any(map(ge, seconds, seconds[1:])):
            order = sorted(range(len(seconds)), key=seconds.__getitem__)
            self._keep(order)

    def _keep(self, indexes: list[int]) -> None:
        self.instants = [self.instants[index] for index in indexes]
        self.values = [self.values[index] for index in indexes]
        self.places = [self.places[index] for index in indexes]
        if self.untils:
            self.untils = [self.untils[index] for index in indexes]

    def _merge(self, mapping: Mapping) -> None:
        """Keep one of several equal points at one time; apply ``duplicates`` to others."""
        seconds = self._seconds()
        if not any(map(eq, seconds, seconds[1:])):
            return
        kept: list[int] = []
        for index, each in enumerate(seconds):
            if not kept or seconds[kept[-1]] != each:
                kept.append(index)
            elif mapping.duplicates == "last":
                kept[-1] = index
            elif mapping.duplicates == "refuse" and self.values[index] != self.values[kept[-1]]:
                first, second = (self._text(at) for at in (kept[-1], index))
                raise InvalidDataset(
                    f"{iso_seconds(each)} appears twice in {self.name}, with {first} and {second} "
                    f"(keys: duplicates; name or where, if rows are of several series)",
                    self._at(index),
                )
        self._keep(kept)

    def _text(self, index: int) -> str:
        value = self.values[index]
        return "a gap" if value is None else str(number(value))

    def _repeat(self, step: Resolution) -> None:
        """Put values at the missing periods after them, up to their ends (curve type A03 of ENTSO-E)."""
        seconds = self._seconds()
        ends = [*seconds[1:], self.untils[-1]]
        instants, values, places = list[Time](), list[Value](), list[int]()
        for begin, after, until, value, place in zip(seconds, ends, self.untils, self.values, self.places, strict=True):
            made = range(begin, max(min(after, until), begin + 1), step.seconds)
            instants += made
            values += [value] * len(made)
            places += [place] * len(made)
        self.instants, self.values, self.places = instants, values, places

    def _check(self, seconds: list[int], step: Resolution) -> None:
        for index in (0, len(seconds) - 1):
            self._checked(index, lambda instant: instant.text, seconds[index])
        grid = step.seconds
        if not step.is_calendar and (bad := [index for index, each in enumerate(seconds) if each % grid]):
            raise InvalidDataset(
                f"{iso_seconds(seconds[bad[0]])} is not on the grid of {step.text} in UTC "
                "(key: resolution; 'irregular' takes any second)",
                self._at(bad[0]),
            )

    def _checked(self, index: int, check: Any, seconds: int) -> str:  # noqa: ANN401
        try:
            return str(check(instant_of(seconds)))
        except ValueError as error:
            raise InvalidDataset(str(error), self._at(index)) from None


def _content(unit_: str, resolution: str, seconds: Sequence[int], values: Sequence[Value]) -> bytes:
    """Return canonical content, written in few calls: a dictionary for each point takes four times as long."""
    head = orjson.dumps({"unit": unit_, "resolution": resolution})[:-1] + POINTS
    heads = map(_point_head, seconds)
    # Whole numbers are written as such.
    written = orjson.dumps([None, *values, None]).replace(b".0,", b",").replace(b",-0,", b",0,")
    texts = written[len(b"[null,") : -len(b",null]")].split(b",")
    return head + b"".join(chain.from_iterable(zip(heads, texts, strict=True)))[2:] + b"}" + END


@lru_cache(maxsize=MAX_KNOWN)
def _point_head(second: int) -> bytes:
    return b'},{"time":"%b","value":' % iso_seconds(second).encode()
