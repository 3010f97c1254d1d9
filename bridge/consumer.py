"""aiokafka's consumer with a bound on every wait: opening, the ends of the logs, commits and stopping."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError

from bridge.fetched import abandon
from diem.errors import DiemError
from diem.kafka.config import KafkaOptions

FETCH_BYTES: Final = 16 << 20
"""Bytes in one answer of a broker, and in all that is fetched ahead."""
PARTITION_BYTES: Final = 1 << 20
LEAST_PARTITION_BYTES: Final = 128 << 10
"""The topic's ``max.message.bytes``: with less, each answer would hold one batch anyhow."""
FETCH_WAIT_MS: Final = 500
"""An idle broker answers so often, which is what tells that it is alive."""
REQUEST_TIMEOUT_MS: Final = 4000
"""A fetch is answered within half a second: a broker that takes so long hangs, and its partitions have new leaders."""
CONSUMER: Final[dict[str, Any]] = {
    # Where to begin is the reader's to say: an offset out of range must be an error, never a new start.
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "fetch_max_wait_ms": FETCH_WAIT_MS,
    "fetch_max_bytes": FETCH_BYTES,
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
}
"""Settings of the consumer; `diem check` looks at them."""
OPEN_WITHIN: Final = 15.0
ASK_WITHIN: Final = 5.0
OPENED_WITHIN: Final = 0.5
STOP_WITHIN: Final = 3.0
COMMIT_WITHIN: Final = 5.0

FAULTS: Final = (KafkaError, ConsumerStoppedError, DiemError, OSError, TimeoutError)
"""What Kafka can do to a bridge: tried again for ever. The second is that the library's own tasks have ended."""

_endings: Final[set[asyncio.Task[None]]] = set()
"""Consumers that are being ended: a task that nobody holds may vanish."""


def partition_of(name: str) -> TopicPartition:
    """The partition that the feed calls ``name``."""
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))


def name_of(partition: TopicPartition) -> str:
    """What the feed calls a partition."""
    return f"{partition.topic}/{partition.partition}"


@contextlib.asynccontextmanager
async def consuming(options: KafkaOptions, group: str | None, partitions: int) -> AsyncIterator[AIOKafkaConsumer]:
    """A connected consumer without an assignment, to read that many ``partitions``; in no ``group``, it cannot commit.

    What it holds at once is bounded: about 16 MiB taken, as much fetched ahead, and one answer of each broker under
    way. Leaving takes at most 5 s, in whatever state the cluster is.
    """
    consumer = AIOKafkaConsumer(
        **options.client_arguments(),
        client_id=group or "bridge",
        group_id=group,
        **CONSUMER,
        max_partition_fetch_bytes=max(LEAST_PARTITION_BYTES, min(PARTITION_BYTES, FETCH_BYTES // max(1, partitions))),
    )
    async with opened(consumer):
        yield consumer


@contextlib.asynccontextmanager
async def opened(consumer: AIOKafkaConsumer) -> AsyncIterator[None]:
    """Opens ``consumer``, and ends it in at most 5 s."""
    opening = asyncio.ensure_future(consumer.start())
    try:
        async with asyncio.timeout(OPEN_WITHIN):
            await asyncio.shield(opening)
        yield
    finally:
        # In a task of its own, which ends its work when whoever waits here is cancelled meanwhile.
        ending = asyncio.create_task(_end(opening, consumer))
        _endings.add(ending)
        ending.add_done_callback(_endings.discard)
        await asyncio.shield(ending)


async def _end(opening: asyncio.Future[None], consumer: AIOKafkaConsumer) -> None:
    await _settled(opening)
    await _stop(consumer)


async def _settled(opening: asyncio.Future[None]) -> None:
    """Let a start end by itself, if it can in a moment: one that is cut short leaves its connection open."""
    await asyncio.wait([opening], timeout=OPENED_WITHIN)
    opening.cancel()
    await asyncio.wait([opening], timeout=OPENED_WITHIN)
    if opening.done() and not opening.cancelled():
        opening.exception()  # whoever waited for it has heard of it, or is gone


async def _stop(consumer: AIOKafkaConsumer) -> None:
    # In a task of its own: it may end with the CancelledError of a fetch that it has itself cancelled (a broker that
    # is away is waited for in such a one), and that would end whoever waits here, without a word.
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping], timeout=STOP_WITHIN)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
        return
    stopping.cancel()
    structlog.get_logger("bridge").warning("consumer does not stop, abandoned")
    await abandon(consumer)


async def bounds(consumer: AIOKafkaConsumer, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Begin and end offset of each partition that a broker leads; the others are left out.

    Raises:
        TimeoutError: no broker says anything.
    """
    answers = await asyncio.gather(*(_bounds(consumer, partition_of(name)) for name in names))
    found = {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}
    if names and not found:
        raise TimeoutError("no broker says where the logs end")
    return found


async def _bounds(consumer: AIOKafkaConsumer, partition: TopicPartition) -> tuple[int, int] | None:
    # One by one: asked together, a partition without a leader would hold up the answer for all.
    try:
        async with asyncio.timeout(ASK_WITHIN):
            begin = (await consumer.beginning_offsets([partition]))[partition]
            return begin, (await consumer.end_offsets([partition]))[partition]
    except FAULTS:
        return None


def assign(consumer: AIOKafkaConsumer, positions: Mapping[str, int]) -> None:
    """Read these partitions from these positions.

    Without a pause in between: a partition without a position would be read from its committed offset.
    """
    partitions = {partition_of(name): next_ for name, next_ in positions.items()}
    consumer.assign(list(partitions))
    for partition, next_ in partitions.items():
        consumer.seek(partition, next_)


class OffsetCommitter:
    """Writes positions as progress marks for lag tools; nothing ever starts from them."""

    def __init__(self) -> None:
        self.failures = 0
        self._task: asyncio.Task[None] | None = None
        self._marked: dict[str, int] = {}

    def mark(self, consumer: AIOKafkaConsumer, positions: Mapping[str, int]) -> None:
        """Commit in the background, unless the last commit is still under way or nothing has moved."""
        changed = {name: next_ for name, next_ in positions.items() if self._marked.get(name) != next_}
        if changed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._commit(consumer, changed))

    async def close(self) -> None:
        """Wait for the commit that is under way: at most a moment, for it is not important."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=0.5)
            self._task.cancel()

    async def _commit(self, consumer: AIOKafkaConsumer, positions: Mapping[str, int]) -> None:
        try:
            async with asyncio.timeout(COMMIT_WITHIN):
                await consumer.commit({partition_of(name): next_ for name, next_ in positions.items()})
        except FAULTS:
            self.failures += 1
        else:
            self._marked.update(positions)
