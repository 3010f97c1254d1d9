"""Size of benchmarks, faults and walks, by the environment: full, ``QUICK=1``, or ``SMOKE=1``, which wins."""

import os
from enum import StrEnum
from typing import Final, TypeVar

T = TypeVar("T")


class RunSize(StrEnum):
    """How much of a measurement is made; every size takes the same path through the code."""

    FULL = "full"
    QUICK = "quick"
    """To see that it works: minutes."""
    SMOKE = "smoke"
    """To see that it runs: seconds, and no goal of speed is judged."""


def _of_environment() -> RunSize:
    return next((size for size in (RunSize.SMOKE, RunSize.QUICK) if os.environ.get(size.name)), RunSize.FULL)


SIZE: Final = _of_environment()


def sized(full: T, quick: T, smoke: T) -> T:
    """Return the value for the size of this run."""
    return {RunSize.FULL: full, RunSize.QUICK: quick, RunSize.SMOKE: smoke}[SIZE]
