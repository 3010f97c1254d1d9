"""Predictions of runs, the fit of the model's constants to some of them, and errors; pure."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from experiments.modes.plan import Run
from learning.costs import Amounts, Constant, RoleCosts
from learning.modes import terms
from learning.modes.configuration import Configuration
from learning.modes.load import Load
from learning.modes.model import Prediction, predict
from tests.load.bench import Goal
from tests.load.meter import BROKER

NOISE: Final = 0.05
"""Relative error of a measured CPU time."""
LEAST_ERROR: Final = 0.3
"""No constant is known better than to this share before the fit: on another machine the ratios differ so much."""
LEAST_MS: Final = 1.0
"""Absolute error of a measured CPU time, in ms/s: the pings and timers of some seconds."""
JUDGED_SHARE: Final = 0.05
"""Least share of the CPU time of a run that a kind of process must have for its error to count."""
CPU_WORST, CPU_MEDIAN, COUNTS, KNEE = 20.0, 10.0, 3.0, 25.0
"""Goals: errors in percent."""


class Observation(NamedTuple):
    """The CPU time of one kind of process."""

    work: Amounts
    """What the model says that it does, a second."""
    cpu_us: float
    """A second."""


class Expected(NamedTuple):
    """What the model says of a run, in the units of what is measured."""

    cpu_ms: Mapping[str, float]
    """By kind of process, a second."""
    cpu_error_ms: Mapping[str, float]
    """Its standard errors."""
    work: Mapping[str, Amounts]
    connections: float
    frames: float
    """A second, to clients."""
    memory_mib: float


def expect(run: Run, load: Load, costs: RoleCosts, fan_out: float | None = None) -> Expected:
    """Return the prediction of a run; ``fan_out`` as of :func:`predict`."""
    found = predict(run.configuration, run.size, load, workers=0, fan_out=fan_out, work_us=run.regime.work_us)
    work = work_of(run, found)
    totals = {name: costs.total(amounts) for name, amounts in work.items()}
    cpu = {name: total.value / 1000 for name, total in totals.items()}
    errors = {name: total.error / 1000 for name, total in totals.items()}
    everything = run.configuration is Configuration.ALL_TO_ALL
    frames = load.updates * load.clients if everything else load.frames
    return Expected(cpu, errors, work, found.connections, frames, found.memory(costs).value / 2**20)


def work_of(run: Run, prediction: Prediction) -> dict[str, Amounts]:
    """Return the work of each kind of process."""
    work: dict[str, Amounts] = {role.name: role.work for role in prediction.roles}
    if run.regime.to_topic:
        # The Data Service is there, and has nothing to do.
        work["data"] = terms.added([terms.data_service(0, 0, 0), terms.publisher(0, 0)])
    return work


def at_rest(load: Load) -> Load:
    """Return the load while nothing is written."""
    return replace(load, updates=0.0)


def with_work(costs: RoleCosts, work_us: float) -> RoleCosts:
    """Return the costs where each update takes a server ``work_us`` more."""
    update = costs.constants.get("server_update_us") or Constant(0.0, 0.0)
    return replace(costs, constants={**costs.constants, "server_update_us": Constant(update[0] + work_us, update[1])})


def observed(
    run: Run, load: Load, costs: RoleCosts, cpu_ms: Mapping[str, float], rest_cpu_ms: Mapping[str, float]
) -> list[Observation]:
    """Return what the constants are fitted to of a run: its CPU by kind of process, with the trace and at rest before.

    What processes take for being there is told from what they do by their rest alone: all do the same in R1. Not of
    brokers, which are slower at first.
    """
    found = []
    for what, measured, without in ((load, cpu_ms, set[str]()), (at_rest(load), rest_cpu_ms, {BROKER})):
        work = expect(run, what, costs).work
        found += [Observation(work[name], 1000 * ms) for name, ms in measured.items() if name in work.keys() - without]
    return found


def fit(observations: Sequence[Observation], costs: RoleCosts) -> RoleCosts:
    """Return the constants that fit both what was known of them and the observations, weighted by their errors.

    First all constants are multiplied by the median speed of the machine; then generalised least squares, none below 0.
    """
    if not observations:
        return costs
    ratios = [each.cpu_us / value for each in observations if (value := costs.value(each.work)) > 0]
    speed = statistics.median(ratios)
    known = {name: found for name, found in costs.constants.items() if found is not None}
    names = [name for name in known if any(each.work.get(name) for each in observations)]
    rows, wanted = [], []
    for work, cpu_us in observations:
        error = NOISE * cpu_us + LEAST_MS * 1000
        rows.append([work.get(name, 0.0) / error for name in names])
        wanted.append(cpu_us / error)
    for number, name in enumerate(names):
        value, own = (speed * each for each in known[name])
        error = max(own, LEAST_ERROR * value, 1e-6)
        rows.append([1 / error if at == number else 0.0 for at in range(len(names))])
        wanted.append(value / error)
    # Not for each process that collects the tests: it takes a third of a second to load.
    from scipy.optimize import lsq_linear  # type: ignore[import-untyped]  # noqa: PLC0415

    design = np.array(rows)
    values = lsq_linear(design, np.array(wanted), bounds=(0, np.inf)).x
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    found: dict[str, Constant | None] = {name: Constant(speed * v, speed * e) for name, (v, e) in known.items()}
    found |= {name: Constant(float(v), float(e)) for name, v, e in zip(names, values, errors, strict=True)}
    source = f"{costs.source}, times {speed:.2f}, fitted to {len(observations)} sums"
    return RoleCosts({**costs.constants, **found}, source, costs.built_in, costs.memory)


def means(results: Iterable[Mapping[str, Any]], key: str = "cpu_ms") -> dict[str, float]:
    """Return the CPU time by kind of process, in ms/s: means of the rounds of one configuration.

    ``key`` is ``cpu_ms``, or ``rest_cpu_ms`` for that before the trace, which only some runs have.
    """
    rounds = [result["measured"][key] for result in results]
    return {name: statistics.fmean(each[name] for each in rounds) for name in rounds[0]}


def error(predicted: float, measured: float) -> float:
    """Return the error of a prediction in percent of what was measured."""
    return 100 * (predicted - measured) / measured if measured else 0.0


def cpu_errors(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return the errors of the kinds of processes that matter, in percent. Those of the others are noise."""
    least = JUDGED_SHARE * sum(measured.values())
    return {name: error(predicted.get(name, 0.0), ms) for name, ms in measured.items() if ms >= least}


def differences(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return by how much two measurements of the same differ, in percent of their mean, by kind of process."""
    least = JUDGED_SHARE * sum(first.values())
    return {name: 100 * abs(second[name] - ms) / ((second[name] + ms) / 2) for name, ms in first.items() if ms >= least}


def beyond(row: Mapping[str, Any]) -> list[str]:
    """Return the kinds of processes whose error is above the goal and not explained by standard errors.

    The difference of predicted and measured is then more than twice the standard error of the prediction and the noise
    of the measurement together.
    """
    found = []
    for name, off in row["cpu_errors"].items():
        measured, predicted = row["cpu_ms"][name], row["predicted_cpu_ms"].get(name, 0.0)
        error_ms = row["predicted_cpu_error_ms"].get(name, 0.0) + NOISE * measured + LEAST_MS
        if abs(off) > CPU_WORST and abs(predicted - measured) > 2 * error_ms:
            found.append(name)
    return found


def by_plan(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the rows by hash and by plan of each configuration that has both."""
    hashed = {(row["regime"], row["configuration"], row["servers"]): row for row in rows if not row["planned"]}
    return [
        (hashed[key], row)
        for row in rows
        if row["planned"] and (key := (row["regime"], row["configuration"], row["servers"])) in hashed
    ]


def against_x(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return by how much each configuration takes more CPU than mode x with as many servers, in percent."""
    of_x = {
        (row["regime"], row["servers"]): row
        for row in rows
        if row["configuration"] == Configuration.X and not row["control"]
    }
    found = []
    for row in rows:
        x = of_x.get((row["regime"], row["servers"] * row["clones"]))
        if x is None or row["configuration"] == Configuration.X:
            continue
        more = {
            name: round(error(sum(row[key].values()), sum(x[key].values())), 1)
            for name, key in (("measured", "cpu_ms"), ("predicted", "predicted_cpu_ms"))
        }
        found.append({name: row[name] for name in ("group", "regime", "configuration", "servers", "clones")} | more)
    return found


def goals(rows: Sequence[Mapping[str, Any]], knee_error: float | None) -> list[Goal]:
    """Return the goals of a comparison from its rows, one of each configuration (``__main__``)."""
    ahead = [row for row in rows if not row["fitted"]]
    cpu = [abs(off) for row in ahead for off in row["cpu_errors"].values()]
    found = [
        Goal("runs in which the oracle found a broken promise, or that missed a goal of theirs", "", 0, _unclean(rows)),
        Goal("CPU by kind of process, predicted, largest error", "%", CPU_WORST, _rounded(max(cpu, default=None))),
        Goal(
            "CPU by kind of process, predicted, median error",
            "%",
            CPU_MEDIAN,
            _rounded(statistics.median(cpu) if cpu else None),
        ),
    ]
    for what in ("connections", "frames"):
        worst = max((abs(row[f"{what}_error"]) for row in rows), default=None)
        found.append(Goal(f"{what}, predicted, largest error", "%", COUNTS, _rounded(worst)))
    knee = None if knee_error is None else abs(knee_error)
    return [*found, Goal("rate at the knee of one server, predicted, error", "%", KNEE, _rounded(knee))]


def _unclean(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(row["unclean"]) for row in rows)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
