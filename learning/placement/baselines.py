"""Baseline placements, which ignore subscriptions, and lower bounds for any placement."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from diem.errors import DiemError
from diem.protocol.partitioners import partition_of
from learning.placement.blocks import Floats, Parts
from learning.placement.objective import part_loads

NAMES: Final = ("murmur2", "round_robin", "random", "lpt")


def murmur2(endpoints: Sequence[str], partitions: int) -> Parts:
    """Place endpoints like Kafka's default partitioner."""
    return np.array([partition_of(name.encode(), partitions) for name in endpoints], np.int32)


def round_robin(count: int, partitions: int) -> Parts:
    """Place endpoints in turn, in their order."""
    return np.arange(count, dtype=np.int32) % np.int32(partitions)


def random(count: int, partitions: int, seed: int) -> Parts:
    """Place endpoints at random."""
    return np.random.default_rng(seed).integers(0, partitions, count, np.int32)


def lpt(load: Floats, k: int) -> Parts:
    """Longest processing time first: place the heaviest remaining endpoint on the least loaded part (Graham, 1969)."""
    part = np.empty(load.size, np.int32)
    parts = [(0.0, each) for each in range(k)]
    weight = load.tolist()
    for each in np.argsort(-load, kind="stable").tolist():
        filled, where = parts[0]
        part[each] = where
        heapq.heapreplace(parts, (filled + weight[each], where))
    return part


def all_baselines(endpoints: Sequence[str], load: Floats, partitions: int, seed: int) -> dict[str, Parts]:
    """Return every baseline of :data:`NAMES`, without hot endpoints."""
    count = load.size
    by_load = lpt(load, partitions)
    parts = murmur2(endpoints, partitions), round_robin(count, partitions), random(count, partitions, seed), by_load
    return dict(zip(NAMES, parts, strict=True))


@dataclass(eq=False)
class Infeasible(DiemError):
    """No placement was found within the load bound. ``epsilon`` is the smallest bound that was reached."""

    template = "{endpoint} {reason}; the bound can be kept from epsilon = {epsilon:.3f} on"

    endpoint: str
    reason: str
    epsilon: float


def load_lower_bound(load: Floats, k: int) -> float:
    """Return a lower bound of the fullest server's load.

    The largest of: the mean, the heaviest endpoint, and the k-th heaviest endpoint plus the next one.
    """
    if not load.size:
        return 0.0
    descending = -np.sort(-load)
    pair = float(descending[k - 1] + descending[k]) if load.size > k else 0.0
    return max(float(load.sum()) / k, float(descending[0]), pair)


def find_obstacle(
    load: Floats, k: int, epsilon: float, everywhere: float = 0.0, *, certain: bool = False
) -> tuple[int, float] | None:
    """Return the endpoint that prevents balancing ``load`` over ``k`` servers, and the epsilon that LPT reaches.

    Each server has the load ``everywhere`` besides. None when LPT keeps the bound; otherwise the largest endpoint of
    the server that LPT fills most. (LPT is within 4/3 - 1/(3k) of the optimum: it may name an obstacle where a better
    packing exists; not if ``certain``: then None unless a lower bound of all placements is above the limit.)
    """
    if not load.sum() > 0:
        return None
    part = lpt(load, k)
    filled = part_loads(load, part, k)
    reached = (float(filled.max()) + everywhere) / (float(filled.mean()) + everywhere) - 1
    if reached <= epsilon + 1e-9:
        return None
    mean = float(filled.mean()) + everywhere
    if certain and load_lower_bound(load, k) + everywhere <= (1 + epsilon) * mean * (1 + 1e-9):
        return None
    return int(np.argmax(np.where(part == filled.argmax(), load, -1.0))), reached
