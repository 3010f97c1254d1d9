"""Remaining quota of readers without a key, by address."""

from collections import OrderedDict
from typing import Final

from diem.process.clock import Clock
from diem.process.limits import address_key
from services.data.access.plans import AccessPlan
from services.data.access.quota import Quota, QuotaOutcome, day_of
from services.data.access.verdict import REASONS, QuotaReason

MAX_ADDRESSES: Final = 10_000
"""That are counted; beyond, the one that has been silent longest begins anew."""


class Addresses:
    """Their quotas, in memory alone: an address is not for the store to keep."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quotas: OrderedDict[str, Quota] = OrderedDict()

    def take(self, plan: AccessPlan, address: str) -> tuple[QuotaReason, Quota]:
        """Take one unit of an address; returns how that went, and what its quota is."""
        which = address_key(address)
        quota = self._quotas.get(which)
        if quota is None:
            quota = self._quotas[which] = Quota(plan)
            if len(self._quotas) > MAX_ADDRESSES:
                self._quotas.popitem(last=False)
        else:
            self._quotas.move_to_end(which)
        now, day = self._clock.monotonic(), day_of(self._clock.wall_ms())
        outcome = quota.take(now, day)
        if outcome is QuotaOutcome.RESERVE:
            # Nobody has to be asked: the whole day is here.
            quota.granted(day, quota.whole, quota.whole)
            outcome = quota.take(now, day)
        return REASONS[outcome], quota
