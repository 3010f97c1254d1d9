"""Resources that a placement takes of each server, their limits, and moves that keep a placement within them.

Clients of a server do not add up over its endpoints, so they are no load of the search: its result is mended here, by
moves that gain and lose whole clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from learning.costs import ROLES
from learning.modes.configuration import MAX_SERVERS, Configuration
from learning.modes.measured import RUNS
from learning.modes.model import RETAINED_BYTES, SUBSCRIPTION_BYTES
from learning.placement import exact
from learning.placement.blocks import Floats, Ints, Parts
from learning.placement.fanout import SHARPNESS
from learning.placement.objective import (
    ROUNDING,
    clients_of_servers,
    fan_out,
    merged_frames,
    part_loads,
    server_of_endpoint,
    server_of_leaf,
)
from learning.placement.options import Problem
from learning.placement.refine import Movement

PATIENCE: Final = 100
"""Moves that do not relieve servers any more after which there is no better placement near."""
TENURE: Final = 10
"""Moves for which an endpoint stays after one of its own."""
CONSOLIDATION: Final = 1e-3
"""Gain of a connection fewer, as a multiple of that of one fewer beyond a limit."""
UNITS: Final = (("clients", 1.0), ("MiB of memory", 2.0**20), ("MB/s to clients", 1e6), ("% of a core", 1e4))
"""Names of :class:`Resources` in reports, with their units."""


def usage(problem: Problem, placement: Parts, leaves: int, servers: int) -> Floats:
    """Return what each of ``servers`` uses of each resource: float64[len(Resources), servers].

    Clients and subscriptions are means over the window; frames and CPU time are those of its busy minutes.
    """
    return _usage(problem, server_of_endpoint(placement, leaves, servers), servers)[0]


def _usage(problem: Problem, part: Parts, servers: int) -> tuple[Floats, Floats, Floats]:
    """Return :func:`usage`, and what a client and each endpoint take of each resource: float64[R], float64[R, E]."""
    instance, costs, clones = problem.instance, problem.costs, problem.options.clones
    hot = part < 0
    clients = clients_of_servers(instance, problem.backend, part, servers) / problem.share / clones
    of_client, of_endpoint, frame_us = _amounts(problem, part, servers)
    used = np.array([part_loads(each, part, servers) for each in of_endpoint]) + of_client[:, None] * clients
    endpoints = part_loads(np.ones(hot.size), part, servers) + float(hot.sum())
    # Clients have hot endpoints where they are connected for others.
    of_frames = replace(costs, update_us=0.0, delivery_us=1.0)
    frames = replace(problem, costs=of_frames).hot_loads(part, servers) / clones
    subscribed = float(instance.expected_subscribers[hot].sum()) / clones * clients / max(float(clients.sum()), 1e-300)
    retained = np.minimum(endpoints * instance.load.data_bytes, RETAINED_BYTES)
    consumed = costs.update_us * float(instance.expected_busy[0][hot].sum())
    rest = [
        np.zeros(servers),
        ROLES.memory["websocket"] + retained + SUBSCRIPTION_BYTES * subscribed,
        frames * instance.load.frame_bytes,
        costs.idle_us_per_s + consumed + frames * frame_us,
    ]
    return used + np.array(rest), of_client, of_endpoint


def _amounts(problem: Problem, part: Parts, servers: int) -> tuple[Floats, Floats, float]:
    """Return what a client and each endpoint take of each resource: float64[R], float64[R, E]; and the us of a frame.

    Frames that share a send with another one, with the fan-out of a placement on ``servers``, take less.
    """
    instance, costs, clones = problem.instance, problem.costs, problem.options.clones
    load, rate, subscribers = instance.load, instance.expected_busy[0], instance.expected_subscribers / clones
    mean = fan_out(problem.backend, part, servers).mean
    merged = merged_frames(instance, mean) / load.frames if load.frames > 0 else 0.0
    frame_us = costs.delivery_us - costs.merged_saving_us * merged
    of_endpoint = np.array(
        [
            np.zeros(rate.size),
            SUBSCRIPTION_BYTES * subscribers,
            rate * subscribers * load.frame_bytes,
            rate * (costs.update_us + frame_us * subscribers),
        ]
    )
    return np.array([1.0, costs.connection_bytes, 0.0, costs.connection_us_per_s]), of_endpoint, frame_us


def overfull(problem: Problem, placement: Parts, leaves: int) -> tuple[int, int]:
    """Return for how many planned numbers of servers one would exceed a limit, and for how many after a loss of one."""
    if problem.options.limits is None:
        return 0, 0
    planned = set(problem.options.servers)
    now, left = (
        sum(_fullest(problem, placement, leaves, each - lost) > 1 + ROUNDING for each in planned if each > lost)
        for lost in (0, 1)
    )
    return now, left


def _fullest(problem: Problem, placement: Parts, leaves: int, servers: int) -> float:
    """Return the largest share of a limit that one of ``servers`` uses."""
    limits = np.array(problem.options.limits)[:, None]
    return float((usage(problem, placement, leaves, servers) / limits).max())


def report(problem: Problem, placement: Parts, leaves: int) -> dict[str, Any] | None:
    """Return the use of each planned server beside the limits, and that of the fullest after the loss of another.

    ``enough`` is the least larger number of servers on which this placement is within the limits, also after a loss,
    where it is not on those planned; None if it is, or if no number up to the partitions would do.
    """
    limits, planned = problem.options.limits, sorted(set(problem.options.servers))
    if limits is None:
        return None

    def named(values: Floats) -> dict[str, Any]:
        pairs = zip(UNITS, values, strict=True)
        return {name: np.round(value / unit, 1).tolist() for (name, unit), value in pairs}

    def fits(servers: int) -> bool:
        counts = {servers, max(1, servers - 1)}
        return all(_fullest(problem, placement, leaves, each) <= 1 + ROUNDING for each in counts)

    more = range(planned[-1] + 1, min(leaves, MAX_SERVERS) + 1)
    return {
        "limits": named(np.array(limits)),
        "servers": {str(each): named(usage(problem, placement, leaves, each)) for each in planned},
        "after_loss": {
            str(each): named(usage(problem, placement, leaves, each - 1).max(1)) for each in planned if each > 1
        },
        "enough": None if all(map(fits, planned)) else next(filter(fits, more), None),
    }


def storm_s(problem: Problem, placement: Parts, leaves: int, servers: int) -> float:
    """Return the seconds from the loss of the server with most clients until all clients are live again.

    The others take its partitions over, and Kafka's ranges move with them: the clients that come to a server are those
    of its range after the loss, but not of the one before. Handshakes have a server's core first
    (:mod:`diem.links.listener`); the time until partitions have another owner is measured (:mod:`learning.modes`).
    """
    instance, backend = problem.instance, problem.backend
    of_leaf, left = server_of_leaf(leaves, servers), server_of_leaf(leaves, servers - 1)
    part = server_of_endpoint(placement, leaves, servers)
    before = backend.weight_by_part(part, servers)
    unit = 2.0**instance.shift / instance.seconds / problem.share / problem.options.clones
    clients = clients_of_servers(instance, backend, part, servers) / problem.share / problem.options.clones
    lost = int(clients.argmax())
    remaining = np.delete(np.arange(servers), lost)
    coming = np.zeros(servers - 1)
    # Ranges before and after the loss overlap with those of the next server at most: so every other one at a time.
    for first in (0, 1):
        either = np.full(leaves, -1, np.int32)
        for each in range(first, servers - 1, 2):
            either[(left == each) | (of_leaf == remaining[each])] = each
        needed = np.where(placement < 0, -1, either[placement]).astype(np.int32)
        coming[first::2] = backend.weight_by_part(needed, servers - 1)[first : servers - 1 : 2]
    coming = (coming - before[remaining]) * unit
    # Those with hot endpoints only are anywhere.
    coming += (float(clients[lost]) - float(before[lost]) * unit) / (servers - 1)
    taken_over = RUNS[Configuration.Z_CLIENT].loss_s or 0.0
    return taken_over + float(coming.max()) * problem.costs.connect_us / 1e6


def relieve(
    problem: Problem, part: Parts, leaves: int, counts: Sequence[int], movement: Movement | None = None
) -> Parts | None:
    """Return a placement near ``part`` with each server within the limits, or None if none was found.

    Tabu search (Glover, 1989): each time the move after which servers exceed their limits least, also where that is
    more than before; an endpoint that moved then stays for a while. Load is limited, too, on planned servers.

    Args:
        problem: with limits.
        part: a placement on ``leaves``.
        leaves: the partitions.
        counts: numbers of servers, each within the limits.
        movement: limit of moves; with it, servers may keep more load than they should have.
    """
    limits = problem.options.limits
    if limits is not None and problem.connected / problem.options.clones > limits.clients * min(counts):
        return None
    part, placed, until = part.copy(), np.flatnonzero(part >= 0), np.zeros(part.size, np.int64)
    load = problem.load(part < 0)
    most: dict[int, Floats] = {}
    for each in set(counts) & set(problem.options.servers):
        now = problem.server_loads(server_of_endpoint(part, leaves, each), each)
        bound = np.full(each, (1 + problem.options.epsilon) * float(now.mean()))
        most[each] = bound if movement is None else np.maximum(bound, now)
    least, moves, found = np.inf, 0, 0
    while moves - found < PATIENCE:
        uses = [_Use.of(problem, part, leaves, load, most.get(each, np.full(each, np.inf))) for each in counts]
        if all(float(use.filled.max()) <= 1 + ROUNDING for use in uses):
            return part
        excess = sum(float(np.maximum(use.filled - 1, 0).sum()) for use in uses)
        least, found = (excess, moves) if excess < least * (1 - 1e-3) else (least, found)
        rows = placed[until[placed] <= moves]
        if movement:
            dear = movement.spent(part) + movement.cost[rows] > movement.budget
            rows = rows[~dear | (part[rows] != movement.start[rows])]
        gain = sum((use.gains(problem, part, rows) for use in uses), np.zeros((rows.size, leaves)))
        stays = [use.server_of[part[rows], None] == use.server_of for use in uses]
        gain[np.logical_and.reduce(stays)] = -np.inf
        if not np.isfinite(gain).any():
            return None
        row, leaf = divmod(int(gain.argmax()), leaves)
        part[rows[row]] = leaf
        moves += 1
        until[rows[row]] = moves + min(TENURE, placed.size // 4)
    return None


def place_within(problem: Problem, near: Parts, leaves: int) -> Parts | None:
    """Return a placement with the hot endpoints of another and each server within the limits, by HiGHS.

    None if endpoints or sets are too many (:func:`exact.solve_within`), for several numbers of servers, or if none was
    found.
    """
    planned = set(problem.options.servers)
    if len(planned) > 1 or max(planned) > leaves:
        return None
    (servers,), load = planned, problem.load(near < 0)
    at = server_of_endpoint(near, leaves, servers)
    bound = (1 + problem.options.epsilon) * float(problem.server_loads(at, servers).mean())
    use = _Use.of(problem, near, leaves, load, np.full(servers, bound))
    clients = (
        clients_of_servers(problem.instance, problem.backend, at, servers) / problem.share / problem.options.clones
    )
    limits = []
    for filled, most, client, endpoint in zip(use.filled, use.limits, use.of_client, use.of_endpoint, strict=True):
        # What servers use besides, for hot endpoints or without any: about the same on all.
        rest = (filled * most - client * clients - part_loads(endpoint, at, servers)).mean()
        limits.append(exact.ServerLimit(client * _client_unit(problem), endpoint, most - rest))
    cold = np.where(near < 0, near, 0).astype(np.int32)
    return exact.solve_within(problem.backend, load, cold, use.server_of, limits)


def _client_unit(problem: Problem) -> float:
    """Return the clients of a server group for each unit of the backend's weights."""
    return 2.0**problem.instance.shift / problem.instance.seconds / problem.share / problem.options.clones


@dataclass(frozen=True)
class _Use:
    """What servers use, as shares of the limits of R resources, and last of load: what moves change."""

    server_of: Parts
    """Server of each leaf."""
    filled: Floats
    """float64[R + 1, servers]."""
    limits: Floats
    """float64[R + 1, servers]."""
    of_client: Floats
    """float64[R + 1]."""
    of_endpoint: Floats
    """float64[R + 1, E]; its load is about what it takes along."""

    @classmethod
    def of(cls, problem: Problem, part: Parts, leaves: int, load: Floats, most: Floats) -> "_Use":
        """Return the use of a placement by servers that may have a load of ``most`` each."""
        servers = most.size
        at = server_of_endpoint(part, leaves, servers)
        used, of_client, of_endpoint = _usage(problem, at, servers)
        limits = np.vstack([np.repeat(np.array(problem.options.limits)[:, None], servers, 1), most])
        filled = np.vstack([used, problem.server_loads(at, servers)]) / limits
        of = np.append(of_client, 0.0), np.vstack([of_endpoint, load])
        return cls(server_of_leaf(leaves, servers), filled, limits, *of)

    def gains(self, problem: Problem, part: Parts, rows: Ints) -> Floats:
        """Return by how much less servers exceed limits if endpoints ``rows`` move to a leaf: float64[rows, leaves]."""
        servers = self.filled.shape[1]
        at, own = np.where(part < 0, part, self.server_of[part]).astype(np.int32), self.server_of[part[rows]]
        # Clients that come to a server with an endpoint, and those that leave the present one: who have no other there.
        more = problem.backend.affinity(at, servers, SHARPNESS)[rows] * _client_unit(problem)
        fewer = more[np.arange(rows.size), own] * 2.0**SHARPNESS
        gain = (fewer[:, None] - more) * (self.of_client[0] / self.limits[0] * CONSOLIDATION)
        for filled, most, client, endpoints in zip(
            self.filled, self.limits, self.of_client, self.of_endpoint, strict=True
        ):
            here = endpoints[rows]
            after, left = (
                filled + (client * more + here[:, None]) / most,
                filled[own] - (client * fewer + here) / most[own],
            )
            gain += (np.maximum(filled[own] - 1, 0) - np.maximum(left - 1, 0))[:, None]
            gain -= np.maximum(after - 1, 0) - np.maximum(filled - 1, 0)
        gain[np.arange(rows.size), own] = 0.0
        result: Floats = gain[:, self.server_of]
        return result
