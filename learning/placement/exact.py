"""Exact placement of few endpoints as a mixed-integer program, solved by HiGHS (branch and cut).

Separate from ``multilevel``, whose searches it replaces for few endpoints and one planned number of servers.
"""

from typing import Any, Final

import numpy as np
from scipy import optimize, sparse  # type: ignore[import-untyped]

from learning.placement.backend import Backend
from learning.placement.baselines import lpt
from learning.placement.blocks import Floats, Parts
from learning.placement.objective import View

MAX_VERTICES: Final = 12
"""Number of endpoints up to which placements are exact."""
MAX_CELLS: Final = 2000
"""Largest number of sets times servers: with more, branch and cut takes longer than a search."""
MAX_NODES: Final = 5000
"""Nodes of the tree, then the best placement found is taken; a limit of time would not give the same plan again."""
FEASIBLE: Final = 1e-6
"""HiGHS' tolerance of constraints, by which loads stay below their limit."""


def solve(backend: Backend, load: Floats, cold: Parts, view: View) -> Parts | None:
    """Return a leaf for every endpoint with the least fan-out in one view; hot ones (``cold`` is negative) stay so.

    None if there are too many endpoints or sets, or no placement within the limits was found: with fewer nodes than
    :data:`MAX_NODES` there is none.
    """
    vertices = np.flatnonzero(cold >= 0)
    count, servers = vertices.size, view.servers
    if not 0 < count <= MAX_VERTICES:
        return None
    label = np.full(cold.size, -1, np.int32)
    label[vertices] = np.arange(count)
    sets = backend.contract(label, count)
    cells = sets.sizes.size * servers
    if cells > MAX_CELLS:
        return None
    # x[e, s]: the endpoint is there; z[c, s] >= x[e, s]: the set needs the server.
    x = np.arange(count * servers).reshape(count, servers)
    z = count * servers + np.arange(cells).reshape(-1, servers)
    pins, owner = np.repeat(sets.pins, servers), np.repeat(np.arange(sets.sizes.size), sets.sizes)
    rows = np.arange(pins.size)
    met = _matrix((rows, x[sets.pins].ravel(), 1.0), (rows, z[owner].ravel(), -1.0), shape=(pins.size, x.size + z.size))
    of_endpoint = np.repeat(np.arange(count), servers)
    once = _matrix((of_endpoint, x.ravel(), 1.0), shape=(count, x.size + z.size))
    of_server, most = np.tile(np.arange(servers), count), np.maximum(view.max_load, 1e-300)
    filled = _matrix((of_server, x.ravel(), (load[vertices, None] / most).ravel()), shape=(servers, x.size + z.size))
    upper = np.ones(x.size + z.size)
    if np.ptp(view.max_load) == 0:
        # Servers are alike: the heaviest endpoint is on the first one, the next one on the first two, ...
        order = np.argsort(-load[vertices], kind="stable")
        upper[x[order][np.triu(np.ones((count, servers), np.bool_), 1)]] = 0
    found = optimize.milp(
        np.concatenate([np.zeros(x.size), np.repeat(sets.weights / max(int(sets.weights.sum()), 1), servers)]),
        integrality=np.concatenate([np.ones(x.size), np.zeros(z.size)]),
        bounds=optimize.Bounds(0, upper),
        constraints=[(met, -np.inf, 0), (once, 1, 1), (filled, -np.inf, 1 - FEASIBLE)],
        options={"node_limit": MAX_NODES, "mip_rel_gap": 0},
    )
    if found.x is None:
        return None
    part, server = cold.copy(), found.x[: x.size].reshape(count, servers).argmax(1)
    for each in range(servers):
        members, leaves = vertices[server == each], np.flatnonzero(view.server == each)
        part[members] = leaves[lpt(load[members], leaves.size)]
    return part


def _matrix(*entries: tuple[Any, Any, Any], shape: tuple[int, int]) -> sparse.csr_array:
    triples = [np.broadcast_arrays(*each) for each in entries]
    row, column, value = (np.concatenate(each) for each in zip(*triples, strict=True))
    return sparse.csr_array((value, (row, column)), shape=shape)
