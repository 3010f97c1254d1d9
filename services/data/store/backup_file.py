"""The file format of backups: all tables of a store, independent of its database.

Gzipped lines of JSON: the :class:`Header`; each table's name and columns, followed by its rows; finally the row counts,
with a digest of all lines before. Bytes are ``{"b64": "..."}``.
"""

import base64
import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import orjson

from diem import __version__
from services.data.errors import DataError

FORMAT: Final = "diem.backup/1"
ROWS_PER_BATCH: Final = 200
"""Rows in memory at a time: 13 MB with the largest datasets."""


class Header(NamedTuple):
    """The store that a backup was made of, and when."""

    store: str
    sequence: int
    revision: str
    """Revision of the tables."""
    created: str


@dataclass(eq=False)
class BadBackup(DataError):
    """A file that is no backup, or an incomplete one."""

    template = "{path} is no complete backup: {reason}"
    code = "bad_backup"

    path: Path
    reason: str


class BackupWriter:
    """Writes a backup to an open file and closes the file; complete only after :meth:`finish`.

    Raises:
        OSError: from every method, for example when the disk is full.
    """

    def __init__(self, descriptor: int, header: Header) -> None:
        self.counts: dict[str, int] = {}
        """Number of rows by table."""
        self._raw = open(descriptor, "wb")  # noqa: SIM115  # closed by __exit__
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=6)
        self._digest = blake2b(digest_size=16)
        self._table = ""
        self._write_line({"format": FORMAT, "diem": __version__, **header._asdict()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        finally:
            self._raw.close()

    def table(self, name: str, columns: list[str]) -> None:
        """Begin a table; the following rows are its."""
        self._table = name
        self.counts[name] = 0
        self._write_line({"table": name, "columns": columns})

    def row(self, values: list[Any]) -> None:
        """Write one row: numbers, texts, bytes, None."""
        self._write_line(values)
        self.counts[self._table] += 1

    def finish(self) -> None:
        """Write counts and digest; when this returns, the backup is on the disk."""
        self._write_line({"rows": self.counts, "digest": self._digest.hexdigest()})
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())

    def _write_line(self, what: object) -> None:
        line = orjson.dumps(what, default=_bytes) + b"\n"
        self._digest.update(line)
        self._file.write(line)


def _bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    raise TypeError


def check(path: Path) -> Header:
    """Read a whole backup and return its header.

    Raises:
        BadBackup: the file is no backup, or part of it is missing or changed.
    """
    counts: dict[str, int] = {}
    table = ""
    lines = _lines(path)
    header = _read_header(path, next(lines, {}))
    last: Any = None
    for last in lines:
        if isinstance(last, dict) and "table" in last:
            table = str(last["table"])
            counts[table] = 0
        elif isinstance(last, list):
            counts[table] = counts.get(table, 0) + 1
    if not isinstance(last, dict) or last.get("rows") != counts:
        raise BadBackup(path, "its end is missing")
    return header


def rows(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows of a complete backup: table name, and up to :data:`ROWS_PER_BATCH` rows as dictionaries."""
    lines = _lines(path)
    next(lines)
    table, columns = "", list[str]()
    for line in _runs(lines):
        if isinstance(line, dict):
            table, columns = line.get("table", ""), line.get("columns", [])
        else:
            yield table, [dict(zip(columns, map(_value, row), strict=True)) for row in line]


def _read_header(path: Path, first: Any) -> Header:  # noqa: ANN401  # any JSON value
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise BadBackup(path, f"it does not begin with {FORMAT}")
    if not first.keys() >= set(Header._fields):
        raise BadBackup(path, "it does not say what it is of")
    return Header(*(first[name] for name in Header._fields))


def _lines(path: Path) -> Iterator[Any]:
    """Yield the lines as values; a wrong digest in the last one raises BadBackup."""
    digest = blake2b(digest_size=16)
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                value = orjson.loads(line)
                if isinstance(value, dict) and value.get("digest", digest.hexdigest()) != digest.hexdigest():
                    raise BadBackup(path, "its digest is wrong")
                digest.update(line)
                yield value
    except FileNotFoundError:
        raise BadBackup(path, "there is no such file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadBackup(path, str(error).partition("\n")[0]) from None


def _runs(lines: Iterator[Any]) -> Iterator[Any]:
    """Yield objects one by one, and rows in lists of up to :data:`ROWS_PER_BATCH`."""
    run: list[Any] = []
    for line in lines:
        if isinstance(line, list):
            run.append(line)
        if run and (len(run) == ROWS_PER_BATCH or not isinstance(line, list)):
            yield run
            run = []
        if not isinstance(line, list):
            yield line


def _value(value: Any) -> Any:  # noqa: ANN401  # any value of a column
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value
