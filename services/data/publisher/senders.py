"""One sender per partition, and the tracker of dense offsets that detects foreign records."""

import asyncio
from collections.abc import Callable, Iterable

from diem.fanout.change_map import ChangeMap
from diem.protocol.update import WATERMARK, WATERMARK_KEY
from services.data.publisher.backlog import PublisherState
from services.data.publisher.log import Log


class OffsetTracker:
    """Expected next offset of one partition, kept by its only writer.

    A gap is a record of another writer: most likely a late request of a publisher that died, with an older update than
    those of its successor. Compaction would keep the older one, so the whole partition is resent (docs/protocol.md
    section 3).
    """

    __slots__ = ("foreign", "next")

    def __init__(self) -> None:
        self.next: int | None = None
        """The expected offset; None accepts any."""
        self.foreign = False
        """Whether records of another writer were detected."""

    def acknowledged(self, base: int, count: int) -> None:
        """Compare with the acknowledged offset ``base`` of ``count`` records (negative: unknown to the broker)."""
        self.foreign |= base < 0 or (self.next is not None and base != self.next)
        self.next = None if base < 0 else base + count

    def compare_end(self, end: int) -> None:
        """Compare with the end offset of the partition, while no request is in flight."""
        self.foreign |= self.next is not None and end != self.next
        self.next = end


MAX_RECORDS = 500
"""Endpoints in one request."""


class PartitionSenders:
    """Sends the backlog, one worker per partition: :meth:`run`. Calls ``on_acknowledged()`` after each request."""

    def __init__(
        self, log: Log, state: PublisherState, changes: ChangeMap, on_acknowledged: Callable[[], None] = lambda: None
    ) -> None:
        self._log = log
        self._state = state
        self._changes = changes
        self._queues = state.backlog.queues
        # Whether the last requests of an earlier connection were written is unknown: the first check accepts any end.
        self.trackers = [OffsetTracker() for _ in self._queues]
        self.in_flight_since: dict[int, float] = {}
        """Send time of each partition's request, by the loop's clock."""
        self._on_acknowledged = on_acknowledged
        self._wake = [asyncio.Event() for _ in self._queues]
        self._watermarks_due: set[int] = set()

    def wake(self, queues: Iterable[int]) -> None:
        """Wake the senders of partitions that have work."""
        for number in queues:
            self._wake[number].set()

    def request_watermarks(self) -> None:
        """Have a watermark written to every partition as soon as it has every accepted change."""
        self._watermarks_due |= set(range(len(self._wake)))
        self.wake(self._watermarks_due)

    async def run(self, number: int) -> None:
        """Send the queue of one partition until a fault.

        Raises:
            KafkaError, OSError: whether the request in flight was written is unknown.
        """
        queue, wake, loop = self._queues[number], self._wake[number], asyncio.get_running_loop()
        while True:
            updates = queue.dequeue(MAX_RECORDS)
            # Always the current update: a repetition never brings an older one back.
            records: list[tuple[bytes, bytes | None]] = [
                (endpoint, change.value) for endpoint in updates if (change := self._changes.get(endpoint))
            ]
            tombstones = self._state.backlog.dequeue_tombstones(number, MAX_RECORDS)
            records += [(endpoint, None) for endpoint in tombstones]
            # A watermark asserts that every accepted change is here: nothing is due or yet to be ingested.
            all_in = not queue.due and self._state.backlog.ingested >= self._changes.sequence
            if number in self._watermarks_due and all_in:
                records.append((WATERMARK_KEY, WATERMARK))
            if not records:
                wake.clear()
                await wake.wait()
                continue
            self.in_flight_since[number] = loop.time()
            base, count = await self._log.write(number, records)
            del self.in_flight_since[number]
            self.trackers[number].acknowledged(base, count)
            written = {key for key, _ in records[:count]}
            queue.requeue(endpoint for endpoint in (*updates, *tombstones) if endpoint not in written)
            queue.acknowledged()
            self.wake(self._state.backlog.with_tombstones())
            self._on_acknowledged()
            self._state.published += len(written) - (WATERMARK_KEY in written)
            if WATERMARK_KEY in written:
                self._watermarks_due.discard(number)
