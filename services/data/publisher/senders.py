"""One sender for each partition, and the dense offsets by which it notices records of others."""

import asyncio
from collections.abc import Callable, Iterable

from diem.fanout.change_map import ChangeMap
from diem.protocol.update import MARK, MARK_KEY
from services.data.publisher.backlog import PublisherState
from services.data.publisher.log import Log


class OffsetTracker:
    """The next offset of one partition, as its only writer expects it.

    A record in between was written by somebody else: most likely the late request of a publisher that died, with an
    update that is older than what its successor has written. Compaction would keep that one; so everything of the
    partition is then sent again (docs/protocol.md section 3).
    """

    __slots__ = ("foreign", "next")

    def __init__(self) -> None:
        self.next: int | None = None
        """None: not known, and what is there is taken as it is."""
        self.foreign = False
        """Whether there are records that are not ours, as far as we know."""

    def landed(self, base: int, count: int) -> None:
        """Our ``count`` records are at ``base`` (negative: the broker did not say)."""
        self.foreign |= base < 0 or (self.next is not None and base != self.next)
        self.next = None if base < 0 else base + count

    def ends(self, end: int) -> None:
        """The partition ends at ``end`` while nothing of ours is under way."""
        self.foreign |= self.next is not None and end != self.next
        self.next = end


MAX_RECORDS = 500
"""Endpoints in one request."""


class PartitionSenders:
    """Sends what the backlog holds; :meth:`run` once for each lane. Calls ``on_landed()`` after each request."""

    def __init__(
        self, log: Log, progress: PublisherState, changes: ChangeMap, on_landed: Callable[[], None] = lambda: None
    ) -> None:
        self._log = log
        self._progress = progress
        self._changes = changes
        self._lanes = progress.backlog.lanes
        # Whether the last requests of an earlier connection were written is not known: the first look compares nothing.
        self.ledgers = [OffsetTracker() for _ in self._lanes]
        self.sent: dict[int, float] = {}
        """Since when the request of a lane is under way, by the loop's clock."""
        self._on_landed = on_landed
        self._wake = [asyncio.Event() for _ in self._lanes]
        self._to_mark: set[int] = set()

    def wake(self, lanes: Iterable[int]) -> None:
        """These lanes have work."""
        for number in lanes:
            self._wake[number].set()

    def mark(self) -> None:
        """Write a mark to every lane as soon as it has everything that was accepted."""
        self._to_mark |= set(range(len(self._wake)))
        self.wake(self._to_mark)

    async def run(self, number: int) -> None:
        """Send until something is wrong.

        Raises:
            KafkaError, OSError: it is not known whether what is under way was written.
        """
        lane, wake, loop = self._lanes[number], self._wake[number], asyncio.get_running_loop()
        while True:
            taken = lane.take(MAX_RECORDS)
            # What is current now: a repetition never brings an older update back.
            records: list[tuple[bytes, bytes | None]] = [
                (endpoint, change.value) for endpoint in taken if (change := self._changes.get(endpoint))
            ]
            tombs = self._progress.backlog.take_tombs(number, MAX_RECORDS)
            records += [(endpoint, None) for endpoint in tombs]
            # A mark says that everything accepted is here: nothing is due, nor has it yet to be taken in.
            all_in = not lane.due and self._progress.backlog.read >= self._changes.sequence
            if number in self._to_mark and all_in:
                records.append((MARK_KEY, MARK))
            if not records:
                wake.clear()
                await wake.wait()
                continue
            self.sent[number] = loop.time()
            base, count = await self._log.write(number, records)
            del self.sent[number]
            self.ledgers[number].landed(base, count)
            written = {key for key, _ in records[:count]}
            lane.failed(endpoint for endpoint in (*taken, *tombs) if endpoint not in written)
            lane.landed()
            self.wake(self._progress.backlog.buried())
            self._on_landed()
            self._progress.published += len(written) - (MARK_KEY in written)
            if MARK_KEY in written:
                self._to_mark.discard(number)
