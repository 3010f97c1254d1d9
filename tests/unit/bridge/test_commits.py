import asyncio
import gc
from typing import Any, cast

import pytest
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupLoadInProgressError, KafkaConnectionError

from bridge import consumer as module
from bridge.consumer import OffsetCommitter
from diem.kafka.client import quieten
from tests.support.patience import PATIENCE_S


class Committing:
    """Takes what a consumer would commit; the first attempts fail, and each waits for ``open``."""

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


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_has_moved_is_committed_once() -> None:
    commits, fake = OffsetCommitter(), Committing()
    for positions in ({"t/0": 5, "t/1": 7}, {"t/0": 5, "t/1": 7}, {"t/0": 6, "t/1": 7}):
        commits.mark(consumer(fake), positions)
        await settled()
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert fake.committed == [{first: 5, second: 7}, {first: 6}]
    await commits.close()


async def test_a_failed_commit_is_counted_and_made_again() -> None:
    commits, fake = OffsetCommitter(), Committing(failures=1)
    for _ in range(2):
        commits.mark(consumer(fake), {"t/0": 5})
        await settled()
    assert commits.failures == 1
    assert fake.committed == [{TopicPartition("t", 0): 5}]
    await commits.close()


async def test_a_commit_that_hangs_holds_up_nobody() -> None:
    commits, fake = OffsetCommitter(), Committing()
    fake.open.clear()
    for next_ in range(5):
        commits.mark(consumer(fake), {"t/0": next_})
        await settled()
    fake.open.set()
    await settled()
    assert fake.committed == [{TopicPartition("t", 0): 0}], "one at a time"
    fake.open.clear()
    commits.mark(consumer(fake), {"t/0": 9})
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

    quieten()
    monkeypatch.setattr(module, "COMMIT_WITHIN", 0.0)
    commits = OffsetCommitter()
    with structlog.testing.capture_logs() as lines:
        commits.mark(cast("Any", Shielding()), {"t/0": 5})
        await settled()
        assert commits.failures == 1
        loading.set()
        await asyncio.wait(under_way)
        under_way.clear()
        gc.collect()
    assert [line["error"].split()[0] for line in lines] == ["GroupLoadInProgressError"]
    assert not caplog.records
    await commits.close()
