"""The bridge's poll of aiokafka's fetcher, compared with the client's own getmany."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CorruptRecordException, OffsetOutOfRangeError

from bridge.consumer import assign, consuming, name_of, poll
from diem.kafka.config import KafkaOptions
from tests.support.bridge import UpdatesTopic, updates_topic
from tests.support.patience import PATIENCE_S, until

Seen = dict[str, list[tuple[int, bytes | None, bytes | None]]]


async def polled(consumer: AIOKafkaConsumer, ends: dict[str, int], starts: dict[str, int]) -> Seen:
    seen: Seen = {name: [] for name in ends}
    position = dict(starts)
    async with asyncio.timeout(PATIENCE_S):
        while any(position[name] < end for name, end in ends.items()):
            for each in await poll(consumer, 0.5):
                name = name_of(each.partition)
                seen[name] += [(r.offset, r.key, r.value) for r in each.records if r.offset >= position[name]]
                position[name] = each.next
                assert await consumer.position(each.partition) == each.next
    return seen


async def returned(consumer: AIOKafkaConsumer, ends: dict[str, int]) -> Seen:
    seen: Seen = {name: [] for name in ends}
    async with asyncio.timeout(PATIENCE_S):
        while any([await consumer.position(_partition(name)) < end for name, end in ends.items()]):
            for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                seen[name_of(partition)] += [(r.offset, r.key, r.value) for r in records]
    return seen


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))


async def both(options: KafkaOptions, starts: dict[str, int], ends: dict[str, int]) -> tuple[Seen, Seen]:
    async with consuming(options, "g-ours", len(starts)) as ours, consuming(options, "g-theirs", len(starts)) as theirs:
        assign(ours, starts)
        assign(theirs, starts)
        return await polled(ours, ends, starts), await returned(theirs, ends)


async def _fill(topic: UpdatesTopic, **producer: Any) -> dict[str, int]:
    """Write values of every kind to every partition; return the ends of the partitions."""
    options = topic.options
    ends = {f"{topic.name}/{number}": 0 for number in range(topic.partitions)}
    async with AIOKafkaProducer(**options.client_arguments(), linger_ms=20, **producer) as writer:
        sent = []
        for n in range(2000):
            value = None if n % 97 == 0 else b"v" * (n % 700)
            key = None if n % 101 == 0 else b"/k%d" % n
            headers = [("h", b"x")] if n % 5 == 0 else []
            partition = n % topic.partitions
            sent.append(
                await writer.send(
                    topic.name, value or b"x" if key is None else value, key or b"/", partition, headers=headers
                )
            )
        for each in sent:
            done = await each
            name = f"{topic.name}/{done.partition}"
            ends[name] = max(ends[name], done.offset + 1)
    return ends


@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_poll_returns_the_records_of_getmany(kafka_options: KafkaOptions, compression: str | None) -> None:
    async with updates_topic(kafka_options) as topic:
        ends = await _fill(topic, compression_type=compression)
        ours, theirs = await both(kafka_options, dict.fromkeys(ends, 0), ends)
        assert ours == theirs
        assert sum(map(len, ours.values())) == 2000


async def test_a_start_within_a_batch_returns_the_records_from_there_on(kafka_options: KafkaOptions) -> None:
    async with updates_topic(kafka_options) as topic:
        ends = await _fill(topic)
        ours, theirs = await both(kafka_options, dict.fromkeys(ends, 123), ends)
        assert ours == theirs
        assert all(records[0][0] == 123 for records in ours.values())


async def test_transaction_markers_advance_the_position_and_are_not_records(kafka_options: KafkaOptions) -> None:
    async with updates_topic(kafka_options, partitions=1) as topic:
        arguments = kafka_options.client_arguments()
        async with AIOKafkaProducer(**arguments, transactional_id=kafka_options.topic_prefix) as writer:
            for n in range(3):
                async with writer.transaction():
                    await writer.send(topic.name, b"v", b"/%d" % n, 0)
        ends = {f"{topic.name}/0": 6}
        ours, theirs = await both(kafka_options, {f"{topic.name}/0": 0}, ends)
        assert ours == theirs
        assert [offset for offset, _, _ in ours[f"{topic.name}/0"]] == [0, 2, 4]


async def test_an_offset_out_of_range_is_an_error_and_not_a_new_start(kafka_options: KafkaOptions) -> None:
    async with updates_topic(kafka_options, partitions=1) as topic, consuming(kafka_options, "g", 1) as consumer:
        assign(consumer, {f"{topic.name}/0": 99})
        with pytest.raises(OffsetOutOfRangeError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    assert not await poll(consumer, 0.5)


async def test_a_batch_with_a_wrong_checksum_is_an_error_after_the_batches_before_it(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with updates_topic(kafka_options, partitions=2) as topic, consuming(kafka_options, "g", 2) as consumer:
        for number in range(2):
            for n in range(3):
                await topic.write((b"/%d" % n, b"v", number))
        assign(consumer, {f"{topic.name}/0": 0, f"{topic.name}/1": 0})
        fetcher = consumer._fetcher
        await until(lambda: len(fetcher._records) >= 2)
        spoilt = fetcher._records[TopicPartition(topic.name, 0)]._partition_records
        spoilt._records = Spoilt(spoilt._records, bad=1)
        got: dict[int, list[int]] = {0: [], 1: []}
        with pytest.raises(CorruptRecordException):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for each in await poll(consumer, 0.1):
                        got[each.partition.partition] += [record.offset for record in each.records]
                        if each.partition.partition == 0:
                            # The broker's copy is fine: what is fetched next must be spoilt, too.
                            while TopicPartition(topic.name, 0) not in fetcher._records:
                                await asyncio.sleep(0.01)
                            again = fetcher._records[TopicPartition(topic.name, 0)]._partition_records
                            again._records = Spoilt(again._records, bad=0)
        assert got == {0: [0], 1: [0, 1, 2]}
        assert await consumer.position(TopicPartition(topic.name, 0)) == 1


class Spoilt:
    """Batches of which one has a wrong checksum."""

    def __init__(self, batches: Any, bad: int) -> None:
        self._batches, self._left = batches, bad

    def has_next(self) -> bool:
        return bool(self._batches.has_next())

    def next_batch(self) -> Any:
        batch = self._batches.next_batch()
        self._left -= 1
        return BadBatch(batch) if self._left < 0 else batch


class BadBatch:
    def __init__(self, batch: Any) -> None:
        self.next_offset = batch.next_offset

    def validate_crc(self) -> bool:
        return False
