"""Placement as a library, for shards of anything: :func:`place`."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np

from learning.costs import Costs
from learning.placement.blocks import Block
from learning.placement.instance import Instance
from learning.placement.options import PlanOptions
from learning.placement.planner import plan

_COSTS: Final = Costs(update_us=1.0, delivery_us=0.0, connection_us_per_s=1.0)
_SECONDS: Final = 1_000_000
"""Loads are given, not counted in a window: the longer it is, the less they are drawn towards their mean."""


def place(
    sets: Iterable[Collection[str]],
    shards: int,
    *,
    loads: Mapping[str, float] | None = None,
    tolerance: float = 0.05,
    seed: int = 0,
) -> dict[str, int]:
    """Divide items among shards, so that those needed together are together and loads are even.

    Minimises the sum over the sets of the number of shards that have any of the set's items: requests of a transaction,
    connections of a client, blocks of a query. Same input, same result. A million items in all sets take some seconds::

        >>> place([["a", "b"], ["a", "b"], ["c", "d"]], 2)
        {'a': 0, 'b': 0, 'c': 1, 'd': 1}

    Args:
        sets: the items that are needed together, once for each time or client that needs them.
        shards: number of shards.
        loads: load of each item, in any unit; 1 for items without one. Items in no set are placed, too.
        tolerance: share by which the fullest shard's load may exceed the mean.
        seed: of the search.

    Returns:
        The shard of each item, from 0 on.

    Raises:
        Infeasible: the loads cannot be divided within the tolerance; the error names the item.
    """
    needed = Counter(tuple(sorted(set(each))) for each in sets)
    used = Counter(item for items, count in needed.items() for item in items for _ in range(count))
    given = loads or {}
    names = sorted(used.keys() | given.keys())
    index = {name: place for place, name in enumerate(names)}
    counts = np.fromiter(needed.values(), np.int64, len(needed))
    block = Block(
        np.array([index[item] for items in needed for item in items], np.int32),
        np.array([len(items) for items in needed], np.int32),
        counts * _SECONDS,
        counts,
    )
    rates, subscribers = [given.get(name, 1.0) for name in names], [float(used[name]) for name in names]
    instance = Instance.of(names, rates, subscribers, block, float(_SECONDS))
    options = PlanOptions((shards,), seed, tolerance, partitions=shards, hot_budget=0.0, hold_out=0.0)
    return dict(zip(instance.endpoints, plan(instance, options, _COSTS).placement.tolist(), strict=True))
