"""Positions in partitions, and where each partition is read from. Pure.

A position names its topic by id as well: after a topic was deleted and made again, it fits no record of the new one.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from services.data.errors import InvalidDataset

END_LOST: Final = "the log has lost its end"
"""Reason for a position before the stored one."""


class SourcePartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    @property
    def part(self) -> str:
        """Its name in the store."""
        return f"{self.topic}/{self.number}"


class Position(NamedTuple):
    """A place in a partition: everything before ``offset`` was read."""

    topic_id: str
    offset: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.offset}"

    @classmethod
    def place_of(cls, text: str) -> str:
        """Return the place of the record before a position."""
        return f"offset {cls.parse(text).offset - 1}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a stored position; raises InvalidDataset."""
        topic_id, _, offset = text.rpartition(":")
        if not topic_id or not offset.isdecimal():
            raise InvalidDataset(f"{text[:80]!r} is no position in a topic, such as ID:OFFSET")
        return cls(topic_id, int(offset))


class PartitionBounds(NamedTuple):
    """What a partition has.

    Attributes:
        topic_id: of its topic. begin: offset of its first record. end: after its last one. start: the first one as the
        source is configured.
    """

    topic_id: str
    begin: int
    end: int
    start: int


class Beginning(NamedTuple):
    """Where a partition is read from.

    Attributes:
        position: the place. before: the stored position. lost: number of records that are no longer there. reason: why
        it is another place than the stored one; empty if it is not.
    """

    position: Position
    before: str | None
    lost: int = 0
    reason: str = ""


def beginnings(
    stored: Mapping[str, str], found: Mapping[SourcePartition, PartitionBounds]
) -> dict[SourcePartition, Beginning]:
    """Return where each partition is read from.

    A partition without a stored position is new if others have one: it is read from its first record, as all of its
    records came later.
    """
    begun = bool(stored)
    return {partition: _beginning(stored.get(partition.part), bounds, begun) for partition, bounds in found.items()}


def _beginning(stored: str | None, bounds: PartitionBounds, begun: bool) -> Beginning:
    topic_id, begin, end, start = bounds
    if stored is None:
        return Beginning(Position(topic_id, begin if begun else start), None)
    position = Position.parse(stored)
    if position.topic_id != topic_id:
        return Beginning(Position(topic_id, begin), stored, 0, "the topic was deleted and made again")
    if position.offset < begin:
        return Beginning(Position(topic_id, begin), stored, begin - position.offset, "the log was cut")
    if position.offset > end:
        return Beginning(Position(topic_id, end), stored, 0, END_LOST)
    return Beginning(position, stored)
