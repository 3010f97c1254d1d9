"""Infers which columns of a table are its time: one, a date with a time of day or a period, or parts of a date."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from services.data.files.grid import Cell, cell_text
from services.data.files.inference.cells import HOUR, SampleTable, has_fractions
from services.data.files.inference.draft import Draft
from services.data.files.inference.times import (
    EPOCH,
    EPOCH_MS,
    TimeFormat,
    infer_clock,
    infer_formats,
    instants,
    steps_of,
)
from services.data.files.inference.zones import stated_zone
from services.data.kinds.series.times import DAY_S

IS_TIME: Final = re.compile(
    r"(?i)(?:time|date|datum|zeit|fecha|hora|data|heure|stamp|period|mtu|epoch|unix|day|tag|month|monat|mes|mois|year|jahr|año|"
    r"anno|année|begin|start|von|from|yyyy|ts|dt|quarter|week|interval|mess)"
)
START: Final = re.compile(r"(?i)(?:start|begin|\bvon\b|from|anfang|desde|debut|début|inizio)")
END: Final = re.compile(
    r"(?i)(?:\bend|ending|ended|_end|end$|\bbis\b|until|\bto$|hasta|\bfin\b|\bfine\b|settlementdate|interval_?end)"
)
ISSUED: Final = re.compile(
    r"(?i)(?:publi|creat|updat|issue|insert|modif|transaction|lastchanged|load_?time|effective|process|ingest|export|"
    r"retriev|received|vintage|as_?of|forecast_?(?:time|date|run)|run_?(?:time|date)|documentdate|reported)"
)
_YEAR: Final = re.compile(
    r"(?i)^#?(?:.*year.*|y{2,4}|.*jahr|a[nñ]o|anno|ann[ée]e|time_period|time|period|date|jaar|rok|år)$"
)
_MONTH: Final = re.compile(r"(?i)^(?:month|mon|mo|mm|monat|mes|mois|mese|mån|m)$")
_DAY: Final = re.compile(r"(?i)^(?:day|dy|dd|tag|d[ií]a|jour|giorno|d)$")
_MINUTE: Final = re.compile(r"(?i)^(?:minutes?|min|mi|mn|minuto|mm)$")
_PERIOD: Final = re.compile(
    r"(?i)(?:period|position|interval|hour|stunde|hora|heure|ora$|mtu|block|\bsp\b|\btp\b|\bhe\b|ptu|quarter|viertel|"
    r"pte|\bnr\b|number)"
)
_PARTS: Final = (
    ("%Y", _YEAR, 1900, 2199),
    ("%m", _MONTH, 1, 12),
    ("%d", _DAY, 1, 31),
    ("%H", HOUR, 0, 23),
    ("%M", _MINUTE, 0, 59),
)
_COMPACT: Final = frozenset({"%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S"})
_NUMBERED: Final = re.compile(
    r"(?i)(?:h|he|hour|hr|stunde|hora|heure|ora|period|sp|tp|q|v|p|pte|interval|hour ending|std|mw)?[\s_.]*0*(\d{1,3})"
    r"(?:\.\s?std|h|\.)?"
)
_LENGTH: Final = re.compile(r"P(?:T\d{1,5}[HMS]|\d{1,3}[DWMY])", re.ASCII)
_CURVE: Final = re.compile(r"(?i)curve_?type$")
_MAX_LENGTHS: Final = 5
_MIN_ACROSS: Final = 20
"""Headings which are times or periods, at least; with fewer, columns are endpoints."""


class TimeColumns(NamedTuple):
    """The columns of the time.

    Attributes:
        columns: to be joined. form: of the joined cells. period: the column with the number of the period. others:
        other formats which fit as well, as of a day and a month exchanged. decided: what decided between formats.
    """

    columns: tuple[int, ...]
    form: TimeFormat
    period: int | None = None
    score: float = 0.0
    others: tuple[TimeFormat, ...] = ()
    decided: str = ""


class Across(NamedTuple):
    """Columns of values whose headings are times of day, in the format ``form``, or numbers of periods."""

    columns: list[int]
    kind: Literal["time", "period"]
    texts: list[str]
    form: TimeFormat | None = None


def find_across(table: SampleTable) -> Across | None:
    """Return the columns whose headings are times of day or periods; None: there are none."""
    columns = [(index, name) for index, name in enumerate(table.names) if name and index in table.numbers.columns]
    clocks = [(index, text) for index, text in columns if re.match(r"\d{1,2}:\d\d", text)]
    if len(clocks) >= _MIN_ACROSS and (forms := infer_clock([text for _, text in clocks])):
        return Across([index for index, _ in clocks], "time", [text for _, text in clocks], forms[0])
    numbered = [(index, match[1]) for index, text in columns if (match := _NUMBERED.fullmatch(text))]
    numbers = [int(number) for _, number in numbered]
    if not table.is_plain and len(numbers) >= _MIN_ACROSS and numbers == [*range(1, len(numbers) + 1)]:
        return Across([index for index, _ in numbered], "period", [number for _, number in numbered])
    return None


class TimeFinder:
    """Finds the columns of the time of a table."""

    def __init__(self, table: SampleTable, across: Across | None) -> None:
        self._table = table
        self._skipped = set(across.columns) if across else set()
        self._is_across = across is not None

    def find(self) -> TimeColumns | None:
        """Return the likeliest columns; None: there are no times."""
        dates: list[tuple[int, list[TimeFormat]]] = []
        for index, column in enumerate(self._table.filled):
            if index in self._skipped or not column or has_fractions(column):
                continue
            # A footer may follow the rows with times: converting names its line.
            forms = infer_formats(column) or (infer_formats(column[:-3]) if len(column) > 9 else [])
            if forms := [form for form in forms if self._is_plausible(index, form)]:
                dates.append((index, forms))
        found = [self._single(index, forms) for index, forms in dates]
        if not self._is_across:
            found += self._joined(dates)
            found += self._positions(dates)
        found += self._parts()
        return max(found, key=lambda each: each.score, default=None)

    def _is_plausible(self, index: int, form: TimeFormat) -> bool:
        """Return whether a column of digits is one of times, by its heading or its steps."""
        if index not in self._table.numbers.columns:
            return True
        heading = self._table.names[index]
        if form.format == "%Y":
            return bool(_YEAR.search(heading))
        if form.format in _COMPACT:
            return True
        wanted = form.format in {"%Y%m%d", EPOCH, EPOCH_MS}
        named = IS_TIME.search(heading) is not None
        times = [each for each in instants(form, self._table.cells[index]) if isinstance(each, int)]
        return named if not wanted else named or (index == 0 and steps_of(times).is_regular)

    def _single(self, index: int, forms: Sequence[TimeFormat]) -> TimeColumns:
        form, others, decided = self._decide(index, forms)
        times = [each for each in instants(form, self._table.cells[index]) if isinstance(each, int)]
        distinct = len(set(times))
        heading = self._table.names[index]
        score = (
            2.0 + form.has_offset + form.has_clock + min(distinct, 100) / 100 + _heading_score(heading) - index / 1000
        )
        score += 0.5 * bool(START.search(heading) or heading.lower() in {"time", "timestamp"})
        score += 0.6 * (stated_zone([heading]) is not None)
        score -= 1.5 * (distinct == 1 and len(self._table.rows) > 1)
        return TimeColumns((index,), form, None, score, others, decided)

    def _decide(self, index: int, forms: Sequence[TimeFormat]) -> tuple[TimeFormat, tuple[TimeFormat, ...], str]:
        """Return the format, others which fit as well, and what decided between them."""
        by_times: dict[tuple[object, ...], TimeFormat] = {}
        for form in sorted(forms, key=_unusualness):
            by_times.setdefault(tuple(instants(form, self._table.sample[index])), form)
        distinct = list(by_times.values())
        if len(distinct) == 1:
            return distinct[0], (), "values"
        if (known := self._table.known.get("time_format")) is not None:
            return next((each for each in distinct if known.startswith(each.format)), distinct[0]), (), "stated"
        if dotted := [form for form in distinct if "%d.%m" in form.format]:
            return dotted[0], (), "points"
        gapless = [form for form in distinct if _is_gapless(instants(form, self._table.cells[index]))]
        if len(gapless) == 1:
            return gapless[0], (), "steps"
        first, *others = gapless or distinct
        return first, (*others, *(each for each in distinct if each not in {first, *others})), ""

    def _joined(self, dates: Sequence[tuple[int, list[TimeFormat]]]) -> Iterator[TimeColumns]:
        """Yield readings of a date with a time of day or a number of a period in another column."""
        for index, forms in dates:
            days = [form for form in forms if form.is_date and not form.has_clock and not form.interval]
            if not days:
                continue
            form, others, decided = self._decide(index, days)
            clocks = [each for each in range(len(self._table.names)) if each != index and self._table.is_clock(each)]
            if clocks:
                clock = min(clocks, key=lambda each: self._distance(index, each))
                own = infer_clock(self._table.filled[clock])[0]
                made, *also = (_with_clock(each.format, own, self._table.filled[clock]) for each in (form, *others))
                score = self._pair_score(index, clock) + 0.7
                yield TimeColumns((index, clock), made, None, score, tuple(also), decided)
            for period in range(len(self._table.names)):
                if period != index and self._is_period((index,), period):
                    yield TimeColumns((index,), form, period, self._pair_score(index, period) + 0.5, others, decided)

    def _positions(self, dates: Sequence[tuple[int, list[TimeFormat]]]) -> Iterator[TimeColumns]:
        """Yield readings of the beginning of several rows with their positions after it, as in ENTSO-E's documents."""
        lengths = column_of_lengths(self._table)
        around = "" if lengths is None else self._table.names[lengths].rpartition("/")[0]
        for index, forms in dates if lengths is not None else ():
            for period in range(len(self._table.names)):
                if forms[0].has_offset and START.search(self._table.names[index]) and self._is_period((index,), period):
                    # The whole document may have a beginning, too.
                    own = self._table.names[index].startswith(f"{around}/")
                    yield TimeColumns((index,), forms[0], period, self._pair_score(index, period) + 3.0 + own)

    def _distance(self, date: int, clock: int) -> tuple[bool, int]:
        return bool(END.search(self._table.names[clock])), abs(clock - date)

    def _pair_score(self, date: int, clock: int) -> float:
        names = self._table.names
        score = 3.0 + _heading_score(names[date]) - date / 1000
        return score + 0.2 * (abs(clock - date) == 1) + 0.2 * bool(_PERIOD.search(names[clock]))

    def _is_period(self, dates: Sequence[int], index: int) -> bool:
        """Return whether a column counts the periods of days from 1."""
        column = self._table.filled[index]
        if index not in self._table.numbers.columns or len(column) != len(self._table.sample[index]):
            return False
        numbers = {number for cell in column if (number := self._table.number(cell)) is not None}
        if not all(each.is_integer() and 1 <= each <= 300 for each in numbers) or len(numbers) < min(2, len(column)):
            return False
        days: dict[Cell, set[float | None]] = {}
        for day, cell in zip(self._table.joined(dates, of_sample=True), self._table.sample[index], strict=True):
            days.setdefault(day, set()).add(self._table.number(cell))
        if _PERIOD.search(self._table.names[index]) and min(numbers) == 1:
            return True
        counted = [each == {float(number) for number in range(1, len(each) + 1)} for each in days.values()]
        return all(counted) and max(map(len, days.values())) >= 23

    def _parts(self) -> Iterator[TimeColumns]:
        """Yield readings of columns with years, months, days and hours."""
        chosen: list[int] = []
        made: list[str] = []
        for directive, pattern, least, most in _PARTS:
            index = self._part(chosen, pattern, range(least, most + 1))
            if index is None or (
                directive == "%M" and any(len(cell_text(cell)) < 2 for cell in self._table.filled[index])
            ):
                break
            chosen.append(index)
            made.append(directive)
        if len(made) < (3 if self._table.is_plain else 2):
            return
        day = len(made) >= 3
        if day:
            yield from self._parts_with(chosen[:3])
        if made[-1] == "%H" and not any(cell_text(cell) in {"0", "00"} for cell in self._table.filled[chosen[-1]]):
            # Hours from 1, which are periods, or a few of a day.
            made.pop()
            chosen.pop()
        yield TimeColumns(tuple(chosen), TimeFormat(" ".join(made)), None, 3.2 + len(made) / 10)

    def _parts_with(self, date: Sequence[int]) -> Iterator[TimeColumns]:
        """Yield readings of a date in three columns with a time of day, or the number of a period, in another one."""
        others = [each for each in range(len(self._table.names)) if each not in date]
        clock = next(
            (each for each in others if each not in self._table.numbers.columns and self._table.is_clock(each)), None
        )
        if clock is not None:
            own = infer_clock(self._table.filled[clock])[0]
            yield TimeColumns((*date, clock), TimeFormat(f"%Y %m %d {own.format}", own.interval), None, 4.2)
        for period in others:
            if self._is_period(date, period):
                yield TimeColumns(tuple(date), TimeFormat("%Y %m %d"), period, 4.0 - period / 1000)

    def _part(self, chosen: Sequence[int], pattern: re.Pattern[str], numbers: range) -> int | None:
        """Return the column of a part of a date, by its heading; without headings, by its place."""
        following = (chosen or [-1])[-1] + 1
        for index, name in enumerate(self._table.names):
            named = index == following < 5 if self._table.is_plain else pattern.search(name.lstrip("# "))
            if named and index not in chosen and index not in self._skipped and self._is_within(index, numbers):
                return index
        return None

    def _is_within(self, index: int, numbers: range) -> bool:
        texts = [cell_text(cell) for cell in self._table.filled[index]]
        return bool(texts) and all(text.isdecimal() and int(text) in numbers for text in texts)


def add_time(draft: Draft, table: SampleTable, when: TimeColumns, across: Across | None) -> None:
    """Add the keys of the time to a draft."""
    names = [table.label(index) for index in when.columns]
    form = when.form
    if across is not None and across.form is not None:
        form = _with_clock(form.format, across.form, across.texts)
    if names != ["time"]:
        draft.keys["time"] = names[0] if len(names) == 1 else names
    if form.key:
        draft.keys["time_format"] = form.key
    if form.interval:
        draft.keys["interval"] = form.interval
    if when.period is not None:
        draft.keys["period"] = table.label(when.period)
        _add_lengths(draft, table, when)
    first = next((cell_text(cell) for cell in table.sample[when.columns[0]] if cell_text(cell)), "")
    draft.note("time", f"{' and '.join(map(repr, names))}, as {first!r}")
    if when.others:
        reason = f"no value decides between day and month, as in {first!r}"
        draft.question("time_format", form.key or "ISO 8601", reason, [each.key or "ISO 8601" for each in when.others])
    elif when.decided == "steps":
        draft.note("time_format", f"{form.key!r}: with day and month exchanged there would be gaps")
    elif when.decided == "points":
        draft.note("time_format", "day before month, as dates with points are written")


def _with_clock(date: str, clock: TimeFormat, cells: Sequence[Cell]) -> TimeFormat:
    """Return the format of dates joined with times of day."""
    padded = all(re.match(r"\d\d", cell_text(cell)) for cell in cells)
    return TimeFormat(f"{date} {clock.format}", clock.interval, padded)


def _add_lengths(draft: Draft, table: SampleTable, when: TimeColumns) -> None:
    """Add the columns with the length of periods, and with the end until which values stand for missing positions."""
    if (lengths := column_of_lengths(table)) is not None:
        draft.keys["resolution"] = table.label(lengths)
    around = table.names[when.columns[0]].rpartition("/")[0]
    ends = [index for index, name in enumerate(table.names) if END.search(name) and index not in when.columns]
    ends.sort(key=lambda index: table.names[index].rpartition("/")[0] != around)
    end = next((index for index in ends if when.form in infer_formats(table.filled[index])), None)
    if end is None or not when.form.has_clock:
        return
    curve = {
        cell_text(cell)
        for name, column in zip(table.names, table.filled, strict=True)
        if _CURVE.search(name)
        for cell in column
    }
    positions: dict[Cell, set[float | None]] = {}
    for begin, cell in zip(table.cells[when.columns[0]], table.cells[when.period or 0], strict=True):
        positions.setdefault(begin, set()).add(table.number(cell))
    missing = any(max(filter(None, each), default=0) > len(each) for each in positions.values())
    if "A03" in curve:
        draft.keys["until"] = table.label(end)
        draft.note("until", "curve type A03: a value stands for the missing positions after it")
    elif missing and "A01" not in curve:
        draft.question("until", "", "positions are missing: gaps, or values which last", [table.label(end)])


def column_of_lengths(table: SampleTable) -> int | None:
    """Return the column with lengths of periods such as PT15M; None: there is none."""
    for index, column in enumerate(table.filled):
        texts = {cell_text(cell) for cell in column}
        if texts and len(texts) <= _MAX_LENGTHS and all(_LENGTH.fullmatch(text) for text in texts):
            return index
    return None


def _heading_score(heading: str) -> float:
    issued = ISSUED.search(heading.replace(" ", ""))
    return 0.3 * bool(IS_TIME.search(heading)) - 0.4 * bool(END.search(heading)) - 2.0 * bool(issued)


def _unusualness(form: TimeFormat) -> tuple[int, int]:
    """Return the order in which formats of the same times are preferred: day before month, then the shortest."""
    month, day = form.format.find("%m"), form.format.find("%d")
    return int(-1 < month < day and not form.format.startswith("%Y")) + 2 * form.format.startswith("%y"), len(
        form.format
    )


def _is_gapless(times: Sequence[object]) -> bool:
    """Return whether times follow each other by one step, also over the ends of days."""
    seconds = list(dict.fromkeys(each for each in times if isinstance(each, int)))
    if steps_of(seconds).calendar:
        return True
    steps = Counter(abs(second - first) for first, second in pairwise(seconds))
    # Clocks skip an hour, and repeated times are one here.
    common = steps.most_common(1)[0] if steps else (0, 0)
    days = len({each // DAY_S for each in seconds})
    return days > 1 and common[1] >= steps.total() - 2 and max(steps) <= 2 * max(common[0], 3600)
