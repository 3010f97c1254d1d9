"""The columns of one grid that a mapping names."""

import re
from collections.abc import Sequence
from itertools import compress
from typing import Final

from services.data.errors import InvalidDataset
from services.data.files.delimited import DELIMITERS
from services.data.files.grid import Chunk, Grid
from services.data.files.mapping import ALL, Mapping
from services.data.files.names import COLUMN, FILE, fields_of, split_heading

_COMMENTS: Final = ("#", "%", "!", "/")
_DATA: Final = re.compile(r"[-+.,:/TZ\s]*\d[-+.,:/TZ\s\d]*", re.ASCII)
"""Numbers and times."""
_SHOWN: Final = 200
"""Characters of the list of columns in an error."""


class Columns:
    """Positions of the columns of a grid.

    Attributes:
        time: of the time's columns. values: of the values' columns. fields: of the columns in the template of names.

    Raises:
        InvalidDataset: a column is missing or there are two of it; the error names the key, and the columns.
    """

    def __init__(self, grid: Grid, mapping: Mapping, template: str) -> None:
        self._grid = grid
        self._wanted = {self._index(name, "where"): _texts(texts) for name, texts in mapping.where.items()}
        self.fields = {name: self._index(name, "name") for name in sorted(fields_of(template) - {COLUMN, FILE})}
        if mapping.kind == "document":
            self.numbers = [self._index(name, "numbers") for name in mapping.numbers]
            return
        self.time = [self._index(name, "time") for name in mapping.times]
        self.unit, self.resolution, self.period, self.until = (
            None if name is None else self._index(name, key)
            for key, name in (
                ("unit", mapping.unit),
                ("resolution", mapping.resolution),
                ("period", mapping.period),
                ("until", mapping.until),
            )
        )
        self.values = self._values(mapping)

    def _values(self, mapping: Mapping) -> list[int]:
        if mapping.value != ALL:
            names = [mapping.value] if isinstance(mapping.value, str) else mapping.value
            return [self._index(name, "value") for name in names]
        others = {*self.time, *self._wanted, *self.fields.values()}
        others |= {index for index in (self.unit, self.resolution, self.period, self.until) if index is not None}
        others |= {index for name in mapping.ignore for index in self._find(name)}
        own = self._grid.columns[: self._grid.own]
        found = [index for index, name in enumerate(own) if name and index not in others]
        if not found:
            raise InvalidDataset(
                f"no column is left for values (key: value); there are {self._known()}", self._grid.file
            )
        return found

    def _index(self, name: str, key: str) -> int:
        found = self._find(name)
        if len(found) == 1:
            return found[0]
        fault = f"{len(found)} columns are named {name!r}" if found else f"there is no column {name!r}"
        raise InvalidDataset(f"{fault}, but {self._known()} ({self._remedy(key)})", self._grid.file)

    def _find(self, name: str) -> list[int]:
        """Return the columns of this name; without an equal one, those whose name or heading differs in case alone.

        A column without a heading is named by its number.
        """
        columns, wanted = self._grid.columns, name.strip()
        if wanted in columns:
            return [index for index, column in enumerate(columns) if column == wanted]
        if wanted.isdecimal() and 0 < int(wanted) <= len(columns) and not columns[int(wanted) - 1]:
            return [int(wanted) - 1]
        folded = wanted.casefold()
        return [
            index
            for index, column in enumerate(columns)
            if folded in {column.casefold(), split_heading(column)[0].casefold()}
        ]

    def _known(self) -> str:
        known = ", ".join(filter(None, self._grid.columns)) or "none"
        return known if len(known) <= _SHOWN else known[:_SHOWN] + " ..."

    def _remedy(self, key: str) -> str:
        """Return the keys that help where a column is missing: the header may be none, or not be divided."""
        columns = self._grid.columns
        if self._grid.place == "line" and any(map(_DATA.fullmatch, columns)):
            return f"key: {key}; header = 0, if the file has none"
        if len(columns) > 1 or self._grid.place != "line":
            return f"key: {key}"
        marks = [mark for mark in DELIMITERS if mark in columns[0]]
        if columns[0][:1] in _COMMENTS:
            return f"comment = {columns[0][:1]!r}"
        return f"delimiter = {marks[0]!r}" if marks else "keys: header, delimiter"

    def select(self, chunk: Chunk) -> Chunk:
        """Return the rows that the mapping keeps."""
        if not self._wanted:
            return chunk
        keep = [all(str(row[index]).strip() in texts for index, texts in self._wanted.items()) for row in chunk.rows]
        rows, places, objects = chunk
        return Chunk(list(compress(rows, keep)), list(compress(places, keep)), list(compress(objects, keep)))


def _texts(texts: str | Sequence[str]) -> frozenset[str]:
    return frozenset([texts] if isinstance(texts, str) else texts)
