"""Counts of data that clients receive with updates, by API key, for its usage (docs/access.md section 5).

The fan-out adds the number of receivers with a key to its meter: one addition for an update and a key, and not for each
delivery.
"""

from collections.abc import Collection
from typing import Final, Protocol


class ReadMeter:
    """The data that the clients of one API key received since the last report."""

    __slots__ = ("exhausted", "key", "reads")

    def __init__(self, key: str) -> None:
        self.key = key
        """Id of the API key; empty for clients whose data is not counted."""
        self.reads = 0
        """Datasets that were sent and not reported yet; negative if a slow client's were counted and then conflated."""
        self.exhausted = False
        """The quota of the key is used up: its clients are sent updates without data."""


UNMETERED: Final = ReadMeter("")
"""Meter of clients without an API key and of links between processes; nobody reads its count."""


class Metered(Protocol):
    """A subscriber whose data is counted."""

    meter: ReadMeter
    """Changed only by :meth:`~diem.fanout.fanout.Registry.set_meter` while it has subscriptions."""


class ReadMeters:
    """The meters of one process: of the API keys with open connections, or with reads to report."""

    def __init__(self) -> None:
        self._meters: dict[str, ReadMeter] = {}

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, key: str) -> ReadMeter:
        """Return the meter of an API key."""
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = ReadMeter(key)
        return meter

    def drain(self, limit: int) -> dict[str, int]:
        """Return the reads of at most ``limit`` keys since they were last returned, and start again at zero."""
        reads: dict[str, int] = {}
        for meter in self._meters.values():
            if meter.reads > 0 and len(reads) < limit:
                reads[meter.key], meter.reads = meter.reads, 0
        return reads

    @property
    def exhausted(self) -> list[str]:
        """Keys whose quota is used up."""
        return [meter.key for meter in self._meters.values() if meter.exhausted]

    def set_exhausted(self, keys: Collection[str], requested: Collection[str]) -> set[ReadMeter]:
        """Set which of the keys ``requested`` have used up their quota: ``keys``. Return the meters that changed."""
        changed = {
            meter
            for key in requested
            if (meter := self._meters.get(key)) is not None and meter.exhausted != (key in keys)
        }
        for meter in changed:
            meter.exhausted = not meter.exhausted
        return changed

    def prune(self, used: Collection[ReadMeter]) -> None:
        """Drop the meters that are not among those ``used`` by connections and have nothing to report."""
        self._meters = {key: meter for key, meter in self._meters.items() if meter.reads > 0 or meter in used}
