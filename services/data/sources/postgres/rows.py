"""Rows of published tables as records, and these as changes. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from services.data.errors import DataError, InvalidDataset
from services.data.kinds.series.form import Point
from services.data.sources.postgres.pgoutput import Column, Unchanged, Values
from services.data.sources.postgres.values import Types
from services.data.sources.records.converter import RecordConverter, SeriesPoint
from services.data.sources.records.record import MISSING, Record
from services.data.sources.records.table import FIELD, RecordTable
from services.data.store import Change, Deletion, Patch

ORIGIN: Final = ("schema", "table")
"""What a template may have beside columns."""
FULL: Final = "f"
"""Replica identity of all columns."""


@dataclass(slots=True)
class Removal(Record):
    """The end of an endpoint."""

    endpoint: str = ""


@dataclass(slots=True)
class Unreadable(Record):
    """A row that is no record."""

    error: DataError = field(default_factory=lambda: InvalidDataset("it cannot be read"))


class RowLayout:
    """The columns of a table as they are sent."""

    def __init__(self, columns: Sequence[Column], types: Types) -> None:
        self.columns = columns
        self._converters = [(column.name, types.converter(column.type)) for column in columns]

    def read(self, values: Values) -> tuple[dict[str, Any], list[str]]:
        """Return a row, and the names of its unchanged columns; raises InvalidDataset."""
        row: dict[str, Any] = {}
        unchanged: list[str] = []
        for (name, convert), value in zip(self._converters, values, strict=True):
            if value is None:
                row[name] = None
            elif isinstance(value, Unchanged):
                unchanged.append(name)
            else:
                try:
                    row[name] = convert(value.decode())
                except ValueError as error:
                    raise InvalidDataset(f"the column {name}: {error}") from None
        return row, unchanged

    def read_identity(self, values: Values, *, full: bool) -> dict[str, Any]:
        """Return the known part of a row that is no more; raises InvalidDataset."""
        row, _ = self.read(values)
        return row if full else {column.name: row[column.name] for column in self.columns if column.is_key}


class TableRows:
    """Makes records of the rows of one table.

    Args:
        schema: of the table.
        table: its name.
        config: what diem.toml says of it.
        converter: by ``config``.
    """

    def __init__(self, schema: str, table: str, config: RecordTable, converter: RecordConverter) -> None:
        self.name = f"{schema}.{table}"
        self.origin = {"schema": schema, "table": table}
        self.config = config
        self.converter = converter
        parts = FIELD.split(config.endpoint)
        names = [part for part in parts[1::2] if part not in ORIGIN]
        self.columns = {name.removeprefix("value/").partition("/")[0] for name in names}
        """Columns that the endpoint's name has."""
        fixed, brace, _ = FIELD.sub(lambda found: self.origin.get(found[1], found[0]), config.endpoint).partition("{")
        self.below = bool(brace)
        self.prefix = fixed.rpartition("/")[0] if brace else fixed
        """All endpoints are below it, or it is the only one."""

    def owns(self, endpoint: str) -> bool:
        """Return whether an endpoint is one of this table's."""
        return endpoint.startswith(self.prefix + "/") if self.below else endpoint == self.prefix

    def stored_names(self, below: Callable[[str], Iterable[str]]) -> list[str]:
        """Return the endpoints that may be stored, by those ``below`` a prefix."""
        return [*below(self.prefix)] if self.below else [self.prefix]

    def endpoint_of(self, row: dict[str, Any]) -> str:
        """Return the endpoint of a row; raises InvalidDataset."""
        return self.converter.endpoint_of(Record("", row, names=self.origin))

    def record(self, position: str, row: dict[str, Any], time_ms: int = 0) -> Record:
        """Return a row as a record."""
        return Record(position, row, names=self.origin, time_ms=time_ms)

    def convert(self, record: Record) -> Change | SeriesPoint | None:
        """Return the change of a row; a row outside of ``where`` has no endpoint."""
        made = self.converter.convert(record)
        if made is not None or self.config.kind == "series" or not self.columns:
            return made
        return Deletion(self.converter.endpoint_of(record), missing_ok=True)

    def ends(self, position: str, row: dict[str, Any], time_ms: int) -> Record | None:
        """Return the record of a row that is no more; None if its endpoint stays."""
        if self.config.kind == "series":
            return None  # a series is a history: ``keep`` bounds it
        if not self.columns and self.config.kind == "notice":
            return self.record(position, row, time_ms)
        try:
            return Removal(position, MISSING, time_ms=time_ms, endpoint=self.endpoint_of(row))
        except InvalidDataset:
            return None  # it was never stored

    def with_stored(self, row: dict[str, Any], unchanged: Iterable[str], content: bytes | None) -> dict[str, Any]:
        """Return a row with the values that an update did not send, from the content of its endpoint before.

        Raises:
            InvalidDataset: the content has not all of them.
        """
        value, missing = self.config.value, [*unchanged]
        if self.config.kind in {"notice", "series"} and value is None:
            return row
        if value is None and self.config.kind == "document":
            stored = None if content is None else orjson.loads(content)
            if not isinstance(stored, dict) or not all(name in stored for name in missing):
                raise _not_sent(self.name, missing)
            return {**row, **{name: stored[name] for name in missing}}
        first, *rest = (value or "").removeprefix("value/").split("/")
        if first not in missing:
            return row
        if content is None or self.config.kind == "series":
            raise _not_sent(self.name, [first])
        found: Any = content if self.config.kind == "bytes" else orjson.loads(content)
        for name in reversed(rest):
            found = {name: found}
        return {**row, first: found}


def _not_sent(table: str, columns: Sequence[str]) -> InvalidDataset:
    return InvalidDataset(
        f"the database did not send {', '.join(columns)}, which an update left as it was, and nothing is stored: "
        f"ALTER TABLE {table} REPLICA IDENTITY FULL"
    )


class RowConverter:
    """Makes changes of the records of several tables."""

    def __init__(self, tables: Iterable[TableRows]) -> None:
        self._tables: Mapping[tuple[str, str], TableRows] = {
            (each.origin["schema"], each.origin["table"]): each for each in tables
        }

    def convert(self, record: Record) -> Change | SeriesPoint | None:
        """Return the change that a record makes; raises DataError."""
        if isinstance(record, Removal):
            return Deletion(record.endpoint, missing_ok=True)
        if isinstance(record, Unreadable):
            raise record.error
        return self._tables[record.names["schema"], record.names["table"]].convert(record)

    def series_change(self, endpoint: str, points: dict[int, Point]) -> Patch:
        """Return the insertion of points."""
        table = next(each for each in self._tables.values() if each.owns(endpoint))
        return table.converter.series_change(endpoint, points)
