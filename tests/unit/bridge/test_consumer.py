"""aiokafka's consumer as the bridge uses it: commits, and stops in bounded time."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupLoadInProgressError, KafkaConnectionError

from bridge import consumer as module
from bridge.consumer import OffsetCommitter, _release_each
from bridge.partition_state import PartitionTable
from diem.kafka.client import silence_library_log
from diem.protocol.watermark import position_of
from tests.support.patience import PATIENCE_S


class Committing:
    """A consumer whose first commits fail, and which waits for ``open`` in each."""

    def __init__(self, failures: int = 0) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.failures = failures
        self.committed: list[dict[TopicPartition, int]] = []

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            raise KafkaConnectionError
        self.committed.append(offsets)


def consumer(fake: Committing) -> AIOKafkaConsumer:
    return cast("Any", fake)


def table(positions: dict[str, int]) -> PartitionTable:
    made = PartitionTable(positions, {name: position_of(offset, 1) for name, offset in positions.items()})
    made.begin(dict.fromkeys(positions, (0, 100)), 0.0)
    return made


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_has_moved_is_committed_once() -> None:
    commits, fake, partitions = OffsetCommitter(), Committing(), table({"t/0": 5, "t/1": 7})
    for position in (5, 5, 6):
        partitions["t/0"].advance(position, 0.0)
        commits.commit(consumer(fake), partitions)
        await settled()
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert fake.committed == [{first: 5, second: 7}, {first: 6}]
    await commits.close()


async def test_a_failed_commit_is_counted_and_made_again() -> None:
    commits, fake, partitions = OffsetCommitter(), Committing(failures=1), table({"t/0": 5})
    for _ in range(2):
        commits.commit(consumer(fake), partitions)
        await settled()
    assert commits.failures == 1
    assert fake.committed == [{TopicPartition("t", 0): 5}]
    await commits.close()


async def test_a_commit_that_hangs_holds_up_nobody() -> None:
    commits, fake, partitions = OffsetCommitter(), Committing(), table({"t/0": 0})
    fake.open.clear()
    for position in range(5):
        partitions["t/0"].advance(position, 0.0)
        commits.commit(consumer(fake), partitions)
        await settled()
    fake.open.set()
    await settled()
    assert fake.committed == [{TopicPartition("t", 0): 0}], "one at a time"
    fake.open.clear()
    partitions["t/0"].advance(9, 0.0)
    commits.commit(consumer(fake), partitions)
    await settled()
    async with asyncio.timeout(PATIENCE_S):
        await commits.close()


async def test_a_commit_that_was_given_up_and_fails_later_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the library's does: what is under way is shielded, and goes on when whoever waits for it is cancelled."""
    loading = asyncio.Event()
    under_way: list[asyncio.Task[None]] = []

    async def request() -> None:
        await loading.wait()
        raise GroupLoadInProgressError

    class Shielding:
        async def commit(self, _offsets: dict[TopicPartition, int]) -> None:
            under_way.append(asyncio.ensure_future(request()))
            await asyncio.shield(under_way[0])

    silence_library_log()
    # What tests before this one have left is reported now, and not with what is collected below.
    gc.collect()
    caplog.clear()
    monkeypatch.setattr(module, "COMMIT_TIMEOUT_S", 0.0)
    commits = OffsetCommitter()
    with structlog.testing.capture_logs() as lines:
        commits.commit(cast("Any", Shielding()), table({"t/0": 5}))
        await settled()
        assert commits.failures == 1
        loading.set()
        await asyncio.wait(under_way)
        under_way.clear()
        gc.collect()
    assert [line["error"].split()[0] for line in lines] == ["GroupLoadInProgressError"]
    assert not caplog.records
    await commits.close()


def stub(stop: Callable[[], Awaitable[None]]) -> Any:
    async def close() -> None:
        stub_.closed = True

    stub_ = SimpleNamespace(
        stop=stop,
        closed=False,
        _fetcher=SimpleNamespace(_fetch_task=None),
        _coordinator=SimpleNamespace(),
        _client=SimpleNamespace(close=close),
    )
    return stub_


async def test_a_stop_that_ends_with_what_it_cancelled_itself_ends_nobody_else() -> None:
    async def stop() -> None:
        raise asyncio.CancelledError

    consumer = stub(stop)
    await module._stop(consumer)
    assert consumer.closed, "it is abandoned"


async def test_a_stop_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.05)
    cut_short = asyncio.Event()

    async def stop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut_short.set()

    consumer = stub(stop)
    async with asyncio.timeout(PATIENCE_S):
        await module._stop(consumer)
        await cut_short.wait()
    assert consumer.closed


async def test_a_stop_that_works_abandons_nothing() -> None:
    async def stop() -> None:
        await asyncio.sleep(0)

    consumer = stub(stop)
    await module._stop(consumer)
    assert not consumer.closed


class Fetched:
    """A batch of two records."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __iter__(self) -> Iterator[int]:
        yield from (self._first, self._first + 1)


def test_a_batch_is_dropped_once_it_is_read() -> None:
    """Batches keep what they have decompressed: several times the bytes that were fetched."""
    batches = [Fetched(0), Fetched(2), Fetched(4)]
    alive = weakref.WeakSet(batches)
    records = chain.from_iterable(_release_each(batches))
    del batches
    found = []
    for record in records:
        found.append(record)
        assert len(alive) == 3 - record // 2
    assert found == [0, 1, 2, 3, 4, 5]
