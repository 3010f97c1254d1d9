"""Reads a publication: copies of its tables, then their changes from a replication slot."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from services.data.sources.postgres import catalog
from services.data.sources.postgres.catalog import Published, Session, SlotState
from services.data.sources.postgres.copying import Copier, sample_rows
from services.data.sources.postgres.follower import FollowedTable, Follower, LayoutChanged
from services.data.sources.postgres.positions import Copy, StreamPosition, lsn_of, lsn_text
from services.data.sources.postgres.replication import ReplicationStream
from services.data.sources.postgres.rows import RowConverter, TableRows
from services.data.sources.postgres.session import connect, failures, history
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.postgres.values import Types
from services.data.sources.records.applier import RecordApplier
from services.data.sources.records.attempts import InputFailed
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.table import RecordTable
from services.data.sources.source import ChangeSink, Health, Intake, StoredState
from services.data.store import Checkpoint

SAMPLE: Final = 20
"""Rows of each table in a trial."""
WATCH_S: Final = 5.0
"""Between looks at the slot, which is then told the stored position."""

_logger = structlog.get_logger(__name__)


class PublicationReader:
    """Keeps the endpoints of a publication's tables up to date.

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
        self._converter = converter
        self._part = f"slot {config.slot_name}"
        self._known: set[tuple[int, tuple[Any, ...]]] = set()
        """Layouts of the stream for which a copy was made, whatever the catalog says."""
        self._check_now = asyncio.Event()
        self._is_warned = False
        self._stream: ReplicationStream | None = None
        self._follower: Follower | None = None

    async def try_once(self, sink: ChangeSink) -> None:
        """Check everything that the source needs, and convert some rows of each table; raises DataError."""
        session = await connect(self._config)
        try:
            await catalog.check_server(session, self._config)
            tables = await self._tables(session)
            await catalog.slot_state(session, self._config.slot_name)
            for table in tables:
                data: list[bytes] = []

                async def take(part: bytes, data: list[bytes] = data) -> None:
                    data.append(part)

                await Copier(session, "", lambda _: []).rows(table.published, take, SAMPLE)
                records = sample_rows(table.rows, table.layout, b"".join(data))
                applier = RecordApplier(
                    RowConverter([table.rows]), sink, self._health, skips=False, part=table.rows.name, position=None
                )
                await applier.apply_all(records)
        finally:
            await session.close()

    async def read(self, sink: ChangeSink, stored: StoredState) -> None:
        """Read from the stored positions until an error, which is raised."""
        session = await connect(self._config)
        try:
            await catalog.check_server(session, self._config)
            tables = await self._tables(session)
            start = await self._start(session, sink)
            watcher = asyncio.create_task(self._watch_slot(session, sink, {each.rows.name for each in tables}))
            reading = asyncio.create_task(self._read(sink, stored, tables, start))
            try:
                await asyncio.wait({watcher, reading}, return_when=asyncio.FIRST_COMPLETED)
                for task in (reading, watcher):
                    if task.done():
                        task.result()
            finally:
                for task in (reading, watcher):
                    task.cancel()
                await asyncio.gather(reading, watcher, return_exceptions=True)
        finally:
            # Without waiting for a server that does not answer.
            session.terminate()

    async def _tables(self, session: Session) -> list[FollowedTable]:
        """Return the tables that are read; raises InputFailed."""
        types = await catalog.array_and_domain_types(session)
        found: list[FollowedTable] = []
        published = await self._published(session)
        for each in published:
            config = self._config.of_table(each.schema, each.table)
            if config is not None:
                rows = TableRows(each.schema, each.table, config, self._converter(config))
                catalog.check_table(each, rows)
                found.append(FollowedTable(each, rows, Types(types, raw_bytes=config.kind == "bytes")))
        catalog.check_apart([each.rows for each in found], self._config)
        await catalog.check_rights(session, [each.published for each in found])
        return found

    async def _published(self, session: Session) -> list[Published]:
        config = self._config
        published = await catalog.published_tables(session, str(config.publication))
        if missing := config.tables.keys() - {each.name for each in published}:
            schema, _, table = (name := min(missing)).partition(".")
            if not await catalog.has_table(session, schema, table):
                raise InputFailed(
                    f"the database has no table {name}: correct the keys of [source.tables], or create it"
                )
            raise InputFailed(
                f"the publication has no table {name}: ALTER PUBLICATION {catalog.quoted(str(config.publication))} "
                f"ADD TABLE {catalog.quoted(schema)}.{catalog.quoted(table)}"
            )
        return [each for each in published if config.of_table(each.schema, each.table) is not None]

    async def _start(self, session: Session, sink: ChangeSink) -> StreamPosition:
        """Return where the stream goes on: in a new era, if the slot does not have what follows the stored position."""
        text = (await sink.positions()).get(self._part)
        position = None if text is None else StreamPosition.parse(text)
        system = await history(session)
        with failures("the database cannot be read"):
            unbounded = await session.fetchval("SELECT current_setting('max_slot_wal_keep_size') = '-1'")
            if unbounded and not self._is_warned:
                self._is_warned = True
                _logger.warning(
                    "while this source does not run, its slot retains WAL without a bound: "
                    "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'",
                    source=self._config.name,
                )
            end = lsn_of(await session.fetchval("SELECT pg_current_wal_insert_lsn()::text"))
        slot = self._config.slot_name
        state = await catalog.slot_state(session, slot)
        lost = "" if position is None else _loss(state, position, system, end)
        if state is not None and state.is_lost:
            await catalog.drop_slot(session, slot)
            state = None
        if state is None:
            self._health.progress = "creating the slot, which waits for transactions that run"
            await catalog.create_slot(session, slot)
            state = await catalog.slot_state(session, slot)
            self._health.progress = ""
        if state is None:
            raise InputFailed(f"the slot {slot} was dropped")
        if position is not None and not lost:
            return position
        if lost:
            self._intake.resets += 1
            _logger.warning("all tables are copied again", source=self._config.name, reason=lost)
        begin = StreamPosition(state.confirmed_lsn, 0, f"{system}.{lsn_text(max(state.confirmed_lsn, end))}")
        await (await sink.enqueue([], Checkpoint(self._part, text, str(begin))))
        return begin

    @property
    def _intake(self) -> Intake:
        self._health.intake = self._health.intake or Intake()
        return self._health.intake

    async def _read(
        self, sink: ChangeSink, stored: StoredState, tables: Sequence[FollowedTable], start: StreamPosition
    ) -> None:
        await self._copy(sink, stored, tables, start.era)
        stream = await ReplicationStream.open(self._config, start.lsn)
        applier = RecordApplier(
            RowConverter([each.rows for each in tables]),
            sink,
            self._health,
            skips=self._config.skips,
            part=self._part,
            position=str(start),
        )
        self._stream = stream
        try:
            self._health.succeeded()
            self._follower = Follower(
                stream, applier, stored=stored, tables=tables, start=start, known=self._known, check_now=self._check_now
            )
            await self._follower.run()
        finally:
            self._stream = self._follower = None
            stream.close()
            await applier.close()

    async def _copy(self, sink: ChangeSink, stored: StoredState, tables: Sequence[FollowedTable], era: str) -> None:
        """Copy the tables that have no copy of this era; note those that are no more."""
        positions = await sink.positions()
        for part in positions.keys() - {each.rows.name for each in tables}:
            copy = Copy.parse(positions[part])
            if copy is not None:
                # It would lack changes if the table came back.
                await (await sink.enqueue([], Checkpoint(part, positions[part], "removed")))
        for table in tables:
            copy = Copy.parse(positions.get(table.rows.name, ""))
            if copy is not None and copy.era == era and copy.layout == table.published.layout(table.rows):
                table.copy = copy
        if not (missing := [each for each in tables if each.copy is None]):
            return
        session = await connect(self._config)
        try:
            copier = Copier(session, era, stored.names)
            for table in missing:
                name = table.rows.name
                self._health.progress = f"copying {name}"
                _logger.info("copying a table", source=self._config.name, table=name)
                applier = RecordApplier(
                    RowConverter([table.rows]),
                    sink,
                    self._health,
                    skips=self._config.skips,
                    part=name,
                    position=positions.get(name),
                )
                try:
                    table.copy = await copier.copy(table.published, table.rows, table.layout, applier)
                finally:
                    await applier.close()
        finally:
            self._health.progress = ""
            session.terminate()

    async def _watch_slot(self, session: Session, sink: ChangeSink, names: set[str]) -> None:
        """Let the slot follow the stored position, and notice its loss, its size and new tables."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await self._check_now.wait()
            self._check_now.clear()
            position = StreamPosition.parse((await sink.positions())[self._part])
            if self._stream is not None:
                self._stream.confirm(position.lsn)
            state = await catalog.slot_state(session, self._config.slot_name)
            if state is None or state.is_lost:
                raise InputFailed(f"the slot {self._config.slot_name} was lost or dropped")
            with failures("the database cannot be read"):
                end = lsn_of(await session.fetchval("SELECT pg_current_wal_lsn()::text"))
            reached = position.lsn if self._follower is None else max(position.lsn, self._follower.idle_lsn)
            self._intake.lag = max(0, end - reached)
            if (fault := catalog.bound_fault(state, self._config)) is not None:
                self._health.failed(fault)
            elif self._stream is not None:
                self._health.succeeded()
            if {each.name for each in await self._published(session)} != names:
                raise LayoutChanged("the publication has other tables")


def _loss(state: SlotState | None, position: StreamPosition, system: str, end: int) -> str:
    """Return why changes after the stored position are missing; empty: they are not."""
    if position.era.partition(".")[0] != system:
        return "this is another database server, or a standby that took over"
    if state is None:
        return "the slot was dropped"
    if state.is_lost:
        return "the slot has lost WAL: there was more than max_slot_wal_keep_size"
    if state.confirmed_lsn > position.lsn:
        return f"the slot has gone on without this store, to {lsn_text(state.confirmed_lsn)}"
    if end < position.lsn:
        return "the database is older than what was stored: it comes from a backup"
    return ""
