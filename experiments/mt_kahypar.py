"""Mt-KaHyPar (Gottesbueren et al., ALENEX'21), an optional package: place from scratch.

One thread and a fixed seed make runs reproducible. Weights are integers of 32 bits there: loads are rounded up, so that
a limit it keeps is kept, and the weights of sets are scaled until no sum overflows.
"""

from functools import cache
from importlib import metadata
from itertools import pairwise
from typing import Any, Final

import numpy as np

from learning.placement.blocks import Block, Floats, Ints, Parts
from learning.placement.options import Problem

_LOAD_UNITS: Final = 1 << 29
"""Total load of all vertices, in units."""
_MAX_OBJECTIVE: Final = 1 << 29
"""Limit of the sum of weight * (pins - 1) over the sets, which no sum of gains exceeds."""


def version() -> str | None:
    """Return the installed version, or None if it cannot be imported."""
    try:
        _package()
    except ImportError:
        return None
    return metadata.version("mtkahypar")


def partition(sets: Block, load: Floats, k: int, epsilon: float, *, seed: int, preset: str = "DEFAULT") -> Parts:
    """Place vertices on ``k`` parts: int32[vertices]. Takes some 20 s of CPU time for a million pins.

    Raises:
        ImportError: it is not installed.
    """
    input_ = _Input(sets, load, k, epsilon, seed=seed, preset=preset)
    return np.array(input_.graph.partition(input_.context).get_partition(), np.int32)


def solve(problem: Problem, load: Floats, servers: int) -> Parts | None:
    """Return a placement on ``servers``: negative where ``load`` is 0. None where it is not installed."""
    cold = load > 0
    if version() is None or not cold.any():
        return None
    number = np.where(cold, np.cumsum(cold) - 1, -1).astype(np.int32)
    sets = problem.backend.contract(number, int(cold.sum()))
    part = np.full(load.size, -1, np.int32)
    options = problem.options
    part[cold] = partition(sets, load[cold], servers, options.epsilon, seed=options.seed)
    return part


def _package() -> Any:
    import mtkahypar  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - an optional package

    return mtkahypar


@cache
def _solver() -> Any:
    """Initialise the package, once a process: with one thread."""
    return _package().initialize(1)


class _Input:
    """The hypergraph and the parameters, as objects of the package."""

    def __init__(self, sets: Block, load: Floats, k: int, epsilon: float, *, seed: int, preset: str) -> None:
        mtkahypar, solver = _package(), _solver()
        mtkahypar.set_seed(seed)
        self.context: Any = solver.context_from_preset(getattr(mtkahypar.PresetType, preset))
        self.context.set_partitioning_parameters(k, epsilon, mtkahypar.Objective.KM1)
        self.context.logging = False
        ends, pins = np.append(0, np.cumsum(sets.sizes, dtype=np.int64)).tolist(), sets.pins.tolist()
        nets = [pins[a:b] for a, b in pairwise(ends)]
        weights = np.maximum(1, np.ceil(load / load.sum() * _LOAD_UNITS)).astype(np.int64).tolist()
        self.graph: Any = solver.create_hypergraph(
            self.context, load.size, len(nets), nets, weights, _net_weights(sets).tolist()
        )


def _net_weights(sets: Block) -> Ints:
    weights = sets.weights // max(int(np.gcd.reduce(sets.weights)), 1)
    largest = int((weights * (sets.sizes - 1)).sum())
    shift = max(0, (largest // _MAX_OBJECTIVE).bit_length())
    scaled: Ints = np.maximum(weights >> shift, 1)
    return scaled
