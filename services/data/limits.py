"""Limits of store and readers, and the defaults of configurable ones in ``settings``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from diem.fanout.data_budget import MAX_RETAINED_BYTES
from diem.process.limits import RateLimit
from diem.protocol.endpoints import ancestors

DAY_MS: Final = 24 * 3600 * 1000
MAX_KEYS: Final = 20_000
"""Maximum number of remembered idempotency keys per writer."""
MAX_TTL_S: Final = 31 * 24 * 3600
"""Longest time to live of an endpoint in seconds."""
DATASET_BYTES: Final = 4 * 1024 * 1024
"""Largest content of an endpoint: the body as received, and its canonical form."""
MAX_DATASET_BYTES: Final = 64 * 1024 * 1024
"""Greatest value of that limit."""
SMALLER: Final = "split it into several endpoints, or raise DIEM_DATASET_BYTES"
"""Remedy for too large content."""
INLINE_BYTES: Final = 4096
"""Longest dataset sent with its update."""
CONCURRENT_READS: Final = 64
"""Maximum number of concurrent requests of readers."""
READ_RATE: Final = RateLimit(20.0, 100.0)
"""Rate of requests without an API key per address."""
READ_RATE_LOOPBACK: Final = RateLimit(2000.0, 8000.0)
"""The same for addresses of this machine."""


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Number of retained versions per endpoint, including the current one, and their age since acceptance."""

    versions: int = 24
    days: float = 7.0

    @property
    def old(self) -> int:
        """Versions besides the current one."""
        return self.versions - 1

    def oldest_ms(self, now_ms: int) -> int:
        """Return the time before which versions expire."""
        return now_ms - int(self.days * DAY_MS)


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Bounds of the queue of writes (beyond them: 503) and of the store's contents."""

    queued_requests: int = 512
    """Writes of one owner: a source, or a write key."""
    queued_bytes: int = 32 * 1024 * 1024
    max_endpoints: int = 50_000
    max_keys: int = MAX_KEYS
    probe_every_s: float = 1.0
    """Interval of probes while the store cannot commit."""
    history: HistoryLimits = field(default_factory=HistoryLimits)
    published: bool = False
    """True if changes go to Kafka, whose log must have tombstones of deleted endpoints before they are forgotten."""


@dataclass(frozen=True, slots=True)
class InlineLimits:
    """Limits for sending datasets with their updates, so that browsers need not fetch them.

    Attributes:
        max_bytes: longest dataset, in bytes of GET's JSON, for endpoints below none of the prefixes. by_prefix: the
        same below each prefix, in whole segments; the longest one applies. 0: none is sent. retained_bytes: of all
        updates with data retained by the Data Service for its feed and for Kafka.
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
    """Lock timeout of commits, bytes of datasets cached for readers, and limits of writer and feed."""

    busy_timeout_s: float = 5.0
    cache_bytes: int = 32 * 1024 * 1024
    writer: WriterLimits = field(default_factory=WriterLimits)
    inline: InlineLimits = field(default_factory=InlineLimits)
