"""The lines of a backup: what is read is what was written, or the stream is refused; in bounded memory."""

import gzip
import io
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.backup.errors import BadBackup
from services.data.backup.stream import BYTES_PER_BATCH, MAX_LINE_BYTES, BackupReader, BackupWriter, Header, Row
from services.data.limits import MAX_DATASET_BYTES
from tests.support.backups import end_of, lines_of, write_lines
from tests.support.required import in_cluster

HEADER = Header("a-store", 9, "0004", "2026-01-01T00:00:00.000Z")
Lines = list[bytes]
Values = list[object]


def write(path: Path, rows: list[Values]) -> None:
    with path.open("wb") as file:
        writer = BackupWriter(file, HEADER)
        writer.write({"table": "endpoints", "columns": ["endpoint", "content"]})
        for row in rows:
            writer.write(row)
        writer.write({"table": "store", "columns": ["id"]})
        writer.write([1])
        writer.finish({"endpoints": len(rows), "store": 1})


def read(path: Path) -> list[tuple[str, list[Row]]]:
    with path.open("rb") as file:
        reader = BackupReader(file)
        assert (reader.revision, reader.created) == HEADER[2:]
        return list(reader.rows())


def endpoints(count: int) -> list[Values]:
    return [[f"/e{number}", b"\xff%d" % number if number % 2 else b'{"a":%d}' % number] for number in range(count)]


def test_what_is_read_is_what_was_written_in_batches(tmp_path: Path) -> None:
    write(tmp_path / "file", endpoints(450))
    batches = read(tmp_path / "file")
    assert [(table, len(rows)) for table, rows in batches] == [
        ("endpoints", 200), ("endpoints", 200), ("endpoints", 50), ("store", 1)
    ]  # fmt: skip
    assert [[*row.values()] for _, rows in batches[:3] for row in rows] == endpoints(450)
    assert batches[3][1] == [{"id": 1}]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary()), max_size=20))
def test_every_value_of_a_database_is_read_as_it_was_written(values: Values) -> None:
    file = io.BytesIO()
    file.name = "file"
    writer = BackupWriter(file, HEADER)
    writer.write({"table": "store", "columns": [str(number) for number in range(len(values))]})
    writer.write(values)
    writer.finish({"store": 1})
    file.seek(0)
    ((_, (row,)),) = BackupReader(file).rows()
    assert [*row.values()] == values


def test_every_cut_and_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    write(tmp_path / "file", endpoints(3))
    whole = (tmp_path / "file").read_bytes()
    # Bytes 3 to 9 of the head of gzip are flags, time and system: they have no content.
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (*range(3), *range(10, len(whole)))]
    for wrong in (*(whole[:length] for length in range(len(whole))), *flipped, whole + b"\0", whole + whole):
        (tmp_path / "wrong").write_bytes(wrong)
        with pytest.raises(BadBackup):
            read(tmp_path / "wrong")


def swap(old: bytes, new: bytes) -> Callable[[Lines], Lines]:
    return lambda lines: [line.replace(old, new) for line in lines]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[1:], "line 1: it does not begin with diem.backup/3"),
        (swap(b"diem.backup/3", b"diem.backup/4"), "line 1: it does not begin with diem.backup/3"),
        (swap(b'"created":"2026', b'"created":"\\u001b[2J2026'), "line 1: it does not name its store"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: it is no line of a backup"),
        (lambda lines: [*lines[:2], b"7\n", *lines[2:]], "line 3: it is no line of a backup"),
        (swap(b'["/e1",', b'["/e1",1,'), "line 4: it is no line of a backup"),
        (swap(b'{"b64":"', b'{"b64":"?'), "line 4: it is no line of a backup"),
        (swap(b'{"b64":"', b'{"b65":"'), "line 4: it is no line of a backup"),
    ],
)
def test_wrong_lines_are_refused_with_their_number(tmp_path: Path, change: Callable[[Lines], Lines], why: str) -> None:
    write(tmp_path / "file", endpoints(2))
    write_lines(tmp_path / "wrong", change(lines_of(tmp_path / "file")), end=False)
    with pytest.raises(BadBackup) as caught:
        read(tmp_path / "wrong")
    assert f"{tmp_path / 'wrong'} cannot be restored: {why}" in str(caught.value)
    assert str(caught.value).endswith("; nothing was changed")


def test_a_wrong_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "file", endpoints(2))
    lines = lines_of(tmp_path / "file")
    end = orjson.loads(lines[-1])
    for wrong, why in (
        (lines[:-1], "line 6: its end is missing"),
        ([*lines, lines[-1]], "line 8: the backup has ended before"),
        ([*lines[:-1], orjson.dumps({**end, "digest": "0" * 32}) + b"\n"], "line 7: its row counts or its digest"),
        ([*lines[:-1], orjson.dumps({**end, "rows": {}}) + b"\n"], "line 7: its row counts or its digest are wrong"),
        ([*lines[:3], *lines[4:]], "line 6: its row counts or its digest are wrong"),
        ([*lines[:2], b"[1\n", *lines[2:]], "line 3: it is no JSON"),
        ([*lines, b"{"], "line 7: the next one is cut"),
        ([*lines[:4], end_of(lines[:4])], "line 5: its row counts or its digest are wrong"),  # without a store
    ):
        write_lines(tmp_path / "wrong", wrong, end=False)
        with pytest.raises(BadBackup, match=why):
            read(tmp_path / "wrong")


@pytest.mark.parametrize("content", [b"", b"nothing", b"age-encryption.org/v1\n", b"PK\x03\x04"])
def test_what_is_no_backup_is_refused_as_such(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadBackup, match="line 0: it is no backup of DIEM, or still encrypted"):
        read(tmp_path / "file")


@pytest.mark.parametrize("content", [pytest.param(b"\0", marks=in_cluster()), b'ab"'])
def test_the_largest_content_of_any_kind_is_read_as_it_was_written(tmp_path: Path, content: bytes) -> None:
    largest = content * (MAX_DATASET_BYTES // len(content))
    write(tmp_path / "file", [["/a", largest]])
    assert read(tmp_path / "file")[0][1][0]["content"] == largest
    assert max(map(len, lines_of(tmp_path / "file"))) <= MAX_LINE_BYTES


def test_rows_of_many_bytes_are_few_in_a_batch(tmp_path: Path) -> None:
    rows: list[Values] = [["/e", b"\xff" * (BYTES_PER_BATCH // 4)] for _ in range(9)]
    write(tmp_path / "file", rows)
    assert [len(rows) for _, rows in read(tmp_path / "file")] == [3, 3, 3, 1]


def test_reading_takes_bounded_memory_whatever_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.data.backup.stream.MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr("services.data.backup.stream.BYTES_PER_BATCH", 1 << 18)
    write(tmp_path / "file", [["/a", os.urandom(1000)] for _ in range(5000)])
    long = gzip.compress(b'["' + b"a" * (64 << 20), 1)
    (tmp_path / "long").write_bytes(long)
    tracemalloc.start()
    with (tmp_path / "file").open("rb") as file:
        assert sum(len(rows) for _, rows in BackupReader(file).rows()) == 5001
    with pytest.raises(BadBackup, match=f"line 0: the next one is longer than {1 << 20} bytes"):
        read(tmp_path / "long")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20
