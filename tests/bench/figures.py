"""Medians with their uncertainty, and goals for them."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.load.bench import Goal


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of the rounds, with the 95 % interval of its bootstrap."""

    median: float
    low: float
    high: float
    rounds: list[float]


def figure(rounds: Sequence[float], *, samples: int = 2000) -> Figure:
    """Return the median of ``rounds`` with its interval."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(rounds, k=len(rounds))) for _ in range(samples))
    low, high = medians[int(0.025 * samples)], medians[int(0.975 * samples)]
    return Figure(round(statistics.median(rounds), 4), round(low, 4), round(high, 4), [round(x, 4) for x in rounds])


def goal(name: str, unit: str, bound: float, measured: Figure) -> Goal:
    """Return a goal for a figure."""
    return Goal(name, unit, bound, measured.median)
