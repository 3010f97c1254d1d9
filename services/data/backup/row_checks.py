"""Check the rows of a backup before they become rows of a store: names, data and keys as the Data Service accepts them.

Pure. A backup carries the columns of the release that made it: columns without a rule of their own here must fit their
type.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import orjson
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger

from diem.errors import DiemError
from diem.process.listeners import canonical_origin
from diem.protocol import endpoints
from diem.protocol.messages import MAX_VERSION
from diem.protocol.update import GONE, UPDATE
from diem.tokens.claims import MAX_ORIGIN, MAX_ORIGINS
from services.data.access import keys as api_keys
from services.data.access.plans import MAX_PER_MINUTE, PLAN_NAME
from services.data.datasets import Resolution, parse_resolution, points_of
from services.data.datasets.form import MAX_DATASET_BYTES, seal
from services.data.datasets.units import UNITS
from services.data.store.tables import METADATA

_MAX_INTEGER: Final = 2**63 - 1
_MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_MAX_DAY: Final = _MAX_TIME_MS // 86_400_000
_MAX_ANSWER_BYTES: Final = 64 * 1024
"""Answers to requests: 50 entries with names of 256 bytes have 15 KiB."""
_SHA256_BYTES: Final = 32
_MAX_PREFIXES_CHARACTERS: Final = 64 * 1024
_MAX_ORIGINS_CHARACTERS: Final = 8 * 1024
_DATASET_DIGEST_BYTES: Final = 16

Row = dict[str, Any]


class BadRow(DiemError):
    """A row that a store would not accept; the text gives the reason, without a place."""


class TableRows:
    """Decodes and checks the rows of one table.

    Args:
        table: its name.
        columns: names of the values of each row.

    Raises:
        BadRow: the table or a column is unknown, repeated or missing.
    """

    def __init__(self, table: str, columns: object) -> None:
        if table not in METADATA.tables:
            raise BadRow(f"unknown table {table[:40]!r}")
        known = METADATA.tables[table].c
        if not isinstance(columns, list) or not all(isinstance(name, str) and name in known for name in columns):
            raise BadRow(f"the table {table} has unknown columns")
        if len(set(columns)) != len(columns) or not _REQUIRED[table] <= set(columns):
            raise BadRow(f"the table {table} has missing or repeated columns")
        self.table = table
        self._columns = columns
        self._rules = [_RULES[table].get(name) or partial(_fits, column=known[name]) for name in columns]
        self._whole = _WHOLE.get(table)

    def decode(self, values: list[Any]) -> Row:
        """Return a row as it goes into the database.

        Raises:
            BadRow: it has another number of values, or bytes that are not in base64.
        """
        if len(values) != len(self._columns):
            raise BadRow(f"a row of {self.table} has {len(self._columns)} values, not {len(values)}")
        return dict(zip(self._columns, map(_decoded, values), strict=True))

    def check(self, values: list[Any]) -> Row:
        """Decode a row and check all of it.

        Raises:
            BadRow: a store would not accept it.
        """
        row = self.decode(values)
        try:
            for name, rule in zip(self._columns, self._rules, strict=True):
                rule(row[name])
        except (DiemError, ValueError) as error:
            raise BadRow(f"{self.table}.{name}: {error}") from None
        if self._whole is not None:
            try:
                self._whole(row)
            except (DiemError, ValueError) as error:
                raise BadRow(f"{self.table}, {_shown(row)}: {error}") from None
        return row


def _decoded(value: object) -> object:
    if not isinstance(value, dict):
        return value
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (KeyError, TypeError, binascii.Error):
        raise BadRow("bytes are not in base64") from None


def _shown(row: Row) -> str:
    return str(row.get("endpoint") or row.get("id") or row.get("key") or "")[:80]


def _fits(value: object, column: "Column[Any]") -> None:
    if value is None:
        if not column.nullable:
            raise ValueError("a value is missing")
    elif isinstance(column.type, (BigInteger, SmallInteger, Integer)):
        _integer(value, -_MAX_INTEGER, _MAX_INTEGER)
    elif isinstance(column.type, LargeBinary):
        _bytes(value, 0, MAX_DATASET_BYTES)
    else:
        _text(value, getattr(column.type, "length", None) or 0)


def _integer(value: object, least: int, greatest: int) -> None:
    if type(value) is not int or not least <= value <= greatest:
        raise ValueError(f"{str(value)[:40]!r} is not a whole number from {least} to {greatest}")


def _bytes(value: object, least: int, most: int) -> bytes:
    if not isinstance(value, bytes) or not least <= len(value) <= most:
        raise ValueError(f"expected {least} to {most} bytes")
    return value


def _text(value: object, most: int) -> str:
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise ValueError(f"expected a text of at most {most} characters")
    return value


def _endpoint(value: object) -> None:
    endpoints.check(_text(value, endpoints.MAX_NAME_BYTES))


def _unit(value: object) -> None:
    if not isinstance(value, str) or value not in UNITS:
        raise ValueError(f"unknown unit {str(value)[:20]!r}")


def _resolution(value: object) -> None:
    if not isinstance(value, str) or parse_resolution(value).text != value:
        raise ValueError(f"{str(value)[:20]!r} is not in canonical form")


def _key_id(value: object) -> None:
    if not isinstance(value, str) or not api_keys.is_id(value):
        raise ValueError("not the id of an API key")


def _writer(value: object) -> None:
    # Empty: of the key file.
    if value != "":
        _key_id(value)


def _key_name(value: object) -> None:
    if not isinstance(value, str) or not api_keys.is_name(value):
        raise ValueError(f"a name has 1 to {api_keys.MAX_NAME} printable characters")


def _plan(value: object) -> None:
    # Empty for write keys; see ``_key_row``.
    if not isinstance(value, str) or (value and PLAN_NAME.fullmatch(value) is None):
        raise ValueError("not the name of a plan")


def _prefixes(value: object) -> None:
    if value == "":
        return
    found = orjson.loads(_text(value, _MAX_PREFIXES_CHARACTERS))
    if not isinstance(found, list) or not 1 <= len(found) <= api_keys.MAX_PREFIXES:
        raise ValueError("not a list of prefixes")
    for name in found:
        _endpoint(name)


def _origins(value: object) -> None:
    if value == "":
        return
    found = orjson.loads(_text(value, _MAX_ORIGINS_CHARACTERS))
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_ORIGINS:
        raise ValueError("not a list of origins")
    for origin in found:
        if not isinstance(origin, str) or len(origin) > MAX_ORIGIN or canonical_origin(origin) != origin:
            raise ValueError("not an origin")


def _optional(rule: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a rule that accepts None, too."""
    return lambda value: None if value is None else rule(value)


def _answer(value: object) -> None:
    """Check a stored answer to a request: it is sent to clients that repeat the request."""
    found = orjson.loads(_bytes(value, 2, _MAX_ANSWER_BYTES))
    if not isinstance(found, list):
        raise ValueError("not an answer")  # noqa: TRY004  # one type of error for every rule
    for item in found:
        if not isinstance(item, list) or len(item) != 3 or type(item[2]) is not bool:
            raise ValueError("not an answer")
        _endpoint(item[0])
        _integer(item[1], 0, MAX_VERSION)


_SEQUENCE: Final = partial(_integer, least=0, greatest=MAX_VERSION)
_VERSION: Final = partial(_integer, least=1, greatest=MAX_VERSION)
_TIME_MS: Final = partial(_integer, least=0, greatest=_MAX_TIME_MS)
_ONE: Final = partial(_integer, least=1, greatest=1)
_VERSIONED: Final[Mapping[str, Callable[[Any], object]]] = {
    "endpoint": _endpoint,
    "sequence": _SEQUENCE,
    "version": _VERSION,
    "kind": partial(_integer, least=UPDATE, greatest=GONE),
    "changed_ms": _TIME_MS,
}
_RULES: Final[Mapping[str, Mapping[str, Callable[[Any], object]]]] = {
    "store": {
        "id": _ONE,
        "sequence": _SEQUENCE,
        "version_floor": partial(_integer, least=0, greatest=MAX_VERSION),
        "retention_ms": _TIME_MS,
        "forgotten": _SEQUENCE,
    },
    "endpoints": {
        **_VERSIONED,
        "unit": _unit,
        "resolution": _resolution,
    },
    "history": _VERSIONED,
    "publisher": {"id": _ONE, "sequence": _SEQUENCE},
    "requests": {"writer": _writer, "answer": _answer, "created_ms": _TIME_MS},
    "api_keys": {
        "id": _key_id,
        "name": _key_name,
        "plan": _plan,
        "digest": partial(_bytes, least=_SHA256_BYTES, most=_SHA256_BYTES),
        "created_ms": _TIME_MS,
        "expires_ms": _optional(_TIME_MS),
        "last_used_ms": _optional(_TIME_MS),
        "writes": partial(_integer, least=0, greatest=1),
        "prefixes": _prefixes,
        "per_minute": _optional(partial(_integer, least=1, greatest=MAX_PER_MINUTE)),
        "max_endpoints": _optional(partial(_integer, least=1, greatest=api_keys.MAX_ENDPOINTS)),
        "origins": _origins,
    },
    "key_days": {
        "key_id": _key_id,
        "day": partial(_integer, least=0, greatest=_MAX_DAY),
        "requests": partial(_integer, least=0, greatest=_MAX_INTEGER),
    },
}
"""Rules by table and column, beyond the type of the column."""
_VERSION_COLUMNS: Final = frozenset({*_VERSIONED, "content"})
_REQUIRED: Final[Mapping[str, frozenset[str]]] = {
    **{table: frozenset[str]() for table in METADATA.tables},
    "store": frozenset({"id", "store_id", "sequence"}),
    "endpoints": _VERSION_COLUMNS | {"unit", "resolution", "digest"},
    "history": _VERSION_COLUMNS,
    "api_keys": frozenset({"id", "name", "plan", "digest", "created_ms", "revoked_ms"}),
}
"""Columns that every release has had, as far as checks or a restore need them."""


def _endpoint_row(row: Row) -> None:
    content = row["content"]
    if row["kind"] == GONE:
        if content or row["digest"]:
            raise ValueError("a deleted endpoint has no data")
        return
    unit, resolution = _check_content(content)
    if (unit, resolution) != (row["unit"], row["resolution"]):
        raise ValueError("unit or resolution is not that of the data")
    if row["digest"] != blake2b(content, digest_size=_DATASET_DIGEST_BYTES).digest():
        raise ValueError("the digest is not that of the data")


def _history_row(row: Row) -> None:
    if row["kind"] == GONE:
        if row["content"]:
            raise ValueError("a deleted endpoint has no data")
    else:
        _check_content(row["content"])


def _key_row(row: Row) -> None:
    writes = bool(row.get("writes"))
    if writes != (row["plan"] == ""):
        raise ValueError("an API key has a plan, and a write key has none")
    if not writes and (
        row.get("prefixes") or row.get("per_minute") is not None or row.get("max_endpoints") is not None
    ):
        raise ValueError("only write keys have prefixes, a rate or a number of endpoints")
    if writes and row.get("origins"):
        raise ValueError("only API keys have origins")


_WHOLE: Final[Mapping[str, Callable[[Row], None]]] = {
    "endpoints": _endpoint_row,
    "history": _history_row,
    "api_keys": _key_row,
}
"""Rules for several columns of a row."""


def _check_content(content: bytes) -> tuple[str, str]:
    """Check that content is the canonical form of a dataset; return its unit and resolution.

    Raises:
        DataError, ValueError: it is not.
    """
    raw = orjson.loads(content)
    if not isinstance(raw, dict) or raw.keys() != {"unit", "resolution", "points"}:
        raise ValueError("the data is not a dataset")
    _unit(raw["unit"])
    _resolution(raw["resolution"])
    step = parse_resolution(raw["resolution"])
    # Days of a source begin at midnight of its time zone, which the data does not name.
    grid = Resolution(1, step.text) if step.text == "P1D" else step
    sealed = seal("", raw["unit"], step, points_of(raw["points"], grid, "$.points"))
    # Parsed and written again: repeated fields, other spaces and numbers in another form are all a difference.
    if sealed.content != content:
        raise ValueError("the data is not in canonical form")
    return sealed.unit, sealed.resolution
