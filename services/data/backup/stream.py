"""The content of backups: all tables of a store, independent of its database.

Gzipped lines of JSON: the :class:`Header`; each table's name and columns, followed by its rows; finally the row counts,
with a digest of all lines before. Bytes are ``{"text": "..."}`` if they are UTF-8 and that is the shorter form,
otherwise ``{"b64": "..."}``. The digest detects damage, not tampering: the writer of a backup controls its data
(docs/adr/0029).
"""

import base64
import zlib
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from diem import __version__
from services.data.backup.errors import BadBackup
from services.data.limits import MAX_DATASET_BYTES

FORMAT: Final = "diem.backup/3"
ROWS_PER_BATCH: Final = 200
BYTES_PER_BATCH: Final = 8 * 1024 * 1024
"""A batch of rows in memory ends with this number of rows, or once it has this size."""
MAX_LINE_BYTES: Final = MAX_DATASET_BYTES * 4 // 3 + 1024 * 1024
"""Longest line: the largest content of an endpoint in base64, with its other columns."""

_CHUNK_BYTES: Final = 64 * 1024
_UNZIPPED_BYTES: Final = 256 * 1024
"""Longest piece of unzipped lines."""
_GZIP: Final = 31
"""``wbits`` of zlib."""
_TWO_BYTES: Final = (b'"', b"\\", b"\b", b"\t", b"\n", b"\f", b"\r")
_SIX_BYTES: Final = bytes(each for each in range(32) if bytes([each]) not in _TWO_BYTES)
"""Characters that JSON writes in two and in six bytes."""

Row = dict[str, Any]


class Header(NamedTuple):
    """Origin and time of a backup."""

    store: str
    sequence: int
    revision: str
    """Revision of the tables."""
    created: str


class BackupWriter:
    """Writes a backup to a binary file, which stays open; complete only after :meth:`finish`.

    Raises:
        OSError: from every method, for example on a full disk.
    """

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._gzip = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        self._digest = blake2b(digest_size=16)
        self.write({"format": FORMAT, "diem": __version__, **header._asdict()})

    def write(self, value: object) -> None:
        """Write one line: a table's name and columns, or the values of a row: numbers, texts, bytes, None."""
        line = orjson.dumps(value, default=_encoded) + b"\n"
        self._digest.update(line)
        self._file.write(self._gzip.compress(line))

    def finish(self, counts: dict[str, int]) -> None:
        """Write the number of rows by table, and the digest."""
        self.write({"rows": counts, "digest": self._digest.hexdigest()})
        self._file.write(self._gzip.flush())
        self._file.flush()


class BackupReader:
    """Reads a backup from a binary file: first its header, then once all rows, in batches of bounded size.

    Raises:
        BadBackup: from every method, if the file is not a complete backup, which may show only after its last row.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._name = file.name
        self._number = 0
        """Of the last line that was read."""
        self._length = 0
        """Of that line in bytes."""
        self._digest = blake2b(digest_size=16)
        self._before = ""
        """Digest of the lines before it."""
        self._lines = self._read(file)
        first = next(self._lines, None)
        if not isinstance(first, dict) or first.get("format") != FORMAT:
            raise self.error(f"it does not begin with {FORMAT}: restore it with the release that made it")
        # Both are printed: a file must not control the terminal.
        self.revision, self.created = (str(first.get(name)) for name in ("revision", "created"))
        if not (self.revision + self.created).isprintable():
            raise self.error("it does not name its store")

    def rows(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield table name and a batch of rows; the backup is complete when this ends by itself."""
        counts: dict[str, int] = {}
        table, columns, batch, length = "", list[str](), list[Row](), 0
        is_complete = False
        try:
            for value in self._lines:
                if is_complete:
                    raise self.error("the backup has ended before")
                if batch and not isinstance(value, list):
                    yield table, batch
                    batch, length = [], 0
                if isinstance(value, list):
                    batch.append(dict(zip(columns, map(_decoded, value), strict=True)))
                    counts[table] += 1
                    length += self._length
                    if len(batch) == ROWS_PER_BATCH or length >= BYTES_PER_BATCH:
                        del value  # as large as the batch
                        yield table, batch
                        batch, length = [], 0
                elif "table" in value:
                    table, columns = value["table"], value["columns"]
                    counts[table] = 0
                elif value != {"rows": counts, "digest": self._before} or counts.get("store") != 1:
                    raise self.error("its row counts or its digest are wrong")
                else:
                    is_complete = True
        except (KeyError, TypeError, ValueError):
            raise self.error("it is no line of a backup") from None
        if not is_complete:
            raise self.error("its end is missing")

    def error(self, reason: str) -> BadBackup:
        """Return an error about the last line read."""
        return BadBackup(self._name, f"line {self._number}: {reason}")

    def _read(self, file: BinaryIO) -> Iterator[Any]:
        """Yield the value of each line."""
        rest = bytearray()
        try:
            for data in self._unzipped(file):
                start = 0
                while (end := data.find(b"\n", start) + 1) > 0:
                    rest += data[start:end]
                    start = end
                    self._number += 1
                    self._length = len(rest)
                    values = [orjson.loads(rest)]
                    self._before = self._digest.hexdigest()
                    self._digest.update(rest)
                    rest.clear()
                    yield values.pop()  # not held here: it may be large
                rest += data[start:]
                if len(rest) > MAX_LINE_BYTES:
                    raise self.error(f"the next one is longer than {MAX_LINE_BYTES} bytes")
        except orjson.JSONDecodeError:
            raise self.error("it is no JSON") from None
        except (OSError, zlib.error) as error:
            raise self.error(f"after it: {error}") from None
        if rest:
            raise self.error("the next one is cut")

    def _unzipped(self, file: BinaryIO) -> Iterator[bytes]:
        gzip = zlib.decompressobj(_GZIP)
        for chunk in self._chunks(file):
            left = chunk
            while left:
                yield gzip.decompress(left, _UNZIPPED_BYTES)
                left = gzip.unconsumed_tail
            if gzip.unused_data:
                raise self.error("something follows the backup")
        if not gzip.eof:
            raise self.error("the rest is missing")

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the gzipped content."""
        start = file.read(_CHUNK_BYTES)
        if not start.startswith(b"\x1f\x8b"):
            raise self.error("it is no backup of DIEM, or still encrypted")
        yield start
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _encoded(value: object) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError
    two, six = sum(map(value.count, _TWO_BYTES)), len(value) - len(value.translate(None, _SIX_BYTES))
    if two + 5 * six <= len(value) // 3:
        with suppress(UnicodeDecodeError):
            return {"text": value.decode()}
    return {"b64": base64.b64encode(value).decode()}


def _decoded(value: Any) -> object:  # noqa: ANN401  # a value of JSON
    if not isinstance(value, dict):
        return value
    return value["text"].encode() if "text" in value else base64.b64decode(value["b64"], validate=True)
