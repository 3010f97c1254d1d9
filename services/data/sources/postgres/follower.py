"""Follows a stream: its changes as records, from a position within a transaction on."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from services.data.errors import DataError, EndpointDeleted, InvalidDataset, UnknownEndpoint
from services.data.sources.postgres.catalog import Published
from services.data.sources.postgres.pgoutput import (
    Begin,
    Commit,
    Message,
    Relation,
    RowDelete,
    RowInsert,
    RowUpdate,
    Truncate,
    Values,
    decode,
)
from services.data.sources.postgres.positions import Copy, StreamPosition
from services.data.sources.postgres.replication import ReplicationStream
from services.data.sources.postgres.rows import FULL, Removal, RowLayout, TableRows, Unreadable
from services.data.sources.postgres.values import Types
from services.data.sources.records.applier import RecordApplier
from services.data.sources.records.record import MISSING, Record
from services.data.sources.source import StoredState

ADVANCE_S: Final = 10.0
"""Between positions stored without a change, while others write to the database."""
IDLE_S: Final = 1.0


class LayoutChanged(DataError):
    """A table is new, or has other columns than its copy: it is copied again."""

    code = "layout_changed"


class FollowedTable:
    """A table that is read."""

    def __init__(self, published: Published, rows: TableRows, types: Types) -> None:
        self.published = published
        self.rows = rows
        self.types = types
        self.layout = RowLayout(published.columns, types)
        self.full = published.identity == FULL
        self.copy: Copy | None = None


class Follower:
    """Applies the changes of a stream.

    Args:
        stream: from ``start`` on.
        applier: from there, too.
        stored: what is stored of the endpoints.
        tables: that are read, with their copies.
        start: where the stream begins.
        known: layouts that are no reason for another copy.
        check_now: set when the publication may have other tables.
    """

    def __init__(
        self,
        stream: ReplicationStream,
        applier: RecordApplier,
        *,
        stored: StoredState,
        tables: Sequence[FollowedTable],
        start: StreamPosition,
        known: set[tuple[int, tuple[Any, ...]]],
        check_now: asyncio.Event,
    ) -> None:
        self._stream = stream
        self._applier = applier
        self._stored = stored
        self._by_name = {(each.published.schema, each.published.table): each for each in tables}
        self._start = start
        self._known = known
        self._check_now = check_now
        self._relations: dict[int, FollowedTable | None] = {}
        self._begin: Begin | None = None
        self._index = 0
        """Number of changes of this transaction."""
        self._skip = 0
        """Number of these that are stored already."""
        self._end_lsn = start.lsn
        """After the last transaction."""
        self._records: list[Record] = []
        """Not yet applied."""
        self._fresh: dict[str, dict[str, Any] | None] = {}
        """Rows of endpoints since the last read, of tables with values that are not sent."""
        self._merging: set[int] = set()
        """Tables with such values."""
        self._is_flushed = False
        self.idle_lsn = start.lsn
        """What commits before this was stored when nothing was left to be read."""

    async def run(self) -> None:
        """Apply changes until an error, which is raised."""
        time = asyncio.get_running_loop().time
        advanced = time()
        while True:
            messages = await self._stream.read(IDLE_S)
            self._fresh.clear()
            self._is_flushed = False
            for message in messages:
                await self._take(decode(message))
            await self._apply()
            if not messages:
                lsn = self._stream.read_lsn
                await self._applier.flush()
                self.idle_lsn = max(self.idle_lsn, lsn)
            if self._begin is None and time() - advanced >= ADVANCE_S:
                advanced = time()
                lsn = self._end_lsn if messages else max(self._stream.read_lsn, self._end_lsn)
                await self._applier.advance(str(StreamPosition(lsn, 0, self._start.era)))

    async def _apply(self) -> None:
        records, self._records = self._records, []
        if records:
            await self._applier.apply(records)

    async def _flush(self) -> None:
        await self._apply()
        await self._applier.flush()

    async def _take(self, message: Message | None) -> None:
        match message:
            case Begin():
                self._begin, self._index = message, 0
                behind = message.commit_lsn - self._start.lsn
                self._skip = 0 if behind > 0 else self._start.changes if behind == 0 else -1
            case Commit():
                self._begin, self._end_lsn = None, message.end_lsn
            case Relation():
                await self._know(message)
            case Truncate():
                self._index += 1
                for oid in message.relations:
                    if (table := self._relations.get(oid)) is not None and not self._has(table):
                        await self._truncate(table)
            case RowInsert() | RowUpdate() | RowDelete():
                self._index += 1
                table = self._relations.get(message.relation)
                if table is not None and not self._has(table):
                    await self._row(table, message)
            case None:
                pass

    def _has(self, table: FollowedTable) -> bool:
        """Return whether a change of a table is stored already."""
        if self._begin is None:
            raise InvalidDataset("the database has sent a change outside of a transaction")
        if self._skip < 0 or self._index <= self._skip:
            return True
        return table.copy is not None and table.copy.has(self._begin.commit_lsn, self._begin.xid)

    async def _know(self, relation: Relation) -> None:
        """Note a table; raises LayoutChanged if its copy was made of other columns."""
        table = self._by_name.get((relation.schema, relation.table))
        self._relations[relation.oid] = table
        if table is None:
            self._check_now.set()
            return
        table.layout = RowLayout(relation.columns, table.types)
        table.full = relation.identity == FULL
        columns = tuple((column.name, column.type) for column in relation.columns)
        copied = tuple((column.name, column.type) for column in table.published.columns)
        same = columns == copied and relation.oid == table.published.oid
        self._index += 1  # of the change that follows
        is_stored = self._has(table)
        self._index -= 1
        if not same and not is_stored and (relation.oid, columns) not in self._known:
            self._known.add((relation.oid, columns))
            await self._flush()
            raise LayoutChanged(f"{table.rows.name} has other columns than when it was copied")

    def _position(self, *, before: bool = False) -> str:
        begin = self._begin
        lsn = 0 if begin is None else begin.commit_lsn
        return str(StreamPosition(lsn, self._index - before, self._start.era))

    @property
    def _time_ms(self) -> int:
        return 0 if self._begin is None else self._begin.time_ms

    async def _truncate(self, table: FollowedTable) -> None:
        """Remove all endpoints of a table."""
        rows = table.rows
        if not rows.columns and rows.config.kind == "notice":
            self._records.append(rows.record(self._position(), {}, self._time_ms))
            return
        await self._flush()
        self._fresh.clear()
        names = rows.stored_names(self._stored.names)
        before = self._position(before=True)
        self._records += [Removal(before, MISSING, time_ms=self._time_ms, endpoint=name) for name in names]
        if names:
            self._records[-1].position = self._position()

    async def _row(self, table: FollowedTable, message: RowInsert | RowUpdate | RowDelete) -> None:
        """Make the records of a change."""
        position = self._position()
        try:
            if isinstance(message, RowDelete):
                row = table.layout.read_identity(message.old, full=table.full)
                if (record := table.rows.ends(position, row, self._time_ms)) is not None:
                    self._records.append(record)
                self._remember(table, row, None)
                return
            old = message.old if isinstance(message, RowUpdate) else None
            await self._put(table, position, old, message.new)
        except DataError as error:
            self._records.append(Unreadable(position, MISSING, time_ms=self._time_ms, error=error))

    async def _put(self, table: FollowedTable, position: str, old: Values | None, new: Values) -> None:
        row, unchanged = table.layout.read(new)
        rows = table.rows
        before = None if old is None else table.layout.read_identity(old, full=table.full)
        if before is not None and table.full and unchanged:
            row |= {name: before[name] for name in unchanged}
            unchanged = []
        if unchanged:
            self._merging.add(table.published.oid)
            row = await self._merged(table, row, unchanged, row if before is None else {**row, **before})
        if before is not None and rows.columns:
            removal = rows.ends(self._position(before=True), before, self._time_ms)
            if isinstance(removal, Removal) and removal.endpoint != rows.endpoint_of(row):
                self._records.append(removal)
                self._remember(table, before, None)
        self._records.append(rows.record(position, row, self._time_ms))
        self._remember(table, row, row)

    def _remember(self, table: FollowedTable, row: dict[str, Any], now: dict[str, Any] | None) -> None:
        if table.published.oid in self._merging:
            self._fresh[table.rows.endpoint_of(row)] = now

    async def _merged(
        self, table: FollowedTable, row: dict[str, Any], unchanged: Sequence[str], before: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a row with the values that were not sent, from what was there before."""
        endpoint = table.rows.endpoint_of(before)
        if (known := self._fresh.get(endpoint)) is not None and all(name in known for name in unchanged):
            return {**row, **{name: known[name] for name in unchanged}}
        if not self._is_flushed:
            await self._flush()
            self._is_flushed = True
        try:
            content = (await self._stored.current(endpoint)).content
        except (UnknownEndpoint, EndpointDeleted):
            content = None
        return table.rows.with_stored(row, unchanged, content)
