"""CPU time by role, connections and memory of a placement, and of mode x, which places nothing.

The model of docs/placement.md, whose formulas are in ``learning.modes.terms``. Separate from ``report``, which the
modes of proxies do not concern.
"""

from dataclasses import dataclass

import numpy as np

from learning.costs import Costs
from learning.modes import terms
from learning.placement.blocks import Mask
from learning.placement.instance import Instance
from learning.placement.objective import consumed_updates, merged_frames


@dataclass(frozen=True)
class Worth:
    """Totals over all servers; times in microseconds per second."""

    updates_us: float
    """Consuming updates."""
    frames_us: float
    """Delivering frames; less where more of those of a write come to a client from one server."""
    connections_us: float
    """Open connections of clients, or of proxies in their place."""
    links: float
    """Mean number of these connections."""
    memory_bytes: float
    """Memory of these connections."""
    merged: float = 0.0
    """Frames a second that share a send with another one."""

    @property
    def cpu_us(self) -> float:
        """Sum over the roles."""
        return self.updates_us + self.frames_us + self.connections_us


def placement_worth(
    instance: Instance, costs: Costs, links: float, hot: Mask, servers: int, *, mean: float = 0.0
) -> Worth:
    """Return what a placement with ``hot`` endpoints takes on ``servers``, with a mean number of ``links``.

    ``mean`` is the mean fan-out, by which frames share sends; 0: unknown, no frames share one.
    """
    return _worth(instance, costs, consumed_updates(instance, hot, servers), links, mean)


def mode_x_worth(instance: Instance, costs: Costs, servers: int) -> Worth:
    """Return the totals of mode x: every server consumes every update, and a client needs one connection."""
    links = float(instance.weight.sum()) / instance.seconds
    every = np.ones(len(instance.endpoints), np.bool_)
    return _worth(instance, costs, consumed_updates(instance, every, servers), links, 1.0)


def _worth(instance: Instance, costs: Costs, consumed: float, links: float, mean: float) -> Worth:
    frames = float((instance.rate * instance.subscribers).sum())
    work = terms.pairs(consumed, frames, links)
    updates_us, frames_us, connections_us = (getattr(costs, name) * amount for name, amount in work.items())
    merged = merged_frames(instance, mean)
    frames_us -= costs.merged_saving_us * merged
    return Worth(updates_us, frames_us, connections_us, links, costs.connection_bytes * links, merged)
