"""Options of the planner, and the resulting weights of the search."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from learning.costs import Costs, Resources
from learning.placement.backend import Backend
from learning.placement.baselines import load_lower_bound, lpt
from learning.placement.blocks import Floats, Ints, Mask, Parts
from learning.placement.fanout import MAX_TOTAL_RATE
from learning.placement.instance import Instance
from learning.placement.objective import (
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
"""Number of clients below which a fold is meaningless."""
MANY_HELD_OUT: Final = 10_000
"""Number of clients held out after which no further part is: their mean is known well enough."""
AMPLE_SUBSCRIBERS: Final = 64.0
"""Mean subscribers of an endpoint from which no clients are held out: the gain of others is then within a point."""
NEWCOMERS: Final = 0.5
"""Share of the clients from which on those who are new judge a plan; with fewer, it is for those who return."""
LEAF_WEIGHT: Final = 0.25
"""Weight of the fan-out over single leaves, which represents unplanned numbers of servers."""

LEAST_SAVING, AMPLE_MOVEMENT = 0.03, 0.05
"""Share of the cost that a plan must save which may move so many of the subscriptions; in proportion with less.

Plans from hours of the same traffic found 2 to 2.5 % in each other's, plans after a change 5 % (docs/placement.md).
"""
MARGIN: Final = 0.5
"""Margin of plans for a running system: 0.4 % more connections at instance A (docs/placement.md)."""


@dataclass(frozen=True)
class PlanOptions:
    """Goals and limits of a plan."""

    servers: tuple[int, ...]
    """Planned numbers of servers, in any order."""
    seed: int = 0
    epsilon: float = 0.05
    """Share by which the load of the fullest server may exceed the mean, with the load of hot endpoints."""
    margin: float = 0.0
    """Share of ``epsilon`` that new placements leave unused where they can, for the loads of later windows."""
    partitions: int | None = None
    """Partitions of the plan; None to choose them by the load."""
    current_partitions: int = 1
    """Partitions of the topic now; it can only grow."""
    hot_budget: float = 0.005
    """Share of the whole load that hot endpoints may add."""
    limits: Resources | None = None
    """Limits of a server; endpoints with more subscribers become hot as far as the budget allows."""
    clones: int = 1
    """Groups of servers, each with a share of the clients, on which the placement is the same."""
    movement_budget: float | None = None
    """Share of the subscriptions that may move; None for no limit. Requires the current number of partitions."""
    horizon_s: float = 86_400.0
    """Expected lifetime of a plan, over which the cost of moves is spread."""
    hold_out: float = 0.2
    """Share of the clients held out, for whom a plan made from the others is evaluated, in turn; 0 for none."""
    sizes: tuple[int, ...] = ()
    """Numbers of servers to choose a number of partitions for, where the topic's is uneven; none: ``servers``."""

    def __post_init__(self) -> None:
        if not self.servers or min(self.servers) < 1:
            raise ValueError("servers: at least one number of servers, and none below 1")
        if self.partitions is not None and self.partitions < self.current_partitions:
            raise ValueError(f"partitions: a topic of {self.current_partitions} cannot shrink")
        if self.movement_budget is not None and self.partitions not in {None, self.current_partitions}:
            raise ValueError("movement_budget: needs the current number of partitions; with another, most would move")

    @property
    def least_saving(self) -> float:
        """Share of the cost that a plan within a budget of moves must save, so that stationary traffic is left alone.

        The more may move the more is to be gained, and the less of it by chance.
        """
        return 0.0 if self.movement_budget is None else LEAST_SAVING * min(1.0, self.movement_budget / AMPLE_MOVEMENT)

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
    verdict_costs: Costs | None = None
    """Costs by which finished placements are compared, where the search has others; None: ``costs``."""

    @property
    def connected(self) -> float:
        """Mean number of connected clients of the whole instance."""
        return float(self.instance.weight.sum()) / self.instance.seconds

    @property
    def clients(self) -> float:
        """Number of clients of ``backend``."""
        return float(self.backend.count_clients())

    def folds(self, share: float) -> "list[tuple[Problem, Problem]]":
        """Return pairs of the problem of some clients and that of the ``share`` held out: each once if they are few.

        None where the options hold out none, where so few would be that they say nothing, or where the endpoints have
        so many subscribers that others are like them.
        """
        if (
            min(share, self.options.hold_out) * self.clients < MIN_HELD_OUT
            or self.instance.sampled_subscribers >= AMPLE_SUBSCRIBERS
        ):
            return []
        count = round(1 / share)
        parts = min(count, math.ceil(MANY_HELD_OUT / (share * self.clients)))
        return [self.split(each / count, (each + 1) / count) for each in range(parts)]

    def split(self, first: float, last: float) -> "tuple[Problem, Problem]":
        """Return the problem of the other clients, and that of those held out: from a share of all to another."""
        share = last - first
        used_part, others = (self.backend.fold((first, last), held_out=held_out) for held_out in (False, True))
        # The numbers of subscribers are of those clients, too: by all clients they would tell of those held out.
        unit = 2.0**self.instance.shift / self.instance.seconds / (1 - share)
        used = replace(self.instance, subscribers=used_part.subscribed() * unit, share=1 - share)
        return (
            replace(self, backend=used_part, share=1 - share, instance=used),
            replace(self, backend=others, share=share),
        )

    def of_newcomers(self, earlier: Backend) -> "Problem":
        """Return the problem of the clients who were not in an ``earlier`` window, or this one if most of them were."""
        others = self.backend.without_repeated_sets(earlier)
        share = others.count_clients() / max(self.clients, 1.0)
        return self if share < NEWCOMERS else replace(self, backend=others, share=share)

    @property
    def max_servers(self) -> int:
        """Largest planned number of servers."""
        return max(self.options.servers)

    def load(self, hot: Mask) -> Floats:
        """Return the load of each endpoint, 0 for those in ``hot``."""
        return np.where(hot, 0.0, loads(self.instance, self.costs))

    def mean_hot_load(self, hot: Mask, servers: int) -> float:
        """Return the mean load of each of ``servers`` by the ``hot`` endpoints: all consume their updates."""
        consumed, delivered = self._hot_load(hot)
        return consumed + delivered / servers

    def hot_loads(self, part: Parts, servers: int) -> Floats:
        """Return the load of each of ``servers`` by the hot endpoints of a placement on them: those of negative parts.

        Their frames come from the servers that clients are connected to anyway (:func:`fanout.delivered`).
        """
        consumed, frames = self._hot_load(part < 0)
        if frames <= 0:
            return np.full(servers, consumed)
        delivered = self.backend.delivered(self._hot_rates(part < 0), part, servers).astype(float)
        if not delivered.any():
            delivered = np.ones(servers)
        share: Floats = delivered / float(delivered.sum())
        return consumed + frames * share

    def search_load(self, hot: Mask) -> Floats:
        """Return the load that each endpoint takes along to its server: its own, and ``hot`` frames to its clients.

        It is 0 for those in ``hot``. The sum over the endpoints of a server is about its load
        (:meth:`server_loads`), not exactly, because clients have several endpoints: :func:`search_views` corrects it.
        """
        load, (_, frames) = self.load(hot), self._hot_load(hot)
        part, rates = np.where(hot, -1, 0).astype(np.int32), self._hot_rates(hot)
        whole = int(self.backend.delivered(rates, part, 1)[0]) if frames > 0 else 0
        return load + self.backend.attracted(rates, part) * (frames / whole) if whole else load

    def _hot_rates(self, hot: Mask) -> Ints:
        """Return the updates of ``hot`` endpoints in the unit of :func:`fanout.delivered`, 0 for others."""
        rate = np.where(hot, self.instance.expected_busy[0], 0.0)
        whole = float(rate.sum())
        return np.floor(rate * (MAX_TOTAL_RATE / whole if whole > 0 else 0.0)).astype(np.int64)

    def _hot_load(self, hot: Mask) -> tuple[float, float]:
        """Return what each server takes for the updates of ``hot`` endpoints, and all servers for their frames."""
        consumed = self.costs.update_us * float(self.instance.expected_busy[0][hot].sum())
        return consumed, float(loads(self.instance, self.costs)[hot].sum()) - consumed

    def server_loads(self, part: Parts, servers: int) -> Floats:
        """Return the load of each of ``servers`` for a placement on them, with that of hot endpoints."""
        return part_loads(self.load(part < 0), part, servers) + self.hot_loads(part, servers)

    def balance(self, part: Parts, servers: int) -> float:
        """Return the largest load of a server over the mean: 1 if even, or without any load."""
        filled = self.server_loads(part, servers)
        mean = float(filled.mean())
        return float(filled.max()) / mean if mean > 0 else 1.0

    def balance_lower_bound(self, hot: Mask, servers: int) -> float:
        """Return a lower bound of :meth:`balance` for any placement with these ``hot`` endpoints."""
        cold = self.load(hot)
        mean = float(cold.sum()) / servers + self.mean_hot_load(hot, servers)
        return max(1.0, (load_lower_bound(cold, servers) + self._hot_load(hot)[0]) / mean) if mean > 0 else 1.0

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


def search_views(problem: Problem, load: Floats, hot: Mask, leaves: int, placement: Parts | None = None) -> list[View]:
    """Return the views of the search: every planned number of servers, and the leaves as if each were a server.

    Limits are of sums of ``load``: endpoints' own, or :meth:`Problem.search_load`. They leave room for the rest of the
    load of servers: the same on all, or as it is in ``placement``. A leaf is limited to its share, or to more if
    endpoints are too heavy for that, or if a server has too few leaves for its own share.
    """
    planned = sorted({min(each, leaves) for each in problem.options.servers})
    whole, views, shares = float(load.sum()), [], []
    for each in planned:
        mean = float(problem.load(hot).sum()) / each + problem.mean_hot_load(hot, each)
        most, rest = (1 + problem.options.epsilon) * mean, np.full(each, mean - whole / each)
        shares.append((most - float(rest[0])) / (leaves // each))
        if placement is not None and hot.any():
            part = server_of_endpoint(placement, leaves, each)
            rest = problem.server_loads(part, each) - part_loads(load, part, each)
        views.append(View(server_of_leaf(leaves, each), each, np.maximum(most - rest, 0.0), 1 / len(planned)))
    if leaves in planned:
        return views
    greedy_load = float(part_loads(load, lpt(load, leaves), leaves).max())
    of_leaf = np.full(leaves, max(greedy_load, *shares))
    return [*views, View(np.arange(leaves, dtype=np.int32), leaves, of_leaf, LEAF_WEIGHT)]
