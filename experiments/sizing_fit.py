"""Fits of equations to measurements: costs of 0 or more, intervals, points held out, and a verdict. Pure.

What disturbs a measurement on a shared machine is a share of it, so fits and errors are relative: to the point's own
value, or to the median of all values where that is larger.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

HELD_OUT: Final = 0.3
"""Share of the configurations that nothing is fitted to."""
TOLERANCE: Final = 0.25
"""Largest median error of held-out points with which an equation holds, as a share."""
MARGIN: Final = 0.1
"""Distance from the expected constant that does not matter, as a share of it."""
CLEARLY: Final = 0.67
"""An error below this share of another is clearly smaller."""
NEGLIGIBLE: Final = 0.02
"""An error that no other form has to improve."""
CONFIDENCE: Final = 0.95
RESAMPLES: Final = 999
FEWEST: Final = 3
"""Configurations to fit."""
CONSTANT: Final = "constant"
"""The term that is 1 for every point: what the equation leaves out."""
Array = NDArray[np.float64]


class Point(NamedTuple):
    """One measurement; points of one configuration repeat it, and are held out together."""

    configuration: str
    terms: Mapping[str, float]
    """Every term of the equation and of its rival; ``CONSTANT`` is left out."""
    value: float


class Estimate(NamedTuple):
    """A constant with its interval of 95 %."""

    value: float
    low: float
    high: float


class Verdict(StrEnum):
    """What the measurements say of an equation."""

    HOLDS = "holds"
    OTHER_CONSTANT = "holds with another constant"
    FAILS = "does not hold"
    UNDECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class Form:
    """An equation as a sum of terms with unknown constants of 0 or more."""

    term: str
    """The term whose constant is in question."""
    beside: tuple[str, ...] = ()
    """Further terms; ``CONSTANT`` for an intercept."""
    expected: float | None = None
    """The constant that the equation prints; 0: the term must not matter; None: it prints none."""
    rival: tuple[str, ...] = ()
    """Terms of another explanation; the equation does not hold where these predict clearly better."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """How well a form predicts what it was not fitted to. Errors are medians, as shares."""

    verdict: Verdict
    estimates: Mapping[str, Estimate]
    error: float
    """Of held-out points."""
    error_without: float
    """Of the same points, by the terms beside, or by a constant."""
    error_of_rival: float | None
    scatter: float
    """Median distance of a point from the median of its configuration: no prediction can be nearer."""
    reason: str
    """What the verdict follows from."""
    fitted: int
    held_out: int
    """Numbers of points."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        return {
            **asdict(self),
            "estimates": {name: estimate._asdict() for name, estimate in self.estimates.items()},
        }


def split(points: Sequence[Point], share: float = HELD_OUT, seed: int = 1) -> tuple[list[Point], list[Point]]:
    """Return the points to fit and those held out: whole configurations, at least one."""
    names = sorted({point.configuration for point in points})
    random.Random(seed).shuffle(names)
    held = set(names[: max(1, round(share * len(names)))])
    return [p for p in points if p.configuration not in held], [p for p in points if p.configuration in held]


def constants(points: Sequence[Point], terms: Sequence[str], floor: float) -> Array:
    """Return the constants of ``terms``, of 0 or more, by least squares of relative errors (``scales``)."""
    return _solve(*_scaled(points, terms, floor))


def scales(points: Sequence[Point], floor: float) -> Array:
    """Return what errors are relative to: the values, those below ``floor`` taken as ``floor``."""
    return np.maximum([point.value for point in points], floor)


def error_of(points: Sequence[Point], terms: Sequence[str], found: Array, floor: float) -> float:
    """Return the median relative error of predictions."""
    design, values = _scaled(points, terms, floor)
    return float(np.median(np.abs(design @ found - values)))


def intervals(points: Sequence[Point], terms: Sequence[str], floor: float) -> list[Estimate]:
    """Return the constants with bootstrap intervals; whole configurations are drawn, for their points are alike."""
    # Half a second, which each process of a run of all tests would take to collect those of this module.
    from scipy.stats import bootstrap  # type: ignore[import-untyped]  # noqa: PLC0415

    design, values = _scaled(points, terms, floor)
    numbers = np.unique([point.configuration for point in points], return_inverse=True)[1]
    rows = [np.flatnonzero(numbers == number) for number in range(numbers.max() + 1)]

    def statistic(drawn: NDArray[np.int64], at: int) -> float:
        sample = np.concatenate([rows[number] for number in drawn])
        return float(_solve(design[sample], values[sample])[at])

    found = []
    for at, value in enumerate(_solve(design, values)):
        interval = bootstrap(
            (np.arange(len(rows)),),
            partial(statistic, at=at),
            vectorized=False,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(1),
        ).confidence_interval
        found.append(Estimate(float(value), float(interval.low), float(interval.high)))
    return found


def _scaled(points: Sequence[Point], terms: Sequence[str], floor: float) -> tuple[Array, Array]:
    scale = scales(points, floor)
    return _design(points, terms) / scale[:, None], np.array([point.value for point in points]) / scale


def _solve(design: Array, values: Array) -> Array:
    # Not for each process that collects the tests: it takes a third of a second to load.
    from scipy.optimize import nnls  # type: ignore[import-untyped]  # noqa: PLC0415

    return np.asarray(nnls(design, values)[0], dtype=np.float64)


def assess(points: Sequence[Point], form: Form) -> Assessment:
    """Fit a form to 70 % of the configurations and judge it by the others.

    Raises:
        ValueError: there are too few configurations to fit and to hold out.
    """
    terms = (form.term, *form.beside)
    fitted, held = split(points)
    if len({point.configuration for point in fitted}) < max(FEWEST, len(terms) + 1):
        raise ValueError(f"{len(fitted)} points do not tell {', '.join(terms)} apart")
    floor = float(np.median([point.value for point in points]))

    def error(of: Sequence[str]) -> float:
        return error_of(held, of, constants(fitted, of, floor), floor)

    estimates = dict(zip(terms, intervals(fitted, terms, floor), strict=True))
    own, without = error(terms), error(form.beside or (CONSTANT,))
    rival = error(form.rival) if form.rival else None
    noise = scatter(points, floor)
    objection = _objection(form, estimates, own, without, rival)
    undecided = _undecided(form, estimates[form.term], own, noise)
    if undecided is not None:
        reason, verdict = undecided, Verdict.UNDECIDED
    elif form.expected == 0:
        reason, verdict = _makes_no_difference(form.term, estimates, _share(fitted, form.term, estimates))
    elif objection is not None:
        reason, verdict = objection, Verdict.FAILS
    else:
        reason, verdict = _with_constant(form.expected, estimates[form.term], own)
    return Assessment(verdict, estimates, own, without, rival, noise, reason, len(fitted), len(held))


def scatter(points: Sequence[Point], floor: float) -> float:
    """Return the median relative distance of a point from the median of its configuration; 0 without repetitions."""
    of_name: dict[str, list[float]] = {}
    for point in points:
        of_name.setdefault(point.configuration, []).append(point.value)
    distances = [
        abs(value - float(np.median(values))) / max(value, floor)
        for values in of_name.values()
        for value in values
        if len(values) > 1
    ]
    return float(np.median(distances)) if distances else 0.0


def _undecided(form: Form, found: Estimate, own: float, noise: float) -> str | None:
    """Return why the measurements are too few or too uncertain for a verdict; None if they are not."""
    if own > TOLERANCE and noise > TOLERANCE / 2:
        return f"repetitions are {noise:.0%} apart"
    if form.expected == 0:
        return f"predictions are {own:.0%} off" if own > TOLERANCE and found.low > 0 else None
    possible = found.value > 0 if form.expected is None else found.high >= form.expected
    if found.low <= 0 and possible:
        return f"it cannot be excluded that {form.term} has no effect"
    return None


def _makes_no_difference(term: str, estimates: Mapping[str, Estimate], share: float) -> tuple[str, Verdict]:
    if estimates[term].low <= 0 or share <= MARGIN:
        return f"{term} makes no difference ({share:.0%} of the largest value)", Verdict.HOLDS
    return f"{term} makes a difference: {share:.0%} of the largest value", Verdict.FAILS


def _objection(
    form: Form, estimates: Mapping[str, Estimate], own: float, without: float, rival: float | None
) -> str | None:
    """Return why an equation does not hold with any constant; None if it does."""
    if own > TOLERANCE:
        return f"predictions are {own:.0%} off"
    if estimates[form.term].low <= 0:
        return f"no effect of {form.term} is seen"
    if rival is not None and own > NEGLIGIBLE and rival < CLEARLY * own:
        return f"{_sum(form.rival)} predicts better: {rival:.0%} off instead of {own:.0%}"
    if own > without:
        return f"predictions are better without {form.term}: {without:.0%} off instead of {own:.0%}"
    return None


def _with_constant(expected: float | None, found: Estimate, own: float) -> tuple[str, Verdict]:
    if expected is None or found.low <= expected <= found.high:
        return f"predictions are {own:.0%} off", Verdict.HOLDS
    ratio = found.value / expected
    if abs(ratio - 1) <= MARGIN:
        return f"the constant is {ratio:.2f} of the one expected", Verdict.HOLDS
    return f"the constant is {ratio:.2g} of the one expected", Verdict.OTHER_CONSTANT


def _sum(terms: Sequence[str]) -> str:
    return " + ".join(terms)


def _share(points: Sequence[Point], term: str, estimates: Mapping[str, Estimate]) -> float:
    """Return the part that a term has in the largest prediction of any point."""
    design = _design(points, [*estimates])
    parts = design * np.array([estimate.value for estimate in estimates.values()])
    largest = parts[int(np.argmax(design[:, [*estimates].index(term)]))]
    return float(largest[[*estimates].index(term)] / largest.sum()) if largest.sum() else 0.0


def _design(points: Sequence[Point], terms: Sequence[str]) -> Array:
    return np.array([[1.0 if name == CONSTANT else point.terms[name] for name in terms] for point in points])
