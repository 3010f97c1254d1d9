"""Reads an outbox: a table to which programs add a row for each change.

Ids of a sequence are no order of commits: a transaction may commit after others with greater ids, and a reader that
only remembers the greatest id never sees its rows. So the position is a snapshot: what one read sees and the one before
did not see is new, each row once, however long its transaction took. Within a read, rows are in the order of ids:
transactions that change the same thing wait for each other, so that the later one has the greater id.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Self

import structlog

from services.data.errors import DataError, InvalidDataset
from services.data.sources.postgres import catalog
from services.data.sources.postgres.catalog import Session, quoted
from services.data.sources.postgres.copying import split_row
from services.data.sources.postgres.pgoutput import Column
from services.data.sources.postgres.positions import PgSnapshot
from services.data.sources.postgres.rows import RowLayout, Unreadable
from services.data.sources.postgres.session import connect, failures, history
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.postgres.values import Types
from services.data.sources.records.applier import RecordApplier
from services.data.sources.records.attempts import InputFailed
from services.data.sources.records.converter import RecordConverter, SeriesPoint
from services.data.sources.records.record import MISSING, Record
from services.data.sources.records.table import RecordTable
from services.data.sources.source import ChangeSink, Health, Intake, StoredState
from services.data.store import Change

AT_ONCE: Final = 1000
"""Maximum number of rows of one query."""
SAMPLE: Final = 20
DELETE_S: Final = 1.0
"""Between deletions of applied rows."""
NOTHING: Final = "1:1:"
"""A snapshot that sees no transaction."""
_XID8: Final = 5069

_logger = structlog.get_logger(__name__)


class OutboxPosition(NamedTuple):
    """After all rows that the snapshot ``seen`` sees; and those up to an id of what ``next`` sees, if there is one."""

    system: str
    """Identifier of the database and its timeline."""
    seen: str
    next: str = ""
    id: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position of a stored text; raises InvalidDataset."""
        try:
            system, seen, *rest = text.split(" ")
            PgSnapshot.parse(seen)
            return cls(system, seen, rest[0], int(rest[1])) if rest else cls(system, seen)
        except (ValueError, IndexError):
            raise InvalidDataset(
                f"the stored position {text[:60]!r} is none of an outbox: replay the source from start"
            ) from None

    def __str__(self) -> str:
        own = f"{self.system} {self.seen}"
        return f"{own} {self.next} {self.id}" if self.next else own


class _Converter:
    """Refuses rows that are no records."""

    def __init__(self, inner: RecordConverter) -> None:
        self._inner = inner
        self.series_change = inner.series_change

    def convert(self, record: Record) -> Change | SeriesPoint | None:
        """Return the change that a record makes; None if it makes none; raises DataError."""
        if isinstance(record, Unreadable):
            raise record.error
        return self._inner.convert(record)


class OutboxReader:
    """Applies the rows of an outbox.

    Args:
        config: of the source.
        health: of the source.
        converter: makes the converter of a table's rows.
    """

    def __init__(
        self, config: PostgresConfig, health: Health, converter: Callable[[RecordTable], RecordConverter]
    ) -> None:
        self._config = config
        self._health = health
        self._converter = _Converter(converter(config))
        self._name = str(config.outbox)
        self._sql_name = ".".join(map(quoted, self._name.split(".")))
        self._part = f"outbox {self._name}"
        self._value = (config.value or "").removeprefix("value/").partition("/")[0]
        """The column without which a row ends its endpoint."""
        self._changed = asyncio.Event()

    async def try_once(self, sink: ChangeSink) -> None:
        """Check the table, and convert its last rows; raises DataError."""
        session = await connect(self._config)
        try:
            layout = await self._layout(session)
            position = OutboxPosition("trial", NOTHING)
            records = await self._select(session, layout, position, f"TRUE ORDER BY id DESC LIMIT {SAMPLE}")
            applier = RecordApplier(self._converter, sink, self._health, skips=False, part=self._part, position=None)
            await applier.apply_all(records)
        finally:
            session.terminate()

    async def read(self, sink: ChangeSink, stored: StoredState) -> None:
        """Read from the stored position until an error, which is raised."""
        del stored
        session = await connect(self._config)
        try:
            layout = await self._layout(session)
            text = (await sink.positions()).get(self._part)
            position = await self._start(session, text)
            applier = RecordApplier(
                self._converter,
                sink,
                self._health,
                skips=self._config.skips,
                part=self._part,
                position=text,
            )
            try:
                await self._follow(session, layout, position, applier)
            finally:
                await applier.close()
        finally:
            session.terminate()

    async def _layout(self, session: Session) -> RowLayout:
        """Return the columns of the table; raises InputFailed."""
        types = await catalog.array_and_domain_types(session)
        with failures("the outbox cannot be read"):
            found = await session.fetch(
                "SELECT attname::text, atttypid FROM pg_attribute"
                " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                self._sql_name,
            )
            columns = [Column(name, type_, is_key=False) for name, type_ in found]
            if not columns:
                raise InputFailed(f"there is no table {self._name} (key: outbox)")
            for right in ("SELECT", *["DELETE"] * self._config.delete_applied):
                if not await session.fetchval("SELECT has_table_privilege($1, $2)", self._sql_name, right):
                    role = quoted(await session.fetchval("SELECT current_user"))
                    raise InputFailed(f"the role lacks a right: GRANT {right} ON {self._sql_name} TO {role}")
        named = {column.name: column.type for column in columns}
        if "id" not in named:
            raise InputFailed(f"{self._name} has no id: ALTER TABLE {self._sql_name} ADD COLUMN id bigserial")
        if named.get("tx") != _XID8:
            raise InputFailed(
                f"{self._name} has no column tx of its transactions: "
                f"ALTER TABLE {self._sql_name} ADD COLUMN tx xid8 NOT NULL DEFAULT pg_current_xact_id()"
            )
        return RowLayout(columns, Types(types, raw_bytes=self._config.kind == "bytes"))

    async def _start(self, session: Session, text: str | None) -> OutboxPosition:
        """Return the stored position; the beginning, if the database does not continue it."""
        system = await history(session)
        with failures("the outbox cannot be read"):
            now = PgSnapshot.parse(await session.fetchval("SELECT pg_current_snapshot()::text"))
        if text is None:
            return OutboxPosition(system, NOTHING)
        position = OutboxPosition.parse(text)
        if position.system == system and PgSnapshot.parse(position.next or position.seen).xmax <= now.xmax:
            return position
        self._intake.resets += 1
        reason = "it is another database server, a standby that took over, or it comes from a backup"
        _logger.warning("all rows of the outbox are read again", source=self._config.name, reason=reason)
        return OutboxPosition(system, NOTHING)

    @property
    def _intake(self) -> Intake:
        self._health.intake = self._health.intake or Intake()
        return self._health.intake

    async def _follow(
        self, session: Session, layout: RowLayout, position: OutboxPosition, applier: RecordApplier
    ) -> None:
        time = asyncio.get_running_loop().time
        deleted = time()
        with failures("the outbox cannot be read"):
            await session.add_listener(self._config.channel, lambda *_: self._changed.set())
            # So that a lost session is noticed at once.
            session.add_termination_listener(lambda _: self._changed.set())
        while True:
            self._changed.clear()
            records, position = await self._next(session, layout, position)
            await applier.apply(records)
            if self._config.delete_applied and time() - deleted >= DELETE_S and position.seen != NOTHING:
                deleted = time()
                await applier.flush()
                await self._delete(session, position.seen)
            if position.next:
                continue
            await applier.flush()
            self._health.succeeded()
            self._intake.lag = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.every):
                    await self._changed.wait()

    async def _next(
        self, session: Session, layout: RowLayout, position: OutboxPosition
    ) -> tuple[list[Record], OutboxPosition]:
        """Return new rows, and the position after them."""
        if not position.next:
            with failures("the outbox cannot be read"):
                now = await session.fetchval("SELECT pg_current_snapshot()::text")
            position = position._replace(next=now, id=0)
        first = position.seen.partition(":")[0]
        condition = (
            f"tx >= '{first}' AND NOT pg_visible_in_snapshot(tx, '{position.seen}')"
            f" AND pg_visible_in_snapshot(tx, '{position.next}') AND id > {position.id} ORDER BY id LIMIT {AT_ONCE}"
        )
        records = await self._select(session, layout, position, condition)
        if len(records) < AT_ONCE:
            after = OutboxPosition(position.system, position.next)
            if not records and not position.id:
                return [], position._replace(next="")
            if records:
                records[-1].position = str(after)
            return records, after
        return records, OutboxPosition.parse(records[-1].position)

    async def _select(
        self, session: Session, layout: RowLayout, position: OutboxPosition, condition: str
    ) -> list[Record]:
        columns = ", ".join(quoted(column.name) for column in layout.columns)
        data: list[bytes] = []

        async def take(part: bytes) -> None:
            data.append(part)

        with failures("the outbox cannot be read"):
            # Names are quoted, and the rest has numbers of the database alone.
            query = f"SELECT {columns} FROM {self._sql_name} WHERE {condition}"  # noqa: S608
            await session.copy_from_query(query, output=take, format="text")
        return [self._record(layout, position, line) for line in b"".join(data).split(b"\n")[:-1]]

    def _record(self, layout: RowLayout, position: OutboxPosition, line: bytes) -> Record:
        cells = split_row(line)
        at = next(index for index, column in enumerate(layout.columns) if column.name == "id")
        text = str(position._replace(id=int(cells[at] or 0)))
        try:
            row, _ = layout.read(cells)
        except DataError as error:
            return Unreadable(text, MISSING, error=error)
        del row["tx"]
        if self._value and row.get(self._value, MISSING) is None:
            return Record(text, MISSING, row)
        return Record(text, row)

    async def _delete(self, session: Session, seen: str) -> None:
        xmax = PgSnapshot.parse(seen).xmax
        with failures("applied rows cannot be deleted"):
            await session.execute(
                f"DELETE FROM {self._sql_name} WHERE tx < '{xmax}' AND pg_visible_in_snapshot(tx, '{seen}')"  # noqa: S608
            )
