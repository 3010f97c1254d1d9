"""Moves endpoints off servers that would have more clients than they accept.

Clients of a server do not add up over its endpoints, so they are no load of the search: its result is mended here, by
moves that gain and lose whole clients.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from learning.placement.blocks import Parts
from learning.placement.fanout import CLAMP
from learning.placement.objective import (
    ROUNDING,
    View,
    clients_of_servers,
    server_loads,
    server_of_endpoint,
    server_of_leaf,
    servers_of,
)
from learning.placement.options import Problem

PATIENCE: Final = 12
"""Moves that do not relieve the fullest server any more after which there is no better placement near."""


def relieve(problem: Problem, part: Parts, leaves: int, planned: Sequence[View], counts: Sequence[int]) -> Parts | None:
    """Return a placement near ``part`` with at most the capacity of clients on each server, or None if none was found.

    Args:
        problem: with a capacity.
        part: a placement on ``leaves``.
        leaves: the partitions.
        planned: limits of load, which no move exceeds.
        counts: numbers of servers, each with the capacity.
    """
    instance, backend, most = problem.instance, problem.backend, float(problem.options.capacity or np.inf)
    unit, load = 2.0**instance.shift / instance.seconds / problem.share, problem.load(part < 0)
    part, tried = part.copy(), np.zeros(part.size, np.int64)
    least, since = np.inf, 0
    while since < PATIENCE:
        filled = {
            each: clients_of_servers(instance, backend, server_of_endpoint(part, leaves, each), each) / problem.share
            for each in counts
        }
        fullest = max(counts, key=lambda each: float(filled[each].max()))
        now = float(filled[fullest].max())
        if now <= most * (1 + ROUNDING):
            return part
        least, since = (now, 0) if now < least * (1 - 1e-3) else (least, since + 1)
        of_leaf = server_of_leaf(leaves, fullest)
        rows = np.flatnonzero((part >= 0) & (tried < leaves))
        rows = rows[of_leaf[part[rows]] == int(filled[fullest].argmax())]
        gain = np.zeros((rows.size, leaves))
        every = np.arange(rows.size)
        for count in counts:
            server = server_of_leaf(leaves, count)
            of_servers = server_of_endpoint(part, leaves, count)
            # Clients that come to a server with an endpoint, and those that leave the present one.
            more = backend.affinity(of_servers, count, CLAMP)[rows] * unit
            own = server[part[rows]]
            fewer = more[every, own] * 2.0**CLAMP
            gain += ((fewer[:, None] if count == fullest else 0.0) - 1e-3 * more)[:, server]
            crowded = filled[count] + more > most
            crowded[every, own] = count == fullest
            gain[crowded[:, server]] = -np.inf
        for view in planned:
            over = server_loads(load, part, view) + load[rows, None] > view.max_load
            over[every, servers_of(part, view)[rows]] = False
            gain[over[:, view.server]] = -np.inf
        if not np.isfinite(gain).any():
            return None
        found = int(gain.argmax())
        part[rows[found // leaves]] = found % leaves
        tried[rows[found // leaves]] += 1
    return None
