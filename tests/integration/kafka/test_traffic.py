"""Recorded traffic in a real Kafka."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from diem.kafka.topic_config import TRAFFIC_CONFIG
from diem.kafka.topics import ensure_traffic, settings_in_force
from diem.process.auth import SharedKey
from diem.protocol.traffic import MAX_EVENT_BYTES, Type, decode
from diem.traffic import recording
from diem.traffic.kafka_sink import KafkaSink
from diem.traffic.sinks import SinkUnavailable
from tests.integration.proxy.test_proxy import subscribe, unsubscribe
from tests.support.kafka import killed
from tests.support.local_cluster import LocalCluster
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.required import in_cluster
from tests.support.small import small_system


@pytest.fixture
def recording_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[KafkaOptions], None]:
    """Return a function after whose call servers record their traffic in a cluster."""

    def record(options: KafkaOptions) -> None:
        SharedKey.create(tmp_path / "traffic.salt")
        monkeypatch.setenv("DIEM_TRAFFIC_SINK", "kafka")
        monkeypatch.setenv("DIEM_TRAFFIC_SALT_FILE", str(tmp_path / "traffic.salt"))
        monkeypatch.setenv("DIEM_KAFKA_BOOTSTRAP_SERVERS", options.bootstrap_servers)
        monkeypatch.setenv("DIEM_KAFKA_TOPIC_PREFIX", options.topic_prefix)
        monkeypatch.setenv("DIEM_KAFKA_REPLICATION", "1")

    return record


async def in_topic(options: KafkaOptions, least: int) -> dict[bytes, int]:
    """Return value -> partition of all records, once the topic has this number."""
    consumer = AIOKafkaConsumer(auto_offset_reset="earliest", **options.client_arguments())
    await consumer.start()
    found: dict[bytes, int] = {}
    try:
        consumer.assign([TopicPartition(options.names.traffic, number) for number in await ensure_traffic(options)])
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < least:
                for part, records in (await consumer.getmany(timeout_ms=200)).items():
                    found |= {record.value: part.partition for record in records}
    finally:
        await consumer.stop()
    return found


async def written(options: KafkaOptions, *batches: Collection[bytes]) -> None:
    sink = KafkaSink(options, "websocket-1")
    try:
        for batch in batches:
            await sink.write(list(batch))
    finally:
        await sink.close()


async def test_a_missing_topic_is_created_and_an_existing_one_accepted(kafka_options: KafkaOptions) -> None:
    name = kafka_options.names.traffic
    await written(kafka_options, [b"1"], [b"2"], [])
    assert set(await in_topic(kafka_options, 2)) == {b"1", b"2"}
    async with connected_client(kafka_options) as client:
        assert len((await describe(client, name)).topics[name].partitions) == 12
        (in_force,) = await settings_in_force(client, name)
    assert {key: in_force[name][key] for key in TRAFFIC_CONFIG} == TRAFFIC_CONFIG
    await written(replace(kafka_options, replication=3, partitions=7), [b"3"])
    assert len(await in_topic(kafka_options, 3)) == 3


async def test_batches_are_spread_over_the_partitions(kafka_options: KafkaOptions) -> None:
    await written(kafka_options, *([b"%d" % number] for number in range(40)))
    found = await in_topic(kafka_options, 40)
    assert len(found) == 40
    assert len(set(found.values())) > 4


async def test_a_batch_of_the_longest_events_is_written(kafka_options: KafkaOptions) -> None:
    events = [b"%d" % number + b"x" * (MAX_EVENT_BYTES - 1) for number in range(9)]
    await written(kafka_options, events)
    assert set(await in_topic(kafka_options, 9)) == set(events)


async def test_a_deleted_topic_is_created_again(kafka_options: KafkaOptions) -> None:
    sink = KafkaSink(kafka_options, "websocket-1")
    await sink.write([b"before"])
    async with admin_client(kafka_options) as admin:
        await admin.delete_topics([kafka_options.names.traffic])
    async with connected_client(kafka_options) as client, asyncio.timeout(PATIENCE_S):
        while kafka_options.names.traffic in (await describe(client, kafka_options.names.traffic)).topics:
            await asyncio.sleep(0.05)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await sink.write([b"after"])
                    break
                except SinkUnavailable as error:
                    assert error.reason == "kafka"
        assert set(await in_topic(kafka_options, 1)) == {b"after"}
    finally:
        await sink.close()


async def test_without_brokers_events_stay_with_the_caller() -> None:
    sink = KafkaSink(KafkaOptions(f"127.0.0.1:{free_port()}"), "websocket-1")
    with pytest.raises(SinkUnavailable) as missing:
        await sink.write([b"1"])
    assert missing.value.reason == "kafka"
    await sink.write([])
    await sink.close()


async def test_a_server_records_in_kafka(
    kafka_options: KafkaOptions,
    tmp_path: Path,
    recording_in: Callable[[KafkaOptions], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No minute begins between the events, and a broker that stands still gets the last ones, too.
    monkeypatch.setattr(recording, "COUNT_EVERY_MS", 7 * 86_400_000)
    monkeypatch.setattr(recording, "END_TIMEOUT_S", PATIENCE_S)
    recording_in(kafka_options)
    async with small_system(tmp_path) as system, system.client() as client:
        await client.ask(subscribe("/a", "/b"))
        await client.ask(unsubscribe("/b"))
    found = [decode(value) for value in await in_topic(kafka_options, 5)]
    events = sorted(found, key=lambda event: int(event.id.rpartition("-")[2]))
    assert [(event.type, event.endpoints) for event in events] == [
        (Type.CONNECT, ()),
        (Type.SUBSCRIBE, ("/a", "/b")),
        (Type.UNSUBSCRIBE, ("/b",)),
        (Type.DISCONNECT, ()),
        (Type.COUNTS, ()),
    ]


async def test_an_outage_of_kafka_does_not_affect_clients(
    tmp_path: Path, recording_in: Callable[[KafkaOptions], None]
) -> None:
    recording_in(KafkaOptions(f"127.0.0.1:{free_port()}"))
    async with small_system(tmp_path) as system, system.client() as client:
        await client.ask(subscribe("/a"))
        version = system.feed.put("/a")
        assert (await client.receive())["version"] == version


@in_cluster("it kills its broker")
async def test_events_recorded_while_the_broker_is_dead_arrive_when_it_returns(
    own_broker: LocalCluster,
    own_broker_options: KafkaOptions,
    tmp_path: Path,
    recording_in: Callable[[KafkaOptions], None],
) -> None:
    options = own_broker_options
    recording_in(options)
    async with small_system(tmp_path) as system, system.client() as client:
        await client.ask(subscribe("/before"))
        await in_topic(options, 2)
        async with killed(own_broker):
            await client.ask(subscribe("/meanwhile"))
            version = system.feed.put("/meanwhile")
            assert (await client.receive())["version"] == version
        await client.ask(subscribe("/after"))
        found: set[tuple[str, ...]] = set()
        # They may be in three partitions, of which a reader gets the last one first.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not found >= {("/before",), ("/meanwhile",), ("/after",)}:
                    found |= {decode(value).endpoints for value in await in_topic(options, 2)}
    assert found >= {("/before",), ("/meanwhile",), ("/after",)}
