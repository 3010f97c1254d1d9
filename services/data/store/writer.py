"""The only writer of the store: queues writes up to bounds, commits them in groups, and answers each."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from diem.process.clock import Clock
from diem.protocol.endpoints import is_collection
from services.data.errors import StoreInUse, StoreUnavailable, WrongClock
from services.data.kinds import Representation
from services.data.large import collector_paused
from services.data.limits import WriterLimits
from services.data.store import transaction
from services.data.store.database import ERRORS, Database, reason
from services.data.store.group import Group, StoredRows
from services.data.store.index import EndpointHead, StoreIndex
from services.data.store.retention import Retention
from services.data.store.retention_clock import RetentionClock, SteadyClock
from services.data.store.tables import Cursor, write_cursor
from services.data.store.traced_writes import WriteTracer
from services.data.store.write_plan import Accepted, Basis, Deletion, IdempotencyKey, Write, WritePlan, check_time, plan

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MAX_GROUP: Final = 400
"""Maximum number of endpoints per transaction: enough to share a commit, few enough to stay short."""
MAX_PATCHES: Final = 8
"""Maximum number of patches in a transaction of several writes: each reads and makes a whole content, in a tenth of a
second for 4 MiB."""
RETRY_AFTER_S: Final = 2
ROOM_AFTER_S: Final = 0.01
"""Time until another attempt to queue a write for which there was no room."""
CHECK_EVERY_S: Final = 2.0
"""Interval at which an idle writer checks that the database is reachable and owned by this process."""

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class PendingWrite:
    """A queued write and the future of its answer."""

    write: Write
    size: int
    answer: asyncio.Future[list[Accepted]]
    span: "Span | None" = None
    """Of a traced write."""

    def settle(self, outcome: list[Accepted] | Exception) -> None:
        """Answer the write, unless its client has disconnected."""
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class WriteQueue:
    """Queued writes by owner; the owners take turns, so that none waits for all writes of another."""

    def __init__(self) -> None:
        self.bytes = 0
        """Total size of the contents."""
        self._count = 0
        self._of: dict[str, deque[PendingWrite]] = {}
        """Writes by owner; the first owner is the next."""

    def __len__(self) -> int:
        return self._count

    def count_of(self, owner: str) -> int:
        """Return the number of writes of one owner."""
        return len(self._of.get(owner, ()))

    def append(self, pending: PendingWrite) -> None:
        """Queue a write behind its owner's others."""
        self._of.setdefault(pending.write.owner, deque()).append(pending)
        self._count += 1
        self.bytes += pending.size

    @property
    def next(self) -> PendingWrite | None:
        """The write that :meth:`pop` returns next; None if there is none."""
        return next(iter(self._of.values()))[0] if self._of else None

    def pop(self) -> PendingWrite:
        """Remove the oldest write of the owner whose turn it is."""
        owner = next(iter(self._of))
        queue = self._of.pop(owner)
        pending = queue.popleft()
        if queue:
            self._of[owner] = queue
        self._count -= 1
        self.bytes -= pending.size
        return pending


@dataclass(slots=True)
class WriterCounts:
    """Totals since the start."""

    commits: int = 0
    changes: int = 0
    unchanged: int = 0
    failures: int = 0


class CommitObserver(Protocol):
    """Called with every committed plan, after the index has applied it."""

    def committed(self, planned: WritePlan) -> None:
        """Update state that depends on committed rows. Must not block or raise."""
        ...


class Writer:
    """Queues writes with :meth:`submit`, commits them in :meth:`run`; nothing else writes endpoints to the store.

    When the store cannot commit, all waiting writes are refused with :class:`StoreUnavailable`, and not stored. The
    writer then probes the store once a second, so that writes succeed again as soon as disk or lock allows.

    Args:
        database: owned by this process.
        index: applies every commit first, sending it to feed readers.
        clock: the time of acceptance.
        limits: bounds of queue and store.
        ages: clock for the ages of retained data.
        retention: deletes old versions in the same transactions.
        observers: called after every commit, in order.
    """

    def __init__(
        self,
        database: Database,
        index: StoreIndex,
        clock: Clock,
        limits: WriterLimits,
        *,
        ages: RetentionClock,
        retention: Retention,
        observers: Sequence[CommitObserver] = (),
    ) -> None:
        self.counts = WriterCounts()
        self.tracer: WriteTracer | None = None
        """None: no write is traced."""
        self.failure: str | None = None
        """Why the store cannot commit now; None when it can."""
        self._database = database
        self._index = index
        self._clock = clock
        self._limits = limits
        self._ages = ages
        self._steady = SteadyClock(clock, ages.reached_ms())
        self._retention = retention
        self._observers = (retention, *observers)
        self._queue = WriteQueue()
        self.in_progress = 0
        """Writes that wait for their commit."""
        self._group: list[PendingWrite] = []
        """The writes of the current transaction, or of the last one."""
        self._cursor: Cursor | None = None
        self._wake = asyncio.Event()
        self._closing = False

    def __len__(self) -> int:
        """Return the number of queued writes."""
        return len(self._queue)

    async def put(
        self, representations: Sequence[Representation], *, source: str = "", key: IdempotencyKey | None = None
    ) -> list[Accepted]:
        """Store representations, all or none; return one answer for each, once they are committed.

        An endpoint with unchanged content keeps its version (``changed`` is false).

        Raises:
            WrongKind, WrongUnit, IdempotencyKeyReused, TooManyEndpoints: the write was refused.
            StoreUnavailable: the store cannot commit now; nothing was stored.
        """
        return await self.submit(Write(representations, source, key=key))

    async def delete(self, endpoint: str, *, key: IdempotencyKey | None = None) -> Accepted:
        """Delete an endpoint; the deletion is a change with its own version.

        Raises:
            UnknownEndpoint, EndpointDeleted: the endpoint does not exist.
            IdempotencyKeyReused, StoreUnavailable: as :meth:`put`.
        """
        (accepted,) = await self.submit(Write([Deletion(endpoint)], key=key))
        return accepted

    async def submit(self, write: Write) -> list[Accepted]:
        """Queue a write and wait for its commit.

        Raises:
            DataError: the write was refused; nothing of it is stored.
            StoreUnavailable: too many writes are queued, or the store cannot commit.
        """
        answer = self.enqueue(write)
        self.in_progress += 1
        try:
            return await answer
        finally:
            self.in_progress -= 1

    def enqueue(self, write: Write) -> asyncio.Future[list[Accepted]]:
        """Queue a write; return its answer to come, with the outcome of :meth:`submit`.

        Raises:
            StoreUnavailable: too many writes of its owner are queued, too many bytes of all, or the service stops.
        """
        if self._closing:
            raise StoreUnavailable("the service is stopping", RETRY_AFTER_S)
        size = sum([each.size for each in write.changes])
        full = self._queue.count_of(write.owner) >= self._limits.queued_requests
        if full or self._queue.bytes + size > self._limits.queued_bytes:
            raise StoreUnavailable("too many writes are waiting", 1)
        span = None if self.tracer is None else self.tracer.begin(write)
        pending = PendingWrite(write, size, asyncio.get_running_loop().create_future(), span)
        self._queue.append(pending)
        self._wake.set()
        return pending.answer

    async def queue(self, write: Write) -> asyncio.Future[list[Accepted]]:
        """Queue a write once there is room, after others of its owner; return its answer to come.

        Raises:
            StoreUnavailable: the store cannot commit now, or the service stops.
        """
        while True:
            try:
                return self.enqueue(write)
            except StoreUnavailable:
                if self.failure is not None or self._closing:
                    raise
                await asyncio.sleep(ROOM_AFTER_S)

    async def run(self) -> None:
        """Commit until :meth:`close`; writes queued by then are still committed.

        Raises:
            StoreInUse: another process owns the database now, or it was replaced (``StoreReplaced``). No more writes
                are committed or accepted.
        """
        try:
            await self._run()
        except StoreInUse as error:
            self._closing, self.failure = True, str(error)
            self._refuse_all(StoreUnavailable(str(error), RETRY_AFTER_S))
            raise

    async def _run(self) -> None:
        while self._queue or not self._closing or (self._cursor is not None and self.failure is None):
            self._group = group = self._next_group()
            try:
                if group:
                    await self._commit(group)
                else:
                    await self._maintain()
            except StoreInUse:
                raise
            except (*ERRORS, WrongClock) as error:
                refusal = self._fail(error)
                if group:
                    # Writes queued meanwhile waited for the same disk or lock.
                    self._refuse_all(refusal)
            except Exception as error:
                if not group:
                    raise
                _logger.exception("writes failed")
                for pending in group:
                    pending.settle(error)

    async def _maintain(self) -> None:
        """While no write is queued: commit the cursor, else wait for writes and probe or check the database."""
        if self._cursor is not None and self.failure is None:
            await self._commit_cursor(self._cursor)
        elif self.failure is not None:
            await self._wait(self._limits.probe_every_s)
            if not self._queue and not self._closing:
                await self._probe()
        else:
            await self._wait(self._idle_s())
            if not self._queue and not self._closing and self._cursor is None:
                self._now_ms()
                await self._database.check()
                await self._forget()

    def keep_cursor(self, cursor: Cursor) -> None:
        """Write the publisher's cursor with the next group, or alone if there is none."""
        self._cursor = cursor
        self._wake.set()

    @property
    def is_closing(self) -> bool:
        """True after :meth:`close`."""
        return self._closing

    def close(self) -> None:
        """Accept no more writes and let :meth:`run` end."""
        self._closing = True
        self._wake.set()

    def _next_group(self) -> list[PendingWrite]:
        """Dequeue the writes that share the next transaction: of each owner in turn, first in, first out."""
        group: list[PendingWrite] = []
        room, patches = MAX_GROUP, 0
        while (next_ := self._queue.next) is not None and (not group or len(next_.write.changes) <= room):
            patches += len(next_.write.patched)
            if group and patches > MAX_PATCHES:
                break
            pending = self._queue.pop()
            if pending.answer.done():
                continue  # its client has disconnected
            room -= len(pending.write.changes)
            group.append(pending)
        if self.failure is None and self._index.next_expiry_ms is not None:
            group += [_expiry(head) for head in self._index.due(self._steady.now_ms(), max(1, room))]
        return group

    def _refuse_all(self, refusal: StoreUnavailable) -> None:
        """Refuse the writes of the current transaction and those queued."""
        for pending in self._group:
            pending.settle(refusal)
        while self._queue:
            self._queue.pop().settle(refusal)

    async def _wait(self, seconds: float) -> None:
        if self._queue or self._closing or (self._cursor is not None and self.failure is None):
            return
        self._wake.clear()
        # Without a timeout's machinery: this wait is in the way of every single write.
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _commit(self, group: list[PendingWrite]) -> None:
        """Commit a group in one transaction, apply it to the index, call the observers, and answer each write.

        Raises:
            StoreInUse, SQLAlchemyError, OSError: the transaction failed; nothing is answered yet.
            WrongClock: nothing is committed under such a clock.
        """
        now_ms, start_ns = self._now_ms(), 0 if self.tracer is None else time.time_ns()
        await self._forget()
        writes, cursor, steady_ms = [pending.write for pending in group], self._cursor, self._steady.now_ms()
        deletions = self._retention.deletions(self._ages.now_ms())
        bound = any(write.bound is not None for write in writes)
        names = (self._index.names, self._index.collection_names) if bound else ((), ())
        planned = await self._database.commit(
            Group(
                known=self._index.changes.sequence,
                keys=sorted({write.key.key for write in writes if write.key is not None}),
                patched=sorted({endpoint for write in writes for endpoint in write.patched}),
                sources=sorted({write.source for write in writes if write.checkpoint is not None}),
                decide=lambda state: self._decide(writes, state, now_ms, steady_ms, names),
                retention_ms=self._ages.reached_ms(),
                deletions=deletions,
                history=self._limits.history.old > 0,
                cursor=cursor,
            )
        )
        if planned.has_rows:
            self.counts.commits += 1
            self._cursor_written(cursor)
            self._retention.deleted(deletions)
            self._recover()
        self._apply_forgotten(planned.forgotten)
        if self.tracer is not None:
            spans = (pending.span for pending in group)
            self.tracer.committed(zip(spans, planned.outcomes, strict=True), start_ns)
        heads = sorted(planned.heads.values(), key=lambda head: head.sequence)
        self.counts.changes += self._index.apply([*planned.missed, *heads], planned.contents)
        self.counts.unchanged += planned.unchanged
        for observer in self._observers:
            observer.committed(planned)
        for pending, outcome in zip(group, planned.outcomes, strict=True):
            pending.settle(outcome)

    def _decide(
        self,
        writes: Sequence[Write],
        state: StoredRows,
        now_ms: int,
        steady_ms: int,
        names: tuple[Sequence[str], Sequence[str]],
    ) -> WritePlan:
        """Plan a group; called in the database's thread, while nothing changes the index."""
        index, counter = self._index, state.counter
        heads, changes = index.with_changes(state.missed, counter.forgotten)
        collections = index.collections if heads is index.heads else sum(map(is_collection, heads))
        basis = Basis(
            heads=heads,
            replies=state.replies,
            sequence=counter.sequence,
            count=len(heads) - collections,
            max_endpoints=self._limits.max_endpoints,
            now_ms=now_ms,
            steady_ms=steady_ms,
            contents=state.contents,
            checkpoints=state.checkpoints,
            count_of=lambda collection: index.count_of(collection) + changes[collection],
            floor=counter.floor,
            collections=collections,
            names=names[0],
            collection_names=names[1],
        )
        # Patches parse large contents.
        with collector_paused() if state.contents else nullcontext():
            planned = plan(writes, basis)
        planned.missed, planned.forgotten = state.missed, counter.forgotten
        return planned

    async def _forget(self) -> None:
        """Forget due deleted endpoints, in transactions before the writes that need their room."""
        while due := self._retention.forgettable(self._index.gone.values(), self._ages.now_ms()):
            async with self._database.writing() as connection:
                forgotten = await transaction.forget(connection, due, known=self._index.changes.sequence)
                if (cursor := self._cursor) is not None:
                    # It has what the log forgets, which the next publisher must know.
                    await write_cursor(connection, cursor)
                await connection.commit()
            self._cursor_written(cursor)
            self._apply_forgotten(forgotten)

    def _apply_forgotten(self, upto: int) -> None:
        self._retention.forgotten(self._index.forget(upto))

    async def _commit_cursor(self, cursor: Cursor) -> None:
        async with self._database.writing() as connection:
            await write_cursor(connection, cursor)
            await connection.commit()
        self._cursor_written(cursor)

    def _cursor_written(self, cursor: Cursor | None) -> None:
        # A later cursor may have arrived meanwhile.
        if self._cursor is cursor:
            self._cursor = None

    def _idle_s(self) -> float:
        """Return the time until the next check or expiry, in seconds."""
        expiry_ms = self._index.next_expiry_ms
        left_ms = CHECK_EVERY_S * 1000 if expiry_ms is None else expiry_ms - self._steady.now_ms()
        return min(CHECK_EVERY_S, max(0.001, left_ms / 1000))

    def _now_ms(self) -> int:
        """Return the time of acceptance; raises WrongClock."""
        now_ms = self._clock.wall_ms()
        check_time(now_ms)
        return now_ms

    async def _probe(self) -> None:
        self._now_ms()
        async with self._database.writing() as connection:
            missed, forgotten = await transaction.probe(connection, self._index.changes.sequence)
            await connection.commit()
        self._recover()
        self._apply_forgotten(forgotten)
        self._index.apply(missed)

    def _recover(self) -> None:
        if self.failure is not None:
            _logger.info("the store commits again", failed_before=self.failure)
            self.failure = None

    def _fail(self, error: Exception) -> StoreUnavailable:
        self.counts.failures += 1
        failure = reason(error)
        if failure != self.failure:
            _logger.error("the store cannot commit", reason=failure)
            self.failure = failure
        return StoreUnavailable(f"the store cannot commit now: {failure}; nothing was stored", RETRY_AFTER_S)


def _expiry(head: EndpointHead) -> PendingWrite:
    answer: asyncio.Future[list[Accepted]] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda done: done.exception())  # nobody waits for it
    return PendingWrite(Write([Deletion(head.endpoint, expired=True)]), 0, answer)
