"""Infers how numbers are written: the marks of decimals and thousands, and the texts of missing values."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from services.data.files.grid import Cell

GAPS: Final = frozenset(
    (
        "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", ":", "*", "x", "?", "\\n", "m", "mm", "bd", "nd", "tr",
        "nil", "na", "n/a", "n.a.", "n. a.", "n/e", "n.d.", "#n/a", "#nv", "#value!", "#wert!", "#div/0!", "nan",
        "null", "none", "k.a.", "k. a.", "missing", "no data", "not available", "unavailable", "unknown",
    )
)  # fmt: skip
"""Texts of missing values, in lower case."""
SENTINELS: Final = frozenset({999.0, 9999.0, 99999.0, 999.9, 9999.9, 99.99, 999.99, 99.0, 99.9, 999999.0, 9999.99})
"""Absolute values of numbers which often stand for missing values."""
_SURE_SENTINELS: Final = frozenset({-999.0, -9999.0, -99999.0, -999.9, -9999.9, -999.99, -999999.0})
MAX_GAP_TEXTS: Final = 4
"""Different texts beside numbers in a column of numbers; with more, it is a column of texts."""
_BLANK: Final = " \u00a0\u202f\u2009"


class NumberStyle(NamedTuple):
    """Marks of decimals and thousands; an empty mark of thousands: none."""

    decimal: str = "."
    thousands: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Numbers in this style."""
        return _PATTERNS[self]


PLAIN: Final = NumberStyle()


def _compile(style: NumberStyle) -> re.Pattern[str]:
    whole = r"\d+"
    if style.thousands:
        mark = f"[{_BLANK}]" if style.thousands in _BLANK else re.escape(style.thousands)
        whole = rf"(?:[1-9]\d{{0,2}}(?:{mark}\d{{3}})+|\d+)"
    decimal = re.escape(style.decimal)
    return re.compile(rf"[+-]?(?:{whole}(?:{decimal}\d*)?|{decimal}\d+)(?:[eE][+-]?\d{{1,3}})?", re.ASCII)


STYLES: Final = tuple(
    NumberStyle(*marks)
    for marks in ((".", ""), (",", ""), (".", ","), (",", "."), (",", " "), (".", " "), (".", "'"), (",", "'"))
)
_PATTERNS: Final = {style: _compile(style) for style in STYLES}


class Numbers(NamedTuple):
    """How the numbers of a table are written.

    Attributes:
        style: the marks. columns: indices of columns of numbers. gaps: texts of missing values. unsure_gaps: those of
        them which no list of such texts has. other: a style in which the same texts are other numbers; None: there is
        none. example: a text with two meanings.
    """

    style: NumberStyle
    columns: frozenset[int]
    gaps: tuple[str, ...] = ()
    unsure_gaps: tuple[str, ...] = ()
    other: NumberStyle | None = None
    example: str = ""


def infer_numbers(columns: Sequence[Sequence[Cell]]) -> Numbers:
    """Infer the style of the columns of a table, which is one for all of them."""
    counts = [Counter(_text(cell) for cell in column if isinstance(cell, str)) for column in columns]
    typed = [sum(_is_number(cell) for cell in column) for column in columns]
    found = [(style, _columns(style, counts, typed)) for style in STYLES]
    most = max(len(each) for _, each in found)
    # The first of equals has the fewest marks.
    covers = [(_covered(style, counts, numeric), style, numeric) for style, numeric in found if len(numeric) == most]
    best = max(covered for covered, _, _ in covers)
    style, numeric = next((style, numeric) for covered, style, numeric in covers if covered == best)
    other, example = _ambiguous(
        style, [each for covered, each, _ in covers if covered == best], [counts[index] for index in numeric]
    )
    gaps, unsure = _gap_texts(style, [counts[index] for index in sorted(numeric)])
    return Numbers(style, frozenset(numeric), gaps, unsure, other, example)


def parse_number(cell: Cell, style: NumberStyle) -> float | None:
    """Return the number of a cell; None if it is none."""
    if isinstance(cell, str):
        text = _text(cell)
        if style.pattern.fullmatch(text) is None:
            return None
        mark = _BLANK if style.thousands and style.thousands in _BLANK else style.thousands
        for each in mark:
            text = text.replace(each, "")
        return float(text.replace(style.decimal, "."))
    return float(cell) if _is_number(cell) and cell is not None else None


def sentinels(texts: Mapping[str, int], style: NumberStyle) -> tuple[list[str], list[str]]:
    """Return numbers that stand for missing values, and those that may, of a column's texts with their counts.

    They are certain if they are far away from all others, or have no decimals while all others do.
    """
    numbers = {text: number for text in texts if (number := parse_number(text, style)) is not None}
    rest = {text: number for text, number in numbers.items() if abs(number) not in SENTINELS}
    sure, unsure = list[str](), list[str]()
    if not rest:
        return sure, unsure
    low, high = min(rest.values()), max(rest.values())
    written = sum(style.decimal in text for text in rest) / len(rest)
    often = max(texts[text] for text in rest)
    for text, number in numbers.items():
        is_whole = written > 0.9 and style.decimal not in text
        if text in rest or (low <= number <= high and number not in _SURE_SENTINELS):
            continue
        if number in _SURE_SENTINELS and (is_whole or abs(number) > 3 * max(abs(low), abs(high))):
            sure.append(text)
        elif (
            is_whole
            or number in _SURE_SENTINELS
            or texts[text] > 2 * often
            or abs(number) > 5 * max(abs(low), abs(high))
        ):
            unsure.append(text)
    return sure, unsure


def _text(cell: str) -> str:
    return cell.strip()


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _columns(style: NumberStyle, counts: Sequence[Counter[str]], typed: Sequence[int]) -> list[int]:
    """Return the columns of numbers in this style."""
    return [index for index, count in enumerate(counts) if _is_numeric(style, count, typed[index])]


def _is_numeric(style: NumberStyle, count: Counter[str], typed: int) -> bool:
    numbers = typed
    others: Counter[str] = Counter()
    for text, times in count.items():
        if style.pattern.fullmatch(text):
            numbers += times
        elif text and text.lower() not in GAPS:
            others[text] = times
    if not numbers:
        return False
    # A text that occurs once in few rows is a mistake, or this is no column of numbers.
    return len(others) <= MAX_GAP_TEXTS and others.total() <= numbers


def _covered(style: NumberStyle, counts: Sequence[Counter[str]], numeric: Sequence[int]) -> int:
    return sum(
        times for index in numeric for text, times in counts[index].items() if style.pattern.fullmatch(text) is not None
    )


def _ambiguous(
    style: NumberStyle, styles: Sequence[NumberStyle], counts: Sequence[Counter[str]]
) -> tuple[NumberStyle | None, str]:
    """Return another style that fits as well with other values, and a text with two meanings."""
    for other in styles:
        if other == style:
            continue
        for count in counts:
            for text in count:
                if (number := parse_number(text, style)) is not None and parse_number(text, other) != number:
                    return other, text
    return None, ""


def _gap_texts(style: NumberStyle, counts: Sequence[Counter[str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    texts = dict.fromkeys(text for count in counts for text in count if text and not style.pattern.fullmatch(text))
    return tuple(texts), tuple(text for text in texts if text.lower() not in GAPS)
