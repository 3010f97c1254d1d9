"""The source of Kafka topics."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog
from aiokafka.errors import KafkaError

from diem.errors import ConfigurationError
from diem.kafka.client import connected_client, raised_in_library, silence_library_log
from diem.kafka.errors import KafkaUnavailable
from diem.process.clock import Clock
from services.data.errors import DataError, InvalidDataset
from services.data.sources.kafka.decoder import RecordDecoder
from services.data.sources.kafka.formats import PLAIN, ValueFormat
from services.data.sources.kafka.positions import END_LOST, Beginning, Position, SourcePartition, beginnings
from services.data.sources.kafka.reader import PartitionReader, TopicLayout, find_layout, open_reader
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.records.applier import BATCH, RecordApplier
from services.data.sources.records.attempts import InputFailed, keep_trying
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.record import Record
from services.data.sources.source import ChangeSink, Fault, Health, Intake
from services.data.store import Checkpoint

CHECK_EVERY_S: Final = 2.0
"""Interval at which partitions and ids of the topics are described."""
IDLE_MS: Final = 200
"""Longest wait for records; then the answers of the store are looked at."""
REPLAN_S: Final = 0.5
"""Pause before the bounds of the logs are asked for again, if an offset is out of range."""
SAMPLES: Final = 20
"""Records of each partition in a trial."""
MAX_SAMPLED: Final = 24
"""Partitions in a trial."""
SAMPLE_S: Final = 10.0
SAMPLED: Final = "sample"
"""In the place of a topic's id, and of a part."""
Find = Callable[[], Awaitable[TopicLayout]]

_logger = structlog.get_logger(__name__)


class KafkaSource:
    """Reads the partitions of topics, each from its stored position."""

    def __init__(self, table: KafkaTable, clock: Clock, converter: RecordConverter) -> None:
        self.name = table.name
        self.claims = table.claims
        self._intake = Intake()
        self.health = Health(table.name, clock, intake=self._intake)
        self._table = table
        self._converter = converter

    async def consume(self, sink: ChangeSink) -> None:
        """Read until cancelled."""
        silence_library_log()
        await keep_trying(self.health, partial(self._attempt, sink))

    async def try_once(self, sink: ChangeSink) -> None:
        """Read the last records of each topic."""
        silence_library_log()
        try:
            faults, count = await self._try_samples(sink)
        except InputFailed as error:
            self.health.failed(str(error), fault=Fault.UNREACHABLE)
        else:
            if faults and (self._table.on_invalid == "stop" or len(faults) == count):
                first = f"{len(faults)} of the last {count} records cannot be stored: {faults[0]}"
                self.health.failed(first, fault=Fault.INVALID, errors=faults)
            else:
                self.health.succeeded()

    async def position_at(self, part: str, text: str) -> str:
        """Return the position of an offset in a partition, such as ``orders/0``, whose topic is there now."""
        if not text.isdecimal():
            return str(Position.parse(text))
        async with self._failing(), connected_client(self._table.options()) as client:
            layout = await find_layout(client, self._table)
        for partition, topic_id in layout.topics.items():
            if partition.part == part:
                return str(Position(topic_id, int(text)))
        raise InvalidDataset(f"the source has no partition {part}")

    @contextlib.asynccontextmanager
    async def _failing(self) -> AsyncIterator[None]:
        """Raise errors of the client as InputFailed."""
        try:
            yield
        except KafkaUnavailable as error:
            raise InputFailed(str(error).replace("DIEM_KAFKA_CA_FILE", "ca_file")) from error
        except ConfigurationError as error:
            raise InputFailed(str(error)) from error
        except (KafkaError, OSError, TimeoutError) as error:
            text = f"Kafka at {self._table.bootstrap_servers}: {type(error).__name__} {error}".strip()
            raise InputFailed(text) from error
        except Exception as error:
            # Of a connection that ends in the middle of an answer.
            if not raised_in_library(error):
                raise
            raise InputFailed(f"Kafka's client: {type(error).__name__} {error}".strip()) from error

    async def _attempt(self, sink: ChangeSink) -> None:
        async with self._failing():
            options = self._table.options()
            async with connected_client(options) as client, _open_formats(self._table) as formats:
                decoder = RecordDecoder(self._table, *formats)
                while True:
                    layout = await find_layout(client, self._table)
                    if not layout.topics:
                        raise InputFailed("; ".join(layout.missing) or "the topics have no partition")
                    async with open_reader(options, [*layout.topics]) as reader:
                        find = partial(find_layout, client, self._table)
                        await self._read(sink, reader, decoder, layout, find)

    async def _read(
        self, sink: ChangeSink, reader: PartitionReader, decoder: RecordDecoder, layout: TopicLayout, find: Find
    ) -> None:
        """Read partitions until there are others, or an offset is out of range."""
        # Before the bounds: a position that is stored later may be after the end of then.
        stored = await sink.positions()
        begins = beginnings(stored, await reader.bounds(layout.topics, self._table.starts_at))
        if any(each.reason == END_LOST for each in begins.values()):
            # A new leader may not know its end for a moment, and to go back repeats records.
            await asyncio.sleep(REPLAN_S)
            begins = beginnings(stored, await reader.bounds(layout.topics, self._table.starts_at))
        await self._begin(sink, begins)
        reader.seek({partition: each.position.offset for partition, each in begins.items()})
        appliers = {
            partition: RecordApplier(
                self._converter,
                sink,
                self.health,
                skips=self._table.skips,
                part=partition.part,
                position=str(beginning.position),
                place_of=Position.place_of,
            )
            for partition, beginning in begins.items()
        }
        watching = asyncio.create_task(self._watch(layout, find))
        try:
            await self._apply_all(reader, decoder, appliers, layout, watching)
        finally:
            watching.cancel()
            # Its error, too, is only that of the same cluster.
            await asyncio.gather(watching, return_exceptions=True)
            await asyncio.gather(*(each.close() for each in appliers.values()))

    async def _begin(self, sink: ChangeSink, begins: Mapping[SourcePartition, Beginning]) -> None:
        """Store the positions at which partitions begin, as far as they are others than the stored ones."""
        answers = []
        for partition, each in begins.items():
            if (after := str(each.position)) != each.before:
                answers.append(await sink.enqueue([], Checkpoint(partition.part, each.before, after)))
        for answer in answers:
            await answer
        for partition, each in begins.items():
            if each.reason:
                self._intake.lost += each.lost
                place = {"source": self.name, "part": partition.part, "before": each.before}
                _logger.warning(each.reason, **place, after=str(each.position), lost=each.lost)

    async def _apply_all(
        self,
        reader: PartitionReader,
        decoder: RecordDecoder,
        appliers: Mapping[SourcePartition, RecordApplier],
        layout: TopicLayout,
        watching: "asyncio.Task[None]",
    ) -> None:
        time = asyncio.get_running_loop().time
        was_caught_up, settle_at = False, time()
        while not watching.done():
            found = await reader.read(IDLE_MS)
            if found is None:
                await asyncio.sleep(REPLAN_S)
                return
            for partition, raw in found.items():
                for first in range(0, len(raw), BATCH):
                    batch = raw[first : first + BATCH]
                    await appliers[partition].apply(await decoder.decode(partition, layout.topics[partition], batch))
            if found and time() < settle_at:
                continue
            settle_at = time() + IDLE_MS / 1000
            for each in appliers.values():
                await (each.apply(()) if found else each.flush())
            lag = await reader.lag()
            self._intake.lag = None if lag is None else lag + sum(each.pending for each in appliers.values())
            caught_up = not found and self._intake.lag == 0
            if caught_up and not was_caught_up:
                self._works(layout)
            was_caught_up = caught_up
        watching.result()

    async def _watch(self, layout: TopicLayout, find: Find) -> None:
        """Return once there are other partitions, or topics of other ids."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            found = await find()
            if found.topics != layout.topics:
                return
            self._works(found)

    def _works(self, layout: TopicLayout) -> None:
        if layout.missing:
            times = int(self.health.error is None)
            self.health.failed("; ".join(layout.missing), times=times, fault=Fault.UNREACHABLE)
        else:
            self.health.succeeded()

    async def sample(self) -> dict[SourcePartition, list[Any]]:
        """Return the last records of the topics, by partition; raises InputFailed."""
        try:
            async with asyncio.timeout(SAMPLE_S), self._failing():
                options = self._table.options()
                async with connected_client(options) as client:
                    layout = await find_layout(client, self._table)
                if layout.missing:
                    raise InputFailed("; ".join(layout.missing))
                async with open_reader(options, [*layout.topics]) as reader:
                    return await _samples(reader, layout)
        except TimeoutError:
            raise InputFailed(f"no answer within {SAMPLE_S:g} s") from None

    async def decoded(self, raw: Mapping[SourcePartition, Sequence[Any]]) -> list[Record]:
        """Return the records of a sample; raises InputFailed."""
        async with self._failing(), _open_formats(self._table) as formats:
            decoder = RecordDecoder(self._table, *formats)
            return [each for part, of in raw.items() for each in await decoder.decode(part, SAMPLED, of)]

    async def _try_samples(self, sink: ChangeSink) -> tuple[list[str], int]:
        """Apply the last records of each topic; return the faults of those that cannot be, and how many there were."""
        records = await self.decoded(await self.sample())
        faults: list[str] = []
        good = []
        for record in records:
            try:
                self._converter.convert(record)
                good.append(record)
            except DataError as error:
                place = f"{record.names['topic']}/{record.names['partition']}"
                faults.append(f"{place}, {Position.place_of(record.position)}: {error}")
        applier = RecordApplier(self._converter, sink, self.health, skips=False, part=SAMPLED, position=None)
        await applier.apply_all(good)
        return faults, len(records)


def _open_formats(table: KafkaTable) -> contextlib.AbstractAsyncContextManager[tuple[ValueFormat, ValueFormat]]:
    if table.registry is None:
        return contextlib.nullcontext((PLAIN[table.format], PLAIN[table.format_of_keys]))
    # Only sources with a registry load the HTTP client.
    from services.data.sources.kafka.registry import open_registered  # noqa: PLC0415

    return open_registered(table, table.registry)


async def _samples(reader: PartitionReader, layout: TopicLayout) -> dict[SourcePartition, list[Any]]:
    """Return the last records of each topic, by partition."""
    bounds = await reader.bounds(layout.topics, "earliest")
    full = [partition for partition, each in bounds.items() if each.end > each.begin][:MAX_SAMPLED]
    reader.seek({each: max(bounds[each].begin, bounds[each].end - SAMPLES) for each in full})
    found: dict[SourcePartition, list[Any]] = defaultdict(list)
    while full and await reader.lag() != 0:
        for partition, raw in (await reader.read(IDLE_MS) or {}).items():
            found[partition] = [*found[partition], *raw][-SAMPLES:]
    return found
