"""The one writer: queue requests up to a bound, commit them in groups, and answer each."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from diem.process.clock import Clock
from services.data.errors import DataError, StoreInUse, StoreUnavailable
from services.data.store import transaction
from services.data.store.database import ERRORS, Database, reason
from services.data.store.index import StoreIndex
from services.data.store.retention import HistoryLimits, Retention, RetentionTask
from services.data.store.tables import Cursor, keep_cursor
from services.data.store.write_plan import Accepted, Write, WritePlan

MAX_GROUP: Final = 400
"""Endpoints in one transaction: enough to share a commit, few enough that it does not take long."""


@dataclass(slots=True)
class PendingWrite:
    """A write, and who waits for its answer."""

    write: Write
    size: int
    answer: asyncio.Future[list[Accepted]]

    def settle(self, outcome: list[Accepted] | DataError) -> None:
        """Answer it, unless its client has gone away meanwhile."""
        if self.answer.done():
            return
        if isinstance(outcome, DataError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class WriteQueue:
    """First in, first out."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._waiting: deque[PendingWrite] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, write: Write) -> PendingWrite:
        """Let a write wait; raises StoreUnavailable when too many do."""
        size = sum(len(dataset.content) for dataset in write.datasets)
        full = len(self._waiting) >= self._max_requests
        if full or self._bytes + size > self._max_bytes:
            raise StoreUnavailable("too many writes are waiting", 1)
        waiting = PendingWrite(write, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._bytes += size
        return waiting

    def group(self) -> list[PendingWrite]:
        """Take those that share the next transaction."""
        group: list[PendingWrite] = []
        room = MAX_GROUP
        while self._waiting and (not group or len(self._waiting[0].write.endpoints) <= room):
            waiting = self._waiting.popleft()
            self._bytes -= waiting.size
            if waiting.answer.done():
                continue  # its client has gone away before anything was done
            room -= len(waiting.write.endpoints)
            group.append(waiting)
        return group

    def drain(self) -> list[PendingWrite]:
        """Take all."""
        drained, self._waiting, self._bytes = list(self._waiting), deque(), 0
        return drained


RETRY_AFTER_S: Final = 2
LOOK_EVERY_S: Final = 2.0
"""Between two looks of a writer with nothing to do whether the database is still there and its own."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class WriterCounts:
    """What the writer has done so far."""

    commits: int = 0
    changes: int = 0
    unchanged: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """The bounds of the queue (beyond them: 503) and of what the store holds."""

    queued_requests: int = 256
    queued_bytes: int = 32 * 1024 * 1024
    max_endpoints: int = 50_000
    max_keys: int = 20_000
    probe_every_s: float = 1.0
    history: HistoryLimits = field(default_factory=HistoryLimits)


@dataclass(slots=True)
class Writer:
    """Requests go in through :meth:`submit`, :meth:`run` commits them; nothing else writes to the store.

    When the store cannot commit, every waiting request gets :class:`StoreUnavailable` and nothing of any is stored. The
    writer then tries again once a second by itself, so that the store is back when its disk or lock is.
    """

    database: Database
    state: StoreIndex
    clock: Clock
    limits: WriterLimits
    committed: Callable[[WritePlan], None]
    retention: Retention
    counts: WriterCounts = field(default_factory=WriterCounts)
    failure: str | None = None
    _cursor: Cursor | None = None
    _queue: WriteQueue = field(init=False)
    _upkeep: RetentionTask = field(init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False

    def __post_init__(self) -> None:
        limits = self.limits
        self._queue = WriteQueue(limits.queued_requests, limits.queued_bytes)
        self._upkeep = RetentionTask(limits.history, limits.max_keys, self.retention)

    def __len__(self) -> int:
        return len(self._queue)

    async def submit(self, write: Write) -> list[Accepted]:
        """Queue a request and wait for its commit.

        Raises:
            DataError: it was refused; nothing of it is stored.
            StoreUnavailable: too many wait, or the store cannot commit.
        """
        if self._closing:
            raise StoreUnavailable("the service is stopping", RETRY_AFTER_S)
        waiting = self._queue.add(write)
        self._wake.set()
        return await waiting.answer

    async def run(self) -> None:
        """Commit until :meth:`close`; what is queued by then is still committed.

        Raises:
            StoreInUse: another process has the database now, or it was replaced (``StoreReplaced``). Nothing more is
                committed, and nothing more is taken.
        """
        try:
            await self._run()
        except StoreInUse as error:
            self._closing, self.failure = True, str(error)
            for waiting in self._queue.drain():
                waiting.settle(StoreUnavailable(str(error), RETRY_AFTER_S))
            raise

    async def _run(self) -> None:
        while self._queue or not self._closing or (self._cursor is not None and self.failure is None):
            group = self._queue.group()
            if group:
                await self._commit(group)
            elif self._cursor is not None and self.failure is None:
                await self._write_cursor(self._cursor)
            elif self.failure is not None:
                await self._wait(self.limits.probe_every_s)
                if not self._queue and not self._closing:
                    await self._probe()
            elif await self._idle():
                await self._look()

    def keep_cursor(self, cursor: Cursor) -> None:
        """Write the publisher's cursor with the next group, or by itself when there is none."""
        self._cursor = cursor
        self._wake.set()

    def close(self) -> None:
        """Take no more requests and let :meth:`run` end."""
        self._closing = True
        self._wake.set()

    async def _idle(self) -> bool:
        """Wait for something to do; whether there is still nothing, and it is time to look after the database."""
        await self._wait(LOOK_EVERY_S)
        return not self._queue and not self._closing and self._cursor is None

    async def _wait(self, seconds: float | None) -> None:
        if self._queue or self._closing or (self._cursor is not None and self.failure is None):
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _commit(self, group: list[PendingWrite]) -> None:
        try:
            planned = await self._transact([waiting.write for waiting in group])
        except StoreInUse as error:
            for waiting in group:
                waiting.settle(StoreUnavailable(str(error), RETRY_AFTER_S))
            raise
        except ERRORS as error:
            refusal = self._failed(error)
            # Whoever came meanwhile has waited as long for the same disk or lock.
            for waiting in (*group, *self._queue.drain()):
                waiting.settle(refusal)
        except Exception as error:
            _logger.exception("writes failed")
            for waiting in group:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
        else:
            for waiting, outcome in zip(group, planned.outcomes, strict=True):
                waiting.settle(outcome)

    async def _transact(self, writes: list[Write]) -> WritePlan:
        now_ms = self.clock.wall_ms()
        async with self.database.writing() as connection:
            planned, missed = await transaction.execute(
                connection,
                writes,
                known=self.state.changes.sequence,
                count=len(self.state.heads),
                max_endpoints=self.limits.max_endpoints,
                now_ms=now_ms,
                history=self.limits.history.old > 0,
            )
            pruned = await self._upkeep.work(connection, planned, now_ms)
            if planned.heads or planned.requests:
                kept = self._cursor
                if kept is not None:
                    await keep_cursor(connection, kept)
                await connection.commit()
                self.counts.commits += 1
                self._kept(kept)
        if planned.heads or planned.requests:
            self._works()
        self._upkeep.committed(planned, pruned, missed)
        self.committed(planned)
        heads = sorted(planned.heads.values(), key=lambda head: head.sequence)
        self.counts.changes += self.state.apply([*missed, *heads])
        self.counts.unchanged += planned.unchanged
        return planned

    async def _write_cursor(self, kept: Cursor) -> None:
        try:
            async with self.database.writing() as connection:
                await keep_cursor(connection, kept)
                await connection.commit()
        except ERRORS as error:
            self._failed(error)
        else:
            self._kept(kept)

    def _kept(self, cursor: Cursor | None) -> None:
        # A later one may have come meanwhile.
        if self._cursor is cursor:
            self._cursor = None

    async def _look(self) -> None:
        """Whether the database is still there, and still ours."""
        try:
            await self.database.look()
        except ERRORS as error:
            self._failed(error)

    async def _probe(self) -> None:
        try:
            async with self.database.writing() as connection:
                missed = await transaction.probe(connection, self.state.changes.sequence)
                await connection.commit()
        except ERRORS as error:
            self._failed(error)
        else:
            self._works()
            self.state.apply(missed)

    def _works(self) -> None:
        if self.failure is not None:
            _logger.info("the store commits again", failed_before=self.failure)
            self.failure = None

    def _failed(self, error: Exception) -> StoreUnavailable:
        self.counts.failures += 1
        said = reason(error)
        if said != self.failure:
            _logger.error("the store cannot commit", reason=said)
            self.failure = said
        return StoreUnavailable(f"the store cannot commit now: {said}; nothing was stored", RETRY_AFTER_S)
