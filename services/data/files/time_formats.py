"""Formats of times in cells: the directives of strptime, ISO 8601, and seconds since 1970."""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Final

_MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_DIRECTIVES: Final = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d\d)",
    "m": r"(?P<m>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "j": r"(?P<j>\d{1,3})",
    "b": r"(?P<b>[A-Za-z]{3,9})\.?",
    "B": r"(?P<b>[A-Za-z]{3,9})\.?",
    "a": r"[^\W\d_]+\.?",
    "A": r"[^\W\d_]+\.?",
    "H": r"(?P<H>\d{1,2})",
    "I": r"(?P<I>\d{1,2})",
    "p": r"(?P<p>[AaPp])\.?[Mm]\.?",
    "M": r"(?P<M>\d\d)",
    "S": r"(?P<S>\d\d)",
    "f": r"(?P<f>\d{1,9})",
    "z": r"(?P<z>[Zz]|[+-]\d\d(?::?\d\d)?)",
    "Z": r"(?P<Z>[A-Za-z]{1,5})",
    "%": "%",
}
"""Parts of a time by the directives of strptime; months are English, and names of days are not compared."""
ISO: Final = re.compile(
    r"(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"
    r"(?:[T ](?P<H>\d\d)(?::(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?)?)?"
    r" ?(?P<z>[Zz]|UTC|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_NAMED: Final = rf"(?:\s*\({_DIRECTIVES['Z']}\))?"
"""The name of the offset in parentheses, as ENTSO-E has it in the hours that clocks repeat: ``02:00 (CEST)``."""
EPOCHS: Final = {"epoch": 1, "epoch_ms": 1000}
_BLANKS: Final = re.compile(r"\s+")


def check_format(text: str) -> str:
    """Return a format of times. Raises ValueError for an unknown directive, or one without a date."""
    if text and text not in EPOCHS:
        compile_format(text)
    return text


def compile_format(text: str) -> re.Pattern[str]:
    """Return the regular expression of a format, with a group for each part. Raises ValueError."""
    made, given = [], re.split(r"%(.)", _BLANKS.sub(" ", text.strip()))
    for index, part in enumerate(given):
        if index % 2 == 0:
            made.append(r"\s+".join(map(re.escape, part.split(" "))))
        elif part not in _DIRECTIVES:
            raise ValueError(f"%{part} is none of {', '.join('%' + name for name in _DIRECTIVES)}")
        else:
            made.append(_DIRECTIVES[part])
    if not {"z", "Z"} & set(given[1::2]):
        made.append(_NAMED)
    try:
        return re.compile("".join(made), re.ASCII)
    except re.error:
        raise ValueError("a part of the time is given twice") from None


def wall_of(parts: Mapping[str, str | None], text: str) -> datetime:
    """Return the local time of the parts of a match, without its offset. Raises ValueError."""
    get = parts.get
    if (fraction := get("f")) is not None and fraction.strip("0"):
        raise ValueError(f"{text[:40]!r} has a fraction of a second: round the times")
    hour, minute, second = int(get("H") or get("I") or 0), int(get("M") or 0), int(get("S") or 0)
    if (half := get("p")) is not None:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text[:40]!r} is not a time: no hour of a half day")
        hour = hour % 12 + 12 * (half in "Pp")
    next_day = hour == 24 and not minute and not second
    try:
        wall = datetime.combine(_date(get), time(0 if next_day else hour, minute, second))
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not a time: {error}") from None
    return wall + timedelta(days=next_day)


def _date(get: Callable[[str], str | None]) -> date:
    short = get("y")
    year = int(get("Y") or (int(short) + (1900 if int(short) > 68 else 2000) if short else 0))
    if (month := get("b")) is not None:
        number = _MONTHS.get(month[:3].lower())
        if number is None:
            raise ValueError(f"{month!r} is not an English month")
        return date(year, number, int(get("d") or 1))
    if (ordinal := get("j")) is not None:
        if not int(ordinal):
            raise ValueError("the day of the year is 0")
        found = date(year, 1, 1) + timedelta(days=int(ordinal) - 1)
        if found.year != year:
            raise ValueError("the year has no such day")
        return found
    return date(year, int(get("m") or 1), int(get("d") or 1))
