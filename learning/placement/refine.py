"""Local search: move single endpoints (or clusters) between leaves, for all planned numbers of servers at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from learning.placement.backend import Backend
from learning.placement.blocks import Floats, Ints, Parts
from learning.placement.fanout import SHARPNESS
from learning.placement.objective import NEGLIGIBLE, ROUNDING, View, overload, planned_fan_out, server_loads, servers_of

TRIED_SHARE: Final = 0.1
"""Share of the vertices tried per round, the most promising first: gains change as others move."""
CONVERGED_SHARE: Final = 1e-3
"""The search has converged if a round moves less than this share of the vertices."""
PERTURBATIONS: Final = ((1.5, 1.2, 1.05), (1.2, 1.05), (1.1, 1.02))
"""Load limits of the local searches after the first one, as multiples of the real ones, which follow each row."""
PERTURBATIONS_WITHIN_BUDGET: Final = ((1.1,), (1.05,), (1.02,))
"""The same where movement has a limit: moves beyond the real limits of load would use it up."""
PASSES: Final = 8
"""Passes of :func:`pass_and_roll_back` at most."""
PATIENCE: Final = 40
"""Moves without a better state after which a pass ends."""
_FORBIDDEN: Final = -1e18
_MAX_CELLS: Final = 1 << 20
"""Gains, of vertices on leaves, that are computed at a time, 8 bytes each: of all they would take gigabytes."""


@dataclass(frozen=True)
class Movement:
    """Movement limit: the ``cost`` of all endpoints away from ``start`` is at most ``budget``."""

    start: Parts
    cost: Floats
    budget: float
    price: float = 0.0
    """Gain that each unit of cost must bring, except for moves off an overloaded server."""

    def spent(self, part: Parts) -> float:
        """Return the cost of the endpoints that ``part`` moves."""
        return float(self.cost[part != self.start].sum())


@dataclass(frozen=True)
class _CandidateMoves:
    """The best move of each of the tried ``vertices``, in the order of trial."""

    vertices: Ints
    leaf: Ints
    gain: Floats


def refine(
    backend: Backend,
    load: Floats,
    part: Parts,
    views: Sequence[View],
    *,
    rounds: int = 20,
    sharpness: int = 1,
    movement: Movement | None = None,
) -> Parts:
    """Improve ``part`` by greedy moves in order of p-fan-out gain (SHP, VLDB'17, equation 2, k-way).

    p = 1 - 2**-``sharpness``: at 1 the search looks ahead, at 4 a gain is almost that of the fan-out itself. Endpoints
    on overloaded servers move first, even at a loss; no move overloads a server. Vertices with a negative part stay.
    """
    part = part.copy()
    for _ in range(rounds):
        moves = _best_moves(backend, load, part, views, sharpness=sharpness, movement=movement)
        if _apply_moves(moves, load, part, views, movement) < CONVERGED_SHARE * part.size:
            break
    return part


def perturb(
    backend: Backend,
    load: Floats,
    part: Parts,
    views: Sequence[View],
    movement: Movement | None = None,
) -> Parts:
    """Return the best of several local searches, each started from the previous result with looser load limits.

    A search gets stuck between full servers. Looser limits (:data:`PERTURBATIONS`) let it continue; as they tighten,
    the excess load moves off again at the least loss.
    """
    best = part = refine(backend, load, part, views, movement=movement)
    least = (overload(load, best, views), planned_fan_out(backend, best, views))
    for factors in PERTURBATIONS_WITHIN_BUDGET if movement else PERTURBATIONS:
        for factor in factors:
            loose = [replace(view, max_load=view.max_load * factor) for view in views]
            part = refine(backend, load, part, loose, movement=movement)
        part = refine(backend, load, part, views, sharpness=2, movement=movement)
        rank = (overload(load, part, views), planned_fan_out(backend, part, views))
        if rank < least:
            best, least = part, rank
    return best


def pass_and_roll_back(backend: Backend, load: Floats, part: Parts, views: Sequence[View]) -> Parts:
    """Improve ``part`` by passes in which every vertex moves once, also at a loss, up to the best state on the way.

    Fiduccia and Mattheyses (DAC'82) with the gain of the fan-out itself. A server may take one vertex too many on the
    way, and the next move relieves it: so vertices swap places between full servers.
    """
    least = (overload(load, part, views), planned_fan_out(backend, part, views))
    for _ in range(PASSES):
        at, free, best, since = part.copy(), part >= 0, part, 0
        while free.any() and since < PATIENCE:
            vertex, leaf = _best_move(backend, load, at, np.flatnonzero(free), views)
            at[vertex], free[vertex] = leaf, False
            rank = (overload(load, at, views), planned_fan_out(backend, at, views))
            since += 1
            if rank < least:
                best, least, since = at.copy(), rank, 0
        if best is part:
            break
        part = best
    return part


def _best_move(backend: Backend, load: Floats, part: Parts, free: Ints, views: Sequence[View]) -> tuple[int, int]:
    """Return the vertex among ``free``, of overloaded servers if there are any, and its leaf with the greatest gain."""
    every, leaves = np.arange(free.size), views[0].server.size
    gain, over = np.zeros((free.size, leaves)), np.zeros(free.size, np.bool_)
    heaviest = float(load[part >= 0].max())
    for view in views:
        own, filled = view.server[part[free]], server_loads(load, part, view)
        spread = backend.affinity(servers_of(part, view), view.servers, SHARPNESS)[free]
        of_server = (spread[every, own] * 2.0**SHARPNESS)[:, None] - spread
        of_server[filled + load[free, None] > view.max_load + heaviest] = _FORBIDDEN
        of_server[every, own] = 0.0
        gain += (view.weight * of_server)[:, view.server]
        over |= (filled > view.max_load * (1 + ROUNDING))[own]
    if over.any():
        gain[~over] = 2 * len(views) * _FORBIDDEN
    gain[every, part[free]] = 2 * len(views) * _FORBIDDEN
    found = int(gain.argmax())
    return int(free[found // leaves]), found % leaves


def _best_moves(
    backend: Backend, load: Floats, part: Parts, views: Sequence[View], *, sharpness: int, movement: Movement | None
) -> _CandidateMoves:
    """Return every vertex's gain on its best leaf among those with room in all views."""
    placed = np.flatnonzero(part >= 0)
    weight = load[placed]
    known = [
        (view, server_loads(load, part, view), backend.affinity(servers_of(part, view), view.servers, sharpness))
        for view in views
    ]
    leaf, best, over = np.empty(placed.size, np.intp), np.empty(placed.size), np.zeros(placed.size, np.bool_)
    rows = max(1, _MAX_CELLS // views[0].server.size)
    for first in range(0, placed.size, rows):
        these = slice(first, first + rows)
        gain = np.zeros((placed[these].size, views[0].server.size))
        every, at = np.arange(gain.shape[0]), part[placed[these]]
        for view, filled, affinity in known:
            own, spread = view.server[at], affinity[placed[these]]
            of_server = ((spread[every, own] * 2.0**sharpness)[:, None] - spread) * view.weight
            of_server[filled + weight[these, None] > view.max_load] = _FORBIDDEN
            of_server[every, own] = 0.0
            gain += of_server[:, view.server]
            over[these] |= (filled > view.max_load)[own]
        gain[every, at] = 2 * len(views) * _FORBIDDEN
        leaf[these] = gain.argmax(1)
        best[these] = gain[every, leaf[these]]
    cost = np.maximum(movement.cost[placed], 1) if movement else np.ones(placed.size)
    wanted = best > (np.maximum(cost * movement.price, NEGLIGIBLE) if movement else NEGLIGIBLE)
    # Off a full server, moves with little loss per load come first; where moves cost, those with much load per cost.
    relief = weight / cost if movement else best / np.maximum(weight, NEGLIGIBLE)
    if movement and over.any():
        wanted &= over
    order = np.lexsort((-np.where(over, relief, best / cost), ~over))
    possible = (best > _FORBIDDEN / 2) & (wanted | over)
    order = order[possible[order]][: int(TRIED_SHARE * placed.size) + 50]
    return _CandidateMoves(placed[order], leaf[order], np.where(wanted, best, 0.0)[order])


def _apply_moves(
    moves: _CandidateMoves, load: Floats, part: Parts, views: Sequence[View], movement: Movement | None
) -> int:
    """Apply ``moves`` to ``part`` one by one as loads and budget allow; return how many."""
    maps = [(server_loads(load, part, view).tolist(), view.server.tolist(), view.max_load.tolist()) for view in views]
    spent, moved = movement.spent(part) if movement else 0.0, 0
    rows = zip(moves.vertices.tolist(), moves.leaf.tolist(), moves.gain.tolist(), strict=True)
    for vertex, to, gain in rows:
        at, weight = int(part[vertex]), float(load[vertex])
        crossed = [(filled, of[at], of[to], most) for filled, of, most in maps if of[at] != of[to]]
        if any(filled[new] + weight > most[new] for filled, _, new, most in crossed):
            continue
        if gain <= 0 and not any(filled[old] > most[old] for filled, old, _, most in crossed):
            continue
        if movement:
            extra = float(movement.cost[vertex]) * (
                int(to != movement.start[vertex]) - int(at != movement.start[vertex])
            )
            if spent + extra > movement.budget:
                continue
            spent += extra
        for filled, old, new, _ in crossed:
            filled[old] -= weight
            filled[new] += weight
        part[vertex] = to
        moved += 1
    return moved
