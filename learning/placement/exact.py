"""Placements as mixed-integer programs, solved by HiGHS (branch and cut): the best of few endpoints, or one in limits.

Separate from ``multilevel`` and ``capacity``, whose searches it replaces for few endpoints and one number of servers.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import optimize, sparse  # type: ignore[import-untyped]

from learning.placement.backend import Backend
from learning.placement.baselines import lpt
from learning.placement.blocks import Block, Floats, Ints, Parts
from learning.placement.objective import View

MAX_VERTICES: Final = 12
"""Number of endpoints up to which placements are exact."""
MAX_CELLS: Final = 2000
"""Largest number of sets times servers: with more, branch and cut takes longer than a search."""
MAX_NODES: Final = 5000
"""Nodes of the tree, then the best placement found is taken; a limit of time would not give the same plan again."""
MAX_LIMITED, LIMITED_NODES = 200, 1000
"""Likewise for a placement within limits, the first one that is found."""
FEASIBLE: Final = 1e-6
"""HiGHS' tolerance of constraints, by which loads stay below their limit."""


class ServerLimit(NamedTuple):
    """A resource: a server uses ``of_weight`` times the weight of the sets that need it, and that of its endpoints."""

    of_weight: float
    of_endpoint: Floats
    most: Floats
    """Limit of each server."""


class _Program(NamedTuple):
    """Variables and constraints: x[e, s], the endpoint is there; z[c, s] >= x[e, s], the set needs the server."""

    vertices: Ints
    sets: Block
    """Sets of more than one vertex."""
    alone: Floats
    """Weight of the other sets of each vertex."""
    x: Ints
    z: Ints
    constraints: list[Any]

    @classmethod
    def of(cls, backend: Backend, cold: Parts, servers: int, most: int) -> "_Program | None":
        """Return the program, or None if there are more than ``most`` endpoints or too many sets."""
        vertices = np.flatnonzero(cold >= 0)
        count = vertices.size
        if not 0 < count <= most:
            return None
        label = np.full(cold.size, -1, np.int32)
        label[vertices] = np.arange(count)
        sets = backend.contract(label, count)
        cells = sets.sizes.size * servers
        if cells > MAX_CELLS:
            return None
        x = np.arange(count * servers).reshape(count, servers)
        z = count * servers + np.arange(cells).reshape(-1, servers)
        pins, owner = np.repeat(sets.pins, servers), np.repeat(np.arange(sets.sizes.size), sets.sizes)
        rows, size = np.arange(pins.size), x.size + z.size
        met = _matrix((rows, x[sets.pins].ravel(), 1.0), (rows, z[owner].ravel(), -1.0), shape=(pins.size, size))
        once = _matrix((np.repeat(np.arange(count), servers), x.ravel(), 1.0), shape=(count, size))
        alone = backend.subscribed()[vertices] - np.bincount(sets.pins, np.repeat(sets.weights, sets.sizes), count)
        return cls(vertices, sets, alone, x, z, [(met, -np.inf, 0), (once, 1, 1)])

    def solve(
        self, load: Floats, cold: Parts, server: Parts, limits: Sequence[ServerLimit], cost: Floats, **options: float
    ) -> Parts | None:
        """Return a leaf for every endpoint such that each server keeps ``limits``; ``server`` is that of each leaf."""
        (count, servers), size = self.x.shape, self.x.size + self.z.size
        upper = np.ones(size)
        if all(np.ptp(limit.most) == 0 for limit in limits):
            # Servers are alike: the heaviest endpoint is on the first one, the next one on the first two, ...
            order = np.argsort(-load[self.vertices], kind="stable")
            upper[self.x[order][np.triu(np.ones((count, servers), np.bool_), 1)]] = 0
        found = optimize.milp(
            cost,
            integrality=np.concatenate([np.ones(self.x.size), np.zeros(self.z.size)]),
            bounds=optimize.Bounds(0, upper),
            constraints=[*self.constraints, *map(self._constraint, limits)],
            options=options,
        )
        if found.x is None:
            return None
        part, of_vertex = cold.copy(), found.x[: self.x.size].reshape(count, servers).argmax(1)
        for each in range(servers):
            members, leaves = self.vertices[of_vertex == each], np.flatnonzero(server == each)
            part[members] = leaves[lpt(load[members], leaves.size)]
        return part

    def _constraint(self, limit: ServerLimit) -> Any:  # noqa: ANN401  # as SciPy takes them
        most = np.maximum(limit.most, 1e-300)
        of_vertex = limit.of_endpoint[self.vertices] + limit.of_weight * self.alone
        of_set = limit.of_weight * self.sets.weights
        entries = [
            (np.broadcast_to(np.arange(most.size), each.shape).ravel(), each.ravel(), (of[:, None] / most).ravel())
            for each, of in ((self.x, of_vertex), (self.z, of_set))
        ]
        return _matrix(*entries, shape=(most.size, self.x.size + self.z.size)), -np.inf, 1 - FEASIBLE


def solve(backend: Backend, load: Floats, cold: Parts, view: View) -> Parts | None:
    """Return a leaf for every endpoint with the least fan-out in one view; hot ones (``cold`` is negative) stay so.

    None if there are too many endpoints or sets, or no placement within the limits was found: with fewer nodes than
    :data:`MAX_NODES` there is none.
    """
    program = _Program.of(backend, cold, view.servers, MAX_VERTICES)
    if program is None:
        return None
    weights = program.sets.weights / max(int(program.sets.weights.sum()), 1)
    cost = np.concatenate([np.zeros(program.x.size), np.repeat(weights, view.servers)])
    limits = [ServerLimit(0.0, load, view.max_load)]
    return program.solve(load, cold, view.server, limits, cost, node_limit=MAX_NODES, mip_rel_gap=0)


def solve_within(
    backend: Backend, load: Floats, cold: Parts, server: Parts, limits: Sequence[ServerLimit]
) -> Parts | None:
    """Return a leaf for every endpoint such that servers keep ``limits``; hot ones (``cold`` is negative) stay so.

    ``server`` is that of each leaf. None if there are too many endpoints or sets, or none was found with
    :data:`LIMITED_NODES`.
    """
    program = _Program.of(backend, cold, int(server.max()) + 1, MAX_LIMITED)
    if program is None:
        return None
    nothing = np.zeros(program.x.size + program.z.size)
    return program.solve(load, cold, server, limits, nothing, node_limit=LIMITED_NODES)


def _matrix(*entries: tuple[Any, Any, Any], shape: tuple[int, int]) -> sparse.csr_array:
    triples = [np.broadcast_arrays(*each) for each in entries]
    row, column, value = (np.concatenate(each) for each in zip(*triples, strict=True))
    return sparse.csr_array((value, (row, column)), shape=shape)
