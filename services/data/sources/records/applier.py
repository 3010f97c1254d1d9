"""Applies records in batches: each with its checkpoint, several on their way, refused records by policy."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from services.data.errors import ChangeRefused, DataError
from services.data.sources.records.converted import ConvertedChange, ConvertedChanges, Converter
from services.data.sources.records.record import Record
from services.data.sources.source import ChangeSink, Health, Intake
from services.data.store import Accepted, Checkpoint

BATCH: Final = 200
"""Maximum number of records of a batch."""
IN_FLIGHT: Final = 4
"""Maximum number of batches on their way to the store."""

_logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class RecordRefused(DataError):
    """A record that cannot be stored, of a source that stops there (``on_invalid``)."""

    template = "{part}, {place}: {reason}"
    code = "record_refused"

    part: str
    position: str
    """After the record."""
    place: str
    """Of the record, for people."""
    reason: str


class _Batch(NamedTuple):
    places: Sequence[tuple[str, int]]
    """Position and time of each record, whose values are let go of."""
    made: list[ConvertedChange]

    def checkpoint(self, part: str, before: str | None) -> Checkpoint:
        """Return the checkpoint after all of its records."""
        return Checkpoint(part, before, self.places[-1][0])


class RecordApplier:
    """Applies the records of one part of a source, in order.

    At most :data:`IN_FLIGHT` batches of :data:`BATCH` records are on their way: :meth:`apply` waits for the store, so
    that the source reads no further. After an error, :meth:`close` is next, and another applier begins at the stored
    position.

    Args:
        converter: of the source.
        sink: the store.
        health: of the source.
        skips: whether refused records are skipped; otherwise they are an error.
        part: of the source's input, such as a partition.
        position: where the records begin, as it is stored; None: nothing is stored.
        place_of: returns the place of a record, for people, by the position after it.
    """

    def __init__(
        self,
        converter: Converter,
        sink: ChangeSink,
        health: Health,
        *,
        skips: bool,
        part: str,
        position: str | None,
        place_of: Callable[[str], str] = "before {}".format,
    ) -> None:
        self.part = part
        self._position = position
        """After the last record on its way."""
        self._converter = converter
        self._sink = sink
        self._intake = health.intake = health.intake or Intake()
        self._name = health.name
        self._skips = skips
        self._place_of = place_of
        self._in_flight: deque[tuple[_Batch, str | None, asyncio.Future[list[Accepted]]]] = deque()
        """Batches, the positions before them, and their answers."""

    async def apply(self, records: Sequence[Record]) -> None:
        """Apply records; return once they are stored or on their way.

        Raises:
            RecordRefused: a record cannot be stored; everything before it is.
            CheckpointMoved, StoreUnavailable, TooManyEndpoints: as :class:`ChangeSink`.
        """
        for start in range(0, len(records), BATCH):
            batch, refusal = self._convert(records[start : start + BATCH])
            while len(self._in_flight) >= IN_FLIGHT:
                await self._settle()
            if batch.places:
                checkpoint = batch.checkpoint(self.part, self._position)
                answer = await self._sink.enqueue([each.change for each in batch.made], checkpoint)
                self._in_flight.append((batch, self._position, answer))
                self._position = checkpoint.after
                # To queue a batch may take no turn of the loop, and its records take milliseconds.
                await asyncio.sleep(0)
            if refusal is not None:
                await self.flush()
                raise refusal
        while self._in_flight and self._in_flight[0][2].done():
            await self._settle()

    @property
    def pending(self) -> int:
        """Number of records on their way."""
        return sum(len(batch.places) for batch, *_ in self._in_flight)

    async def flush(self) -> None:
        """Wait until everything is stored; raises as :meth:`apply`."""
        while self._in_flight:
            await self._settle()

    async def advance(self, position: str) -> None:
        """Store everything, and then a position without a record; raises as :meth:`apply`."""
        await self.flush()
        await (await self._sink.enqueue([], Checkpoint(self.part, self._position, position)))
        self._position = position

    async def apply_all(self, records: Sequence[Record]) -> None:
        """Apply records; return once they are stored. Raises as :meth:`apply`."""
        await self.apply(records)
        await self.flush()

    async def close(self) -> None:
        """Wait for what is on its way, whatever its outcome."""
        if self._in_flight:
            await asyncio.wait([answer for *_, answer in self._in_flight])
        while self._in_flight:
            with suppress(DataError):
                self._in_flight.popleft()[2].result()

    def _convert(self, records: Sequence[Record]) -> tuple[_Batch, RecordRefused | None]:
        """Convert a batch; it ends before a refused record of a source that stops there."""
        changes, refusal = ConvertedChanges(self._converter), None
        for index, record in enumerate(records):
            try:
                change = self._converter.convert(record)
            except DataError as error:
                refusal = self._refuse(record.position, error)
                if refusal is None:
                    continue
                records = records[:index]
                break
            changes.add(index, change)
        return _Batch([(each.position, each.time_ms) for each in records], changes.all()), refusal

    async def _settle(self) -> None:
        """Wait for the oldest batch; without a refused record, if it has one."""
        batch, before, answer = self._in_flight.popleft()
        try:
            await answer
        except ChangeRefused:
            # Those behind it do not follow the stored position now.
            again = [batch, *(each for each, *_ in self._in_flight)]
            await self.close()
            self._position = before
            for each in again:
                await self._write_again(each)
        else:
            self._count(batch.places)

    async def _write_again(self, batch: _Batch) -> None:
        made = [*batch.made]
        while True:
            try:
                await self._write(batch, made)
            except ChangeRefused as error:
                refused = made.pop(error.index)
                refusal = self._refuse(batch.places[refused.record][0], error.refusal)
                if refusal is None:
                    continue
                whole = batch.places[: refused.record]
                # Points of several records are one change, so that a part of the batch is none of its changes.
                if whole and all(each.record < refused.record for each in made[: error.index]):
                    await self._write(_Batch(whole, []), made[: error.index])
                raise refusal from error
            return

    async def _write(self, batch: _Batch, made: Sequence[ConvertedChange]) -> None:
        checkpoint = batch.checkpoint(self.part, self._position)
        await (await self._sink.enqueue([each.change for each in made], checkpoint))
        self._position = checkpoint.after
        self._count(batch.places)

    def _count(self, places: Sequence[tuple[str, int]]) -> None:
        self._intake.records += len(places)
        if self._intake.stopped is not None and self._intake.stopped[0] == self.part:
            self._intake.stopped = None
        self._intake.last_ms = places[-1][1] or self._intake.last_ms

    def _refuse(self, position: str, error: DataError) -> RecordRefused | None:
        """Count a refused record; return the error that stops the source, if that is its policy."""
        refusal = RecordRefused(self.part, position, self._place_of(position), str(error))
        if not self._skips:
            return refusal
        if self._intake.refuse(str(refusal)):
            _logger.warning("record skipped", source=self._name, error=str(refusal), skipped=self._intake.refused)
        return None
