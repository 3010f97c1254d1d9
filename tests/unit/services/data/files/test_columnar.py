"""Parquet: cells by the types of columns, the index of pandas, and bounds."""

import io
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from services.data.errors import InvalidDataset, MalformedBody
from services.data.files.columnar import read_parquet
from services.data.files.grid import CHUNK_ROWS, Cell, FileLimits, Grid
from services.data.files.mapping import Mapping

LIMITS = FileLimits()


def parquet(columns: dict[str, Any], **more: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target, **more)
    return target.getvalue()


def read(body: bytes, limits: FileLimits = LIMITS) -> Grid:
    return read_parquet(body, Mapping(), limits, "a.parquet")


def column(array: Any) -> list[Cell]:
    return [row[0] for chunk in read(parquet({"x": array})).chunks for row in chunk.rows]


WALL = datetime(2026, 1, 1, 1)  # noqa: DTZ001  # local


@pytest.mark.parametrize(
    ("array", "cells"),
    [
        (pa.array([1, None]), [1, None]),
        (pa.array([1_767_225_600_000], pa.int64()), [1_767_225_600_000]),
        (pa.array([81.2, None, float("nan")]), [81.2, None, None]),
        (pa.array([81.2, None, float("nan")], pa.float32()), [81.2, None, None]),
        (pa.array([Decimal("81.20"), None], pa.decimal128(8, 2)), [81.2, None]),
        (pa.array([True, None]), [True, None]),
        (pa.array(["a", None]), ["a", None]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([WALL.replace(tzinfo=UTC), None], pa.timestamp("ns", "UTC")), ["2026-01-01 01:00:00Z", None]),
        (
            pa.array([WALL.replace(tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("ms", "+02:00")),
            ["2025-12-31 23:00:00Z"],
        ),
        (pa.array([WALL], pa.timestamp("us")), ["2026-01-01 01:00:00"]),
        (pa.array([1_767_225_600_000_000_001], pa.timestamp("ns")), ["2026-01-01 00:00:00.000000001"]),
        (pa.array([date(2026, 1, 1)]), ["2026-01-01"]),
    ],
)
def test_cells_keep_their_types_and_times_are_texts(array: Any, cells: list[Cell]) -> None:
    assert column(array) == cells


def test_columns_that_are_no_cells_are_left_out() -> None:
    body = parquet(
        {"time": pa.array(["a"]), "list": pa.array([[1]]), "bytes": pa.array([b"x"]), "value": pa.array([1])}
    )
    grid = read(body)
    assert (grid.columns, grid.place, grid.file) == (["time", "value"], "row", "a.parquet")
    assert [chunk.rows for chunk in grid.chunks] == [[("a", 1)]]


def test_an_index_of_pandas_is_the_time() -> None:
    index = pa.array([WALL])
    assert read(parquet({"load": pa.array([1]), "__index_level_0__": index})).columns == ["load", "time"]
    both = {"time": pa.array([1]), "__index_level_0__": index}
    assert read(parquet(both)).columns == ["time", "__index_level_0__"]


def test_many_rows_come_in_chunks() -> None:
    first, second = read(parquet({"x": pa.array(range(CHUNK_ROWS + 1))})).chunks
    assert (len(first.rows), list(second.places), second.rows) == (CHUNK_ROWS, [CHUNK_ROWS + 1], [(CHUNK_ROWS,)])


TWICE = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])


@pytest.mark.parametrize(
    ("columns", "limits", "reason"),
    [
        ({"a": [1], "b": [1]}, FileLimits(columns=1), "a.parquet: more than 1 columns"),
        ({"a": [1, 2]}, FileLimits(rows=1), "a.parquet: more than 1 rows: split the file"),
        ({"a": [1, 2], "b": [1, 2]}, FileLimits(cells=3), "a.parquet: more than 1 rows: split the file"),
        ({"a": ["x" * 1000]}, FileLimits(decoded_bytes=900), "a.parquet: more than 900 bytes when decoded"),
        ({"a": ["x" * 20_000]}, LIMITS, "a.parquet: a cell of 'a' has more than 4096 characters"),
    ],
)
def test_bounds_are_named(columns: dict[str, Any], limits: FileLimits, reason: str) -> None:
    with pytest.raises(InvalidDataset) as found:
        list(read(parquet(columns), limits).chunks)
    assert str(found.value) == reason


def test_two_columns_of_one_name_are_refused() -> None:
    target = io.BytesIO()
    pq.write_table(TWICE, target)
    with pytest.raises(InvalidDataset, match=r"^a.parquet: two columns are named 'x'$"):
        read(target.getvalue())


def test_repeated_text_is_not_multiplied_in_memory() -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 100_000]))
    # Without the schema of Arrow beside it, that the column was a dictionary is not known.
    body = parquet({"x": text}, store_schema=False)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(InvalidDataset, match="more than 4096 characters"):
        list(read(body).chunks)
    assert pa.default_memory_pool().max_memory() < before + 50_000_000


def test_a_damaged_file_is_named() -> None:
    body = parquet({"time": pa.array(["a", "b"]), "value": pa.array([1.5, 2])})
    for end in range(4, len(body), 7):
        with pytest.raises(MalformedBody, match=r"^a.parquet: not Parquet, or incomplete: "):
            list(read(body[:end]).chunks)
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(MalformedBody, match=r"^a.parquet: not Parquet, or incomplete: a text is not UTF-8$"):
        list(read(parquet({"x": text})).chunks)
