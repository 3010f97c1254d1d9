"""Resources that a placement takes of each server, their limits, and moves that keep a placement within them.

Clients of a server do not add up over its endpoints, so they are no load of the search: its result is mended here, by
moves that gain and lose whole clients.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from learning.costs import ROLES
from learning.modes.configuration import MAX_SERVERS, Configuration
from learning.modes.measured import RUNS
from learning.modes.model import RETAINED_BYTES, SUBSCRIPTION_BYTES
from learning.placement.blocks import Floats, Parts
from learning.placement.fanout import CLAMP
from learning.placement.objective import (
    ROUNDING,
    View,
    clients_of_servers,
    fan_out,
    merged_frames,
    part_loads,
    server_loads,
    server_of_endpoint,
    server_of_leaf,
    servers_of,
)
from learning.placement.options import Problem

PATIENCE: Final = 12
"""Moves that do not relieve the fullest server any more after which there is no better placement near."""
UNITS: Final = (("clients", 1.0), ("MiB of memory", 2.0**20), ("MB/s to clients", 1e6), ("% of a core", 1e4))
"""Names of :class:`Resources` in reports, with their units."""


def usage(problem: Problem, placement: Parts, leaves: int, servers: int) -> Floats:
    """Return what each of ``servers`` uses of each resource: float64[len(Resources), servers].

    Clients and subscriptions are means over the window; frames and CPU time are those of its busy minutes.
    """
    instance, costs, clones = problem.instance, problem.costs, problem.options.clones
    part, hot = server_of_endpoint(placement, leaves, servers), placement < 0
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
    result: Floats = used + np.array(rest)
    return result


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


def relieve(problem: Problem, part: Parts, leaves: int, planned: Sequence[View], counts: Sequence[int]) -> Parts | None:
    """Return a placement near ``part`` with each server within the limits, or None if none was found.

    Args:
        problem: with limits.
        part: a placement on ``leaves``.
        leaves: the partitions.
        planned: limits of load, which no move exceeds.
        counts: numbers of servers, each within the limits.
    """
    instance, backend, limits = problem.instance, problem.backend, np.array(problem.options.limits)
    unit = 2.0**instance.shift / instance.seconds / problem.share / problem.options.clones
    load = problem.load(part < 0)
    part, tried = part.copy(), np.zeros(part.size, np.int64)
    least, since = np.inf, 0
    while since < PATIENCE:
        filled = {each: usage(problem, part, leaves, each) / limits[:, None] for each in counts}
        fullest = max(counts, key=lambda each: float(filled[each].max()))
        now = float(filled[fullest].max())
        if now <= 1 + ROUNDING:
            return part
        least, since = (now, 0) if now < least * (1 - 1e-3) else (least, since + 1)
        resource, server = np.unravel_index(int(filled[fullest].argmax()), filled[fullest].shape)
        of_client, of_endpoint, _ = _amounts(problem, server_of_endpoint(part, leaves, fullest), fullest)
        of_client, of_endpoint = of_client / limits, of_endpoint / limits[:, None]
        of_leaf = server_of_leaf(leaves, fullest)
        rows = np.flatnonzero((part >= 0) & (tried < leaves))
        rows = rows[of_leaf[part[rows]] == server]
        gain = np.zeros((rows.size, leaves))
        every = np.arange(rows.size)
        for count in counts:
            server_of = server_of_leaf(leaves, count)
            # Clients that come to a server with an endpoint, and those that leave the present one.
            more = backend.affinity(server_of_endpoint(part, leaves, count), count, CLAMP)[rows] * unit
            own = server_of[part[rows]]
            fewer = more[every, own] * 2.0**CLAMP
            added = of_client[:, None, None] * more + of_endpoint[:, rows, None]
            relief = of_client[resource] * fewer + of_endpoint[resource, rows]
            gain += ((relief[:, None] if count == fullest else 0.0) - 1e-3 * added[resource])[:, server_of]
            crowded = (filled[count][:, None, :] + added > 1).any(0)
            crowded[every, own] = count == fullest
            gain[crowded[:, server_of]] = -np.inf
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
