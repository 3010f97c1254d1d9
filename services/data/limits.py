"""Limits of store and readers, with their defaults: ``settings`` takes from here what operators may change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from diem.fanout.data_budget import MAX_RETAINED_BYTES
from diem.process.limits import RateLimit
from diem.protocol.endpoints import ancestors

DAY_MS: Final = 24 * 3600 * 1000
MAX_KEYS: Final = 20_000
"""Idempotency keys of one writer that are remembered."""
INLINE_BYTES: Final = 4096
"""Longest dataset that is sent with its update."""
CONCURRENT_READS: Final = 64
"""Requests of readers that are worked on at once."""
READ_RATE: Final = RateLimit(20.0, 100.0)
"""Requests of one address without an API key."""
READ_RATE_LOOPBACK: Final = RateLimit(2000.0, 8000.0)
"""The same for addresses of this machine."""


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How many versions of an endpoint are retained, the current one included, and for how long after acceptance."""

    versions: int = 24
    days: float = 7.0

    @property
    def old(self) -> int:
        """Versions beside the current one."""
        return self.versions - 1

    def oldest_ms(self, now_ms: int) -> int:
        """Return the time before which versions are not retained."""
        return now_ms - int(self.days * DAY_MS)


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Bounds of the queue of writes (beyond them: 503) and of the store's contents."""

    queued_requests: int = 256
    queued_bytes: int = 32 * 1024 * 1024
    max_endpoints: int = 50_000
    max_keys: int = MAX_KEYS
    probe_every_s: float = 1.0
    """Interval of probes while the store cannot commit."""
    history: HistoryLimits = field(default_factory=HistoryLimits)
    published: bool = False
    """Whether changes go to Kafka, so that deleted endpoints are not forgotten."""


@dataclass(frozen=True, slots=True)
class InlineLimits:
    """Which datasets are sent with their updates, so that browsers need not fetch them.

    Attributes:
        max_bytes: longest dataset, in bytes of the JSON that GET answers, of endpoints below none of the prefixes.
        by_prefix: of those below a prefix, in whole segments; the longest one counts. 0: none is sent.
        retained_bytes: of all updates with data that the Data Service retains for its feed and for Kafka.
    """

    max_bytes: int = INLINE_BYTES
    by_prefix: Mapping[str, int] = field(default_factory=dict)
    retained_bytes: int = MAX_RETAINED_BYTES

    def limit(self, endpoint: str) -> int:
        """Return the bound of an endpoint."""
        if self.by_prefix:
            for prefix in (endpoint, *ancestors(endpoint)):
                if (found := self.by_prefix.get(prefix)) is not None:
                    return found
        return self.max_bytes

    @property
    def greatest(self) -> int:
        """The greatest of all bounds."""
        return max(self.max_bytes, *self.by_prefix.values()) if self.by_prefix else self.max_bytes


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Time that a commit waits for a lock, bytes of datasets cached for readers, and limits of writer and feed."""

    busy_timeout_s: float = 5.0
    cache_bytes: int = 32 * 1024 * 1024
    writer: WriterLimits = field(default_factory=WriterLimits)
    inline: InlineLimits = field(default_factory=InlineLimits)
