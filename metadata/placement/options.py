"""Options of the planner, and the weights of the search that follow from them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from metadata.costs import Costs
from metadata.placement.backend import Backend
from metadata.placement.baselines import lpt
from metadata.placement.blocks import Floats, Mask
from metadata.placement.instance import Instance
from metadata.placement.objective import View, added_load, loads, part_loads, server_of_leaf

LEAF_WEIGHT: Final = 0.25
"""Weight of the fan-out over single leaves, which stands for unplanned numbers of servers."""


@dataclass(frozen=True)
class PlanOptions:
    """Goals and limits of a plan."""

    servers: tuple[int, ...]
    """Every number of servers that there is to be; ascending is not needed."""
    seed: int = 0
    epsilon: float = 0.05
    """The fullest server may have this share more than the mean, without hot endpoints."""
    partitions: int | None = None
    """Chosen by the load when it is None."""
    least_partitions: int = 1
    """Partitions of the topic now: it can only grow."""
    hot_budget: float = 0.005
    """Share of the whole load that hot endpoints may add."""
    movement_budget: float | None = None
    """Share of the subscriptions that may move; None for any. Not with other ``partitions`` than there are."""
    horizon_s: float = 86_400.0
    """For how long a plan will hold: what a move costs is spread over it."""
    reference: bool = False
    """Compare with Mt-KaHyPar in the report, if it is installed: takes longer than the plan."""

    def __post_init__(self) -> None:
        if not self.servers or min(self.servers) < 1:
            raise ValueError("servers: at least one number of servers, and none below 1")
        if self.partitions is not None and self.partitions < self.least_partitions:
            raise ValueError(f"partitions: a topic of {self.least_partitions} cannot shrink")
        if self.movement_budget is not None and self.partitions not in {None, self.least_partitions}:
            raise ValueError("movement_budget: only with as many partitions as there are; with others most move")


@dataclass(frozen=True)
class Problem:
    """Input of the search: all that a plan depends on but the current placement."""

    instance: Instance
    backend: Backend
    """Backend of the instance's sets."""
    costs: Costs
    options: PlanOptions

    @property
    def most(self) -> int:
        """The largest planned number of servers."""
        return max(self.options.servers)

    def load(self, hot: Mask) -> Floats:
        """Return the load of each endpoint, 0 for hot ones."""
        return np.where(hot, 0.0, loads(self.instance, self.costs))

    def added_load(self, hot: Mask) -> float:
        """Return the load added by ``hot`` endpoints on the most servers planned, as a share of the whole load."""
        return added_load(self.instance, self.costs, hot, self.most)


def search_views(load: Floats, leaves: int, options: PlanOptions) -> list[View]:
    """Return the views of the search: every planned number of servers, and the leaves as if each were a server.

    A leaf has no more than its share, unless endpoints are too heavy for that, or a server has so few leaves that they
    must have more.
    """
    whole, planned = float(load.sum()), sorted({min(each, leaves) for each in options.servers})
    most = {each: (1 + options.epsilon) * whole / each for each in planned}
    views = [View(server_of_leaf(leaves, each), each, most[each], 1 / len(planned)) for each in planned]
    if leaves in planned:
        return views
    greedy_load = float(part_loads(load, lpt(load, leaves), leaves).max())
    of_leaf = max(greedy_load, *(most[each] / (leaves // each) for each in planned))
    return [*views, View(np.arange(leaves, dtype=np.int32), leaves, of_leaf, LEAF_WEIGHT)]
