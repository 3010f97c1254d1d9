"""Infers the resolution of times, their zone, and whether they are the ends of periods."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

from services.data.files.grid import cell_text
from services.data.files.inference.cells import SampleTable
from services.data.files.inference.draft import Draft
from services.data.files.inference.time_columns import END, IS_TIME, ISSUED, START, Across, TimeColumns
from services.data.files.inference.times import (
    Steps,
    TimeFormat,
    infer_clock,
    infer_formats,
    instants,
    steps_of,
)
from services.data.files.inference.zones import (
    SAME_CLOCKS,
    Clocks,
    Stated,
    changes_of,
    has_summer_time,
    local_seconds,
    observed_clocks,
    same_clocks,
    stated_zone,
    zones_of_days,
)
from services.data.kinds.series.times import DAY_S, IRREGULAR, iso_seconds, parse_resolution
from services.data.kinds.series.times import zone as time_zone

_MAX_SERIES: Final = 50
"""Series whose times are inspected."""
_PER_DAY: Final = {"PT1H": 24, "PT30M": 48, "PT15M": 96, "PT10M": 144, "PT5M": 288}
_CALENDAR: Final = ("P1W", "P1M", "P3M", "P1Y")
_NAMES_ZONE: Final = re.compile(r"(?i)(?:time|zone|zeit|hora|heure|\btz\b|\bin (?:UTC|GMT|CET|EST))")
_MADE: Final = re.compile(r"(?i)(?:generat|erstellt|\bstand\b|as of|download|abruf)")


class Periods:
    """Adds the resolution, the zone and the stamp to a draft."""

    def __init__(self, table: SampleTable, when: TimeColumns, across: Across | None, draft: Draft) -> None:
        self._table = table
        self._when = when
        self._across = across
        self._draft = draft

    def add(self, values: Sequence[int], keys: Sequence[int]) -> None:
        """Add the keys and fields for these columns of values, and those which tell series apart."""
        if self._when.period is not None or (self._across is not None and self._across.kind == "period"):
            self._add_numbered(keys)
        elif self._across is not None:
            self._add_across(self._across)
        else:
            self._add_series(values, keys)
        self._add_stamp()

    def _add_series(self, values: Sequence[int], keys: Sequence[int]) -> None:
        form, groups = self._when.form, self._groups(keys)
        times = instants(form, self._table.joined(self._when.columns))
        series = [[time for row in rows if isinstance(time := times[row], int)] for rows in groups]
        if form.has_offset and (days := zones_of_days(chain.from_iterable(series))):
            self._add_days(series, days)
            return
        steps = [steps_of(each) for each in series]
        self._add_resolution(steps, max(map(len, series), default=0))
        observed = Clocks()
        step = max(steps, key=lambda each: each.share if each.step else -1.0).step
        if step and form.has_clock and not form.has_offset:
            shown = [
                sorted(time for row in rows if isinstance(time := times[row], int) and self._has_value(row, values))
                for rows in groups
            ]
            observed = observed_clocks(shown, step)
        self._add_zone(observed, needed=form.has_clock)

    def _add_days(self, series: Sequence[Sequence[int]], zones: Sequence[str]) -> None:
        """Add the resolution of midnights of a zone, which are no days of UTC."""
        draft, (key, *others) = self._draft, zones
        clock = time_zone(self._table.known.get("zone", key))
        local = [[local_seconds(at, clock) for at in each] for each in series]
        self._add_resolution([steps_of(each) for each in local], max(map(len, series)))
        stated, is_certain = self._stated()
        if "zone" in self._table.known:
            self._set_zone(clock.key, "")
        elif stated is not None and is_certain and stated.key in zones:
            self._set_zone(stated.key, f"stated as {stated.words!r}")
        else:
            self._set_zone(key, "the times are midnights there")
            if others:
                draft.question("zone", key, "the times are midnights in other zones, too", others)

    def _groups(self, keys: Sequence[int]) -> list[list[int]]:
        """Return the rows of each series."""
        if not keys:
            return [list(range(len(self._table.rows)))]
        groups: dict[tuple[str, ...], list[int]] = {}
        for row, key in enumerate(zip(*(map(cell_text, self._table.cells[index]) for index in keys), strict=True)):
            groups.setdefault(key, []).append(row)
        return list(groups.values())[:_MAX_SERIES]

    def _has_value(self, row: int, values: Sequence[int]) -> bool:
        return any(self._table.number(self._table.cells[index][row]) is not None for index in values[:20])

    # The resolution.

    def _add_resolution(self, steps: Sequence[Steps], longest: int) -> None:
        draft = self._draft
        if known := self._table.known.get("resolution"):
            draft.fields["resolution"] = known
            return
        calendar = {each.calendar for each in steps if each.calendar}
        sizes = {each.step for each in steps if each.step}
        span = self._span()
        if calendar and not sizes:
            name = draft.fields["resolution"] = min(calendar, key=_CALENDAR.index)
            if longest < 3:
                draft.question("resolution", name, f"from {longest} times")
        elif sizes and not calendar:
            self._add_step(min(sizes), span, max(each.share for each in steps), longest)
        elif span is not None:
            draft.fields["resolution"] = resolution_of(span)
            draft.note("resolution", "from the ends of the periods")
        elif longest < 3:
            name = draft.fields["resolution"] = "PT1H" if self._when.form.has_clock else "P1D"
            draft.question("resolution", name, f"a series has {longest} time{'s' if longest > 1 else ''}")
        else:
            self._add_irregular(steps, longest)

    def _add_step(self, step: int, span: int | None, share: float, longest: int) -> None:
        draft = self._draft
        name = draft.fields["resolution"] = resolution_of(step)
        if span is not None and span != step:
            draft.question("resolution", name, f"the periods are of {resolution_of(span)}", [resolution_of(span)])
        elif span is None and longest < 3:
            draft.question("resolution", name, f"from {longest} times", [IRREGULAR])
        elif span is None and share < 0.5:
            draft.question("resolution", name, "the steps between times differ", [IRREGULAR])

    def _add_irregular(self, steps: Sequence[Steps], longest: int) -> None:
        draft = self._draft
        draft.fields["resolution"] = IRREGULAR
        usual = max(steps, key=lambda each: each.usual_share)
        if usual.usual_share >= 0.5:
            name = resolution_of(usual.usual)
            draft.question("resolution", IRREGULAR, f"most steps are of {name}, but not all", [name])
        elif longest < 5:
            draft.question("resolution", IRREGULAR, f"from {longest} times")
        else:
            draft.note("resolution", "irregular: the times are on no grid")

    def _span(self) -> int | None:
        """Return the length of periods in seconds, from intervals or columns with their ends."""
        when, table = self._when, self._table
        if len(when.columns) > 1:
            return None if when.form.interval else self._clock_span()
        cells = table.sample[when.columns[0]]
        starts = instants(when.form, cells)
        if when.form.interval:
            texts = [cell_text(cell).partition(when.form.interval)[2].strip() for cell in cells]
            return _length(starts, instants(TimeFormat(when.form.format), texts))
        for index, name in enumerate(table.names):
            if index in when.columns or ISSUED.search(name) or not (END.search(name) or IS_TIME.search(name)):
                continue
            if any(form.format == when.form.format for form in infer_formats(table.filled[index])):
                length = _length(starts, instants(when.form, table.sample[index]))
                if length is not None:
                    return length
        return None

    def _clock_span(self) -> int | None:
        """Return the length of periods whose beginnings and ends are columns with times of day."""
        table, clock = self._table, self._when.columns[-1]
        if not table.is_clock(clock):
            return None
        for index, name in enumerate(table.names):
            if index in self._when.columns or not (END.search(name) or index == clock + 1) or not table.is_clock(index):
                continue
            begins, ends = (self._clocks(each) for each in (clock, index))
            spans = Counter(
                (b - a) % DAY_S for a, b in zip(begins, ends, strict=True) if isinstance(a, int) and isinstance(b, int)
            )
            if not spans:
                continue
            span, count = spans.most_common(1)[0]
            # The last minute of a period, as in 00:00 to 00:14.
            span += 60 if span and DAY_S % span and DAY_S % (span + 60) == 0 else 0
            if span and DAY_S % span == 0 and count >= 0.9 * spans.total():
                return span
        return None

    def _clocks(self, index: int) -> Sequence[object]:
        (form, *_) = infer_clock(self._table.filled[index])
        return _times_of_day(form, [cell_text(cell) for cell in self._table.sample[index]])

    # Periods by number, and as headings.

    def _add_numbered(self, keys: Sequence[int]) -> None:
        draft, counts = self._draft, self._counts(keys)
        usual = Counter(counts.values()).most_common(1)[0][0] if counts else 0
        if self._across is not None:
            usual = max(usual, len(self._across.columns))
        name = next((name for name, count in _PER_DAY.items() if abs(usual - count) <= count // 24), "")
        if "resolution" not in draft.keys:
            draft.fields["resolution"] = self._table.known.get("resolution") or name or "PT1H"
            if name:
                draft.note("resolution", f"{usual} periods a day")
            elif "resolution" not in self._table.known:
                draft.question("resolution", "PT1H", f"a day has at most {usual} periods")
        count = _PER_DAY.get(name, 0)
        changed = sorted(day // DAY_S for day, each in counts.items() if count and abs(each - count) == count // 24)
        zones = [key for key in SAME_CLOCKS if changed and {*changed} <= _days_of_changes(key, changed)]
        days = [f"{iso_seconds(day * DAY_S)[:10]} has {counts[day * DAY_S]} periods" for day in changed[:1]]
        self._add_zone(Clocks(tuple(zones), tuple(days)), needed=not self._when.form.has_offset)

    def _counts(self, keys: Sequence[int]) -> dict[int, int]:
        """Return the highest number of a period with a value by the beginning of each day."""
        when, table, counts = self._when, self._table, dict[int, int]()
        days = instants(when.form, table.joined(when.columns))
        if self._across is None:
            for row in chain.from_iterable(self._groups(keys)[:1]):
                if isinstance(day := days[row], int):
                    number = table.number(table.cells[when.period or 0][row])
                    counts[day] = max(counts.get(day, 0), int(number or 0))
            return counts
        for row, day in enumerate(days):
            filled = [
                at
                for at, index in enumerate(self._across.columns, 1)
                if table.number(table.cells[index][row]) is not None
            ]
            if isinstance(day, int):
                counts[day] = max(filled, default=0)
        return counts

    def _add_across(self, across: Across) -> None:
        if across.form is None:
            return
        clocks = [each for each in _times_of_day(across.form, across.texts) if isinstance(each, int)]
        step = steps_of(clocks).step
        self._draft.fields["resolution"] = self._table.known.get("resolution") or resolution_of(step or 3600)
        shown: list[int] = []
        for row, day in enumerate(instants(self._when.form, self._table.cells[self._when.columns[0]])):
            if isinstance(day, int):
                shown += [
                    day + clock
                    for clock, index in zip(clocks, across.columns, strict=False)
                    if self._table.number(self._table.cells[index][row]) is not None
                ]
        self._add_zone(observed_clocks([sorted(shown)], step), needed=True)

    # The zone.

    def _add_zone(self, observed: Clocks, *, needed: bool) -> None:
        if self._when.form.has_offset:
            return
        if known := self._table.known.get("zone"):
            self._set_zone(known, "")
            return
        stated, is_certain = self._stated()
        if needed:
            self._add_clock(observed, stated, is_certain=is_certain)
        elif stated is not None and is_certain and not stated.others:
            self._set_zone(stated.key, f"stated as {stated.words!r}")
        else:
            self._draft.note("zone", "dates are days of UTC, unless a zone is given")

    def _add_clock(self, observed: Clocks, stated: Stated | None, *, is_certain: bool) -> None:
        """Add the zone of times of day."""
        draft = self._draft
        if observed.zones:
            agreed = stated.key if stated is not None and same_clocks(stated.key, observed.zones[0]) else ""
            key = agreed or observed.zones[0]
            self._set_zone(key, f"{observed.days[0]}, as in {SAME_CLOCKS.get(key, key)}")
            if len(observed.zones) > 1 and not agreed:
                draft.question("zone", key, f"{observed.days[0]} in other zones, too", observed.zones[1:])
        elif stated is not None and not (observed.is_fixed and has_summer_time(stated.key)):
            self._set_zone(stated.key, f"stated as {stated.words!r}")
            if stated.others:
                draft.question(
                    "zone", stated.key, f"{stated.words!r} may be the time of winter all year", stated.others
                )
            elif not is_certain:
                draft.question("zone", stated.key, f"whether {stated.words!r} is the zone of the times")
        elif observed.is_fixed:
            fixed = [key for key in (stated.others if stated is not None else ()) if not has_summer_time(key)]
            self._set_zone((fixed or ["UTC"])[0], "")
            if not fixed:
                draft.question(
                    "zone", "UTC", "the days on which clocks change have 24 hours: a zone without summer time"
                )
        else:
            reason = "no time has an offset, and no day of 23 or 25 hours is in the sample"
            draft.question("zone", "UTC", reason, ("Europe/Berlin", "America/New_York"))

    def _set_zone(self, key: str, reason: str) -> None:
        if key != "UTC":
            self._draft.fields["zone"] = key
        if reason:
            self._draft.note("zone", f"{key}: {reason}")

    def _stated(self) -> tuple[Stated | None, bool]:
        """Return the zone in headings, a column of zones or the text around the table, and whether it is certain."""
        table = self._table
        headings = [table.names[index] for index in self._when.columns]
        others = [name for name in table.names if IS_TIME.search(name) and not ISSUED.search(name)]
        cells = [
            cell_text(column[0])
            for name, column in zip(table.names, table.filled, strict=True)
            if len(set(column)) == 1 and _NAMES_ZONE.search(name)
        ]
        if (stated := stated_zone([*headings, *cells, *others])) is not None:
            return stated, True
        lines = [line for line in table.context.splitlines() if not ISSUED.search(line) and not _MADE.search(line)]
        if (stated := stated_zone(["\n".join(line for line in lines if _NAMES_ZONE.search(line))])) is not None:
            return stated, True
        return stated_zone(["\n".join(lines)]), False

    # The stamp.

    def _add_stamp(self) -> None:
        draft, when = self._draft, self._when
        if self._across is not None:
            if self._across.form is not None and self._across.texts[-1].startswith("24:00"):
                draft.keys["stamp"] = "end"
                draft.note("stamp", "the headings up to 24:00 are ends of periods")
            return
        resolution = draft.fields.get("resolution", IRREGULAR)
        if when.period is not None or not when.form.has_clock or when.form.interval or resolution == IRREGULAR:
            return
        step = parse_resolution(resolution)
        headings = [self._table.names[index] for index in when.columns]
        if step.is_calendar or any(map(START.search, headings)):
            return
        if known := self._table.known.get("stamp"):
            if known == "end":
                draft.keys["stamp"] = "end"
            return
        joined = [cell_text(cell) for cell in self._table.joined(when.columns)]
        if any(map(END.search, headings)) or any(re.search(r"(?<!\d)24:?00", text) for text in joined):
            draft.keys["stamp"] = "end"
            draft.note("stamp", "times are ends of periods, by the heading or by 24:00")
            return
        times = sorted({each for each in instants(when.form, joined) if isinstance(each, int)})
        whole = len(times) > 1 and times[-1] - times[0] >= DAY_S - step.seconds
        if whole and times[0] % DAY_S == step.seconds:
            draft.question("stamp", "start", "the first time of a day is one period after midnight", ["end"])


def resolution_of(step: int) -> str:
    """Return the resolution of a grid in seconds."""
    return parse_resolution(f"PT{step}S" if step % 60 else f"PT{step // 60}M").text


def _length(starts: Sequence[object], ends: Sequence[object]) -> int | None:
    """Return the length of most periods; None if they have several, or none."""
    pairs = [(a, b) for a, b in zip(starts, ends, strict=True) if isinstance(a, int) and isinstance(b, int)]
    lengths = Counter(end - start for start, end in pairs)
    if not lengths:
        return None
    length, count = lengths.most_common(1)[0]
    # Those over a change of clocks differ.
    return length if 0 < length <= DAY_S and DAY_S % length == 0 and count >= 0.9 * len(pairs) else None


def _times_of_day(form: TimeFormat, texts: Sequence[str]) -> Sequence[object]:
    """Return the seconds since midnight of times of day; None where there is none."""
    made = TimeFormat(f"%Y.%m.%d {form.format}", form.interval)
    return instants(made, [f"1970.01.01 {text}" for text in texts])


def _days_of_changes(key: str, days: Sequence[int]) -> set[int]:
    years = {int(iso_seconds(day * DAY_S)[:4]) for day in days}
    return {begin // DAY_S for year in years for begin, _ in changes_of(key, year)}
