"""Objective: load of servers, fan-out of clients, and the total that a plan minimises."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from metadata.costs import Costs
from metadata.placement.backend import Backend
from metadata.placement.blocks import Floats, Ints, Mask, Parts, sum_by_cell
from metadata.placement.instance import Instance

BASE_MIGRATION_COST: Final = 1.0
"""c0: cost of moving an endpoint without subscribers, in subscriptions."""


def server_of_leaf(leaves: int, servers: int) -> Parts:
    """Return the server of each of ``leaves`` partitions among ``servers`` members: int32[leaves].

    As Kafka's RangeAssignor lays a topic out: in order, and the first ``leaves % servers`` members have one more.
    Servers are numbered in the order of their member ids.
    """
    least, more = divmod(leaves, servers)
    counts = np.full(servers, least)
    counts[:more] += 1
    return np.repeat(np.arange(servers, dtype=np.int32), counts)


def server_of_endpoint(placement: Parts, leaves: int, servers: int) -> Parts:
    """Return the server of every endpoint, negative for hot ones."""
    return np.where(placement < 0, placement, server_of_leaf(leaves, servers)[placement]).astype(np.int32)


def loads(instance: Instance, costs: Costs) -> Floats:
    """Return the load of each endpoint, in microseconds a second: lambda_e (a + b n_e)."""
    return instance.expected * (costs.update_us + costs.delivery_us * instance.subscribers)


def part_loads(load: Floats, part: Parts, k: int) -> Floats:
    """Return the load of each of ``k`` parts, without endpoints that have none (hot ones)."""
    placed = part >= 0
    return sum_by_cell(part[placed], load[placed], k)


def balance(load: Floats, part: Parts, k: int) -> float:
    """Return the largest load of a part over the mean: 1 is perfect, and the value without any load."""
    of_parts = part_loads(load, part, k)
    mean = float(of_parts.mean())
    return float(of_parts.max()) / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class FanOut:
    """Servers per client, weighted by the time that clients are connected."""

    mean: float
    p99: int
    total: float
    """Sum of weight * fan-out: upstream connections, in the unit of the weights."""


def fan_out(backend: Backend, part: Parts, k: int) -> FanOut:
    """Return the fan-out of a placement on ``k`` servers. A client of hot endpoints alone has one."""
    return summarise_fan_out(backend.fan_out(part, k))


def summarise_fan_out(weight: Ints) -> FanOut:
    """Summarise the weight of the sets that meet 0, 1, ... parts (:meth:`Backend.fan_out`)."""
    weight = weight.copy()
    weight[1] += weight[0]
    weight[0] = 0
    clients = int(weight.sum())
    if clients == 0:
        return FanOut(0.0, 0, 0.0)
    total = int((weight * np.arange(weight.size)).sum())
    return FanOut(total / clients, int(np.searchsorted(np.cumsum(weight), 0.99 * clients)), float(total))


def added_load(instance: Instance, costs: Costs, hot: Mask, servers: int) -> float:
    """Return the load added by every server consuming the ``hot`` endpoints, as a share of the whole load."""
    whole = float(loads(instance, costs).sum())
    return float(instance.expected[hot].sum()) * costs.update_us * (servers - 1) / whole if whole > 0 else 0.0


def total_cost(instance: Instance, costs: Costs, connections: float, hot: Mask, servers: int) -> float:
    """Return J in microseconds a second, without deliveries, which no placement changes.

    a sum lambda_e (1 + (S - 1) [e hot]) + kappa * ``connections``, the mean number of upstream connections.
    """
    consumed = float(instance.expected.sum()) + float(instance.expected[hot].sum()) * (servers - 1)
    return costs.update_us * consumed + costs.connection_us_per_s * connections


def connections(instance: Instance, found: FanOut) -> float:
    """Return the mean number of upstream connections of a fan-out with weights in the blocks' unit."""
    return found.mean * float(instance.weight.sum()) / instance.seconds


def migration_cost(instance: Instance) -> Floats:
    """Return m_e: the cost of moving each endpoint, in subscriptions."""
    return instance.subscribers + BASE_MIGRATION_COST
