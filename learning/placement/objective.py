"""Objectives of a placement: load of servers, fan-out of clients, and cost of movement.

The search minimises :func:`planned_fan_out` within load limits (:func:`overload`); finished placements are compared by
:func:`total_cost`. A new term belongs in both, and in the gains of the search: ``_best_moves`` of ``refine``, and
``affinity``, ``gains`` and ``removal_savings`` of ``fanout``. The hot set has its own criterion, in ``hot``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from learning.costs import Costs
from learning.modes.terms import consumed_updates as consumed
from learning.placement.backend import Backend
from learning.placement.blocks import Floats, Ints, Mask, Parts, sum_by_cell
from learning.placement.instance import Instance

NEGLIGIBLE: Final = 1e-9
"""Gains and loads below this count as zero."""
ROUNDING: Final = 1e-9
"""Relative excess over a load limit that counts as a rounding error."""
BASE_MIGRATION_COST: Final = 1.0
"""c0: cost of moving an endpoint without subscribers, in subscriptions."""


def server_of_leaf(leaves: int, servers: int) -> Parts:
    """Return the server of each of ``leaves`` partitions among ``servers`` members: int32[leaves].

    As Kafka's RangeAssignor assigns a topic: in order, with one more for each of the first ``leaves % servers``
    members. Servers are numbered in the order of their member ids.
    """
    least, more = divmod(leaves, servers)
    counts = np.full(servers, least)
    counts[:more] += 1
    return np.repeat(np.arange(servers, dtype=np.int32), counts)


def server_of_endpoint(placement: Parts, leaves: int, servers: int) -> Parts:
    """Return the server of every endpoint, negative for hot ones."""
    return _servers_of(placement, server_of_leaf(leaves, servers))


def _servers_of(part: Parts, server: Parts) -> Parts:
    return np.where(part < 0, part, server[part]).astype(np.int32)


def loads(instance: Instance, costs: Costs) -> Floats:
    """Return the expected load of each endpoint in busy minutes, in microseconds a second: lambda_e (a + b n_e)."""
    return instance.expected_busy[0] * (costs.update_us + costs.delivery_us * instance.expected_subscribers)


def part_loads(load: Floats, part: Parts, k: int) -> Floats:
    """Return the load of each of ``k`` parts; endpoints without a part (hot ones) do not count."""
    placed = part >= 0
    return sum_by_cell(part[placed], load[placed], k)


def balance(load: Floats, part: Parts, k: int) -> float:
    """Return the largest load of a part over the mean: 1 if even, or without any load."""
    of_parts = part_loads(load, part, k)
    mean = float(of_parts.mean())
    return float(of_parts.max()) / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class FanOut:
    """Servers per client, weighted by the time for which clients are connected."""

    mean: float
    p99: int
    total: float
    """Sum of weight * fan-out: upstream connections in the unit of the weights."""


def fan_out(backend: Backend, part: Parts, k: int) -> FanOut:
    """Return the fan-out of a placement on ``k`` servers. It is 1 for a client with only hot endpoints."""
    return summarise_fan_out(backend.fan_out(part, k))


def summarise_fan_out(weight: Ints) -> FanOut:
    """Summarise the weight of the sets on 0, 1, ... parts (:meth:`Backend.fan_out`)."""
    weight = weight.copy()
    weight[1] += weight[0]
    weight[0] = 0
    clients = int(weight.sum())
    if clients == 0:
        return FanOut(0.0, 0, 0.0)
    total = int((weight * np.arange(weight.size)).sum())
    return FanOut(total / clients, int(np.searchsorted(np.cumsum(weight), 0.99 * clients)), float(total))


def added_load(instance: Instance, costs: Costs, hot: Mask, servers: int) -> float:
    """Return the load added by consuming the ``hot`` endpoints on every server, as a share of the whole load."""
    whole = float(loads(instance, costs).sum())
    return float(instance.expected[hot].sum()) * costs.update_us * (servers - 1) / whole if whole > 0 else 0.0


def merged_frames(instance: Instance, mean: float) -> float:
    """Return the frames a second that share a send with another one: of one write, for one client, from one server.

    By the model of docs/modes.md, with a ``mean`` fan-out.
    """
    load = instance.load
    return max(0.0, load.frames - load.sends_of(mean)) if load.frames > 0 and mean > 0 else 0.0


def total_cost(instance: Instance, costs: Costs, connections: float, hot: Mask, servers: int) -> float:
    """Return J in microseconds a second, without deliveries: :func:`merged_saving` has what a placement saves of them.

    a sum lambda_e (1 + (S - 1) [e hot]) + kappa * ``connections``, the mean number of upstream connections.
    """
    return costs.update_us * consumed_updates(instance, hot, servers) + costs.connection_us_per_s * connections


def merged_saving(instance: Instance, costs: Costs, mean: float) -> float:
    """Return what :func:`merged_frames` save, in microseconds a second: to be subtracted from J.

    Only finished placements are compared by it. The search follows the fan-out, with which it grows.
    """
    return (costs.merged_saving_us + costs.proxy_merged_saving_us) * merged_frames(instance, mean)


def consumed_updates(instance: Instance, hot: Mask, servers: int) -> float:
    """Return the updates per second that all servers consume; each consumes the ``hot`` ones."""
    return consumed(float(instance.expected.sum()), float(instance.expected[hot].sum()), servers)


def connections(instance: Instance, summary: FanOut) -> float:
    """Return the mean number of upstream connections for a fan-out."""
    return summary.mean * float(instance.weight.sum()) / instance.seconds


def clients_of_servers(instance: Instance, backend: Backend, part: Parts, servers: int) -> Floats:
    """Return the mean number of clients that are connected to each of ``servers`` over the window: float64[servers].

    A client with only hot endpoints goes to the server with the fewest, as lookups of owners send it
    (``metadata.locate``).
    """
    weight = backend.weight_by_part(part, servers) * (2.0**instance.shift / instance.seconds)
    needed, anywhere = weight[:servers], float(weight[servers])
    ordered = np.sort(needed)
    # Clients per server if the servers with the fewest alone shared the others; at least their own.
    levels = (np.cumsum(ordered) + anywhere) / np.arange(1, servers + 1)
    result: Floats = np.maximum(needed, levels[levels >= ordered][-1])
    return result


def migration_cost(instance: Instance) -> Floats:
    """Return m_e: the cost of moving each endpoint, in subscriptions."""
    return instance.subscribers + BASE_MIGRATION_COST


@dataclass(frozen=True)
class View:
    """One planned number of servers: the server of each leaf, and the load limit."""

    server: Parts
    """Server of each leaf."""
    servers: int
    max_load: Floats
    """Load of each server that no move may exceed."""
    weight: float = 1.0
    """Weight of this view's fan-out in the sum over all views."""


def servers_of(part: Parts, view: View) -> Parts:
    """Return the server of each vertex in a view; negative parts stay as they are."""
    return _servers_of(part, view.server)


def server_loads(load: Floats, part: Parts, view: View) -> Floats:
    """Return the load of each server of a view."""
    return part_loads(load, servers_of(part, view), view.servers)


def planned_fan_out(backend: Backend, part: Parts, views: Sequence[View]) -> float:
    """Return the weighted sum of the fan-out over all views, which the search minimises."""
    total = 0.0
    for view in views:
        weight = backend.fan_out(servers_of(part, view), view.servers)
        total += view.weight * float((weight * np.arange(view.servers + 1)).sum())
    return total


def overload(load: Floats, part: Parts, views: Sequence[View]) -> float:
    """Return the largest excess of a server over its view's limit, as a share of the limit: 0 if all are kept."""
    return max(
        0.0,
        *(
            float((server_loads(load, part, view) / np.maximum(view.max_load, NEGLIGIBLE)).max()) - 1 - ROUNDING
            for view in views
        ),
    )
