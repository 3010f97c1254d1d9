"""The source ``postgres``: a publication, or an outbox."""

from collections.abc import Callable

import structlog

from diem.process.clock import Clock
from services.data.errors import DataError, InvalidDataset
from services.data.sources.postgres.follower import LayoutChanged
from services.data.sources.postgres.outbox import OutboxReader
from services.data.sources.postgres.publication import PublicationReader
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.records.attempts import InputFailed, keep_trying
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.table import RecordTable
from services.data.sources.source import ChangeSink, Fault, Health, Intake, StoredState, fault_of

_logger = structlog.get_logger(__name__)


class PostgresSource:
    """Keeps endpoints up to date with rows of PostgreSQL.

    Args:
        config: its table in diem.toml.
        clock: of its health.
        converter: makes the converter of a table's rows.
    """

    def __init__(
        self,
        config: PostgresConfig,
        clock: Clock,
        converter: Callable[[RecordTable], RecordConverter] = RecordConverter,
    ) -> None:
        self.name = config.name
        self.claims = config.claims
        self.health = Health(config.name, clock, intake=Intake())
        kind = PublicationReader if config.outbox is None else OutboxReader
        self._reader = kind(config, self.health, converter)
        self._stored: StoredState | None = None

    def attach(self, stored: StoredState) -> None:
        """Continue what is stored."""
        self._stored = stored

    async def consume(self, sink: ChangeSink) -> None:
        """Read until cancelled."""
        stored = self._stored
        if stored is None:
            raise RuntimeError("attach() comes first")

        async def attempt() -> None:
            while True:
                try:
                    await self._reader.read(sink, stored)
                except LayoutChanged as change:
                    _logger.info("reading anew", source=self.name, reason=str(change))

        await keep_trying(self.health, attempt)

    async def try_once(self, sink: ChangeSink) -> None:
        """Check the database, and convert some rows."""
        try:
            await self._reader.try_once(sink)
        except InputFailed as error:
            self.health.failed(str(error), fault=Fault.UNREACHABLE)
        except DataError as error:
            self.health.failed(str(error), fault=fault_of(error))
        else:
            self.health.succeeded()

    async def position_at(self, part: str, text: str) -> str:
        """Refuse every position: a slot only goes forward, and ``start`` copies the tables again."""
        raise InvalidDataset(f"{part} has no position {text[:60]!r}: only start, which reads everything again")
