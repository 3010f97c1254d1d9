"""The source of MQTT topics."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Final

from diem.process.clock import Clock
from services.data.errors import DataError
from services.data.sources.mqtt.connection import MqttConnection, connected
from services.data.sources.mqtt.messages import Message, MessageDecoder
from services.data.sources.mqtt.table import MqttTable
from services.data.sources.records.applier import BATCH, RecordApplier, RecordRefused
from services.data.sources.records.attempts import InputFailed, keep_trying
from services.data.sources.records.converter import RecordConverter
from services.data.sources.source import ChangeSink, Fault, Health, Intake
from services.data.store import Checkpoint

PART: Final = "mqtt"
CLIENT: Final = "client"
"""The part of the checkpoints with the id of the client."""
IDLE_S: Final = 0.2
"""Time without a message after which the source is up to date."""
SAMPLE_S: Final = 3.0
"""Time of a trial for messages."""
QUIET_S: Final = 0.5
"""Time without a message that ends a trial which has had some."""
SAMPLES: Final = 100


class MqttSource:
    """Applies the messages of topics, and acknowledges them once they are stored."""

    def __init__(self, table: MqttTable, clock: Clock, converter: RecordConverter) -> None:
        self.name = table.name
        self.claims = table.claims
        self._intake = Intake()
        self.health = Health(table.name, clock, intake=self._intake)
        self._table = table
        self._clock = clock
        self._converter = converter
        self._decoder = MessageDecoder(table)

    async def consume(self, sink: ChangeSink) -> None:
        """Read until cancelled."""
        await keep_trying(self.health, partial(self._attempt, sink))

    async def try_once(self, sink: ChangeSink) -> None:
        """Read what is retained, and what arrives within some seconds."""
        try:
            found = await self._samples()
        except InputFailed as error:
            self.health.failed(str(error), fault=Fault.UNREACHABLE)
            return
        faults, good = [], []
        for each in found:
            record = self._decoder.record(each, self._clock.wall_ms())
            try:
                self._converter.convert(record)
                good.append(record)
            except DataError as error:
                faults.append(f"{record.position}: {error}")
        await self._applier(sink, None).apply(good)
        if faults and (self._table.on_invalid == "stop" or not good):
            first = f"{len(faults)} of {len(found)} messages cannot be stored: {faults[0]}"
            self.health.failed(first, fault=Fault.INVALID, errors=faults)
        else:
            self.health.succeeded()

    async def _attempt(self, sink: ChangeSink) -> None:
        positions = await sink.positions()
        client_id = self._table.client_id or await _client_id(sink, positions.get(CLIENT), self.name)
        applier = self._applier(sink, positions.get(PART))
        async with connected(self._table, client_id, keeps_session=True) as connection:
            try:
                await self._read(connection, applier, positions.get(PART))
            finally:
                await applier.close()

    async def _read(self, connection: MqttConnection, applier: RecordApplier, stored: str | None) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    messages = await connection.messages(BATCH)
            except TimeoutError:
                # Not at once: the first message may be one at which the source has stopped.
                self.health.succeeded()
                continue
            wanted = [each for each in messages if self._is_wanted(each, connection)]
            # It was stored, or an operator has skipped it, and the connection ended before it was acknowledged.
            while stored is not None and wanted and wanted[0].repeated and wanted[0].position == stored:
                del wanted[0]
            if wanted:
                stored = None
            await self._apply(connection, applier, messages, wanted)
            self.health.succeeded()

    async def _apply(
        self, connection: MqttConnection, applier: RecordApplier, messages: Sequence[Message], wanted: Sequence[Message]
    ) -> None:
        time_ms, before = self._clock.wall_ms(), self._intake.records
        try:
            await applier.apply_all([self._decoder.record(each, time_ms) for each in wanted])
        except RecordRefused:
            first = wanted[self._intake.records - before]
            connection.acknowledge([*takewhile(lambda each: each is not first, messages)])
            raise
        connection.acknowledge(messages)

    def _is_wanted(self, message: Message, connection: MqttConnection) -> bool:
        """Return whether a message is a change; retained ones are sent at each connection, however old they are."""
        if not connection.is_subscribed(message.topic):
            return False
        if not message.retained:
            return True
        if self._table.kind == "series":
            return self._table.time is not None
        return self._table.kind != "notice" or not connection.session_present

    def _applier(self, sink: ChangeSink, position: str | None) -> RecordApplier:
        skips = self._table.skips
        return RecordApplier(self._converter, sink, self.health, skips=skips, part=PART, position=position)

    async def _samples(self) -> list[Message]:
        found: list[Message] = []
        trial = f"{_prefix(self.name)}-check-{secrets.token_hex(4)}"
        async with connected(self._table, trial, keeps_session=False) as connection:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAMPLE_S):
                    while len(found) < SAMPLES:
                        async with asyncio.timeout(QUIET_S if found else None):
                            found += await connection.messages(SAMPLES - len(found))
        return found


async def _client_id(sink: ChangeSink, stored: str | None, name: str) -> str:
    """Return the stored id of the client; make one at first."""
    if stored is not None:
        return stored
    made = f"{_prefix(name)}-{secrets.token_hex(8)}"
    await (await sink.enqueue([], Checkpoint(CLIENT, None, made)))
    return made


def _prefix(name: str) -> str:
    return f"diem-{name}"
