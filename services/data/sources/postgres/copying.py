"""Copies a table: its rows as one snapshot sees them, then the end of endpoints without a row.

A copy that was interrupted begins again with a later snapshot: equal content is no new version. The changes of
transactions that the snapshot saw are left out of the stream afterwards, so that no endpoint goes back in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from services.data.errors import DataError
from services.data.sources.postgres.catalog import Published, Session, quoted
from services.data.sources.postgres.positions import Copy, PgSnapshot, lsn_of
from services.data.sources.postgres.rows import Removal, RowLayout, TableRows, Unreadable
from services.data.sources.postgres.session import failures
from services.data.sources.records.applier import RecordApplier
from services.data.sources.records.record import MISSING, Record

_FLUSH_POLL_S: Final = 0.1
_ESCAPES: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class Copier:
    """Copies tables, each in a transaction: its lock makes changes of the table's columns wait.

    Args:
        session: of its own, in which the transactions run.
        era: of the slot.
        stored_names: returns the stored endpoints below a prefix.
        sleep: waits for some seconds.
    """

    def __init__(
        self,
        session: Session,
        era: str,
        stored_names: Callable[[str], Iterable[str]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._session = session
        self._era = era
        self._stored_names = stored_names
        self._sleep = sleep

    async def copy(self, table: Published, rows: TableRows, layout: RowLayout, applier: RecordApplier) -> Copy:
        """Apply a whole table; return what its copy has. Raises as RecordApplier, and InputFailed."""
        with failures(f"{table.name} cannot be copied"):
            await self._session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshot = PgSnapshot.parse(await self._session.fetchval("SELECT pg_current_snapshot()::text"))
            # Transactions in the snapshot have written their commit before they could be seen.
            lsn = lsn_of(await self._session.fetchval("SELECT pg_current_wal_insert_lsn()::text"))
        # A series stays without its rows, as when they are deleted.
        left = set() if rows.config.kind == "series" else {*rows.stored_names(self._stored_names)}
        reader = _CopyReader(rows, layout, self._era, left)

        async def take(data: bytes) -> None:
            await applier.apply(reader.read(data))

        await self.rows(table, take)
        with failures(f"{table.name} cannot be copied"):
            await self._session.execute("COMMIT")
        await applier.apply(
            [Removal(reader.position(), MISSING, endpoint=name) for name in sorted(left)],
        )
        await applier.flush()
        await self._wait_until_durable(lsn)
        made = Copy(lsn, snapshot, table.layout(rows), self._era)
        await applier.advance(str(made))
        return made

    async def rows(self, table: Published, take: Callable[[bytes], Awaitable[None]], limit: int | None = None) -> None:
        """Pass the texts of a table's rows; raises InputFailed."""
        columns = ", ".join(quoted(column.name) for column in table.columns)
        where = f" WHERE {table.row_filter}" if table.row_filter else ""
        most = "" if limit is None else f" LIMIT {limit}"
        with failures(f"{table.name} cannot be copied"):
            # The names are quoted, and the filter is the database's own.
            query = f"SELECT {columns} FROM {table.sql_name}{where}{most}"  # noqa: S608
            await self._session.copy_from_query(query, output=take, format="text")

    async def _wait_until_durable(self, lsn: int) -> None:
        """Wait until no crash of the server can undo what was copied (``synchronous_commit = off``)."""
        with failures("the tables cannot be copied"):
            while lsn_of(await self._session.fetchval("SELECT pg_current_wal_flush_lsn()::text")) < lsn:
                await self._sleep(_FLUSH_POLL_S)


class _CopyReader:
    """Makes records of COPY's text format.

    Args:
        rows: of the table.
        layout: of its columns.
        era: of the slot.
        left: endpoints that no row has had yet; those of rows are removed.
    """

    def __init__(self, rows: TableRows, layout: RowLayout, era: str, left: set[str]) -> None:
        self._rows = rows
        self._layout = layout
        self._era = era
        self._left = left
        self._rest = b""
        self._count = 0

    def position(self) -> str:
        """Return the position after the rows so far; no copy is continued there."""
        return f"copying {self._count} {self._era}"

    def read(self, data: bytes) -> list[Record]:
        """Return the rows that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._record(line) for line in lines]

    def _record(self, line: bytes) -> Record:
        self._count += 1
        try:
            row, _ = self._layout.read(split_row(line))
            record = self._rows.record(self.position(), row)
            if self._left:
                self._left.discard(self._rows.endpoint_of(row))
        except DataError as error:
            return Unreadable(self.position(), MISSING, error=error)
        return record


def split_row(line: bytes) -> tuple[bytes | None, ...]:
    """Return the columns of a row in COPY's text format."""
    if not line:
        return (b"",)
    return tuple(_unescaped(cell) for cell in line.split(b"\t"))


def _unescaped(cell: bytes) -> bytes | None:
    if b"\\" not in cell:
        return cell
    if cell == b"\\N":
        return None
    first, *others = cell.split(b"\\")
    made, literal = [first], False
    for part in others:
        # Two backslashes leave an empty part, after which the next one is as it is.
        if literal:
            made.append(part)
            literal = False
        elif not part:
            made.append(b"\\")
            literal = True
        else:
            made.append(_ESCAPES.get(part[:1], part[:1]) + part[1:])
    return b"".join(made)


def sample_rows(rows: TableRows, layout: RowLayout, data: bytes) -> list[Any]:
    """Return the records of a sample."""
    return _CopyReader(rows, layout, "sample", set()).read(data)
