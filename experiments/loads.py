"""Loads of known composition for ``make bench-cost``: subscriptions, and the writes of a block."""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from learning.modes.load import touched
from tests.bench.drain import Drain
from tests.bench.phases import subscribe
from tests.support.patience import PATIENCE_S

ENDPOINTS: Final = 200
"""Number of endpoints of each set."""
EVERY: Final = 0.08
"""Seconds between two writes."""
WRITES: Final = 6
"""Of one block."""
MIXED: Final = 100
MIXED_SIZES: Final = (5, 60)


class Load(NamedTuple):
    """One block: writes of ``size`` updates each to endpoints with ``subscribers``; idle for size 0."""

    subscribers: int
    size: int


MIX: Final = Load(-1, -1)
"""The load that is not part of the fit: skewed subscriptions and rates of updates, and writes of all sizes."""
Write = Callable[[Sequence[str]], Awaitable[None]]


def names(subscribers: int, count: int = ENDPOINTS) -> list[str]:
    """Return the endpoints with this number of subscribers."""
    return [f"/cost/{subscribers}/{number}" for number in range(count)]


def subscriptions(levels: Sequence[int], clients: int) -> list[list[str]]:
    """Return the endpoints of each client: equally many of every level, and its part of the mixture."""
    wanted: list[list[str]] = [[] for _ in range(clients)]
    for level in filter(None, levels):
        endpoints, each = names(level), level * ENDPOINTS // clients
        for number, mine in enumerate(wanted):
            mine += [endpoints[(number * each + i) % ENDPOINTS] for i in range(each)]
    rng = random.Random(2)
    for rank, endpoint in enumerate(names(MIX.subscribers, MIXED)):
        for number in rng.sample(range(clients), clients // (3 * (rank + 1))):
            wanted[number].append(endpoint)
    return wanted


async def settle(drain: Drain, wanted: Sequence[Sequence[str]], write: Write) -> None:
    """Subscribe every client, and write every endpoint once; wait until all frames have arrived."""
    for number, mine in enumerate(wanted):
        if mine:
            drain.send(number, subscribe(*mine))
    await write(sorted({name for mine in wanted for name in mine}))
    async with asyncio.timeout(PATIENCE_S):
        # Of replies there may be several to a request: a proxy's come in parts.
        while (await drain.count_now()).updates < sum(map(len, wanted)):
            await asyncio.sleep(0.05)


@dataclass
class Schedule:
    """Return the writes of the blocks of a load; the same in every run."""

    rng: random.Random

    def writes(self, load: Load) -> list[list[str]]:
        if not load.size:
            return []
        if load == MIX:
            return [self._mixed() for _ in range(WRITES)]
        return [self.rng.sample(names(load.subscribers), load.size) for _ in range(WRITES)]

    def _mixed(self) -> list[str]:
        endpoints = names(MIX.subscribers, MIXED)
        # Those with most subscribers are not those with most updates: 37 and 100 have no common divisor.
        weights = [1 / (1 + 37 * rank % MIXED) for rank in range(MIXED)]
        drawn = self.rng.choices(endpoints, weights, k=self.rng.randint(*MIXED_SIZES))
        return list(dict.fromkeys(drawn))


def quantities(seconds: float, writes: Sequence[Sequence[str]], frames: int) -> Mapping[str, float]:
    """Return the quantities of a block."""
    return {"seconds": seconds, "writes": len(writes), "updates": sum(map(len, writes)), "frames": frames}


def mean_parts(loads: Sequence[Load], partitions: int) -> float:
    """Return how many partitions a write has updates for, on average over the loads of known composition."""
    return statistics.fmean(touched(partitions, load.size) for load in loads if load.size > 0)
