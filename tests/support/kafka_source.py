"""Topics of a company, and a source of a Data Service's store that reads them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.process.clock import SystemClock
from services.data.sources.kafka.source import KafkaSource
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.records.converter import RecordConverter
from services.data.sources.runner import SourceRunner
from services.data.sources.source import Intake
from services.data.store.store import Store
from tests.support.patience import until


async def create_topic(
    options: KafkaOptions, name: str, partitions: int = 1, *, replicas: int = 1, **config: str
) -> str:
    """Create a topic; return its name with the test's prefix. ``config``: with ``_`` for dots."""
    topic = options.topic_prefix + name
    settings = {key.replace("_", "."): value for key, value in config.items()}
    async with admin_client(options) as admin:
        answer = await admin.create_topics([NewTopic(topic, partitions, replicas, topic_configs=settings)])
    assert [code for _, code, *_ in answer.topic_errors] == [0], answer
    return topic


@contextlib.asynccontextmanager
async def producer(options: KafkaOptions, **more: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A connected producer."""
    made = AIOKafkaProducer(**options.client_arguments(), **more)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def produce(options: KafkaOptions, topic: str, records: Iterable[tuple[Any, Any]], **more: Any) -> None:
    """Write JSON documents by key; None is a tombstone, bytes are written as they are."""
    async with producer(options) as made:
        for key, value in records:
            text = value if value is None or isinstance(value, bytes) else orjson.dumps(value)
            await made.send(topic, text, key=key.encode() if isinstance(key, str) else orjson.dumps(key), **more)
        await made.flush()


class Running(NamedTuple):
    """A source that reads."""

    source: KafkaSource
    store: Store

    @property
    def intake(self) -> Intake:
        assert self.source.health.intake is not None
        return self.source.health.intake

    async def caught_up(self) -> None:
        await until(lambda: self.source.health.error is None and self.intake.lag == 0)

    async def failed(self, text: str) -> None:
        await until(lambda: text in (self.source.health.error or ""))

    async def content(self, endpoint: str) -> Any:
        """Return what an endpoint has; None if it is gone or was never there."""
        head = self.store.index.heads.get(endpoint)
        return None if head is None or head.gone else orjson.loads((await self.store.reader.current(endpoint)).content)

    async def until_content(self, expected: Mapping[str, Any]) -> None:
        """Wait until endpoints have contents."""

        async def differs() -> bool:
            return any([await self.content(endpoint) != value for endpoint, value in expected.items()])

        while await differs():
            assert self.source.health.error is None, self.source.health.error
            await asyncio.sleep(0.01)


def table_of(options: KafkaOptions, topic: str, **fields: Any) -> KafkaTable:
    """The table of a source of a topic; its documents have the endpoints ``/t/KEY``."""
    names = {} if "pattern" in fields else {"topics": [topic]}
    own = {"type": "kafka", "name": "t", "endpoint": "/t/{key}", "bootstrap_servers": options.bootstrap_servers}
    return KafkaTable.model_validate({**own, **names, **fields})


def source_of(table: KafkaTable) -> KafkaSource:
    return KafkaSource(table, SystemClock(), RecordConverter(table))


@contextlib.asynccontextmanager
async def reading(table: KafkaTable, directory: Path) -> AsyncIterator[Running]:
    """Read into a store in a directory, which is opened in this block."""
    source = source_of(table)
    runner = SourceRunner([source])
    async with (await Store.open(f"sqlite:///{directory / 'data.db'}")).serving() as store:
        task = asyncio.create_task(runner.run(store.writer.put, None, store))
        try:
            yield Running(source, store)
        finally:
            task.cancel()
            await asyncio.wait([task])
