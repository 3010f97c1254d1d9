"""A compacted topic of other programs that is served as it is (docs/adr/0037): names and versions of its records; pure.

The name of an endpoint follows from the key of its records, and the version from their place: the count of partitions
under which the key belongs to the partition, and the offset. An :class:`Epoch` has what all readers must agree on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.protocol.partitioners import Partitioner

FIRST_VERSION: Final = 10**12
"""The least of 13 digits. Versions stay below the present time in milliseconds: clients refuse those of tomorrow."""
MIN_LIMIT: Final = 1 << 26
"""Least number of offsets reserved for a count of partitions: 5,000 re-created topics fit."""


class EpochsUsedUp(DiemError):
    """No versions are left for a new epoch."""


class Observed(NamedTuple):
    """The topic as its brokers describe it: its id, and the bounds of each partition."""

    topic: str
    begins: tuple[int, ...]
    ends: tuple[int, ...]


class Rank(NamedTuple):
    """Versions of one key in one partition: from offset ``start`` on, ``base`` + offset."""

    start: int
    base: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """What all readers of a topic agree on; any change is a new epoch, whose readers begin again.

    The versions of an epoch are from ``base`` on: ``limit`` for keys in partitions where no count places them, then
    ``limit`` for each of ``counts``, the numbers of partitions that the topic has had since DIEM serves it.
    """

    number: int
    topic: str
    base: int
    limit: int
    counts: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]
    """For each count, the ends of the partitions shortly before it was found."""
    begins: tuple[int, ...]
    """The first offset of each partition; a later one means that the log was cut."""

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self.counts[-1]

    @property
    def end(self) -> int:
        """The first version beyond this epoch."""
        return self.base + (len(self.counts) + 1) * self.limit

    def ranks(self, key: bytes, partition: int, partitioner: Partitioner) -> tuple[Rank, ...]:
        """Return the versions of ``key`` in ``partition``, the highest first.

        A key may come back to a partition with a later count, where its older records are. These are below ``start``.
        """
        homes = [i for i, count in enumerate(self.counts) if partitioner.place(key, count) == partition]
        found = [
            Rank(0 if i == homes[0] else self.starts[i][partition], self.base + (i + 1) * self.limit)
            for i in reversed(homes)
        ]
        return (*found, Rank(0, self.base)) if not found or found[-1].start else tuple(found)

    def is_home(self, key: bytes, partition: int, partitioner: Partitioner) -> bool:
        """Return whether producers place ``key`` in ``partition`` now."""
        return partitioner.place(key, self.partitions) == partition


def version_of(ranks: tuple[Rank, ...], offset: int) -> int:
    """Return the version of a record."""
    return next(rank.base for rank in ranks if offset >= rank.start) + offset


def next_epoch(
    current: Epoch | None, observed: Observed, now_ms: int, *, before: tuple[int, ...] = (), cut: bool = False
) -> Epoch | None:
    """Return the epoch that must follow ``current``; None if it still holds.

    Args:
        current: the latest epoch of this topic's name.
        observed: the topic now.
        now_ms: the present time in Unix milliseconds, a bound of all versions.
        before: the ends of the partitions when they were last observed.
        cut: a partition has lost its end, so offsets may be given again.

    Raises:
        EpochsUsedUp: versions would be greater than the present time.
    """
    count, greatest = len(observed.ends), max(observed.ends)
    if current is None or current.topic != observed.topic:
        number, base = (1, FIRST_VERSION) if current is None else (current.number + 1, current.end)
        starts = ((0,) * count,)
        epoch = Epoch(number, observed.topic, base, _room(greatest), (count,), starts, observed.begins)
        return _checked(epoch, now_ms)
    found = current
    if count > current.partitions:
        ends = (*(before or observed.ends)[: current.partitions], *[0] * count)[:count]
        found = replace(found, counts=(*found.counts, count), starts=(*found.starts, ends))
    begins = tuple(map(max, observed.begins, (*found.begins, *[0] * count)))
    if cut:
        # What is written from now on is of the present count.
        found = replace(found, starts=tuple(tuple(map(min, each, observed.ends)) for each in found.starts))
    # A key whose newest record is lost may have an older one in the partition where it was before.
    goes_back = len(found.counts) > 1 and begins[: len(found.begins)] != found.begins
    if cut or goes_back or greatest > found.limit // 16 * 15:
        found = replace(found, base=current.end, limit=max(found.limit, _room(greatest)))
    found = replace(found, begins=begins)
    return None if found == current else _checked(replace(found, number=current.number + 1), now_ms)


def _room(offset: int) -> int:
    return max(MIN_LIMIT, offset + offset // 4)


def _checked(epoch: Epoch, now_ms: int) -> Epoch:
    if epoch.end > now_ms:
        raise EpochsUsedUp("the versions of this topic are used up: serve it with another --topic-prefix")
    return epoch


def encode_epoch(epoch: Epoch) -> bytes:
    """Encode the value of an epoch's record."""
    return orjson.dumps(epoch)


def latest(values: Iterator[bytes | None]) -> Epoch | None:
    """Return the epoch in force after these records, in order: of each number the first counts."""
    current: Epoch | None = None
    for value in values:
        found = _epoch(value)
        if found is not None and (current is None or found.number == current.number + 1):
            current = found
    return current


def _epoch(value: bytes | None) -> Epoch | None:
    try:
        body: Mapping[str, Any] = orjson.loads(value or b"")
        starts = tuple(tuple(map(int, each)) for each in body["starts"])
        counts, begins = tuple(map(int, body["counts"])), tuple(map(int, body["begins"]))
        numbers = (int(body["base"]), int(body["limit"]))
        return Epoch(int(body["number"]), str(body["topic"]), *numbers, counts, starts, begins)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
