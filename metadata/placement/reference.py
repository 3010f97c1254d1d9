"""The best solver that we know of, to compare with: Mt-KaHyPar, where it is installed (the extra "quality")."""

from itertools import pairwise
from typing import Any

import numpy as np

from metadata.placement.blocks import Floats, Parts
from metadata.placement.instance import Instance

_UNITS = 1_000_000


def mt_kahypar(
    instance: Instance, load: Floats, k: int, epsilon: float, *, seed: int, preset: str = "DEFAULT"
) -> Parts | None:
    """A placement on ``k`` servers with one thread, negative where ``load`` is 0; None when it is not installed.

    Takes some 20 s for a million pins. Not for plans: another run may have another result.
    """
    try:
        import mtkahypar  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError:
        return None
    cold = load > 0
    number = np.where(cold, np.cumsum(cold) - 1, -1)
    pins, starts = number[instance.pins].tolist(), instance.starts.tolist()
    sets = [[pin for pin in pins[a:b] if pin >= 0] for a, b in pairwise(starts)]
    nets = [(pins, weight) for pins, weight in zip(sets, instance.weight.tolist(), strict=True) if len(pins) > 1]
    solver: Any = mtkahypar.initialize(1)
    mtkahypar.set_seed(seed)
    context = solver.context_from_preset(getattr(mtkahypar.PresetType, preset))
    context.set_partitioning_parameters(k, epsilon, mtkahypar.Objective.KM1)
    context.logging = False
    weights = np.maximum(1, np.round(load[cold] / load.sum() * _UNITS)).astype(int).tolist()
    graph = solver.create_hypergraph(
        context, int(cold.sum()), len(nets), [net for net, _ in nets], weights, [weight for _, weight in nets]
    )
    part = np.full(load.size, -1, np.int32)
    part[cold] = graph.partition(context).get_partition()
    return part
