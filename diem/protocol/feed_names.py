"""Stream names of a bridge's feed: ``topic/partition``, where the topic's suffix gives the kind."""

from typing import Final

from diem.protocol.partition_map import HOT

UPDATES: Final = "updates"
HOT_UPDATES: Final = "updates.hot"
MAP: Final = "partition-map"
"""Ends of the names of topics; before them is the prefix, which may end in anything."""


def is_map(name: str) -> bool:
    """Whether the records under this name are those of the partition map."""
    return name.endswith(f"{MAP}/0")


def partition_of_name(name: str) -> int | None:
    """The partition of the updates under this name, :data:`HOT` for the topic of all; None if it has no updates."""
    topic, _, number = name.rpartition("/")
    if topic.endswith(HOT_UPDATES):
        return HOT
    return int(number) if topic.endswith(UPDATES) and number.isdecimal() else None
