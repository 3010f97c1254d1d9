"""The partition map in a real broker: written atomically, read from the beginning, followed, and recreated."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions

from diem.kafka import map_reader, map_writer
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.map_reader import MapReader, read_map
from diem.kafka.map_writer import begin_map, change_map, write_map
from diem.kafka.metadata import Cluster, describe
from diem.kafka.topics import ensure
from diem.protocol.partition_map import (
    HEAD_KEY,
    HOT,
    Entry,
    Head,
    PartitionMap,
    Phase,
    encode_entry,
    encode_head,
)
from tests.support.maps import ensure_map
from tests.support.patience import PATIENCE_S, until
from tests.support.required import in_cluster
from tests.support.topics import delete_records


@contextlib.asynccontextmanager
async def following(options: KafkaOptions) -> AsyncIterator[MapReader]:
    reader = MapReader(options)
    task = asyncio.create_task(reader.run())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait([task])


async def cluster_of(options: KafkaOptions) -> Cluster:
    async with connected_client(options) as client:
        return await describe(client, *options.names.topics)


async def delete(options: KafkaOptions, *names: str) -> None:
    async with admin_client(options) as admin:
        await admin.delete_topics(list(names))
    async with asyncio.timeout(PATIENCE_S):
        while set(names) & set((await cluster_of(options)).topics):
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def writer(options: KafkaOptions, transactional_id: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(transactional_id=transactional_id, **options.client_arguments())
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def test_the_first_map_has_epoch_0_and_the_hot_endpoints(kafka_options: KafkaOptions) -> None:
    first = await ensure_map(kafka_options, 4, ["/hot", "/hotter"])
    hot = {b"/hot": Entry(HOT), b"/hotter": Entry(HOT)}
    assert first == PartitionMap(Head(4, 0, Phase.STABLE), hot)
    assert await read_map(kafka_options) == first
    topics = (await cluster_of(kafka_options)).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {
        f"{kafka_options.topic_prefix}updates": 4,
        f"{kafka_options.topic_prefix}updates.hot": 1,
        f"{kafka_options.topic_prefix}partition-map": 1,
    }


async def test_an_existing_map_is_left_unchanged(kafka_options: KafkaOptions) -> None:
    first = await ensure_map(kafka_options, 4, ["/hot"])
    known = PartitionMap(Head(4, 9), {})
    assert await ensure_map(kafka_options, 3, ["/other"], known) == first
    assert await read_map(kafka_options) == first


async def test_a_map_that_another_writer_has_just_written_is_kept(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ensure_map(kafka_options, 4)
    answers = iter([None, first])

    async def too_early(options: KafkaOptions) -> PartitionMap | None:
        return next(answers)

    with monkeypatch.context() as patch:
        patch.setattr(map_writer, "read_map", too_early)
        assert await ensure_map(kafka_options, 3) == first
    assert await read_map(kafka_options) == first


async def test_without_a_topic_there_is_no_map(kafka_options: KafkaOptions) -> None:
    assert await read_map(kafka_options) is None


async def test_a_reader_waits_for_the_topic_and_follows_what_is_written(kafka_options: KafkaOptions) -> None:
    async with following(kafka_options) as reader:
        await until(lambda: "does not exist" in (reader.why_not or ""))
        await ensure_map(kafka_options, 4, ["/hot"])
        await until(lambda: reader.map is not None and reader.caught_up)
        assert reader.why_not is None
        assert reader.source == (await cluster_of(kafka_options)).topics[kafka_options.names.partition_map].id
        assert {key: record.offset for key, record in reader.records.items()} == {b"/hot": 0, HEAD_KEY: 1}
        await write_map(kafka_options, {b"/a": encode_entry(Entry(3)), b"/hot": None}, Head(4, 1))
        await until(lambda: reader.map == PartitionMap(Head(4, 1), {b"/a": Entry(3)}))
        head = reader.records[HEAD_KEY]
        assert head.value == encode_head(Head(4, 1))
        assert reader.next > head.offset
        assert all(record.offset <= head.offset for record in reader.records.values()), "the head is the last one"


async def test_only_what_was_committed_is_read(kafka_options: KafkaOptions) -> None:
    first = await ensure_map(kafka_options, 4)
    topic = kafka_options.names.partition_map
    async with following(kafka_options) as reader:
        await until(lambda: reader.map == first)
        async with writer(kafka_options, kafka_options.topic_prefix + "somebody") as other:
            await other.begin_transaction()
            await other.send_and_wait(topic, encode_head(Head(4, 7)), HEAD_KEY, partition=0)
            assert await read_map(kafka_options) == first, "it is not held up by a transaction that is open"
            await other.abort_transaction()
        await write_map(kafka_options, {}, Head(4, 1))
        await until(lambda: reader.map == PartitionMap(Head(4, 1), {}))
    assert await read_map(kafka_options) == PartitionMap(Head(4, 1), {}), "nor by one that was taken back"


async def test_a_fenced_writer_writes_nothing(kafka_options: KafkaOptions) -> None:
    first = await ensure_map(kafka_options, 4)
    topic = kafka_options.names.partition_map
    async with writer(kafka_options, kafka_options.names.map_writer) as late:
        await late.begin_transaction()
        await late.send_and_wait(topic, encode_entry(Entry(1)), b"/late", partition=0)
        await write_map(kafka_options, {}, Head(4, 1))
        with contextlib.suppress(Exception):
            await late.send_and_wait(topic, encode_head(Head(4, 2)), HEAD_KEY, partition=0)
            await late.commit_transaction()
            pytest.fail("two writers at a time")
    assert first.head.epoch == 0
    assert await read_map(kafka_options) == PartitionMap(Head(4, 1), {})


async def test_a_reader_starts_over_with_a_replaced_topic(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_reader, "CHECK_EVERY_S", 0.2)
    await ensure_map(kafka_options, 4)
    await write_map(kafka_options, {b"/a": encode_entry(Entry(1))}, Head(4, 5))
    async with following(kafka_options) as reader:
        await until(lambda: reader.map is not None and reader.map.head.epoch == 5)
        before = reader.source
        await delete(kafka_options, kafka_options.names.partition_map)
        await until(lambda: reader.source is None)
        assert (reader.records, reader.next, reader.caught_up) == ({}, 0, False)
        assert reader.map is not None, "the last one that was known"
        await ensure_map(kafka_options, 4)
        # An older epoch, because it is another topic.
        await until(lambda: reader.map == PartitionMap(Head(4, 0), {}))
        assert reader.source not in {None, before}


async def changed(options: KafkaOptions, epoch: int, entries: dict[bytes, Entry | None]) -> None:
    """Write the next epoch as a plan does."""
    records = {name: encode_entry(entry) if entry else None for name, entry in entries.items()}
    assert await change_map(options, Head(4, epoch - 1), records, Head(4, epoch))


@in_cluster("it cuts a topic")
async def test_a_reader_that_missed_an_epoch_of_a_cut_topic_is_not_current_until_the_map_is_there_again(
    kafka_options: KafkaOptions,
) -> None:
    await ensure_map(kafka_options, 4)
    await changed(kafka_options, 1, {b"/a": Entry(1)})
    reader = MapReader(kafka_options)
    await reader.read()
    assert reader.is_current()
    await changed(kafka_options, 2, {b"/a": Entry(2)})
    await delete_records(kafka_options, kafka_options.names.partition_map)
    task = asyncio.create_task(reader.run())
    try:
        await until(lambda: "records of the partition map are missing" in (reader.why_not or ""))
        assert not reader.is_current(), "the last known map is an old one"
        assert reader.map == PartitionMap(Head(4, 1), {b"/a": Entry(1)})
        known = PartitionMap(Head(4, 2), {b"/a": Entry(2)})
        again = await begin_map(kafka_options, 4, (), known)
        assert again.entries == known.entries
        assert again.head.epoch > 2, "above whatever was lost"
        await until(reader.is_current)
        assert reader.map == again
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_map_that_nobody_knows_any_longer_begins_above_all_epochs_of_its_topic(
    kafka_options: KafkaOptions,
) -> None:
    await ensure_map(kafka_options, 4)
    for epoch in range(1, 6):
        await changed(kafka_options, epoch, {b"/a": Entry(epoch % 4)})
    async with following(kafka_options) as reader:
        await until(lambda: reader.map == PartitionMap(Head(4, 5), {b"/a": Entry(1)}))
        await delete_records(kafka_options, kafka_options.names.partition_map)
        again = await begin_map(kafka_options, 4)
        assert again.head.epoch > 5
        # Else readers of an earlier epoch would ignore it, and be current with what they have.
        await until(lambda: reader.map == again)
        await until(reader.is_current)


@in_cluster("it cuts a topic")
async def test_a_reader_that_has_everything_of_a_cut_topic_stays_current(kafka_options: KafkaOptions) -> None:
    await ensure_map(kafka_options, 4)
    await changed(kafka_options, 1, {b"/a": Entry(1)})
    async with following(kafka_options) as reader:
        await until(reader.is_current)
        await delete_records(kafka_options, kafka_options.names.partition_map)
        await changed_without_history(kafka_options)
        await until(lambda: b"mark" in reader.records)
        assert reader.is_current()
        assert reader.map == PartitionMap(Head(4, 1), {b"/a": Entry(1)})


async def changed_without_history(options: KafkaOptions) -> None:
    async with writer(options, options.topic_prefix + "somebody") as other, other.transaction():
        await other.send_and_wait(options.names.partition_map, b"", b"mark", partition=0)


@in_cluster("it cuts a topic")
async def test_a_map_whose_older_entries_were_cut_off_is_not_taken_for_the_whole(kafka_options: KafkaOptions) -> None:
    await ensure_map(kafka_options, 4)
    await changed(kafka_options, 1, {b"/a": Entry(1), b"/b": Entry(2)})
    reader = MapReader(kafka_options)
    await reader.read()
    await delete_records(kafka_options, kafka_options.names.partition_map, before=reader.next)
    # By its entries alone this reads as a map of one endpoint.
    async with writer(kafka_options, kafka_options.topic_prefix + "somebody") as other, other.transaction():
        topic = kafka_options.names.partition_map
        await other.send_and_wait(topic, encode_entry(Entry(3)), b"/c", partition=0)
        await other.send_and_wait(topic, encode_head(Head(4, 2), 3), HEAD_KEY, partition=0)
    assert await read_map(kafka_options) is None
    again = await begin_map(kafka_options, 4, (), PartitionMap(Head(4, 1), {b"/a": Entry(1), b"/b": Entry(2)}))
    assert await read_map(kafka_options) == again
    assert set(again.entries) == {b"/a", b"/b"}


async def test_a_recreated_updates_topic_has_the_partitions_of_the_map(
    kafka_options: KafkaOptions,
) -> None:
    options = replace(kafka_options, partitions=None)
    await ensure_map(options, 3)
    await delete(options, options.names.updates, options.names.hot)
    assert len((await ensure(options)).topics[options.names.updates].partitions) == 3


async def test_a_map_topic_with_two_partitions_is_refused(kafka_options: KafkaOptions) -> None:
    await ensure(kafka_options)
    name = kafka_options.names.partition_map
    async with admin_client(kafka_options) as admin:
        await admin.create_partitions({name: NewPartitions(2)})
    with pytest.raises(WrongTopic, match=f"topic {name}: it has 2 partitions, it must have 1"):
        async with asyncio.timeout(PATIENCE_S):
            # A broker hears of them a moment later.
            while True:
                await ensure(kafka_options)


async def test_without_kafka_reading_and_writing_fail_with_one_error() -> None:
    options = KafkaOptions("127.0.0.1:1")
    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1"):
        await read_map(options)
    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1"):
        await write_map(options, {}, Head(4, 1))
    async with following(options) as reader:
        await until(lambda: "127.0.0.1:1" in (reader.why_not or ""))
