"""One run of the comparison: its trace, its prediction in a file before it begins, and its result in another one."""

import asyncio
import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from experiments.modes.compare import Expected, expect, with_work
from experiments.modes.learnt import Learnt, learn, write_plan
from experiments.modes.plan import REST_S, SEED, Run
from experiments.modes.regimes import Regime, generate
from learning.costs import RoleCosts
from learning.modes.configuration import Configuration
from learning.modes.load import Load
from tests.load.observe import run as observe
from tests.load.scenario import Scenario
from tests.load.trace import Trace, read_trace, write_trace

FOLDER: Final = Path("build/bench/modes")
_EXPENSIVE: Final = "experiments.modes.expensive"


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@cache
def trace_of(regime: Regime, seconds: float) -> tuple[Path, Trace]:
    """Return the trace of a regime, and its file."""
    if regime.file is not None:
        return Path(regime.file), read_trace(Path(regime.file), batch=regime.batch, seed=SEED)
    key = hashlib.sha256(repr((regime, seconds, SEED)).encode()).hexdigest()[:8]
    path = FOLDER / "traces" / f"{regime.name}-{key}.jsonl"
    write_trace(path, generate(regime, seconds, SEED))
    return path, read_trace(path, batch=regime.batch, seed=SEED)


def load_of(run: Run) -> Load:
    """Return the load of a run, for the model."""
    return trace_of(run.regime, run.seconds)[1].load()


@cache
def learnt_of(regime: Regime, seconds: float, servers: int) -> Learnt:
    """Return the plan that is learnt from the trace of a regime."""
    return learn(trace_of(regime, seconds)[0].read_bytes().splitlines(), seconds, servers)


def _plan_of(run: Run) -> str | None:
    """Return the file of the plan of a run."""
    if not run.planned:
        return None
    path = FOLDER / f"{run.group}-plan.json"
    write_plan(path, learnt_of(run.regime, run.seconds, run.size.servers))
    return str(path)


def write_prediction(run: Run, costs: RoleCosts) -> dict[str, Any]:
    """Predict a run, append the prediction to the file of predictions with the time, and return it."""
    load, found = load_of(run), expected(run, costs)
    line = {
        "run": run.name,
        "written": now(),
        "constants": costs.source,
        "cpu_ms": {name: round(ms, 3) for name, ms in found.cpu_ms.items()},
        "cpu_error_ms": {name: round(ms, 3) for name, ms in found.cpu_error_ms.items()},
        "connections": round(found.connections, 1),
        "frames_per_s": round(found.frames, 1),
        "memory_mib": round(found.memory_mib, 1),
        "load": asdict(load),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "predictions.jsonl").open("ab") as lines:
        lines.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    return line


def expected(run: Run, costs: RoleCosts) -> Expected:
    """Return the prediction of a run by some constants, unwritten."""
    load, own = load_of(run), with_work(costs, run.regime.work_us)
    if not run.planned:
        return expect(run, load, own)
    learnt = learnt_of(run.regime, run.seconds, run.size.servers)
    return expect(run, load, own, learnt.planned)


def scenario_of(run: Run) -> Scenario:
    """Return the scenario: notifications alone, nothing recorded."""
    path, trace = trace_of(run.regime, run.seconds)
    single = run.configuration is Configuration.SINGLE
    composites = run.configuration is Configuration.XZ
    expensive = run.regime.work_us > 0
    return Scenario(
        mode=run.configuration,
        seconds=trace.seconds,
        clients=sum(not visit.start for visit in trace.visits),
        churn_seconds=0.0,
        probes=0,
        data=0.0,
        compression=0.0,
        rate=trace.updates / trace.seconds,
        seed=SEED,
        servers=run.size.servers,
        max_servers=None if single else run.size.clones if composites else run.size.servers,
        clones=run.size.clones if composites else None,
        nginx=False if run.configuration.behind_nginx else None,
        traffic="off",
        label=f"modes-{run.name}",
        trace=str(path),
        batch=run.regime.batch,
        to_topic=run.regime.to_topic,
        plan=_plan_of(run),
        rest=REST_S if run.fitted else 0.0,
        program=_EXPENSIVE if expensive else "deploy",
        variables={"UPDATE_WORK_US": str(run.regime.work_us)} if expensive else {},
    )


def kept(run: Run) -> dict[str, Any] | None:
    """Return the result of a run of an earlier, interrupted comparison; None if there is none, or of another load."""
    try:
        found: dict[str, Any] = orjson.loads((FOLDER / f"{run.name}.json").read_bytes())
    except (OSError, ValueError):
        return None
    return found if found.get("is") == orjson.loads(orjson.dumps(run.as_json())) else None


def measure(run: Run, prediction: Mapping[str, Any]) -> dict[str, Any]:
    """Run it, let the oracle judge it, and keep the result."""
    began = now()
    outcome = asyncio.run(observe(scenario_of(run)))
    repeated = outcome.figures["repeated"]
    missed = [goal.row() for goal in outcome.goals if not goal.reached]
    result = {
        "is": run.as_json(),
        "began": began,
        "ended": now(),
        "predicted": dict(prediction),
        "measured": {**repeated, "frames_per_s": round(repeated["frames"] / run.seconds, 1)},
        "delay_s": outcome.figures["t_conv_s"],
        "updates_per_s": outcome.figures["accepted_per_s"],
        "write_s": outcome.figures["write_s"],
        "clean": outcome.clean,
        "violations": outcome.figures["violations"],
        "missed": missed,
    }
    (FOLDER / f"{run.name}.json").write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    if outcome.clean and not missed:
        # Some have a million events.
        shutil.rmtree(outcome.folder, ignore_errors=True)
    return result
