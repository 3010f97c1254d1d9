"""Publishing over one connection: a request for each partition, looks at what others wrote, passes, the cursor."""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from diem.errors import DiemError
from diem.fanout.changes import ChangeMap
from diem.protocol.update import MARK, MARK_KEY
from services.data.publisher.backlog import Backlog
from services.data.publisher.ledger import Ledger
from services.data.publisher.log import Log
from services.data.store.cursor import Cursor

MAX_RECORDS: Final = 500
"""Endpoints in one request to one partition."""
MAX_CHANGES: Final = 2000
"""Changes taken from the store at once."""
CHECK_EVERY_S: Final = 10.0
KEEP_EVERY_S: Final = 1.0
MARK_EVERY_S: Final = 2.0
"""Between two marks in a partition; bridges that have seen one do without for 6 s."""
TICK_S: Final = 0.1
START_SPREAD_S: Final = 60.0
PASS_EVERY_S: Final = 6 * 3600.0
PASS_SPREAD_S: Final = 3600.0


class PublishedStore(Protocol):
    """What is published: the store of the Data Service."""

    cursor: Cursor | None

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint."""
        ...

    def keep_cursor(self, cursor: Cursor) -> None:
        """Remember, with one of the next commits, how far the log is."""
        ...


class LogReplaced(DiemError):
    """The topic is another one than before, or is gone: everything is sent again."""


@dataclass(slots=True)
class Progress:
    """How far one log is; it outlives the connections to it."""

    source: str
    backlog: Backlog
    repeat: bool
    """Whether everything is to be sent again, spread over a minute: another process published here before."""
    stranger: bool
    """Whether the store has never published here, so that the log ought to be empty."""
    published: int = 0
    """Records written and acknowledged."""
    foreign: int = 0
    """Partitions that were sent again because of records that are not ours."""


class Publication:
    """One connection's worth of publishing. Every task of it ends with an exception, and all end then."""

    def __init__(self, store: PublishedStore, progress: Progress, log: Log, new: asyncio.Event) -> None:
        self._store = store
        self._progress = progress
        self._backlog = progress.backlog
        self._log = log
        self._new = new
        # Whether the last requests of an earlier connection were written is not known: the first look compares nothing.
        self._ledgers = [Ledger() for _ in self._backlog.lanes]
        self._wake = [asyncio.Event() for _ in self._backlog.lanes]
        self._to_mark: set[int] = set()
        self._logger = structlog.get_logger("publisher")

    async def run(self) -> None:
        """Publish until something is wrong.

        Raises:
            LogReplaced: start over with another log.
            KafkaError, KafkaUnavailable, OSError, TimeoutError: connect again.
        """
        for lane in self._backlog.lanes:
            lane.failed()
        # Before anything of ours: a record that comes from elsewhere after this is noticed.
        await self._compare()
        self._warn_of_strangers()
        work = [self._lane(number) for number in range(len(self._backlog.lanes))]
        work += [self._take_in(), self._mark(), self._check(), self._keep(), self._passes()]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _warn_of_strangers(self) -> None:
        if self._progress.stranger and any(ledger.next for ledger in self._ledgers):
            # What the log has and this store has not is never told to be gone: only its operator knows if it is.
            self._logger.warning(
                "the topic has records, and this store has never published to it: if the store was replaced, delete "
                "the topic, and it is made again from this store",
                topic=self._log.topic,
            )
        self._progress.stranger = False

    async def _lane(self, number: int) -> None:
        lane, wake, ledger = self._backlog.lanes[number], self._wake[number], self._ledgers[number]
        changes = self._store.changes
        while True:
            taken = lane.take(MAX_RECORDS)
            # What is current now: a repetition never brings an older update back.
            records = [(endpoint, change.value) for endpoint in taken if (change := changes.get(endpoint))]
            if number in self._to_mark and not lane.due:
                records.append((MARK_KEY, MARK))
            if not records:
                wake.clear()
                await wake.wait()
                continue
            base, count = await self._log.write(number, records)
            ledger.landed(base, count)
            written = {key for key, _ in records[:count]}
            lane.failed(endpoint for endpoint in taken if endpoint not in written)
            lane.landed()
            self._progress.published += len(written) - (MARK_KEY in written)
            if MARK_KEY in written:
                self._to_mark.discard(number)

    async def _take_in(self) -> None:
        while True:
            self._new.clear()
            while found := self._store.changes.after(self._backlog.read, MAX_CHANGES):
                self._wake_up(self._backlog.take_in(found))
                await asyncio.sleep(0)
            await self._new.wait()

    async def _mark(self) -> None:
        """Say in every partition that it has all that was accepted: what a bridge's beats stand on."""
        while True:
            self._to_mark |= set(range(len(self._wake)))
            self._wake_up(self._to_mark)
            await asyncio.sleep(MARK_EVERY_S)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            source = await self._log.source()
            if source != self._progress.source:
                raise LogReplaced("the topic is gone" if source is None else "the topic is another one")
            await self._compare()

    async def _compare(self) -> None:
        quiet = [number for number, lane in enumerate(self._backlog.lanes) if not lane.flying]
        before = {number: self._ledgers[number].next for number in quiet}
        for number, end in (await self._log.ends(quiet)).items():
            # What was written while the brokers were asked is compared the next time.
            if not self._backlog.lanes[number].flying and self._ledgers[number].next == before[number]:
                self._ledgers[number].ends(end)
        self._resend({number for number, ledger in enumerate(self._ledgers) if ledger.foreign})

    def _resend(self, partitions: set[int]) -> None:
        """Send all of some partitions again, once a look: somebody who keeps on writing there cannot keep us busy."""
        if not partitions:
            return
        self._progress.foreign += len(partitions)
        self._logger.warning("records that are not ours: sending partitions again", partitions=sorted(partitions))
        for number in partitions:
            self._ledgers[number].foreign = False
        self._wake_up(self._backlog.again(name for name in self._names() if self._backlog.home(name) in partitions))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            cursor = Cursor(self._progress.source, self._backlog.cursor)
            if cursor != self._store.cursor:
                self._store.keep_cursor(cursor)

    async def _passes(self) -> None:
        """Everything once more after a start, and every 6 h: a late request of a dead publisher does not stay last."""
        if self._progress.repeat:
            await self._pass(START_SPREAD_S)
            self._progress.repeat = False
        while True:
            await asyncio.sleep(PASS_EVERY_S * random.uniform(0.9, 1.1))  # noqa: S311  # jitter is no secret
            await self._pass(PASS_SPREAD_S)

    async def _pass(self, seconds: float) -> None:
        names = self._names()
        share = max(1, round(len(names) * TICK_S / seconds))
        for start in range(0, len(names), share):
            self._wake_up(self._backlog.again(names[start : start + share]))
            await asyncio.sleep(TICK_S)

    def _names(self) -> list[bytes]:
        return [change.endpoint for change in self._store.changes.after(0, len(self._store.changes))]

    def _wake_up(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._wake[partition].set()
