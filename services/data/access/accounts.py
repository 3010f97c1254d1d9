"""Remaining quota of each key, and the reservations of daily units that are being stored."""

import asyncio

import structlog

from diem.process.clock import Clock
from services.data.access.keys import Key, Keyring
from services.data.access.ledger import UsageLedger
from services.data.access.plans import AccessPlan
from services.data.access.quota import Quota, QuotaOutcome, day_of
from services.data.access.verdict import REASONS, QuotaReason
from services.data.errors import StoreUnavailable

_logger = structlog.get_logger(__name__)


class _Account:
    """A key's quota, and the reservation that is on its way to the store."""

    __slots__ = ("pending", "quota", "waiting")

    def __init__(self, plan: AccessPlan) -> None:
        self.quota = Quota(plan)
        self.pending: asyncio.Task[None] | None = None
        self.waiting = 0


class KeyAccounts:
    """Of keys that were used; as many as there are keys at most.

    Args:
        ledger: reserves units in the store.
        ring: says whether a key is still good.
        clock: says when a minute and a day are over.
    """

    def __init__(self, ledger: UsageLedger, ring: Keyring, clock: Clock) -> None:
        self._ledger = ledger
        self._ring = ring
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._closed = False

    def quota(self, key: Key, plan: AccessPlan) -> Quota:
        """The quota of a key."""
        return self._account(key, plan).quota

    def forget(self, key_id: str) -> None:
        """A key is of no use any more."""
        self._accounts.pop(key_id, None)

    async def take(self, key: Key, plan: AccessPlan) -> QuotaReason:
        """Take one unit; waits for the store where none is reserved. `UNKNOWN`: it was revoked meanwhile."""
        account = self._account(key, plan)
        while True:
            day = self._today
            outcome = account.quota.take(self._clock.monotonic(), day)
            if outcome is not QuotaOutcome.RESERVE:
                break
            try:
                account.waiting += 1
                await asyncio.shield(self._reserving(key, plan, account, day))
            except StoreUnavailable:
                return QuotaReason.UNAVAILABLE
            finally:
                account.waiting -= 1
            if (now := self._ring.get(key.id)) is None or now.revoked_ms is not None:
                return QuotaReason.UNKNOWN
        if account.quota.is_low(day) and account.pending is None:
            self._reserving(key, plan, account, day)
        return REASONS[outcome]

    async def used(self, key: Key) -> int:
        """Units of today that were handed out, or lost with a process that was killed.

        Raises:
            StoreUnavailable: that is not known, and the store cannot be asked.
        """
        account, day = self._accounts.get(key.id), self._today
        used = account.quota.used(day) if account is not None else None
        return await self._ledger.add(key.id, day, 0) if used is None else used

    async def close(self) -> None:
        """Give back what was reserved and not used; no request is admitted any more that needs a reservation."""
        self._closed = True
        pending = [account.pending for account in self._accounts.values() if account.pending is not None]
        await asyncio.gather(*pending, return_exceptions=True)
        left = [(key_id, *account.quota.give_back()) for key_id, account in self._accounts.items()]
        given = [self._ledger.add(key_id, day, -units) for key_id, day, units in left if units]
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
            account.pending.add_done_callback(_heard)
        return account.pending

    async def _reserve(self, key: Key, plan: AccessPlan, account: _Account, day: int) -> None:
        units = account.quota.block(account.waiting)
        try:
            if self._closed:
                raise StoreUnavailable("the service is stopping")
            account.quota.granted(day, units, await self._ledger.add(key.id, day, units))
        except StoreUnavailable:
            if plan.per_day is not None:
                raise
            account.quota.lent(day, units)
        finally:
            account.pending = None

    @property
    def _today(self) -> int:
        return day_of(self._clock.wall_ms())


def _heard(reservation: "asyncio.Task[None]") -> None:
    # One that was made ahead has nobody who waits for it.
    if not reservation.cancelled() and (error := reservation.exception()) is not None:
        _logger.debug("units could not be reserved", error=str(error))
