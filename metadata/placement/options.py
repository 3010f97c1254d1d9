"""Options of the planner, and the weights of the search that follow from them."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from metadata.costs import Costs
from metadata.placement.backend import Backend
from metadata.placement.baselines import lpt
from metadata.placement.blocks import Floats, Mask, Parts
from metadata.placement.instance import Instance
from metadata.placement.objective import (
    View,
    added_load,
    connections,
    fan_out,
    loads,
    part_loads,
    server_of_endpoint,
    server_of_leaf,
    total_cost,
)

MIN_HELD_OUT: Final = 8
"""Clients below which a fold says nothing."""
AMPLE_SUBSCRIBERS: Final = 64.0
"""Mean subscribers of an endpoint from which no clients are held out: the gain of others is then within a point."""
LEAF_WEIGHT: Final = 0.25
"""Weight of the fan-out over single leaves, which represents unplanned numbers of servers."""

MARGIN: Final = 0.5
"""Margin of plans for a running system: 0.4 % more connections at instance A (docs/placement.md)."""


@dataclass(frozen=True)
class PlanOptions:
    """Goals and limits of a plan."""

    servers: tuple[int, ...]
    """Planned numbers of servers, in any order."""
    seed: int = 0
    epsilon: float = 0.05
    """Share by which the load of the fullest server may exceed the mean; hot endpoints do not count."""
    margin: float = 0.0
    """Share of ``epsilon`` that new placements leave unused where they can, for the loads of later windows."""
    partitions: int | None = None
    """Partitions of the plan; None to choose them by the load."""
    current_partitions: int = 1
    """Partitions of the topic now; it can only grow."""
    hot_budget: float = 0.005
    """Share of the whole load that hot endpoints may add."""
    movement_budget: float | None = None
    """Share of the subscriptions that may move; None for no limit. Requires the current number of partitions."""
    horizon_s: float = 86_400.0
    """Expected lifetime of a plan, over which the cost of moves is spread."""
    hold_out: float = 0.2
    """Share of the clients held out, for whom a plan made from the others is evaluated; 0 for none."""
    reference: bool = False
    """Whether the report compares with Mt-KaHyPar, if it is installed: takes longer than the plan."""
    polish: bool = False
    """Whether V-cycles of Mt-KaHyPar, if it is installed, improve a new placement: it then depends on the package."""

    def __post_init__(self) -> None:
        if not self.servers or min(self.servers) < 1:
            raise ValueError("servers: at least one number of servers, and none below 1")
        if self.partitions is not None and self.partitions < self.current_partitions:
            raise ValueError(f"partitions: a topic of {self.current_partitions} cannot shrink")
        if self.movement_budget is not None and self.partitions not in {None, self.current_partitions}:
            raise ValueError("movement_budget: needs the current number of partitions; with another, most would move")

    @property
    def with_margin(self) -> "PlanOptions":
        """These options with the ``epsilon`` that new placements are searched for."""
        return replace(self, epsilon=self.epsilon * (1 - self.margin), margin=0.0)


@dataclass(frozen=True)
class Problem:
    """Input of the search: everything that a plan depends on, except the current placement."""

    instance: Instance
    backend: Backend
    """Backend of the instance's sets."""
    costs: Costs
    options: PlanOptions
    share: float = 1.0
    """Share of the instance's clients in ``backend``."""

    @property
    def connected(self) -> float:
        """Mean number of connected clients of the whole instance."""
        return float(self.instance.weight.sum()) / self.instance.seconds

    @property
    def clients(self) -> float:
        """A number that the clients of ``backend`` are at least: as many as were connected, and as different sets."""
        return max(self.connected * self.share, float(self.backend.count_sets()))

    @property
    def client_weight(self) -> float:
        """Mean weight of a client, in seconds."""
        return self.connected * self.instance.seconds * self.share / max(self.clients, 1e-300)

    def folds(self) -> "tuple[Problem, Problem] | None":
        """Return the problem of a part of the clients, and that of those held out.

        None where the options hold out none, where so few would be that they say nothing, or where the endpoints have
        so many subscribers that others are like them.
        """
        share, used = self.options.hold_out, self.instance.subscribers[self.instance.subscribers > 0]
        if share * self.clients < MIN_HELD_OUT or (used.size and float(used.mean()) >= AMPLE_SUBSCRIBERS):
            return None
        return self.split(share)

    def split(self, share: float) -> "tuple[Problem, Problem]":
        """Return the problem of the other clients, and that of a ``share`` of them held out."""
        weight = self.client_weight / 2.0**self.instance.shift
        used_part, others = (self.backend.fold(weight, share, held_out=held_out) for held_out in (False, True))
        return replace(self, backend=used_part, share=1 - share), replace(self, backend=others, share=share)

    @property
    def max_servers(self) -> int:
        """Largest planned number of servers."""
        return max(self.options.servers)

    def load(self, hot: Mask) -> Floats:
        """Return the load of each endpoint, 0 for those in ``hot``."""
        return np.where(hot, 0.0, loads(self.instance, self.costs))

    def added_load(self, hot: Mask) -> float:
        """Return the load that ``hot`` adds with the largest number of servers, as a share of the whole load."""
        return added_load(self.instance, self.costs, hot, self.max_servers)

    def cost(self, placement: Parts, leaves: int) -> float:
        """Return J (:func:`objective.total_cost`) of a placement: the mean over the planned numbers of servers."""
        hot, planned = placement < 0, sorted(set(self.options.servers))
        upstream = (
            connections(self.instance, fan_out(self.backend, server_of_endpoint(placement, leaves, each), each))
            for each in planned
        )
        costs = zip(upstream, planned, strict=True)
        return sum(total_cost(self.instance, self.costs, each, hot, servers) for each, servers in costs) / len(planned)


def search_views(load: Floats, leaves: int, options: PlanOptions) -> list[View]:
    """Return the views of the search: every planned number of servers, and the leaves as if each were a server.

    A leaf is limited to its share of the load, or to more if endpoints are too heavy for that, or if a server has too
    few leaves for its own share.
    """
    whole, planned = float(load.sum()), sorted({min(each, leaves) for each in options.servers})
    max_load = {each: (1 + options.epsilon) * whole / each for each in planned}
    views = [View(server_of_leaf(leaves, each), each, max_load[each], 1 / len(planned)) for each in planned]
    if leaves in planned:
        return views
    greedy_load = float(part_loads(load, lpt(load, leaves), leaves).max())
    of_leaf = max(greedy_load, *(max_load[each] / (leaves // each) for each in planned))
    return [*views, View(np.arange(leaves, dtype=np.int32), leaves, of_leaf, LEAF_WEIGHT)]
