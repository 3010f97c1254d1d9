"""``make bench-modes``: the scaling modes under the same traces, against what the cost model predicted before.

Every configuration repeats the same trace of clients and writes (``regimes``); the oracle judges every run.
Constants are fitted to the runs of R1 with one server. The others, with more servers or under other regimes, are
predicted in build/bench/modes/predictions.jsonl before each begins. At the end: the knee of one server, and other
servers on the trace of R1. An interrupted comparison goes on where it was. QUICK=1: 2 servers, five configurations, one
round.
"""

import asyncio
import shutil
import statistics
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from experiments.modes import page
from experiments.modes.capacity import Knee, find_knee
from experiments.modes.compare import (
    Observation,
    against_x,
    beyond,
    cpu_errors,
    differences,
    error,
    fit,
    goals,
    means,
    observed,
)
from experiments.modes.peers import DIALECTS, Peer, beside_single, measure_all, parse_peer
from experiments.modes.plan import CONTROL, REST_S, SECONDS, SERVERS, Run, runs
from experiments.modes.regimes import R1, REGIMES, Regime
from experiments.modes.runs import FOLDER, expected, kept, learnt_of, load_of, measure, now, trace_of, write_prediction
from learning.costs import ROLES, RoleCosts, read_role_costs
from tests.bench import native
from tests.bench.report import Report
from tests.load import bench
from tests.load.bench import FOLDER as FOLDER_OF_REPORTS
from tests.load.bench import Goal
from tests.load.run import end_in_order
from tests.load.trace import BadTrace, read_trace
from tests.load.writes import BATCH
from tests.support.commandline import parser
from tests.support.size import SIZE, RunSize

OTHER_S: Final = 21.5
"""Of a run, about: the start and the end of the system, and the oracle."""
JUDGED: Final = SIZE is not RunSize.SMOKE
"""Whether goals of speed count."""
WRITTEN: Final = FOLDER_OF_REPORTS / "modes.json"
PAGE: Final = WRITTEN.with_suffix(".html")


class Comparison:
    """The runs of one comparison, in their order."""

    def __init__(self, costs: RoleCosts, report: Report) -> None:
        self.costs = costs
        self.fitted = costs
        self.results: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """By group of runs, one for each round."""
        self.groups: dict[str, Run] = {}
        self.failures: dict[str, str] = {}
        self._report = report
        self._left_s = 0.0

    def run(self, planned: Sequence[Run]) -> None:
        """Make all runs, those first that the constants are fitted to."""
        self._left_s = sum(about_s(run) for run in planned)
        for run in (each for each in planned if each.fitted):
            self._one(run, self.costs)
        self.fitted = fit(self._observations(), self.costs)
        for run in (each for each in planned if not each.fitted):
            self._one(run, self.fitted)

    def _one(self, run: Run, costs: RoleCosts) -> None:
        found = kept(run)
        self._report.step(f"{run.name}, {'kept' if found else f'about {self._left_s / 60:.0f} min left'}")
        self._left_s -= about_s(run)
        if found is None:
            prediction = write_prediction(run, costs)
            try:
                found = measure(run, prediction)
            except Exception:  # noqa: BLE001 - whatever it is, it is shown, and the others go on
                traceback.print_exc()
                self.failures[run.name] = traceback.format_exc()
                return
        self.groups[run.group] = run
        self.results[run.group].append(found)

    def _observations(self) -> list[Observation]:
        found: list[Observation] = []
        for group, results in self.results.items():
            run = self.groups[group]
            found += observed(run, load_of(run), self.costs, means(results), means(results, "rest_cpu_ms"))
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of each configuration and regime: predicted and measured, means over its rounds."""
        return [self._row(self.groups[group], results) for group, results in self.results.items()]

    def _row(self, run: Run, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        predicted, measured = results[0]["predicted"], [each["measured"] for each in results]
        cpu = means(results)
        connections = statistics.fmean(each["connections"] for each in measured)
        frames = statistics.fmean(each["frames_per_s"] for each in measured)
        fitted = expected(run, self.fitted).cpu_ms
        learnt = learnt_of(run.regime, run.seconds, run.size.servers) if run.planned else None
        row = {
            "group": run.group,
            "regime": run.regime.name,
            "configuration": str(run.configuration),
            "servers": run.size.servers,
            "clones": run.size.clones,
            "rounds": len(results),
            "fitted": run.fitted,
            "control": run.control,
            "planned": run.planned,
            "fan_out": learnt and {name: round(getattr(learnt, name), 3) for name in ("hashed", "planned")},
            "cpu_ms": {name: round(ms, 1) for name, ms in cpu.items()},
            "rest_cpu_ms": {name: round(ms, 1) for name, ms in means(results, "rest_cpu_ms").items()},
            "compiling_ms": round(statistics.fmean(each["compiling_ms"] for each in measured), 1),
            "predicted_cpu_ms": predicted["cpu_ms"],
            "predicted_cpu_error_ms": predicted["cpu_error_ms"],
            "fitted_cpu_ms": {name: round(ms, 1) for name, ms in fitted.items()},
            "cpu_errors": {name: round(off, 1) for name, off in cpu_errors(predicted["cpu_ms"], cpu).items()},
            "connections": connections,
            "predicted_connections": predicted["connections"],
            "connections_error": round(error(predicted["connections"], connections), 2),
            "frames_per_s": round(frames, 1),
            "predicted_frames_per_s": predicted["frames_per_s"],
            "frames_error": round(error(predicted["frames_per_s"], frames), 2),
            "waste": round(statistics.fmean(each["waste"] for each in measured), 3),
            "memory_mib": round(statistics.fmean(sum(each["memory_kib"].values()) for each in measured) / 1024, 1),
            "predicted_memory_mib": predicted["memory_mib"],
            "delay_ms": {
                name: round(1000 * statistics.fmean(each["delay_s"].get(name, 0.0) for each in results), 1)
                for name in ("p50", "p99")
            },
            "unclean": [_why(each) for each in results if not each["clean"] or (JUDGED and each["missed"])],
        }
        return {**row, "beyond": [] if run.fitted else beyond(row)}


def about_s(run: Run) -> float:
    """Return about how long a run takes."""
    return run.seconds + OTHER_S + (REST_S if run.fitted else 0.0)


def _why(result: Mapping[str, Any]) -> str:
    """Return why a run is not clean."""
    goals = [f"{goal['name']}: {goal['measured']}, not {goal['goal']}" for goal in result["missed"]]
    return "; ".join([*result["violations"][:3], *goals])


def control(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return by how much the repeated configuration differs from itself, in percent, by kind of process."""
    again = next((row for row in rows if row["control"]), None)
    if again is None:
        return {}
    name = again["group"].removesuffix("-again")
    first = next((row for row in rows if row["group"] == name), None)
    return differences(first["cpu_ms"], again["cpu_ms"]) if first else {}


def table(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return what is printed of each row."""
    return {
        row["group"]: {
            "CPU, ms/s": round(sum(row["cpu_ms"].values())),
            "predicted": round(sum(row["predicted_cpu_ms"].values())),
            "worst kind, %": max(row["cpu_errors"].values(), key=abs, default=0.0),
            "connections, %": row["connections_error"],
            "frames, %": row["frames_error"],
            "waste": row["waste"],
            "p99, ms": row["delay_ms"]["p99"],
        }
        for row in rows
    }


def _plan_in_r1(planned: Sequence[Run]) -> dict[str, float]:
    """Return the servers that a client of R1 needs by hash and by a plan: its interests have no structure."""
    regime, seconds = (planned[0].regime, planned[0].seconds) if SIZE is RunSize.SMOKE else (R1, SECONDS)
    found = learnt_of(regime, seconds, SERVERS)
    return {"hashed": round(found.hashed, 3), "planned": round(found.planned, 3)}


def _knee(costs: RoleCosts, report: Report) -> Knee | None:
    report.step("the knee of one server")
    try:
        with tempfile.TemporaryDirectory() as directory:
            return asyncio.run(find_knee(Path(directory), costs))
    except native.NoCompiler as error:
        print(error, file=sys.stderr)
    except Exception:  # noqa: BLE001 - what was measured before is written all the same
        traceback.print_exc()
    return None


def _peers(named: Sequence[Peer], planned: Sequence[Run], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what other servers took for the trace of R1, and which were not measured."""
    first = planned[0]
    found, absent = asyncio.run(measure_all(named, trace_of(first.regime, first.seconds)[1]))
    return {"measured": [each.as_json() for each in found], "absent": absent, "single": beside_single(rows)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison, or its rest."""
    quick = "two servers, five configurations, one round, and smaller regimes: five minutes on an idle machine"
    options = parser(
        __spec__, __doc__, report="build/bench/modes.json, .html, build/bench/modes/predictions.jsonl", quick=quick
    )
    options.add_argument("--fresh", action="store_true", help="begin anew, whatever is there of an interrupted one")
    options.add_argument(
        "--only",
        nargs="+",
        choices=[each.name for each in REGIMES],
        help="these regimes, without knee and other servers",
    )
    options.add_argument("--costs", type=Path, help="of make bench-cost; default: the built-in constants")
    options.add_argument(
        "--trace", type=Path, help="recorded traffic events in JSON Lines, instead of the regimes after R1"
    )
    options.add_argument("--batch", type=int, default=BATCH, help=f"with --trace: most updates of a write; {BATCH}")
    options.add_argument(
        "--peer",
        nargs=4,
        action="append",
        default=[],
        metavar=("NAME", "WS_URL", "PUBLISH_URL", "PID"),
        help=f"another server on the trace of R1: {', '.join(DIALECTS)}; may be repeated",
    )
    arguments = options.parse_args(argv)
    end_in_order()
    if arguments.fresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    costs = ROLES if arguments.costs is None else read_role_costs(arguments.costs, ROLES)
    try:
        recorded = _recorded(arguments.trace, arguments.batch)
        named = [parse_peer(words) for words in arguments.peer]
    except (BadTrace, ValueError) as error:
        options.error(str(error))
    planned = runs(SIZE, recorded=recorded)
    if arguments.only:
        planned = [run for run in planned if run.regime.name in arguments.only]
    began = now()
    with Report(len(planned) + 2, bar=False) as report:
        comparison = Comparison(costs, report)
        try:
            comparison.run(planned)
            knee = None
            peers: dict[str, Any] = {"measured": [], "absent": {}, "single": beside_single(comparison.rows())}
            if not arguments.only:
                knee = _knee(comparison.fitted, report)
                report.step("other servers")
                peers = _peers(named, planned, comparison.rows())
        except KeyboardInterrupt:
            print("interrupted: the same command goes on where this one was", file=sys.stderr)
            return 130
        rows = comparison.rows()
        found = goals(rows, knee.error if knee else None)
        found.append(Goal("runs that failed", "", 0, len(comparison.failures)))
        report.rows(f"Predicted and measured, {SIZE}", table(rows))
    body = {
        "began": began,
        "ended": now(),
        **page.about(argv),
        "constants": {name: [round(each, 3) for each in found] for name, found in _known(comparison.fitted).items()},
        "constants_source": comparison.fitted.source,
        "control": {"configuration": str(CONTROL), "differences": control(rows)},
        "against_x": against_x(rows),
        "plan_in_r1": _plan_in_r1(planned),
        "knee": knee and knee.as_json(),
        "peers": peers,
        "failures": comparison.failures,
        "runs": rows,
    }
    bench.write("modes", body, found)
    PAGE.write_text(page.page(orjson.loads(WRITTEN.read_bytes()), _predictions()), encoding="utf-8")
    print(bench.table(found))
    print(f"written: {WRITTEN}, {PAGE}")
    unclean = comparison.failures or any(row["unclean"] for row in rows)
    if not unclean:
        _finished(planned)
    return 1 if unclean or (SIZE is RunSize.FULL and not all(goal.reached for goal in found)) else 0


def _recorded(path: Path | None, batch: int) -> tuple[Regime, float] | None:
    """Return the regime of a recorded trace and its seconds. Raises ``BadTrace``."""
    if path is None:
        return None
    if not 1 <= batch <= BATCH:
        raise BadTrace(f"--batch is between 1 and {BATCH}, not {batch}: the Data Service accepts no more at a time")
    trace = read_trace(path, batch=batch)
    return Regime.recorded(str(path.absolute()), trace), trace.seconds


def _known(costs: RoleCosts) -> dict[str, tuple[float, float]]:
    return {name: found for name, found in costs.constants.items() if found is not None}


def _predictions() -> str:
    path = FOLDER / "predictions.jsonl"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _finished(planned: Sequence[Run]) -> None:
    """Remove the results of single runs: the next comparison measures anew. Predictions stay with the report."""
    for run in planned:
        (FOLDER / f"{run.name}.json").unlink(missing_ok=True)
    predictions = FOLDER / "predictions.jsonl"
    if predictions.exists():
        predictions.replace(WRITTEN.with_name("modes-predictions.jsonl"))


if __name__ == "__main__":
    sys.exit(main())
