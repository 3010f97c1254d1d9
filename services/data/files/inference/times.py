"""Infers how times are written: candidates of formats, by the same reader which later converts them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Final, NamedTuple

from services.data.files.grid import Cell, cell_text
from services.data.files.instants import CellTimes, Time
from services.data.files.mapping import Mapping
from services.data.kinds.series.times import DAY_S

_YEAR, _TWO, _ONE = r"(?:19[5-9]\d|20\d\d|21\d\d)", r"\d\d", r"\d\d?"
_MON: Final = (
    r"(?:[Jj]an|[Ff]eb|[Mm]ar|[Aa]pr|[Mm]ay|[Jj]un|[Jj]ul|[Aa]ug|[Ss]ep|[Oo]ct|[Nn]ov|[Dd]ec|[A-Z]{3})[a-z]*\.?"
)
_PARTS: Final = {
    "Y": _YEAR, "m": _ONE, "d": _ONE, "y": _TWO, "b": _MON, "H": _ONE, "I": _ONE, "M": _TWO, "S": _TWO, "f": r"\d{1,9}",
    "p": r"[AaPp]\.?[Mm]\.?", "z": r"(?:[Zz]|[+-](?:0\d|1[0-4])(?::?[0-5]\d)?)",
    "Z": r"(?:UTC|GMT|CET|CEST|MEZ|MESZ|EET|EEST|WET|WEST|BST)",
    "j": r"\d{3}",
}  # fmt: skip
_DATES: Final = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y %m %d", "%Y%m%d",
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %m %Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
    "%y/%m/%d",    "%d-%m-%y", "%m-%d-%y",
    "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d. %b %Y", "%d%b%Y", "%b %d, %Y", "%b %d %Y", "%Y-%b-%d", "%d/%b/%Y",
    "%a %d %b %Y", "%a, %d %b %Y", "%a %b %d %Y", "%Y-%j", "%Y%j", "%Y %j",
    "%Y-%m", "%Y/%m", "%Y%m", "%Y %m", "%m/%Y", "%m.%Y", "%m-%Y", "%b %Y", "%b-%Y", "%b-%y", "%Y-%b", "%Y %b", "%Y",
)  # fmt: skip
_CLOCKS: Final = (
    "%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%H", "%H%M", "%H%M%S", "%I:%M %p", "%I:%M%p", "%I:%M:%S %p", "%I %p",
    "%H.%M", "%H.%M.%S", "%Hh%M", "%Hh",
)  # fmt: skip
_BETWEEN: Final = ("", " ", "T", ", ", ":", "-", "_", ";", ". ")
_ISO_FORMATS: Final = frozenset(
    f"%Y-%m-%d{clock}{offset}"
    for clock in ("", *(f"{mark}{each}" for mark in "T " for each in ("%H", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f")))
    for offset in ("", "%z", " %z", " %Z")
)
"""Formats of which the mapping needs none."""
INTERVAL_MARKS: Final = (" - ", " \u2013 ", " \u2014 ", "/", " bis ", " to ", " / ", "..", "\u2013", "-")
EPOCH: Final = "epoch"
EPOCH_MS: Final = "epoch_ms"
_EARLIEST_S, _LATEST_S = 631_152_000, 4_102_444_800  # 1990, 2100
MAX_TIME: Final = 100
"""Longest text of a time, or an interval, in characters."""


class TimeFormat(NamedTuple):
    """A format of times.

    Attributes:
        interval: the mark between the two times of an interval. is_padded: hours have two digits, as in ISO 8601.
    """

    format: str
    interval: str = ""
    is_padded: bool = True

    @property
    def key(self) -> str:
        """The value of ``time_format``; empty for ISO 8601."""
        return "" if self.is_padded and self.format in _ISO_FORMATS else self.format

    @property
    def has_offset(self) -> bool:
        """True if every time has an offset from UTC, or counts from an epoch."""
        return self.format.endswith(("%z", "%Z")) or self.format in {EPOCH, EPOCH_MS}

    @property
    def has_clock(self) -> bool:
        """True if there are times of day."""
        return self.format in {EPOCH, EPOCH_MS} or "%H" in self.format or "%I" in self.format

    @property
    def is_date(self) -> bool:
        """True if there is a complete date."""
        return self.format in {EPOCH, EPOCH_MS} or any(day in self.format for day in ("%d", "%j"))

    @property
    def reader(self) -> CellTimes:
        """Reads its times, local ones as if they were of UTC."""
        return reader(self, "UTC")


@lru_cache(maxsize=256)
def reader(form: TimeFormat, zone: str) -> CellTimes:
    """Return the reader of a format for a zone."""
    return CellTimes(Mapping(time_format=form.key, interval=form.interval or None), zone)


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [(date, re.compile(_expand(date), re.ASCII)) for date in _DATES]


@lru_cache(maxsize=1)
def _tails() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return what may follow a date, by its first character; ``0`` stands for digits."""
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for clock in _CLOCKS:
        for mark in _BETWEEN:
            for offset in ("", "%z", " %z", " %Z"):
                tail = f"{mark}{clock}{offset}"
                found.setdefault(tail[0].replace("%", "0"), []).append((tail, re.compile(_expand(tail), re.ASCII)))
    return found


def _expand(text: str) -> str:
    pieces = re.split(r"%(.)", text)
    made = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            made.append(re.escape(piece).replace(r"\ ", r"\s+"))
            continue
        # Between digits that touch each other every part has its full width.
        touches = (index > 1 and not pieces[index - 1]) or (index + 2 < len(pieces) and not pieces[index + 1])
        part = _PARTS.get(piece, r"[^\W\d_]+\.?")
        made.append(_TWO if touches and part == _ONE else part)
    return "".join(made)


def formats_of(text: str) -> Iterator[str]:
    """Yield the formats in which a text is a time."""
    for date, pattern in _patterns():
        if (match := pattern.match(text)) is None:
            continue
        end = match.end()
        if end == len(text):
            yield date
            continue
        first = "0" if text[end].isdigit() else text[end]
        # Times of day follow complete dates; without a mark, those without marks alone.
        if ("%d" not in date and "%j" not in date) or (first == "0" and date != "%Y%m%d"):
            continue
        for tail, rest in _tails().get(first, ()):
            if rest.fullmatch(text, end):
                yield date + tail


def infer_formats(cells: Sequence[Cell]) -> list[TimeFormat]:
    """Return the formats in which every cell that is not empty is a time; empty: these are no times."""
    texts = list(dict.fromkeys(text for cell in cells if (text := cell_text(cell))))
    if not texts or len(texts[0]) > MAX_TIME:
        return []
    found = [TimeFormat(each) for each in formats_of(texts[0])]
    found += [each._replace(is_padded=False) for each in found if not each.key]
    found = [each for each in found if _reads_all(each, texts)]
    if not found:
        found = _epochs(texts)
    return found or _intervals(texts)


def infer_clock(cells: Sequence[Cell]) -> list[TimeFormat]:
    """Return the formats of a column with times of day alone, such as ``00:15``, ``00 - 01`` or ``7``."""
    texts = list(dict.fromkeys(text for cell in cells if (text := cell_text(cell))))
    found = []
    for mark in ("", " - ", " \u2013 ", "\u2013", "-", " bis ", " to "):
        firsts = [text.partition(mark)[0].strip() for text in texts] if mark else texts
        if mark and not all(mark in text for text in texts):
            continue
        found += [
            TimeFormat(f"{clock}{offset}", mark)
            for clock in _CLOCKS
            for offset in ("", "%z", " %z")
            if all(re.fullmatch(_expand(f"{clock}{offset}"), text, re.ASCII) for text in firsts)
        ]
        if found:
            break
    return [each for each in found if _is_clock(each, texts)]


def _is_clock(form: TimeFormat, texts: Sequence[str]) -> bool:
    made = TimeFormat(f"%Y.%m.%d {form.format}", form.interval)
    return all(_instant(made, f"2001.01.01 {text}") is not None for text in texts)


def instants(form: TimeFormat, cells: Sequence[Cell], zone: str = "UTC") -> list[Time | None]:
    """Return the instants of cells; None where there is no time."""
    made = reader(form, zone)
    found: list[Time | None] = []
    for cell in cells:
        try:
            found.append(made.instant(cell) if cell_text(cell) else None)
        except (ValueError, OverflowError):
            found.append(None)
    return found


def _reads_all(form: TimeFormat, texts: Sequence[str]) -> bool:
    return all(_instant(form, text) is not None for text in texts)


def _instant(form: TimeFormat, text: str) -> Time | None:
    try:
        return form.reader.instant(text)
    except (ValueError, OverflowError):
        return None


def _epochs(texts: Sequence[str]) -> list[TimeFormat]:
    if not all(re.fullmatch(r"\d{9,13}(?:\.0+)?", text, re.ASCII) for text in texts):
        return []
    for name, scale in ((EPOCH, 1), (EPOCH_MS, 1000)):
        if all(_EARLIEST_S <= float(text) / scale < _LATEST_S for text in texts):
            return [TimeFormat(name)] if _reads_all(TimeFormat(name), texts) else []
    return []


def _intervals(texts: Sequence[str]) -> list[TimeFormat]:
    for mark in INTERVAL_MARKS:
        if not all(mark in text for text in texts):
            continue
        firsts = [text.partition(mark)[0].strip() for text in texts]
        found = [TimeFormat(each, mark) for each in formats_of(firsts[0])] if firsts[0] else []
        found = [each for each in found if each.has_clock and _reads_all(each, texts)]
        if found:
            return found
    return []


class Steps(NamedTuple):
    """Differences between consecutive times of a series.

    Attributes:
        step: the grid in seconds; 0: irregular, or fewer than two times. share: of the differences which are one step.
        calendar: P1M and the like, if the times are dates of it. usual, usual_share: the commonest difference.
    """

    step: int = 0
    share: float = 0.0
    calendar: str = ""
    usual: int = 0
    usual_share: float = 0.0

    @property
    def is_regular(self) -> bool:
        """True if most times follow each other by one step."""
        return bool(self.calendar) or (self.step > 0 and self.share >= 0.5)


def steps_of(times: Sequence[int]) -> Steps:
    """Return the steps of a series in the order of its rows, which may be descending."""
    differences = [second - first for first, second in pairwise(times) if second != first]
    if not differences:
        return Steps()
    sizes = [abs(each) for each in differences]
    if calendar := _calendar(times):
        return Steps(calendar=calendar)
    usual, count = Counter(sizes).most_common(1)[0]
    share = count / len(sizes)
    step = gcd(*sizes)
    backward = sum(each < 0 for each in differences)
    if step != usual or step > DAY_S or DAY_S % step:
        # A single time beside the grid makes the series irregular, or has a mistake.
        return Steps(usual=usual, usual_share=share if usual <= DAY_S and DAY_S % usual == 0 else 0.0)
    in_order = max(backward, len(sizes) - backward) > 0.9 * len(sizes)
    return Steps(step, share if in_order else 0.0, "", usual, share)


_DAYS: Final = {"P1W": (7, 7), "P1M": (28, 31), "P3M": (90, 92), "P1Y": (365, 366)}


def _calendar(times: Sequence[int]) -> str:
    """Return the resolution of dates longer than a day; empty: of none."""
    if any(each % DAY_S for each in times):
        return ""
    days = sorted({each // DAY_S for each in times})
    gaps = [second - first for first, second in pairwise(days)]
    for name, (least, most) in _DAYS.items():
        if gaps and sum(least <= gap <= most for gap in gaps) >= 0.8 * len(gaps) and min(gaps) >= least:
            return name
    return ""
