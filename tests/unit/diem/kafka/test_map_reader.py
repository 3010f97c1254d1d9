"""Whether a map counts as current while Kafka delivers nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from structlog.testing import capture_logs

from diem.kafka import map_reader
from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import MapReader
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.protocol.compatibility import OURS
from diem.protocol.partition_map import HEAD_KEY, Entry, Head, encode_entry, encode_head
from tests.support.patience import until

OPTIONS = KafkaOptions("k:9092")


class Record:
    key, value, offset = HEAD_KEY, encode_head(Head(4, 1)), 0


class Broker:
    """Kafka with one record in the map's topic, and possibly more that consumers do not get."""

    def __init__(self) -> None:
        self.end = 1
        self.requests = 0
        self.polls = 0
        self.consumers = 0
        self.answers = True
        self.fails = False
        self.begin = 0
        self.out_of_range = False
        """The next request is for records that were deleted."""
        self.records: list[Any] = [Record]

    @asynccontextmanager
    async def consuming(self, _options: KafkaOptions) -> AsyncIterator["Consumer"]:
        self.consumers += 1
        yield Consumer(self)

    async def describe(self, _client: object, topic: str) -> Cluster:
        return Cluster("c", 1, {1: ("k", 9092)}, {topic: Topic(topic, "t", {0: Partition(1, (1,), (1,))})})


class Consumer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = 0

    def assign(self, _partitions: object) -> None: ...

    def seek(self, _partition: object, offset: int) -> None:
        self._next = offset

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._broker.begin)

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self._broker.requests += 1
        if self._broker.fails:
            raise KafkaError("no leader")
        if not self._broker.answers:
            await asyncio.Event().wait()
        return dict.fromkeys(partitions, self._broker.end)

    async def getmany(self, partition: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        self._broker.polls += 1
        await asyncio.sleep(0.001)
        if self._broker.out_of_range:
            self._broker.out_of_range = False
            raise OffsetOutOfRangeError({partition: self._next})
        found = self._broker.records[self._next :]
        self._next += len(found)
        return {partition: found} if found else {}

    async def position(self, _partition: TopicPartition) -> int:
        return self._next


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    @asynccontextmanager
    async def connected(_options: KafkaOptions) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(map_reader, "_consuming", made.consuming)
    monkeypatch.setattr(map_reader, "connected_client", connected)
    monkeypatch.setattr(map_reader, "describe", made.describe)
    for name in ("CHECK_EVERY_S", "REQUEST_TIMEOUT_S", "RETRY_BASE_S", "RETRY_CAP_S"):
        monkeypatch.setattr(map_reader, name, 0.01)
    monkeypatch.setattr(map_reader, "STALE_AFTER_S", 0.1)
    return made


@pytest.fixture
async def reader(broker: Broker) -> AsyncIterator[MapReader]:
    made = MapReader(OPTIONS)
    assert not made.is_current()
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.wait([running])


async def test_an_empty_topic_is_known_as_read_without_a_poll(broker: Broker) -> None:
    broker.end, broker.records = 0, []
    reader = MapReader(OPTIONS)
    await reader.read()
    assert (reader.caught_up, reader.map, broker.polls) == (True, None, 0)
    broker.end = broker.begin = 3
    reader = MapReader(OPTIONS)
    await reader.read()
    assert (reader.caught_up, reader.next, broker.polls) == (True, 3, 0)


async def test_a_map_stays_current_while_the_leader_reports_no_more_records(broker: Broker, reader: MapReader) -> None:
    # A pause of 0.1 s makes it out of date until the next request.
    await until(lambda: broker.requests > 20 and reader.is_current())
    assert reader.caught_up
    assert broker.consumers == 1


async def test_a_map_is_not_current_when_records_do_not_arrive_and_another_consumer_is_tried(
    broker: Broker, reader: MapReader
) -> None:
    await until(reader.is_current)
    broker.end = 2
    await until(lambda: not reader.is_current())
    await until(lambda: broker.consumers > 1)
    assert reader.caught_up
    broker.end = 1
    await until(reader.is_current)


async def test_a_map_is_not_current_when_the_leader_does_not_answer(broker: Broker, reader: MapReader) -> None:
    await until(reader.is_current)
    broker.answers = False
    await until(lambda: not reader.is_current())
    assert reader.map is not None
    broker.answers = True
    await until(reader.is_current)


async def test_a_map_is_not_current_after_its_log_was_cut_until_its_head_is_there_again(
    broker: Broker, reader: MapReader
) -> None:
    await until(reader.is_current)
    with capture_logs() as logged:
        broker.begin, broker.out_of_range = 1, True
        await until(lambda: broker.consumers == 3 and reader.caught_up)
        requests = broker.requests
        await until(lambda: broker.requests > requests + 5)
    assert not reader.is_current(), "what is left may lack a later map than the one that is known"
    assert reader.map is not None
    assert [line["event"] for line in logged] == [reader.why_not]
    broker.records.append(HeadAgain)
    broker.end = 2
    await until(reader.is_current)
    assert reader.why_not is None
    assert reader.map.head.epoch == 4


async def test_a_reader_that_has_what_its_topic_has_lost_says_so_and_is_current(
    broker: Broker, reader: MapReader
) -> None:
    await until(reader.is_current)
    broker.begin = 1
    await until(lambda: reader.is_cut)
    assert reader.is_current()


async def test_a_map_of_which_entries_are_missing_is_read_once_and_what_there_is_is_known(broker: Broker) -> None:
    broker.records, broker.begin = [HeadOfTwo], 0
    reader = MapReader(OPTIONS)
    await reader.read()
    assert (reader.is_complete, reader.caught_up, reader.map) == (False, True, None)
    assert (set(reader.records), reader.next, broker.consumers) == ({HEAD_KEY}, 1, 1)


async def test_a_reader_with_entries_of_a_map_that_was_lost_reads_the_topic_once_more(
    broker: Broker, reader: MapReader
) -> None:
    broker.records[:] = [Lost, HeadOfOne]
    broker.end = 2
    await until(reader.is_current)
    # The topic was cut before the second head, which has no entries: those that the reader has were in the lost part.
    broker.records.append(HeadOfNone)
    broker.begin, broker.end = 2, 3
    await until(lambda: reader.map is not None and reader.map.head.epoch == 9 and reader.is_current())
    assert reader.map is not None
    assert not reader.map.entries


class Lost:
    key, value, offset = b"/a", encode_entry(Entry(1)), 0


class HeadOfOne:
    key, value, offset = HEAD_KEY, encode_head(Head(4, 2), 1), 1


class HeadOfNone:
    key, value, offset = HEAD_KEY, encode_head(Head(4, 9), 0), 2


class HeadOfTwo:
    key, value, offset = HEAD_KEY, encode_head(Head(4, 1), 2), 0


class HeadAgain:
    key, value, offset = HEAD_KEY, encode_head(Head(4, 4), 0), 1


class HeadForLaterReleases:
    key, offset = HEAD_KEY, 1
    value = b'{"partitions":4,"epoch":2,"phase":"stable","protocol":%d}' % (OURS.newest + 1)


async def test_a_map_for_later_releases_leaves_the_one_before_in_force_which_is_not_current(
    broker: Broker, reader: MapReader
) -> None:
    await until(reader.is_current)
    with capture_logs() as logged:
        broker.records.append(HeadForLaterReleases)
        broker.end = 2
        await until(lambda: reader.next == 2)
        requests = broker.requests
        await until(lambda: broker.requests > requests + 5)
    assert not reader.is_current()
    assert reader.map is not None
    assert reader.map.head.epoch == 1
    (line,) = logged
    assert line["event"] == reader.why_not
    assert f"needs version {OURS.newest + 1}" in line["event"]


async def test_a_reader_that_fails_says_why_and_goes_on(broker: Broker, reader: MapReader) -> None:
    await until(reader.is_current)
    broker.fails = True
    await until(lambda: reader.why_not == "KafkaError: no leader")
    broker.fails = False
    await until(lambda: reader.why_not is None)
