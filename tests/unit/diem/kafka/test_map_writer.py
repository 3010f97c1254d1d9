"""Writing the partition map while Kafka does not answer."""

import asyncio
from typing import Any

import pytest

from diem.kafka import map_writer
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_writer import write_map
from diem.protocol.partition_map import Head
from tests.support.patience import PATIENCE_S


class Hanging:
    """A producer whose cluster is lost after the start of the transaction."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.aborting = False

    async def start(self) -> None: ...

    async def begin_transaction(self) -> None: ...

    async def send(self, *_record: object, **_where: object) -> None:
        await asyncio.Event().wait()

    async def abort_transaction(self) -> None:
        self.aborting = True
        await asyncio.Event().wait()


async def test_a_failed_write_is_reported_even_if_its_abort_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Hanging] = []

    def make(**settings: Any) -> Hanging:
        made.append(Hanging(**settings))
        return made[-1]

    async def end_producer(_producer: object) -> None: ...

    monkeypatch.setattr(map_writer, "AIOKafkaProducer", make)
    monkeypatch.setattr(map_writer, "abort_producer", end_producer)
    monkeypatch.setattr(map_writer, "WRITE_TIMEOUT_S", 0.05)
    with pytest.raises(KafkaUnavailable, match="the partition map was not written"):
        async with asyncio.timeout(PATIENCE_S):
            await write_map(KafkaOptions("k:9092"), {}, Head(4, 1))
    assert made[0].aborting
    # Brokers' logs and quotas name it so.
    assert made[0].settings["client_id"] == made[0].settings["transactional_id"] == "diem.map"
