"""Texts of PostgreSQL as JSON values, by type. Pure.

As in the database's own ``to_json``, but for ``bytea``, which is Base64, and for a ``numeric`` of so many digits that
no double has them all, which is text. Texts are those of :data:`SETTINGS`.
"""

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import orjson

from services.data.errors import InvalidDataset

SETTINGS: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
"""Of every session, so that texts have one form."""
EXACT_DIGITS: Final = 15
"""A double has every decimal number of so many digits."""
Convert = Callable[[str], Any]
"""Makes a JSON value of a text."""


class ColumnType(NamedTuple):
    """What the catalog says of a type."""

    oid: int
    base: int
    """Of a domain; else 0."""
    element: int
    """Of an array; else 0."""
    delimiter: str
    """Between elements."""


class Types:
    """The types of a database.

    Args:
        known: its domains and arrays.
        raw_bytes: whether ``bytea`` is bytes in place of Base64.
    """

    def __init__(self, known: Mapping[int, ColumnType], *, raw_bytes: bool = False) -> None:
        self._known = known
        self._scalars: Mapping[int, Convert] = {**_SCALARS, _BYTEA: _bytes} if raw_bytes else _SCALARS

    def converter(self, oid: int) -> Convert:
        """Return what makes a JSON value of a type's texts."""
        found = self._known.get(oid)
        if found is not None and found.base:
            return self.converter(found.base)
        if found is not None and found.element:
            return _Array(self.converter(found.element), found.delimiter)
        return self._scalars.get(oid, str)


def _number(text: str) -> float | str:
    made = float(text)
    return made if made - made == 0 else text  # neither infinite nor NaN


def _numeric(text: str) -> int | float | str:
    """Return a number that has all digits; text if there is none."""
    if len(text) <= EXACT_DIGITS:
        if "." not in text:
            return int(text) if text[-1] in "0123456789" else text
        return float(text)
    made = Decimal(text)
    if not made.is_finite():
        return text
    if made == made.to_integral_value() and -(2**63) <= made < 2**63:
        return int(made)
    near = float(made)
    return near if Decimal(repr(near)) == made else text


def _json(text: str) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidDataset(f"a JSON value that is not accepted here: {error}") from None


def _timestamp(text: str) -> str:
    return text.replace(" ", "T", 1) if text[:1].isdigit() and not text.endswith("BC") else text


def _instant(text: str) -> str:
    return _timestamp(text.removesuffix("+00") + "Z") if text.endswith("+00") else _timestamp(text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _base64(text: str) -> str:
    return base64.b64encode(_bytes(text)).decode()


_BYTEA: Final = 17
_SCALARS: Final[Mapping[int, Convert]] = {
    16: lambda text: text == "t",  # bool
    _BYTEA: _base64,
    20: int,  # int8
    21: int,  # int2
    23: int,  # int4
    26: int,  # oid
    114: _json,
    700: _number,  # float4
    701: _number,  # float8
    1114: _timestamp,
    1184: _instant,  # timestamptz
    1700: _numeric,
    3802: _json,  # jsonb
}
"""By object id, which is the same in every database for these; all others are text."""


class _Array:
    """Parses the text of an array, as ``{1,NULL,"a b"}``."""

    def __init__(self, convert: Convert, delimiter: str) -> None:
        self._convert = convert
        self._delimiter = delimiter

    def __call__(self, text: str) -> Any:  # noqa: ANN401  # a list of lists or values
        # Bounds before the value, if they are not the usual ones.
        start = text.index("{")
        try:
            made, end = self._list(text, start + 1)
        except IndexError:
            end, made = -1, []
        if end != len(text):
            raise InvalidDataset(f"the array {text[:60]!r} cannot be read")
        return made

    def _list(self, text: str, at: int) -> tuple[list[Any], int]:
        """Return the elements from an offset, and the offset after the closing brace."""
        made: list[Any] = []
        while text[at] != "}":
            if text[at] == "{":
                nested, at = self._list(text, at + 1)
                made.append(nested)
            elif text[at] == '"':
                found, at = _quoted(text, at + 1)
                made.append(self._convert(found))
            else:
                begin = at
                while text[at] not in (self._delimiter, "}"):
                    at += 1
                found = text[begin:at]
                made.append(None if found == "NULL" else self._convert(found))
            if text[at] == self._delimiter:
                at += 1
        return made, at + 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return the text up to the closing quote, and the offset after it."""
    parts: list[str] = []
    begin = at
    while text[at] != '"':
        if text[at] == "\\":
            parts.append(text[begin:at])
            at += 1
            begin = at
        at += 1
    return "".join(parts) + text[begin:at], at + 1
