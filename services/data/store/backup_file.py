"""The file of a backup: all tables of a store in a form that is of no database.

It is gzip of lines of JSON: what it is of (:class:`Header`), then each table's name and columns followed by its rows,
and at the end the number of rows with a digest of all that is before. Bytes are ``{"b64": "..."}``.
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
ROWS: Final = 200
"""Rows in memory at a time: with the largest datasets, 13 MB."""


class Header(NamedTuple):
    """What a backup is of."""

    store: str
    sequence: int
    revision: str
    """Of the tables."""
    created: str


@dataclass(eq=False)
class BadBackup(DataError):
    """A file that is no backup, or not all of one."""

    template = "{path} is no complete backup: {reason}"
    code = "bad_backup"

    path: Path
    reason: str


class BackupWriter:
    """Writes one to an open file, which it closes; without :meth:`finish` it is none.

    Raises:
        OSError: from every method, as when the disk is full.
    """

    def __init__(self, descriptor: int, header: Header) -> None:
        self.counts: dict[str, int] = {}
        """Rows of each table."""
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
        """The rows that follow are of this table."""
        self._table = name
        self.counts[name] = 0
        self._write_line({"table": name, "columns": columns})

    def row(self, values: list[Any]) -> None:
        """One row: numbers, texts, bytes, None."""
        self._write_line(values)
        self.counts[self._table] += 1

    def finish(self) -> None:
        """Say that this is all; it is on the disk then."""
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
    """What a backup is of, once all of it was read.

    Raises:
        BadBackup: it is none, or some of it is missing or changed.
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
    """The rows of a backup that is complete: the name of their table, and up to :data:`ROWS` of them by columns."""
    lines = _lines(path)
    next(lines)
    table, columns = "", list[str]()
    for line in _runs(lines):
        if isinstance(line, dict):
            table, columns = line.get("table", ""), line.get("columns", [])
        else:
            yield table, [dict(zip(columns, map(_value, row), strict=True)) for row in line]


def _read_header(path: Path, first: Any) -> Header:  # noqa: ANN401  # whatever the file has
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise BadBackup(path, f"it does not begin with {FORMAT}")
    if not first.keys() >= set(Header._fields):
        raise BadBackup(path, "it does not say what it is of")
    return Header(*(first[name] for name in Header._fields))


def _lines(path: Path) -> Iterator[Any]:
    """The lines as values; the digest of the last one is compared."""
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
    """Objects by themselves, rows in lists of up to :data:`ROWS`."""
    run: list[Any] = []
    for line in lines:
        if isinstance(line, list):
            run.append(line)
        if run and (len(run) == ROWS or not isinstance(line, list)):
            yield run
            run = []
        if not isinstance(line, list):
            yield line


def _value(value: Any) -> Any:  # noqa: ANN401  # any that a column may have
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value
