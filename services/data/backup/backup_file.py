"""The content of backups: all tables of a store, independent of its database.

Gzipped lines of JSON within the container of :mod:`services.data.backup.seal`: the :class:`Header`; each table's name
and columns, followed by its rows; finally the row counts, with a digest of all lines before. Bytes are
``{"b64": "..."}``. The digest detects damage where authentication is waived.
"""

import base64
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self, cast

import orjson

from diem import __version__
from services.data.access.keys import MAX_KEYS, Key
from services.data.access.records import key_of
from services.data.backup.errors import BadBackup
from services.data.backup.row_checks import BadRow, Row, TableRows
from services.data.backup.seal import BackupKey, RestoreKeys, SealedWriter, unsealed

FORMAT: Final = "diem.backup/1"
ROWS_PER_BATCH: Final = 200
"""Rows in memory at a time: 13 MB with the largest datasets."""
MAX_LINE_BYTES: Final = 256 * 1024
"""Longest line; the largest dataset has 86 KiB in base64."""

_CREATED: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_REVISION: Final = re.compile(r"[0-9A-Za-z]{1,32}", re.ASCII)


class Header(NamedTuple):
    """The store that a backup was made of, and when."""

    store: str
    sequence: int
    revision: str
    """Revision of the tables."""
    created: str


class Contents(NamedTuple):
    """A backup as found by :meth:`BackupReader.check`."""

    header: Header
    keys: tuple[Key, ...]
    """API keys that are not revoked."""


class BackupWriter:
    """Writes a backup to an open file and closes the file; complete only after :meth:`finish`.

    Raises:
        OSError: from every method, for example when the disk is full.
    """

    def __init__(self, descriptor: int, header: Header, key: BackupKey, *, encrypt: bool = False) -> None:
        self.counts: dict[str, int] = {}
        """Number of rows by table."""
        self._raw = open(descriptor, "wb")  # noqa: SIM115  # closed by __exit__
        self._sealed = SealedWriter(self._raw, key, encrypt=encrypt)
        # Without name and time: what a backup is of is not to be seen beside its encrypted content.
        self._file = gzip.GzipFile("", "wb", 6, cast("BinaryIO", self._sealed), 0)
        self._digest = blake2b(digest_size=16)
        self._table = ""
        self._write_line({"format": FORMAT, "diem": __version__, **header._asdict()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        self._sealed.finish()
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


class BackupReader:
    """Reads a backup as a context manager: first :meth:`check`, then :meth:`rows`.

    Args:
        path: the backup.
        keys: files of the keys that it may need.

    Raises:
        BadBackup: from every method, when the file is no complete and authentic backup, or has a row that a store would
            not accept.
        ConfigurationError: on entering, when the key that the backup needs cannot be used.
    """

    def __init__(self, path: Path, keys: RestoreKeys) -> None:
        self._path = path
        self._keys = keys
        self._exit = ExitStack()
        self._digest = b""
        """Of all lines that were checked."""

    def __enter__(self) -> Self:
        try:
            # The same open file is checked and then read: the path could lead to another one in between.
            file = self._exit.enter_context(self._path.open("rb"))
            self._open = unsealed(self._path, file, self._keys)
        except FileNotFoundError:
            raise BadBackup(self._path, "there is no such file") from None
        except OSError as error:
            raise BadBackup(self._path, error.strerror or str(error)) from None
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def check(self) -> Contents:
        """Read and check the whole backup."""
        check = _Check()
        digest = blake2b(digest_size=16)
        number = 0
        for number, (line, value) in enumerate(self._lines(), 1):
            try:
                check.line(value, digest)
            except BadRow as error:
                raise BadBackup(self._path, f"line {number}: {error}") from None
            digest.update(line)
        try:
            contents = check.contents()
        except BadRow as error:
            raise BadBackup(self._path, f"after line {number}: {error}") from None
        self._digest = digest.digest()
        return contents

    def rows(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the checked rows: table name, and up to :data:`ROWS_PER_BATCH` rows."""
        digest = blake2b(digest_size=16)
        table: TableRows | None = None
        batch: list[Row] = []
        for line, value in self._lines():
            digest.update(line)
            if table is not None and isinstance(value, list):
                batch.append(table.decode(value))
            if table is not None and batch and (len(batch) == ROWS_PER_BATCH or not isinstance(value, list)):
                yield table.table, batch
                batch = []
            if isinstance(value, dict) and "table" in value:
                table = TableRows(value["table"], value["columns"])
        if digest.digest() != self._digest:
            raise BadBackup(self._path, "it was changed while it was read")

    def _lines(self) -> Iterator[tuple[bytes, Any]]:
        """Yield each line, and its value."""
        number = 0
        try:
            with gzip.GzipFile(fileobj=self._open(), mode="rb") as file:
                while line := file.readline(MAX_LINE_BYTES + 1):
                    number += 1
                    if len(line) > MAX_LINE_BYTES:
                        raise BadBackup(self._path, f"line {number}: longer than {MAX_LINE_BYTES} bytes")
                    yield line, orjson.loads(line)
        except orjson.JSONDecodeError:
            raise BadBackup(self._path, f"line {number}: not JSON") from None
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise BadBackup(self._path, f"after line {number}: {str(error).partition(chr(10))[0]}") from None


class _Check:
    """Checks a backup line by line."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._counts: dict[str, int] = {}
        self._table: TableRows | None = None
        self._store: tuple[object, ...] = ()
        self._sequence = 0
        """The greatest of all rows."""
        self._keys: list[Key] = []
        self._is_complete = False

    def line(self, value: object, before: "blake2b") -> None:
        """Check the next line; ``before`` has hashed all lines before it. Raises BadRow."""
        if self._is_complete:
            raise BadRow("the backup has ended before")
        if self._header is None:
            self._header = _header(value)
        elif isinstance(value, list):
            if self._table is None:
                raise BadRow("a row without a table")
            self._row(self._table.table, self._table.check(value))
        elif isinstance(value, dict) and isinstance(name := value.get("table"), str):
            self._table = TableRows(name, value.get("columns"))
            if name in self._counts:
                raise BadRow(f"the table {name} appears twice")
            self._counts[name] = 0
        else:
            self._end(self._header, value, before.hexdigest())

    def contents(self) -> Contents:
        """Return what the backup has, after its last line. Raises BadRow."""
        if self._header is None or not self._is_complete:
            raise BadRow("its end is missing")
        return Contents(self._header, tuple(self._keys))

    def _row(self, table: str, row: Row) -> None:
        self._counts[table] += 1
        if table == "store":
            self._store = row["id"], row["store_id"], row["sequence"]
        elif table in ("endpoints", "history"):
            self._sequence = max(self._sequence, row["sequence"])
        elif table == "api_keys":
            if self._counts[table] > MAX_KEYS:
                raise BadRow(f"more than {MAX_KEYS} API keys")
            if row["revoked_ms"] is None:
                self._keys.append(key_of(row))

    def _end(self, header: Header, value: object, digest: str) -> None:
        if not isinstance(value, dict) or value.keys() != {"rows", "digest"}:
            raise BadRow("neither a table nor a row")
        if value["rows"] != self._counts or value["digest"] != digest:
            raise BadRow("its row counts or its digest are wrong")
        if self._counts.get("store") != 1 or self._store != (1, header.store, header.sequence):
            raise BadRow("it is of another store than its first line says")
        if self._sequence > header.sequence:
            raise BadRow("it has changes beyond the position of its store")
        self._is_complete = True


def _header(first: object) -> Header:
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise BadRow(f"it does not begin with {FORMAT}")
    store, sequence, revision, created = (first.get(name) for name in Header._fields)
    if not (
        isinstance(store, str)
        and type(sequence) is int
        and isinstance(revision, str)
        and _REVISION.fullmatch(revision)
        and isinstance(created, str)
        and _CREATED.fullmatch(created)
    ):
        raise BadRow("it does not name its store")
    return Header(store, sequence, revision, created)
