"""The lines of a backup: structure, bounds, and the place of what is wrong."""

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from services.data.backup.backup_file import MAX_LINE_BYTES, BackupReader, BackupWriter, Header
from services.data.backup.errors import BadBackup
from services.data.backup.seal import BackupKey, SealedWriter
from services.data.datasets import Point, build
from tests.support.backups import check, key_file, keys_of, lines_of, write_lines
from tests.unit.services.data.stores import dataset

HEADER = Header("a-store", 9, "0004", "2026-01-01T00:00:00.000Z")
ENDPOINTS = ["endpoint", "sequence", "version", "kind", "changed_ms", "unit", "resolution", "digest", "content"]
KEYS = ["id", "name", "plan", "digest", "created_ms", "revoked_ms"]
Lines = list[bytes]


def write(path: Path, count: int = 2, *, encrypt: bool = False, points: int = 1) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with BackupWriter(descriptor, HEADER, BackupKey.of_file(key_file(path)), encrypt=encrypt) as file:
        file.table("api_keys", KEYS)
        file.row(["abcdefgh", "one", "free", bytes(32), 5, None])
        file.row(["abcdefgi", "two", "free", bytes(32), 5, 6])
        file.table("endpoints", ENDPOINTS)
        for number in range(count):
            data = build("/a", "°C", "PT1H", [Point(3600 * hour, number) for hour in range(points)])
            file.row([f"/e{number}", 9, 5, 0, 7, data.unit, data.resolution, data.digest, data.content])
        file.table("store", ["id", "store_id", "sequence"])
        file.row([1, "a-store", 9])
        file.finish()


@pytest.mark.parametrize("encrypt", [False, True])
def test_what_is_read_is_what_was_written(tmp_path: Path, encrypt: bool) -> None:
    write(tmp_path / "file", 450, encrypt=encrypt)
    with BackupReader(tmp_path / "file", keys_of(tmp_path / "file")) as file:
        contents = file.check()
        assert contents.header == HEADER
        assert [(key.id, key.name, key.digest) for key in contents.keys] == [("abcdefgh", "one", bytes(32))]
        batches = list(file.rows())
    assert [(table, len(rows)) for table, rows in batches] == [
        ("api_keys", 2), ("endpoints", 200), ("endpoints", 200), ("endpoints", 50), ("store", 1)
    ]  # fmt: skip
    assert batches[0][1][0]["digest"] == bytes(32)
    assert [row["endpoint"] for _, rows in batches[1:4] for row in rows] == [f"/e{number}" for number in range(450)]
    assert batches[1][1][3]["content"] == dataset("/a", 3).content


def swap(lines: Lines, old: bytes, new: bytes) -> Lines:
    return [line.replace(old, new) for line in lines]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[1:], "line 1: it does not begin with diem.backup/1"),
        (lambda lines: swap(lines, b"diem.backup/1", b"x"), "line 1: it does not begin with diem.backup/1"),
        (
            lambda lines: swap(lines, b'"created":"2026', b'"created":"\\u001b[2J2026'),
            "line 1: it does not name its store",
        ),
        (lambda lines: swap(lines, b'"revision":"0004"', b'"revision":null'), "line 1: it does not name its store"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: a row without a table"),
        (lambda lines: [*lines[:2], b"7\n", *lines[2:]], "line 3: neither a table nor a row"),
        (lambda lines: [*lines[:4], *lines[1:]], "line 5: the table api_keys appears twice"),
        (lambda lines: swap(lines, b'"api_keys"', b'"alembic_version"'), "line 2: unknown table 'alembic_version'"),
        (lambda lines: swap(lines, b'"changed_ms"', b'"changed"'), "line 5: the table endpoints has unknown columns"),
        (lambda lines: swap(lines, b'"changed_ms"', b'"version"'), "line 5: the table endpoints has missing or repea"),
        (lambda lines: swap(lines, b'["/e1",', b'["/e1",1,'), "line 7: a row of endpoints has 9 values, not 10"),
        (lambda lines: swap(lines, b'["/e1"', b'["/e 1"'), "line 7: endpoints.endpoint: '/e 1' is not an endpoint"),
        (lambda lines: swap(lines, b'{"b64":"', b'{"b64":"?'), "line 3: bytes are not in base64"),
        (lambda lines: swap(lines, b'"a-store",9]', b'"another",9]'), "line 10: it is of another store"),
        (lambda lines: swap(lines, b'"a-store",9]', b'"a-store",8]'), "line 10: it is of another store"),
        (lambda lines: [*lines, lines[-1]], "line 11: it is of another store"),
        (lambda lines: swap(lines, b'["/e1",9', b'["/e1",10'), "line 10: it has changes beyond the position"),
        (lambda lines: [*lines[:-2], b'["x"]\n', *lines[-2:]], "line 8: a row of endpoints has 9 values, not 1"),
    ],
)
def test_an_authentic_file_with_wrong_lines_is_refused(
    tmp_path: Path, change: Callable[[Lines], Lines], why: str
) -> None:
    write(tmp_path / "file")
    write_lines(tmp_path / "changed", change(lines_of(tmp_path / "file")[:-1]))
    with pytest.raises(BadBackup) as caught:
        check(tmp_path / "changed")
    assert f"{tmp_path / 'changed'} cannot be restored: {why}" in str(caught.value)


def test_a_wrong_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file")
    lines = lines_of(tmp_path / "file")
    end = orjson.loads(lines[-1])
    for wrong, why in (
        (lines[:-1], "after line 9: its end is missing"),
        ([], "after line 0: its end is missing"),
        ([*lines, lines[-1]], "line 11: the backup has ended before"),
        ([*lines[:-1], orjson.dumps({**end, "digest": "0" * 32})], "line 10: its row counts or its digest are wrong"),
        ([*lines[:-1], orjson.dumps({**end, "rows": {}})], "line 10: its row counts or its digest are wrong"),
        ([*lines[:-1], orjson.dumps({"rows": end["rows"]})], "line 10: neither a table nor a row"),
        ([*lines[:2], b"[1\n", *lines[2:]], "line 3: not JSON"),
        ([*lines[:2], b"[" * 2000 + b"]" * 2000 + b"\n", *lines[2:]], "line 3: not JSON"),
        ([*lines[:6], *lines[7:]], "line 9: its row counts or its digest are wrong"),
    ):
        write_lines(tmp_path / "wrong", wrong, end=False)
        with pytest.raises(BadBackup, match=why):
            check(tmp_path / "wrong")


def test_a_long_line_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    write(tmp_path / "file")
    lines = lines_of(tmp_path / "file")
    with (tmp_path / "long").open("wb") as file:
        sealed = SealedWriter(file, BackupKey.of_file(key_file(tmp_path / "long")), encrypt=False)
        sealed.write(gzip.compress(lines[0] + b'["' + b"a" * (32 << 20) + b'"]\n', 1))
        sealed.finish()
    tracemalloc.start()
    with pytest.raises(BadBackup, match=f"line 2: longer than {MAX_LINE_BYTES} bytes"):
        check(tmp_path / "long")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_what_is_no_gzip_within_the_seal_is_refused(tmp_path: Path) -> None:
    for content, why in (
        (b"nothing", "Not a gzipped file"),
        (gzip.compress(b"x", mtime=0)[:-8], "after line 0: Compressed file ended before"),
    ):
        with (tmp_path / "file").open("wb") as file:
            sealed = SealedWriter(file, BackupKey.of_file(key_file(tmp_path / "file")), encrypt=False)
            sealed.write(content)
            sealed.finish()
        with pytest.raises(BadBackup, match=why):
            check(tmp_path / "file")


def test_a_file_that_changes_between_check_and_use_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file", 2)
    with BackupReader(tmp_path / "file", keys_of(tmp_path / "file")) as file:
        file.check()
        # An authentic one, in the place of the other.
        write(tmp_path / "file", 2)
        lines = lines_of(tmp_path / "file")[:-1]
        write_lines(tmp_path / "file", swap(lines, b"/e1", b"/e2"))
        with pytest.raises(BadBackup, match="changed"):
            list(file.rows())


def test_checking_and_reading_take_constant_memory(tmp_path: Path) -> None:
    write(tmp_path / "file", 3000, points=20)
    assert sum(map(len, lines_of(tmp_path / "file"))) > 3 << 20
    tracemalloc.start()
    with BackupReader(tmp_path / "file", keys_of(tmp_path / "file")) as file:
        file.check()
        count = sum(len(rows) for _, rows in file.rows())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3003
    assert peak < 2 << 20


def test_unreadable_paths_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(BadBackup, match="there is no such file"):
        check(tmp_path / "none")
    with pytest.raises(BadBackup, match="Is a directory"):
        check(tmp_path)
