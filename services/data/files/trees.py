"""Reads JSON and XML into a grid: finds rows by a path, and names their scalars as columns.

XML becomes the same values as JSON, by expat, which the usual libraries wrap too: none of them bounds the nesting, and
entities and document types are refused here before their first byte is used.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple
from xml.parsers import expat

import orjson

from services.data.errors import InvalidDataset, MalformedBody, NoRows
from services.data.files.grid import CHUNK_ROWS, Cell, Chunk, FileLimits, Grid, place_of
from services.data.files.mapping import ALL, Mapping
from services.data.files.unpack import decode

VALUE: Final = "value"
"""Column of rows that are scalars, and of the text of rows of XML that have attributes."""
_ANY: Final = "*"
_TEXT: Final = "#text"
"""Name of the text of an element with attributes; its path is that of the element."""
_NESTED: Final = frozenset([dict, list])
_BRACKETS_PER_ROW: Final = 4
_STEP_BYTES: Final = 256 * 1024
"""Of XML, parsed together."""
_TAG_BYTES: Final = 1024 * 1024
_SHOWN: Final = 200
"""Characters of a list of members in an error."""
Cells = dict[str, Any]


def read_json(body: bytes, mapping: Mapping, limits: FileLimits, file: str = "") -> Grid:
    """Return the rows at the path ``mapping.rows``; cells keep their types, and NaN and Infinity are gaps.

    - The path: arrays on the way are iterated, or one element is taken by its number from 1; ``*`` is any member, whose
      name is then the column ``*``.
    - Columns of a row are the paths of its scalars; ``1``, ``2``, ... of an array, and :data:`VALUE` of a scalar.
    - Scalars of the objects on the way are columns below the name of the member with the object, as in
      ``Period/resolution``; those of the outermost object have no such name. A row's own come first.
    - An object of arrays is a table of columns: if the mapping names one of them, of those with its length, also on the
      way; otherwise, of an object that is no element of an array, of those with the most common length.

    Raises:
        MalformedBody: not JSON.
        InvalidDataset: the path leads nowhere, or more rows, columns or levels than allowed.
    """
    return _Rows(mapping, limits, file).grid(_json(body, mapping, limits, file))


def read_xml(body: bytes, mapping: Mapping, limits: FileLimits, file: str = "") -> Grid:
    """Return the rows at the path ``mapping.rows`` below the root element, as :func:`read_json` does; cells are texts.

    Members are elements and, as ``@name``, attributes; prefixes of namespaces are left out.

    Raises:
        MalformedBody: not XML.
        InvalidDataset: as :func:`read_json`; also a document type, with or without entities.
    """
    root, value = parse_xml(body, limits, file, mapping)
    first, _, rest = mapping.rows.strip("/").partition("/")
    return _Rows(mapping, limits, file, rest if first == root else mapping.rows).grid(value)


def read_tree(body: bytes, form: Literal["json", "xml"], limits: FileLimits) -> Any:  # noqa: ANN401  # any JSON value
    """Return the value of a body; that of XML is the value of the root element.

    Raises:
        MalformedBody, InvalidDataset: as the readers of rows.
    """
    return _json(body, Mapping(), limits, "") if form == "json" else _Elements(limits, "").parse(body, Mapping())[1]


def _json(body: bytes, mapping: Mapping, limits: FileLimits, file: str) -> Any:  # noqa: ANN401  # any JSON value
    where = f"{file}: " if file else ""
    most = limits.rows * _BRACKETS_PER_ROW
    # The parser makes objects of all of it, so bounds come first; those in texts are counted, too.
    if body.count(b"[") + body.count(b"{") > most or body.count(b",") > limits.cells:
        raise InvalidDataset(f"more than {most} arrays and objects, or {limits.cells} values", file)
    if mapping.encoding is not None or body.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        body = decode(body, mapping, file).encode()
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" in body or b"Infinity" in body:
            return _json_with_nan(body, where)
        if not body.strip():
            raise MalformedBody(f"{where}the file is empty") from None
        decode(body, mapping, file)
        message = "nested too deeply" if "depth limit" in str(error) else f"not JSON: {error}"
        raise MalformedBody(f"{where}{message} (key: format)") from None


def _json_with_nan(body: bytes, where: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(body, parse_constant=lambda _: None)
    except RecursionError:
        raise MalformedBody(f"{where}nested too deeply") from None
    except ValueError as error:
        raise MalformedBody(f"{where}not JSON: {error} (key: format)") from None


def parse_xml(body: bytes, limits: FileLimits, file: str, mapping: Mapping | None = None) -> tuple[str, Any]:
    """Return the name of a document's root element, and its value.

    Raises:
        MalformedBody, InvalidDataset: as :func:`read_xml`.
    """
    return _Elements(limits, file).parse(body, mapping)


class _Elements:
    """Builds values like those of JSON from a document: an element without attributes and elements is a text."""

    def __init__(self, limits: FileLimits, file: str) -> None:
        self._limits = limits
        self._file = file
        self._node: Cells = {}
        self._texts: list[str] = []
        self._stack: list[tuple[Cells, list[str]]] = []
        self._names: dict[str, str] = {}

    def parse(self, body: bytes, mapping: Mapping | None) -> tuple[str, object]:
        """Return the name of the root element, and its value."""
        encoding = None
        if mapping is not None and mapping.encoding is not None:
            body, encoding = decode(body, mapping, self._file).encode(), "utf-8"
        self._parser = parser = expat.ParserCreate(encoding)
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_document_type
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._append
        most = self._limits.rows * _BRACKETS_PER_ROW
        if body.count(b"<") > 2 * most or body.count(b"=") > self._limits.cells:
            raise InvalidDataset(f"more than {most} elements, or {self._limits.cells} attributes", self._file)
        try:
            for start in range(0, len(body), _STEP_BYTES):
                parser.Parse(body[start : start + _STEP_BYTES], False)
                if start + _STEP_BYTES - parser.CurrentByteIndex > _TAG_BYTES + _STEP_BYTES:
                    raise self._fault(f"a tag or comment has more than {_TAG_BYTES} bytes")
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            where = place_of(self._file, "line", error.lineno)
            raise MalformedBody(f"{where}: not XML: {expat.ErrorString(error.code)} (key: format)") from None
        except (LookupError, ValueError) as error:
            # Of an encoding that the document states.
            raise MalformedBody(f"{place_of(self._file, 'line', 1)}: not XML: {error} (key: encoding)") from None
        ((root, value),) = self._node.items()
        return root, value

    def _refuse_document_type(self, *_: object) -> None:
        raise self._fault("a document type (<!DOCTYPE ...>) is not read, nor are its entities: remove it")

    def _fault(self, reason: str) -> InvalidDataset:
        return InvalidDataset(reason, place_of(self._file, "line", self._parser.CurrentLineNumber))

    def _start(self, _: str, attributes: dict[str, str]) -> None:
        self._stack.append((self._node, self._texts))
        self._node, self._texts = {}, []
        if len(self._stack) > self._limits.depth:
            raise self._fault(f"nested more than {self._limits.depth} deep")
        for name, value in attributes.items():
            if not name.startswith("xmlns"):
                self._node["@" + self._local(name)] = value

    def _end(self, full: str) -> None:
        node, text = self._node, "".join(self._texts).strip()
        if node and text:
            node[_TEXT] = text
        found = node or text or None
        self._node, self._texts = self._stack.pop()
        name = self._names.get(full) or self._local(full)
        if name not in self._node:
            self._node[name] = found
        elif type(present := self._node[name]) is list:
            present.append(found)
        else:
            self._node[name] = [present, found]

    def _append(self, text: str) -> None:
        self._texts.append(text)

    def _local(self, full: str) -> str:
        if len(self._names) > self._limits.columns:
            raise self._fault(f"more than {self._limits.columns} names of elements and attributes")
        return self._names.setdefault(full, full.rpartition(":")[2])


class _Around(NamedTuple):
    """Scalars, and arrays of scalars, of the objects on the way, by column."""

    cells: Cells
    arrays: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class _Objects:
    """Rows within the same objects: the scalars of each, and the value that it comes from."""

    around: Cells
    rows: list[Cells]
    values: Sequence[object]

    def cells(self, columns: Sequence[str]) -> Iterable[Sequence[Cell]]:
        """Return the rows' cells in the order of ``columns``."""
        defaults = [self.around.get(name) for name in columns]
        keys = self.rows[0].keys()
        if len(keys) > 1 and list(columns[: len(keys)]) == list(keys) and all(row.keys() == keys for row in self.rows):
            rest, pick = tuple(defaults[len(keys) :]), itemgetter(*keys)
            return (pick(row) + rest for row in self.rows)
        pairs = list(zip(columns, defaults, strict=True))
        return ([row.get(name, default) for name, default in pairs] for row in self.rows)


@dataclass(frozen=True, slots=True)
class _Arrays:
    """An object of equally long arrays: a row for each position, with the object's scalars."""

    around: Cells
    arrays: dict[str, list[Any]]
    count: int
    values: Sequence[object] = ()

    def cells(self, columns: Sequence[str]) -> Iterable[Sequence[Cell]]:
        """Return the rows' cells in the order of ``columns``."""
        parts = (self.arrays.get(name) or repeat(self.around.get(name), self.count) for name in columns)
        return zip(*parts, strict=True)


class _Rows:
    """Finds the rows of a value."""

    def __init__(self, mapping: Mapping, limits: FileLimits, file: str, path: str | None = None) -> None:
        self._path = [part for part in (mapping.rows if path is None else path).split("/") if part]
        self._limits = limits
        self._file = file
        self._is_series = mapping.kind == "series"
        values = [mapping.value] if isinstance(mapping.value, str) else mapping.value
        self._named = [name for name in (*mapping.times, *values) if name != ALL]
        self._blocks: list[_Objects | _Arrays] = []
        self._count = 0
        self._missed = (-1, "")

    def grid(self, value: object) -> Grid:
        """Return the rows of a value; raises InvalidDataset."""
        self._find(value, 0, "", _Around({}, {}), 0)
        if not self._blocks:
            path = "/".join(self._path) or "the outermost value"
            if self._missed[1]:
                raise self._fault(self._missed[1])
            raise NoRows(f"{path} has no rows (key: rows)", self._file)
        columns: Cells = {}
        for block in self._blocks:
            columns.update(
                dict.fromkeys(block.arrays if isinstance(block, _Arrays) else chain.from_iterable(block.rows))
            )
        own = len(columns)
        for block in self._blocks:
            columns.update(block.around)
        most = min(self._limits.rows, self._limits.cells // max(1, len(columns)))
        if len(columns) > self._limits.columns or self._count > most:
            raise self._fault(f"{len(columns)} columns and {self._count} rows, more than {self._limits.cells} cells")
        return Grid(list(columns), self._chunks(list(columns)), "row", self._file, own)

    def _fault(self, reason: str) -> InvalidDataset:
        return InvalidDataset(reason, self._file)

    def _chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        rows = chain.from_iterable(block.cells(columns) for block in self._blocks)
        objects = chain.from_iterable(block.values for block in self._blocks)
        first = 1
        while found := list(islice(rows, CHUNK_ROWS)):
            values = () if self._is_series else list(islice(objects, CHUNK_ROWS))
            yield Chunk(found, range(first, first + len(found)), values)
            first += len(found)

    def _find(self, value: Any, index: int, name: str, around: _Around, level: int) -> None:  # noqa: ANN401
        """Follow the path from its part ``index``; ``name`` is that of the member with ``value``."""
        if level > self._limits.depth:
            raise self._fault(f"nested more than {self._limits.depth} deep")
        if index == len(self._path):
            self._take(value, around, level)
            return
        part = self._path[index]
        if type(value) is list:
            if (
                part.isdecimal()
                and 0 < int(part) <= len(value)
                and not any(type(each) is dict and part in each for each in value)
            ):
                self._find(value[int(part) - 1], index + 1, part, around, level + 1)
                return
            for each in value:
                self._find(each, index, name, around, level + 1)
        elif type(value) is dict and (members := _members(value, part)):
            around = self._widened(around, value, name, members)
            if part == _ANY:
                column = _ANY * (1 + self._path[:index].count(_ANY))
                for key, member in members.items():
                    self._find(
                        member, index + 1, column, around._replace(cells={**around.cells, column: key}), level + 1
                    )
            else:
                self._find(value[part], index + 1, part, around, level + 1)
        elif index > self._missed[0]:
            self._missed = index, self._miss(value, index)

    def _miss(self, value: object, index: int) -> str:
        place = "/".join(self._path[:index]) or "the outermost value"
        if type(value) is dict:
            known = ", ".join(value)
            found = f"{place} has no {self._path[index]!r}, but {known[:_SHOWN]}{' ...' if len(known) > _SHOWN else ''}"
        else:
            found = f"{place} is {str(value)[:40]!r}, without members"
        return f"{found} (key: rows)"

    def _widened(self, around: _Around, value: Cells, name: str, members: Cells) -> _Around:
        """Return what is around the members of a value."""
        others = {key: member for key, member in value.items() if key not in members}
        wider = _Around(dict(around.cells), dict(around.arrays))
        self._flatten(others, f"{name}/" if name else "", wider, 1)
        return wider

    def _flatten(self, value: Cells, prefix: str, into: _Around, level: int) -> None:
        if level > self._limits.depth:
            raise self._fault(f"nested more than {self._limits.depth} deep")
        for key, member in value.items():
            path = prefix + key if key != _TEXT else prefix[:-1] or VALUE
            if type(member) is dict:
                self._flatten(member, f"{path}/", into, level + 1)
            elif type(member) is not list:
                into.cells[path] = member
            elif _NESTED.isdisjoint(map(type, member)):
                into.arrays[path] = member

    def _take(self, value: Any, around: _Around, level: int) -> None:  # noqa: ANN401
        """Take the rows of a value at the end of the path."""
        if level > self._limits.depth:
            raise self._fault(f"nested more than {self._limits.depth} deep")
        if type(value) is dict:
            self._add([value], [value], around, single=True)
        elif type(value) is not list:
            self._add([{VALUE: value}], [value], around)
        elif (kinds := set(map(type, value))) <= {dict}:
            self._add(value, value, around)
        elif kinds.isdisjoint(_NESTED):
            self._add([{VALUE: each} for each in value], value, around)
        elif kinds == {list} and not any(each and type(each[0]) in _NESTED for each in value):
            self._add([dict(zip(_numbers(len(each)), each, strict=True)) for each in value], value, around)
        else:
            for each in value:
                self._take(each, around, level + 1)

    def _add(self, rows: list[Cells], values: Sequence[object], around: _Around, *, single: bool = False) -> None:
        flat: list[Cells] = []
        for row in rows:
            if _NESTED.isdisjoint(map(type, row.values())) and _TEXT not in row:
                flat.append(row)
                continue
            own = _Around({}, {})
            self._flatten(row, "", own, 1)
            if table := self._table(own, around, single=single):
                self._blocks.append(table)
                self._count += table.count
            else:
                flat.append(own.cells)
        self._count += len(flat)
        if self._count > self._limits.rows:
            raise self._fault(f"more than {self._limits.rows} rows: split the file")
        if flat:
            self._blocks.append(_Objects(around.cells, flat, values))

    def _table(self, own: _Around, around: _Around, *, single: bool) -> _Arrays | None:
        """Return the rows of an object of arrays; None if it is a row itself."""
        if not own.arrays or not self._is_series:
            return None
        arrays = {**around.arrays, **own.arrays}
        named = [name for name in self._named if name in arrays]
        if named:
            count = len(arrays[named[0]])
            for name in named:
                if len(arrays[name]) != count:
                    raise self._fault(f"{named[0]} has {count} values, but {name} has {len(arrays[name])} (key: rows)")
        elif single and not any(name in own.cells for name in self._named):
            ((count, _),) = Counter(map(len, own.arrays.values())).most_common(1)
        else:
            return None
        kept = {name: array for name, array in arrays.items() if len(array) == count}
        return _Arrays({**around.cells, **own.cells}, kept, count)


def _members(value: Cells, part: str) -> Cells:
    """Return the members on the way: of any name, objects and arrays, or if there are none, scalars."""
    if part != _ANY:
        return {part: value[part]} if part in value else {}
    nested = {key: member for key, member in value.items() if type(member) in _NESTED}
    return nested or {key: member for key, member in value.items() if not key.startswith("@")}


@lru_cache(maxsize=64)
def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))
