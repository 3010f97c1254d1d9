"""Reads Parquet files into a grid.

PyArrow, which this imports, is an extra and takes 40 MB: import this only where there are Parquet files.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
from pyarrow import parquet as pq

from services.data.errors import InvalidDataset, MalformedBody
from services.data.files.grid import CHUNK_ROWS, Cell, Chunk, FileLimits, Grid
from services.data.files.mapping import Mapping

_MAX_THRIFT: Final = 1_000_000
_MAX_UTF8: Final = 4
_INDEX: Final = "__index_level_0__"
"""Name that pandas gives to an index without one."""


def read_parquet(body: bytes, mapping: Mapping, limits: FileLimits, file: str = "") -> Grid:  # noqa: ARG001  # as the others
    """Return the rows; an index of pandas without a name is the column ``time``, unless there is one.

    Times and dates are texts in ISO 8601, with ``Z`` if they are instants; numbers stay numbers, NaN is a gap. Lists,
    structures and binary columns are left out.

    Raises:
        MalformedBody: not Parquet, or incomplete; also while the chunks are iterated.
        InvalidDataset: more rows, bytes, columns or cells than allowed, or two columns of one name; also while the
            chunks are iterated, for a cell with too many characters.
    """
    with _damage_named(file):
        bounds = {"thrift_string_size_limit": _MAX_THRIFT, "thrift_container_size_limit": _MAX_THRIFT}
        with pq.ParquetFile(pa.BufferReader(body), **bounds) as opened:
            known, schema = opened.metadata, opened.schema_arrow
    _check(known, schema.names, limits, file)
    names = [name for name in schema.names if _is_read(schema.field(name).type)]
    columns = list(names)
    if _INDEX in columns and "time" not in columns:
        columns[columns.index(_INDEX)] = "time"
    return Grid(columns, _chunks(body, known, names, limits, file), "row", file)


@contextmanager
def _damage_named(file: str) -> Iterator[None]:
    where = f"{file}: " if file else ""
    try:
        yield
    except MemoryError:  # one of them is an ArrowException
        raise
    except UnicodeDecodeError:
        raise MalformedBody(f"{where}not Parquet, or incomplete: a text is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        message, _, _ = str(error).partition("\n")
        raise MalformedBody(f"{where}not Parquet, or incomplete: {message[:120]}") from None


def _check(known: Any, names: Sequence[str], limits: FileLimits, file: str) -> None:  # noqa: ANN401  # it has no types
    if known.num_columns > limits.columns:
        raise InvalidDataset(f"more than {limits.columns} columns", file)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidDataset(f"two columns are named {twice[:40]!r}", file)
    most = min(limits.rows, limits.cells // max(1, known.num_columns))
    if known.num_rows > most:
        raise InvalidDataset(f"more than {most} rows: split the file", file)
    if sum(known.row_group(index).total_byte_size for index in range(known.num_row_groups)) > limits.decoded_bytes:
        raise InvalidDataset(f"more than {limits.decoded_bytes} bytes when decoded", file)


def _is_read(kind: Any) -> bool:  # noqa: ANN401
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return not any(test(kind) for test in tests)


def _chunks(body: bytes, known: Any, names: Sequence[str], limits: FileLimits, file: str) -> Iterator[Chunk]:  # noqa: ANN401
    before = 0
    # Columns stay dictionary-encoded, so as not to multiply a text by the rows that refer to it.
    with _damage_named(file), pq.ParquetFile(pa.BufferReader(body), metadata=known, read_dictionary=names) as opened:
        for batch in opened.iter_batches(batch_size=CHUNK_ROWS, columns=names, use_threads=False):
            cells = [_cells(batch.column(name), name, limits, file) for name in names]
            yield Chunk(list(zip(*cells, strict=True)), range(before + 1, before + batch.num_rows + 1))
            before += batch.num_rows
            if before > known.num_rows:
                raise InvalidDataset("more rows than the file states", file)


def _cells(column: Any, name: str, limits: FileLimits, file: str) -> list[Cell]:  # noqa: ANN401
    """Return the cells of a column of a batch."""
    if pa.types.is_dictionary(column.type):
        if not pa.types.is_primitive(column.type.value_type):
            longest = pyarrow.compute.max(pyarrow.compute.binary_length(column.dictionary)).as_py()
            if longest is not None and longest > limits.cell_characters * _MAX_UTF8:
                raise InvalidDataset(f"a cell of {name[:40]!r} has more than {limits.cell_characters} characters", file)
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = _in_seconds(column)
    if pa.types.is_temporal(kind):
        column = column.cast(pa.string())
    cells: list[Any] = (column.cast(pa.string()) if _is_short(kind) else column).to_pylist()
    if pa.types.is_decimal(kind) or _is_short(kind):
        cells = [None if cell is None else float(cell) for cell in cells]
    if pa.types.is_floating(kind):
        return [None if cell is None or math.isnan(cell) else cell for cell in cells]
    return cells


def _is_short(kind: Any) -> bool:  # noqa: ANN401
    """Return whether Arrow should write the number: 81.2 in 32 bits does not become 81.19999694824219 then."""
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _in_seconds(column: Any) -> Any:  # noqa: ANN401
    """Return timestamps without their fractions, if they have none."""
    try:
        return column.cast(pa.timestamp("s", column.type.tz and "UTC"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp(column.type.unit, column.type.tz and "UTC"))
