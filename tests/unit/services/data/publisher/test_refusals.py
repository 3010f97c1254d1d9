"""Refused records: one of many is found, goes without its data or waits, and holds back nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    PolicyViolationError,
    for_code,
)

from diem.kafka.errors import TimestampsRefused
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.update import WATERMARK_KEY, Change, encode, has_data, version_of
from services.data.publisher.backlog import Backlog, PublisherState
from services.data.publisher.offsets import Extent, OffsetTracker
from services.data.publisher.refusals import DATA_RETRY_S, RETRY_S, RecordsRefused, RefusedRecords, refusal
from services.data.publisher.senders import PartitionSenders
from tests.support.patience import PATIENCE_S
from tests.support.published import MemoryStore

START: Final = 1_700_000_000_000


class Broker:
    """One partition whose broker refuses every request with a record of more than ``limit`` bytes."""

    def __init__(self) -> None:
        self.limit = 10_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.requests = 0
        self.hidden = 0
        """Records at the end of the log that we do not know to be ours."""

    async def write(self, _number: int, records: list[tuple[bytes, bytes | None]], *_rest: object) -> tuple[int, int]:
        await asyncio.sleep(0)
        self.requests += 1
        if any(len(value or b"") > self.limit for _, value in records):
            raise RecordsRefused("updates", "MESSAGE_SIZE_TOO_LARGE", "max.message.bytes is too small", len(records))
        self.log += records
        return len(self.log) - len(records), len(records)

    async def end_offsets(self, numbers: list[int]) -> dict[int, int]:
        return dict.fromkeys(numbers, len(self.log) + self.hidden)

    @property
    def versions(self) -> dict[bytes, int | None]:
        return {key: version_of(key, value) for key, value in self.log if value and key != WATERMARK_KEY}


class World:
    """The sender of one partition."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.broker = Broker()
        self.store = MemoryStore()
        self.changes = self.store.changes
        trackers = [OffsetTracker(Extent(1, 0, 0)) for _ in range(2)]
        backlog = Backlog(1, 0, PartitionMap(Head(1, 0)))
        self.state = PublisherState("s", "m", backlog, resend_all=False, new_store=False, trackers=trackers)
        self.state.refusals = RefusedRecords(lambda: self.now_s)
        log: Any = self.broker
        self.senders = PartitionSenders(log, self.state, self.store)

    def put(self, name: str, size: int = 0) -> int:
        sequence = self.changes.sequence + 1
        data = b'"' + b"x" * size + b'"' if size else None
        version = START + sequence
        change = Change(sequence, name.encode(), version, 0, encode(name, version, version, data=data))
        self.changes.apply(change)
        self.senders.wake(self.state.backlog.ingest([change]))
        return version

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.senders.run(0))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, RecordsRefused):
                await task

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0)


async def test_a_refused_update_goes_without_its_data_and_all_others_with_theirs() -> None:
    world = World()
    world.broker.limit = 5_000
    expected = {f"/e/{n}".encode(): world.put(f"/e/{n}", 2_000) for n in range(300)}
    expected[b"/e/77"] = world.put("/e/77", 20_000)
    async with world.sending():
        await world.until(lambda: world.broker.versions == expected)
        assert world.state.backlog.cursor == world.changes.sequence
    bare = {key for key, value in world.broker.log if value and not has_data(key, value)}
    assert bare == {b"/e/77"}
    assert world.broker.requests < 40
    (warning,) = world.state.refusals.warnings()
    assert "topic updates refuses records (MESSAGE_SIZE_TOO_LARGE): max.message.bytes is too small" in warning
    assert world.state.refusals.failure() is None


async def test_later_updates_go_without_data_at_once_until_the_data_is_tried_again() -> None:
    world = World()
    world.put("/big", 20_000)
    async with world.sending():
        await world.until(lambda: len(world.broker.log) == 1)
        requests = world.broker.requests
        version = world.put("/big", 20_000)
        await world.until(lambda: world.broker.versions == {b"/big": version})
        assert world.broker.requests == requests + 1
        world.broker.limit = 100_000
        world.now_s += DATA_RETRY_S
        world.put("/big", 20_000)
        await world.until(lambda: len(world.broker.log) == 3)
        assert world.broker.log[-1][1] is not None
        assert has_data(b"/big", world.broker.log[-1][1])


async def test_a_record_refused_without_data_waits_and_holds_back_neither_others_nor_the_cpu() -> None:
    world = World()
    world.broker.limit = 150
    long = "/" + "n" * 100
    world.put(long, 1000)
    async with world.sending():
        await world.until(lambda: world.state.refusals.failure() is not None)
        others = {f"/e/{n}".encode(): world.put(f"/e/{n}") for n in range(50)}
        world.senders.request_watermarks()
        await world.until(lambda: world.broker.versions == others)
        for _ in range(100):
            await asyncio.sleep(0)
        requests = world.broker.requests
        for _ in range(100):
            world.senders.wake([0])
            await asyncio.sleep(0)
        assert world.broker.requests == requests, "it is not tried before its time"
        assert WATERMARK_KEY not in dict(world.broker.log), "the partition lacks an accepted update"
        assert world.state.backlog.cursor == 0
        assert "MESSAGE_SIZE_TOO_LARGE" in (world.state.refusals.failure() or "")
        world.broker.limit = 10_000
        world.now_s += RETRY_S
        world.senders.wake([0])
        await world.until(lambda: long.encode() in world.broker.versions)
        assert world.state.refusals.failure() is None
        world.senders.request_watermarks()
        await world.until(lambda: WATERMARK_KEY in dict(world.broker.log))


async def test_a_refused_tombstone_waits_and_others_go_on() -> None:
    world = World()
    world.state.refusals.refused(0, b"/gone", None, "no tombstones")
    world.state.backlog.queues[0].enqueue_tombstone(b"/gone")
    world.state.backlog.queues[0].enqueue_tombstone(b"/other")
    async with world.sending():
        await world.until(lambda: [key for key, _ in world.broker.log] == [b"/other"])
        world.now_s += RETRY_S
        world.senders.wake([0])
        await world.until(lambda: (b"/gone", None) in world.broker.log)


async def test_a_refusal_after_an_attempt_that_may_have_been_written_needs_a_new_producer() -> None:
    world = World()
    world.broker.hidden = 1
    world.put("/big", 20_000)
    async with world.sending() as task:
        await asyncio.wait([task], timeout=PATIENCE_S)
        with pytest.raises(RecordsRefused):
            task.result()


@pytest.mark.parametrize("error", [MessageSizeTooLargeError(), PolicyViolationError(), for_code(87)()])
def test_a_refusal_names_topic_and_remedy(error: KafkaError) -> None:
    found = refusal("diem.updates", error, 3)
    assert isinstance(found, RecordsRefused)
    assert found.count == 3
    assert "diem.updates" in found.remedy
    assert type(error).message in str(found)


def test_a_refused_time_is_a_fault_of_clocks_and_other_errors_say_nothing_about_records() -> None:
    found = refusal("diem.updates", InvalidTimestampError(), 3)
    assert isinstance(found, TimestampsRefused)
    assert "clocks of this host and of the brokers" in str(found)
    assert "--topic diem.updates --add-config message.timestamp.type=LogAppendTime" in str(found)
    assert refusal("diem.updates", NotEnoughReplicasError(), 3) is None
