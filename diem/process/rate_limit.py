"""The plan of anonymous readers: requests per address, in the long run and at once."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from diem.process.limits import TokenBucket, address_key
from diem.process.listeners import is_loopback

MAX_ADDRESSES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``per_second`` requests in the long run, ``burst`` at once."""

    per_second: float
    burst: float

    @property
    def policy(self) -> str:
        """The value of RateLimit-Policy."""
        return f'"anonymous";q={int(self.burst)};w={max(1, round(self.burst / self.per_second))}'


class AddressRateLimiter:
    """Counts requests per address; loopback addresses, which tests and local tools share, have a rate of their own.

    At 10,000 addresses the one that has been silent longest is forgotten: it would have its full burst again anyway,
    unless somebody owns that many addresses, against whom a limit per address is no use.
    """

    def __init__(self, rate: RateLimit, loopback: RateLimit) -> None:
        self._rate = rate
        self._loopback = loopback
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def rate(self, address: str) -> RateLimit:
        """The rate that holds for an address."""
        return self._loopback if is_loopback(address) else self._rate

    def take(self, address: str, now: float) -> float:
        """Count a request at ``now`` (monotonic seconds): 0 when it is within the plan, else the seconds to wait."""
        key = address_key(address)
        bucket = self._buckets.get(key)
        if bucket is None:
            rate = self.rate(address)
            bucket = self._buckets[key] = TokenBucket(rate.per_second, rate.burst)
            if len(self._buckets) > MAX_ADDRESSES:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return 0.0 if bucket.take(now) else max(bucket.retry_after(now), 1e-3)

    def charge(self, address: str, now: float, requests: float) -> None:
        """Count a request that was taken as so many more: its work was only known when it had been read."""
        bucket = self._buckets.get(address_key(address))
        if bucket is not None:
            bucket.charge(now, requests)
