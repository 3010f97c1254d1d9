"""Costs of single quantities, fitted to the costs of blocks with several."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

Quantities = Mapping[str, float]
"""Amount of each quantity in a block."""


class Estimate(NamedTuple):
    """A coefficient and its standard error."""

    value: float
    error: float

    def divided(self, parts: float) -> "Estimate":
        """Return the coefficient of a part of what this is the coefficient of."""
        return Estimate(self.value / parts, self.error / parts)


def fit(blocks: Sequence[Quantities], costs: Sequence[float], scales: Sequence[float]) -> dict[str, Estimate]:
    """Fit unit costs of 0 or more by least squares without an intercept; ``scales``: the expected error of each block.

    What disturbs a measurement on a shared machine is a share of it: with the blocks' own costs as scales, it is the
    relative error that is least.
    """
    # Not for each process that collects the tests: it takes a third of a second to load.
    from scipy.optimize import nnls  # type: ignore[import-untyped]  # noqa: PLC0415

    names = list(dict.fromkeys(name for block in blocks for name in block))
    scale = np.asarray(scales, dtype=np.float64)
    design = np.array([[block.get(name, 0.0) for name in names] for block in blocks]) / scale[:, None]
    wanted = np.asarray(costs, dtype=np.float64) / scale
    if len(blocks) <= len(names) or np.linalg.matrix_rank(design) < len(names):
        raise ValueError(f"{len(blocks)} blocks do not tell {', '.join(names)} apart")
    # Nothing has a negative cost: where noise would say so, the other costs are fitted without it.
    values = nnls(design, wanted)[0]
    variance = float(np.sum((wanted - design @ values) ** 2)) / (len(blocks) - len(names))
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    return {name: Estimate(float(v), float(e)) for name, v, e in zip(names, values, errors, strict=True)}


def predicted(estimates: Mapping[str, Estimate], block: Quantities) -> float:
    """Return the predicted cost of a block."""
    return sum(estimates[name].value * amount for name, amount in block.items())
