"""One run: start system, clients and writer, inject faults, wait for convergence, and let the oracle check it."""

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from deploy.system.control import ControlFailed
from tests.load.bench import BUILD, Goal
from tests.load.client_process import ClientProcess
from tests.load.environment import running_scene
from tests.load.goals import controls, goals_of
from tests.load.injection import ATTACK, EXPIRY, FAULTS, LEARNED, ROLLBACK, UPGRADE, Scene
from tests.load.logs import SAID, tracebacks
from tests.load.meter import counters, joined, measured, running, usage
from tests.load.processes import Process
from tests.load.progress import Display
from tests.load.scenario import Outcome, Scenario
from tests.load.system import NotUp, System
from tests.load.trace import Trace
from tests.oracle import Bounds, Fault, History, Uncertain, judge, read_history, write_history
from tests.oracle.history import WIPE, write_client, write_lists
from tests.oracle.judge import quantiles

CONNECT_SECONDS, CONNECTS_PER_SECOND = 30.0, 50
"""Time until all clients are connected: so long, and more the more there are."""
FIGURES = (
    *(
        "present",
        "connected",
        "links",
        "raw",
        "events",
        "requests",
        "refused",
        "fetches",
        "locates",
        "locates_failed",
        "moves",
    ),
    *(
        "with_data",
        "without_data",
        "compressed",
        "unexpected",
        "unexpected_first",
        "tokens",
        "refreshed",
        "not_refreshed",
        "forbidden",
        "pause",
        "locate_s",
    ),
)
REST = "rest"
"""The client that holds what REST answers at the end."""
QUIET_SECONDS = 1.0
"""Observation after convergence, for messages that must not come."""
FAULT_SECONDS = 8.0
"""Approximate duration of a fault with its recovery, for the progress bar."""
LONG_SECONDS = {
    "cut-black-hole": 20.0,
    "upstream-black-hole": 20.0,
    "recreate-topic": 18.0,
    "cut-log-records": 35.0,
    "cut-log-retention": 70.0,
    "cut-log-topic": 35.0,
    "stop-broker": 25.0,
    "all-brokers-down": 90.0,
    "server-down": 20.0,
    "pair-down": 20.0,
    "server-up": 18.0,
    "pair-up": 18.0,
    "rebalance-storm": 75.0,
    "metadata-down": 38.0,
    LEARNED: 240.0,
    ATTACK: 45.0,
    EXPIRY: 180.0,
    UPGRADE: 60.0,
    ROLLBACK: 60.0,
}


async def run(scenario: Scenario, bounds: Bounds | None = None) -> Outcome:
    """Run a scenario. Histories and logs are kept in build/histories/NAME."""
    bounds = bounds or scenario.bounds
    folder = BUILD / "histories" / scenario.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected = 24 + max(scenario.seconds, sum(LONG_SECONDS.get(fault, FAULT_SECONDS) for fault in scenario.faults))
    goals: list[Goal] = []
    with Display(scenario.name, expected) as display, tempfile.TemporaryDirectory(prefix="diem-load-") as temporary:
        display.show("starting")
        try:
            async with running_scene(scenario, Path(temporary), goals) as scene:
                recorded, figures = await _observe(scenario, scene, folder, bounds, display)
        finally:
            shutil.copytree(Path(temporary) / "state" / "logs", folder / "logs", dirs_exist_ok=True)
        found = tracebacks(folder / "logs")
        figures |= scene.figures
        figures["tracebacks"] = found[:SAID]
        goals.append(Goal("exceptions in the logs", "", 0, len(found)))
        write_history(folder, recorded, clients=False)
        display.show("judging")
        report = await asyncio.to_thread(judge, read_history(folder), bounds)
        goals = [*goals_of(scenario, report, figures), *goals, *[look(read_history(folder)) for look in scene.later]]
        if scenario.controls and report.clean:
            display.show("negative controls")
            goals += await asyncio.to_thread(controls, folder, bounds, scenario.seed)
    described = {**asdict(scenario), "kafka": scenario.kafka and scenario.kafka.bootstrap_servers}
    return Outcome(scenario, report, {"scenario": described, **figures, **report.figures()}, goals, folder)


async def _observe(
    scenario: Scenario, scene: Scene, folder: Path, bounds: Bounds, display: Display
) -> tuple[History, dict[str, Any]]:
    system, writer, clients = scene.system, scene.writer, scene.clients
    await writer.put_all()
    display.show("connecting")
    within = CONNECT_SECONDS + scenario.clients / CONNECTS_PER_SECOND
    if not await clients.until(lambda figures: figures["connected"] == scenario.clients, within):
        raise TimeoutError(f"only {clients.figures.get('connected')} of {scenario.clients} clients connected")
    before, own, start = system.measure(), process_time(), monotonic()
    theirs = clients.figures["cpu"]
    over, now = asyncio.Event(), ["writing"]
    showing = asyncio.create_task(_show(clients, system, display, now))
    faults, repeated = [], {}
    if scene.trace is not None:
        repeated = await _repeat(scene, scene.trace, scenario)
    else:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.run_until(over))
            faults = await _inject(scenario, scene, clients, now)
            await asyncio.sleep(max(0.0, start + scenario.seconds - monotonic()))
            over.set()
    elapsed = repeated.get("seconds") or monotonic() - start
    cpu = {name: round(seconds - before.get(name, 0), 2) for name, seconds in system.measure().items()}
    cpu |= {"clients": round(clients.figures["cpu"] - theirs, 2), "writer": round(process_time() - own, 2)}
    showing.cancel()
    display.show("converging")
    await clients.churn(0)
    final = await writer.final()
    converged = await _converge(clients, final, bounds.t_conv + bounds.t_heal)
    await asyncio.sleep(QUIET_SECONDS)
    snapshots, unexplained = await system.snapshots(), await system.unexplained()
    evicted = await system.evicted()
    final = await writer.final()
    display.show("writing histories")
    events, lists = await writer.read_all()
    end = await clients.finish(folder)
    write_client(folder, REST, events)
    write_lists(folder, REST, lists)
    if repeated:
        repeated["frames"] = clients.figures["raw"] - repeated.pop("frames_before")
    figures = {
        "repeated": repeated,
        "accepted_per_s": round(writer.changed_since(start) / elapsed, 1),
        "write_s": quantiles(writer.latencies),
        "write_answers": dict(writer.statuses),
        "converged_s_after_writes": converged,
        "clients": {name: clients.figures[name] for name in FIGURES},
        "kinds": clients.figures["kinds"],
        "operations": dict(writer.operations),
        "unexplained_restarts": unexplained,
        "kills": dict(system.kills),
        "evicted": evicted,
        "cpu_seconds": cpu,
        "run_seconds": round(elapsed, 2),
    }
    uncertain = _unexplained(writer.uncertain, faults)
    return History(writer.accepted, {}, end, faults, uncertain, snapshots, final), figures


async def _repeat(scene: Scene, trace: Trace, scenario: Scenario) -> dict[str, Any]:
    """Repeat a trace; return what the processes used and counted meanwhile."""
    # From here on every frame is for one of the trace's updates.
    if await _converge(scene.clients, scene.writer.newest(), scenario.bounds.t_heal) is None:
        raise TimeoutError("the clients do not have the versions from before the trace")
    frames, processes = scene.clients.figures["raw"], await running(scene.system)
    rest = await _at_rest(processes, scenario.rest)
    # Counters are read outside of the time in which CPU is measured.
    counted = await counters(scene.system, processes)
    before, start = joined(usage(processes), counted), monotonic()
    # A trace may have a million objects, which the collector would go through while writes are due.
    gc.freeze()
    await scene.clients.play()
    await scene.writer.replay(trace.writes)
    await asyncio.sleep(max(0.0, start + trace.seconds - monotonic()))
    gc.unfreeze()
    used, seconds = usage(processes), monotonic() - start
    after = joined(used, await counters(scene.system, processes))
    return {**measured(before, after, seconds), "rest_cpu_ms": rest, "frames_before": frames}


async def _at_rest(processes: Sequence[Process], seconds: float) -> dict[str, float]:
    """Return the CPU by kind of process in ms/s while nothing is written; nothing if it is not to be measured."""
    if not seconds:
        return {}
    before, start = usage(processes), monotonic()
    await asyncio.sleep(seconds)
    found: dict[str, float] = measured(before, usage(processes), monotonic() - start)["cpu_ms"]
    return found


async def _inject(scenario: Scenario, scene: Scene, clients: ClientProcess, now: list[str]) -> list[Fault]:
    """Inject the faults, each when everybody knows of what was accepted after the one before."""
    found = []
    for name in scenario.faults:
        await asyncio.sleep(scenario.gap)
        now[0] = name
        start = monotonic()
        try:
            fault = await FAULTS[name](scene)
        except (NotUp, ControlFailed) as error:
            # The others are looked at all the same.
            fault = Fault(name, str(error), start, monotonic())
            scene.goals.append(Goal(f"{name} could be injected, and was over in time", "", 1, 0.0, at_least=True))
        found.append(fault)
        now[0] = f"after {name}"
        heal = scenario.bounds.t_heal if fault.heal is None else max(fault.heal, scenario.bounds.t_heal)
        await _converge(clients, scene.writer.newest(), heal)
        now[0] = "writing"
    return found


async def _show(clients: ClientProcess, system: System, display: Display, now: list[str]) -> None:
    while True:
        figures = clients.figures
        display.show(
            now[0], ", ".join(f"{figures.get(name, 0)} {name}" for name in ("connected", "live", "behind", "events"))
        )
        # Keeps the CPU time of processes that are killed.
        system.measure()
        await asyncio.sleep(0.5)


async def _converge(clients: ClientProcess, versions: dict[str, int], within: float) -> float | None:
    """Return the seconds until all clients are connected, live, and at these versions or later; None if not in time."""
    start = monotonic()
    await clients.expect(versions)
    everybody = await clients.until(
        lambda figures: figures["behind"] == 0 and figures["live"] == figures["connected"] == figures["present"], within
    )
    return round(monotonic() - start, 2) if everybody else None


def _unexplained(uncertain: list[Uncertain], faults: list[Fault]) -> list[Uncertain]:
    """The lost answers that only a wiped store can make a difference for: else the repeated request got the version."""
    wipes = [fault for fault in faults if fault.kind == WIPE]
    return [lost for lost in uncertain if any(lost.start <= wipe.end and wipe.start <= lost.end for wipe in wipes)]
