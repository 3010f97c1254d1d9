"""Parses Parquet files into tables: columns ``time`` and ``value``, optionally ``unit``.

PyArrow, which this imports, is an extra and takes 40 MB: import this only where there are Parquet files.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
from pyarrow import parquet as pq

from services.data.errors import InvalidDataset, MalformedBody
from services.data.kinds.series import CsvRow, CsvTable

MAX_COLUMNS: Final = 64
_MAX_THRIFT: Final = 1_000_000
_MAX_CELL: Final = 512
_MAX_UTF8: Final = 4
_LONG: Final = f"a field has more than {_MAX_CELL} characters"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_parquet(body: bytes, *, max_rows: int = 100_000, max_decoded: int = 64 * 1024 * 1024) -> CsvTable:
    """Parse a Parquet file into a table; rows are numbered from 1.

    ``time`` is a timestamp, a date or a text; a timestamp with a zone is an instant, one without is local time of the
    source's zone. ``value`` is a number or null. Columns other than these and ``unit`` are ignored.

    Raises:
        MalformedBody: the file is not Parquet, or incomplete.
        InvalidDataset: wrong columns or types, or more rows, bytes or columns than allowed.
    """
    try:
        limits = {"thrift_string_size_limit": _MAX_THRIFT, "thrift_container_size_limit": _MAX_THRIFT}
        with pq.ParquetFile(pa.BufferReader(body), **limits) as file:
            known, names = file.metadata, _checked(file, max_rows, max_decoded)
        # Columns stay dictionary-encoded, so as not to multiply a text by the rows that refer to it.
        with pq.ParquetFile(pa.BufferReader(body), metadata=known, read_dictionary=names) as file:
            rows: list[CsvRow] = []
            for batch in file.iter_batches(batch_size=4096, columns=names, use_threads=False):
                if len(rows) + batch.num_rows > max_rows:
                    raise InvalidDataset(f"more than {max_rows} rows")
                rows += _rows(batch, len(rows))
    except UnicodeDecodeError:
        raise MalformedBody("not Parquet, or incomplete: a text is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        message, _, _ = str(error).partition("\n")
        raise MalformedBody(f"not Parquet, or incomplete: {message[:120]}") from None
    return CsvTable(frozenset(names), rows, place="row")


def _checked(file: Any, max_rows: int, max_decoded: int) -> list[str]:  # noqa: ANN401  # it has no types
    known = file.metadata
    names = file.schema_arrow.names
    if known.num_columns > MAX_COLUMNS:
        raise InvalidDataset(f"more than {MAX_COLUMNS} columns")
    if len(set(names)) != len(names) or not {"time", "value"} <= set(names):
        raise InvalidDataset(f"the columns must be time, value and perhaps unit, not {', '.join(names)[:60]!r}")
    if known.num_rows > max_rows:
        raise InvalidDataset(f"more than {max_rows} rows")
    if sum(known.row_group(index).total_byte_size for index in range(known.num_row_groups)) > max_decoded:
        raise InvalidDataset(f"more than {max_decoded} bytes when decoded")
    wanted = [name for name in ("time", "value", "unit") if name in names]
    for name in wanted:
        kind = file.schema_arrow.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
            raise InvalidDataset(f"the column {name} cannot be {kind}")
    return wanted


def _rows(batch: Any, before: int) -> Iterator[CsvRow]:  # noqa: ANN401
    times = list(_times(_column(batch, "time", before)))
    values = _texts(_number(_column(batch, "value", before)))
    units = _texts(_column(batch, "unit", before)) if "unit" in batch.schema.names else [""] * batch.num_rows
    for index, (time, value, unit) in enumerate(zip(times, values, units, strict=True), start=before + 1):
        if len(time) > _MAX_CELL or len(unit) > _MAX_CELL:
            raise InvalidDataset(_LONG, f"row {index}")
        yield CsvRow(index, time, value, unit, "")


def _column(batch: Any, name: str, before: int) -> Any:  # noqa: ANN401
    column = batch.column(name)
    if not pa.types.is_dictionary(column.type):
        return column
    if not pa.types.is_primitive(column.type.value_type):
        lengths = pyarrow.compute.binary_length(column.dictionary).take(column.indices).to_pylist()
        for index, length in enumerate(lengths, start=before + 1):
            if length is not None and length > _MAX_CELL * _MAX_UTF8:
                raise InvalidDataset(_LONG, f"row {index}")
    return column.dictionary_decode()


def _number(column: Any) -> Any:  # noqa: ANN401
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InvalidDataset(f"the column value must be numbers, not {kind}")
    return column


def _texts(column: Any) -> list[str]:  # noqa: ANN401
    # Arrow writes the shortest text for the number's type: 81.2 in 32 bits does not become 81.19999694824219.
    return [text or "" for text in column.cast(pa.string()).to_pylist()]


def _times(column: Any) -> Iterator[str]:  # noqa: ANN401
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield from _texts(column)
        return
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise InvalidDataset(f"the column time must be timestamps or texts, not {kind}")
    zoned = getattr(kind, "tz", None) is not None
    try:
        # Arrow refuses casts that lose fractions of a microsecond; fractions of a second are refused when parsing.
        instants = column.cast(pa.timestamp("us", "UTC" if zoned else None)).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        raise InvalidDataset(
            f"a time of {kind} has a fraction of a second: round the times to the grid first"
        ) from None
    for micros in instants:
        if micros is None:
            yield ""
            continue
        try:
            wall = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
        except OverflowError:
            raise InvalidDataset("a time is out of range") from None
        yield wall.isoformat() + ("Z" if zoned else "")
