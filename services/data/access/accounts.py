"""Remaining quotas: of keys, with daily units reserved in the store; of users and addresses, in memory."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import structlog

from diem.process.clock import Clock
from diem.process.tasks import on_failure
from services.data.access.keys import ApiKeys, Key, KeyState
from services.data.access.plans import AccessPlan, RequestLimits
from services.data.access.quota import REASONS, Quota, QuotaOutcome, QuotaReason, day_of
from services.data.access.records import Units
from services.data.errors import StoreUnavailable

MAX_BATCH: Final = 200
"""Maximum number of keys per transaction: all need units when a day begins, and must not delay writes of data."""
Commit = Callable[[Sequence[Units]], Awaitable[list[int]]]
"""Adds to the counts, all or none; returns the totals once committed. Raises StoreUnavailable."""


class UsageTracker:
    """Adds to the day's counts in the store, many keys in one transaction. Bounded: one waiting request per key."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._waiting: list[tuple[Units, asyncio.Future[int]]] = []
        self._work: asyncio.Task[None] | None = None
        self.commits = 0

    async def add(self, key_id: str, day: int, units: int) -> int:
        """Add to the count of a key on a day; return the total. 0 units only query.

        Raises:
            StoreUnavailable: the store cannot commit now; the units may be lost.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((Units(key_id, day, units), answer))
        if self._work is None:
            self._work = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._settle(batch)
        finally:
            self._work = None

    async def _settle(self, batch: list[tuple[Units, "asyncio.Future[int]"]]) -> None:
        try:
            totals = await self._commit([wanted for wanted, _ in batch])
        except Exception as error:  # noqa: BLE001  # raised by every waiting request
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        self.commits += 1
        for (_, answer), total in zip(batch, totals, strict=True):
            if not answer.done():
                answer.set_result(total)


MAX_IN_MEMORY: Final = 10_000
"""Maximum number of counted addresses, and of users; the least recently used is evicted, and restarts at zero."""


class MemoryAccounts:
    """In-memory quotas of readers not in the store: anonymous addresses, and users of API keys."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quotas: OrderedDict[str, Quota] = OrderedDict()

    def quota(self, name: str, limits: RequestLimits) -> Quota:
        """Return the quota of a reader, with units for today."""
        quota = self._quotas.get(name)
        if quota is None:
            quota = self._quotas[name] = Quota(limits)
            if len(self._quotas) > MAX_IN_MEMORY:
                self._quotas.popitem(last=False)
        else:
            self._quotas.move_to_end(name)
        day = day_of(self._clock.wall_ms())
        if quota.day != day:
            # Not shared with other processes: the whole day is granted at once.
            quota.grant(day, quota.whole, quota.whole)
        return quota

    def acquire(self, name: str, limits: RequestLimits) -> tuple[QuotaOutcome, Quota]:
        """Acquire one unit of a reader; return the outcome, which is never RESERVE, and the quota."""
        quota = self.quota(name, limits)
        return quota.acquire(self._clock.monotonic(), day_of(self._clock.wall_ms())), quota


_logger = structlog.get_logger(__name__)


def state_reason(key: Key | None, now_ms: int) -> QuotaReason | None:
    """Return the reason why a key is refused for any request; None if it is valid at ``now_ms``."""
    if key is None:
        return QuotaReason.UNKNOWN
    state = key.state(now_ms)
    return None if state is KeyState.VALID else QuotaReason(state.value)


class _Account:
    """A key's quota, its pending reservation, and the number of requests waiting for it."""

    __slots__ = ("pending", "quota", "waiting")

    def __init__(self, plan: AccessPlan) -> None:
        self.quota = Quota(plan)
        self.pending: asyncio.Task[None] | None = None
        self.waiting = 0


class Charged(NamedTuple):
    """State of a key after charging it for its clients."""

    used_up: bool
    """True if a limit of its plan is reached."""
    lease: int | None
    """Units that the process may hand out; None: unlimited."""


class KeyAccounts:
    """Quotas of the keys in use; bounded by the number of keys.

    Args:
        usage_tracker: reserves units in the store.
        api_keys: of the valid keys.
        clock: of minutes and days.
    """

    def __init__(self, usage_tracker: UsageTracker, api_keys: ApiKeys, clock: Clock) -> None:
        self._usage_tracker = usage_tracker
        self._api_keys = api_keys
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._closed = False

    def quota(self, key: Key, plan: AccessPlan) -> Quota:
        """Return the quota of a key."""
        return self._account(key, plan).quota

    def forget(self, key_id: str) -> None:
        """Drop a revoked key."""
        self._accounts.pop(key_id, None)

    async def acquire(self, key: Key, plan: AccessPlan) -> QuotaReason:
        """Acquire one unit, waiting for a reservation if needed; refused if the key became invalid meanwhile."""
        account = self._account(key, plan)
        while True:
            day = self._today
            outcome = account.quota.acquire(self._clock.monotonic(), day)
            if outcome is not QuotaOutcome.RESERVE:
                break
            try:
                account.waiting += 1
                await asyncio.shield(self._reserving(key, plan, account, day))
            except StoreUnavailable:
                return QuotaReason.UNAVAILABLE
            finally:
                account.waiting -= 1
            reason = state_reason(self._api_keys.get(key.id), self._clock.wall_ms())
            if reason is not None:
                return reason
        if account.quota.is_low(day) and account.pending is None:
            self._reserving(key, plan, account, day)
        return REASONS[outcome]

    async def charge(self, key: Key, plan: AccessPlan, units: int, process: str, wanted: int) -> "Charged":
        """Charge a key for units consumed by its clients at a process, and renew that process's lease.

        Raises:
            StoreUnavailable: the store cannot commit now; nothing was charged.
        """
        quota, day = self._account(key, plan).quota, self._today
        missing = quota.missing(day, units)
        # 0 units only query the total, which is unknown before the first request of the day.
        total = await self._usage_tracker.add(key.id, day, missing) if missing or quota.day != day else None
        now = self._clock.monotonic()
        # Units of a lease are counted at its end, later than they were sent: so no minute exceeds its limit.
        quota.lease(process, now, day, 0)
        if units or total is not None:
            quota.charge(now, day, units, missing=missing, total=total)
        return Charged(quota.left(now, day) == 0, quota.lease(process, now, day, wanted))

    async def used(self, key: Key) -> int:
        """Return today's units, handed out or lost with a killed process.

        Raises:
            StoreUnavailable: the number is not in memory, and the store cannot be read.
        """
        account, day = self._accounts.get(key.id), self._today
        used = account.quota.used(day) if account is not None else None
        return await self._usage_tracker.add(key.id, day, 0) if used is None else used

    async def close(self) -> None:
        """Release unused reservations; requests that need one are refused from now on."""
        self._closed = True
        pending = [account.pending for account in self._accounts.values() if account.pending is not None]
        await asyncio.gather(*pending, return_exceptions=True)
        left = [(key_id, *account.quota.release()) for key_id, account in self._accounts.items()]
        given = [self._usage_tracker.add(key_id, day, -units) for key_id, day, units in left if units]
        ended = await asyncio.gather(*given, return_exceptions=True)
        for failed in {str(each) for each in ended if isinstance(each, BaseException)}:
            _logger.warning("unused units of API keys are lost", error=failed)

    def _account(self, key: Key, plan: AccessPlan) -> _Account:
        account = self._accounts.get(key.id)
        if account is None:
            account = self._accounts[key.id] = _Account(plan)
        return account

    def _reserving(self, key: Key, plan: AccessPlan, account: _Account, day: int) -> "asyncio.Task[None]":
        if account.pending is None:
            account.pending = asyncio.create_task(self._reserve(key, plan, account, day))
            account.pending.add_done_callback(on_failure(_log_failure))
        return account.pending

    async def _reserve(self, key: Key, plan: AccessPlan, account: _Account, day: int) -> None:
        units = account.quota.block(account.waiting)
        try:
            if self._closed:
                raise StoreUnavailable("the service is stopping")
            account.quota.grant(day, units, await self._usage_tracker.add(key.id, day, units))
        except StoreUnavailable:
            if plan.per_day is not None:
                raise
            account.quota.lend(day, units)
        finally:
            account.pending = None

    @property
    def _today(self) -> int:
        return day_of(self._clock.wall_ms())


def _log_failure(error: BaseException) -> None:
    # No request waits for an advance reservation.
    _logger.debug("units could not be reserved", error=str(error))
