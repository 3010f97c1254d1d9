"""Baseline placements, which know nothing of subscriptions."""

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np

from diem.protocol.partition_map import partition_of
from metadata.placement.blocks import Floats, Parts

NAMES: Final = ("murmur2", "round_robin", "random", "lpt")


def murmur2(endpoints: Sequence[str], partitions: int) -> Parts:
    """Where Kafka's default partitioner puts the endpoints."""
    return np.array([partition_of(name.encode(), partitions) for name in endpoints], np.int32)


def round_robin(count: int, partitions: int) -> Parts:
    """In turn, in the order of the endpoints."""
    return np.arange(count, dtype=np.int32) % np.int32(partitions)


def random(count: int, partitions: int, seed: int) -> Parts:
    """At random."""
    return np.random.default_rng(seed).integers(0, partitions, count, np.int32)


def lpt(load: Floats, k: int) -> Parts:
    """Longest processing time first: the heaviest that is left goes where the least load is (Graham, 1969)."""
    part = np.empty(load.size, np.int32)
    parts = [(0.0, each) for each in range(k)]
    weight = load.tolist()
    for each in np.argsort(-load, kind="stable").tolist():
        filled, where = parts[0]
        part[each] = where
        heapq.heapreplace(parts, (filled + weight[each], where))
    return part


def all_of(endpoints: Sequence[str], load: Floats, partitions: int, seed: int) -> dict[str, Parts]:
    """Every baseline of :data:`NAMES`, without hot endpoints."""
    count = load.size
    by_load = lpt(load, partitions)
    found = murmur2(endpoints, partitions), round_robin(count, partitions), random(count, partitions, seed), by_load
    return dict(zip(NAMES, found, strict=True))
