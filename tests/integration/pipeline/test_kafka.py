"""Traffic in a topic: ingested once, and its lag."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from diem.errors import ConfigurationError, DiemError
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.topics import ensure_traffic
from diem.protocol.traffic import encode
from learning.jobs import tables
from learning.jobs.checkpoint import read_offsets
from learning.jobs.ingest import ingest
from learning.jobs.sources import SourceLag
from learning.jobs.traffic_topic import kafka_source, recent_records, unread_records
from learning.jobs.warehouse import Warehouse
from tests.support.required import in_cluster
from tests.support.traffic import generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def send(options: KafkaOptions, values: list[bytes]) -> None:
    producer = AIOKafkaProducer(**options.client_arguments())
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(options.names.traffic, value) for value in values])
    finally:
        await producer.stop()


async def test_records_are_ingested_once_and_the_lag_is_known(
    spark: "SparkSession", kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    with pytest.raises(DiemError, match="there is no topic"):
        await kafka_source(kafka_options)
    await ensure_traffic(kafka_options)
    events = [event for event, _ in generated(4, clients=10)]
    source, warehouse = await kafka_source(kafka_options), Warehouse(tmp_path)
    checkpoint = warehouse.checkpoint(source.name)

    async def unread() -> SourceLag:
        return await unread_records(kafka_options, read_offsets(checkpoint).get(source.topic, {}))

    await send(kafka_options, [*map(encode, events[:100]), b"bad", b""])
    assert await unread() == SourceLag(102)
    assert await asyncio.to_thread(ingest, spark, source, warehouse) == 102
    await send(kafka_options, [*map(encode, events[100:])])
    assert await unread() == SourceLag(len(events) - 100)
    assert await asyncio.to_thread(ingest, spark, source, warehouse) == len(events) - 100
    assert await unread() == SourceLag(0)

    records = await recent_records(kafka_options, 0, 1 << 20)
    assert sorted(records) == sorted([*map(encode, events), b"bad", b""])
    assert await recent_records(kafka_options, 1 << 42, 1 << 20) == []
    with pytest.raises(ConfigurationError, match="too much without Spark"):
        await recent_records(kafka_options, 0, 100)

    read = tables.events(spark, warehouse).collect()
    assert sorted(row["id"] for row in read) == sorted(event.id for event in events)
    bad = tables.quarantine(spark, warehouse).collect()
    assert {row["raw"] for row in bad} == {"bad", ""}
    assert all(row["source"].startswith(f"{source.topic}/") and row["source"].count("/") == 2 for row in bad)


@in_cluster("it takes 8 s of CPU time")
async def test_records_that_were_deleted_before_they_were_read_are_lost_and_counted_and_reading_goes_on(
    spark: "SparkSession", kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    await ensure_traffic(kafka_options)
    events = [event for event, _ in generated(4, clients=10)][:90]
    source, warehouse = await kafka_source(kafka_options), Warehouse(tmp_path)
    checkpoint = warehouse.checkpoint(source.name)

    async def unread() -> SourceLag:
        return await unread_records(kafka_options, read_offsets(checkpoint).get(source.topic, {}))

    await send(kafka_options, list(map(encode, events[:30])))
    assert await asyncio.to_thread(ingest, spark, source, warehouse) == 30
    await send(kafka_options, list(map(encode, events[30:60])))
    parts = [TopicPartition(source.topic, number) for number in read_offsets(checkpoint)[source.topic]]
    async with admin_client(kafka_options) as admin:
        await admin.delete_records({part: RecordsToDelete(before_offset=-1) for part in parts})
    await send(kafka_options, list(map(encode, events[60:])))
    assert await unread() == SourceLag(30, lost=30)
    assert await asyncio.to_thread(ingest, spark, source, warehouse) == 30
    assert await unread() == SourceLag(0)
    read = tables.events(spark, warehouse).collect()
    assert {row["id"] for row in read} == {event.id for event in (*events[:30], *events[60:])}


async def test_a_log_that_is_shorter_than_what_was_read_has_lost_records_and_no_negative_lag(
    kafka_options: KafkaOptions,
) -> None:
    partitions = await ensure_traffic(kafka_options)
    assert await unread_records(kafka_options, dict.fromkeys(partitions, 0) | {partitions[0]: 7}) == SourceLag(
        0, lost=7
    )
