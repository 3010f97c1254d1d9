"""One run: starts the system, the clients and the writes, injects faults, waits until all is quiet, asks the oracle."""

import asyncio
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from random import Random
from time import monotonic, process_time
from typing import Any

from tests.load.bench import BUILD
from tests.load.clients import Plan
from tests.load.crowd import Crowd
from tests.load.goals import controls, goals_of
from tests.load.injection import FAULTS
from tests.load.progress import Display
from tests.load.scenario import Outcome, Scenario
from tests.load.system import System
from tests.load.writes import Writer
from tests.oracle import Bounds, Fault, History, Uncertain, judge, read_history, write_history
from tests.oracle.accounting import WIPE
from tests.oracle.judge import quantiles

CONNECT_SECONDS = 30.0
QUIET_SECONDS = 1.0
"""Observed after everybody has converged: what must not come may still come."""


async def run(scenario: Scenario, bounds: Bounds | None = None) -> Outcome:
    """Run it all. The histories are kept in build/histories/NAME, with the logs of the processes."""
    bounds = bounds or Bounds()
    folder = BUILD / "histories" / scenario.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected = scenario.seconds + 12 + (bounds.t_heal if scenario.faults else 0)
    with Display(scenario.name, expected) as display, tempfile.TemporaryDirectory(prefix="diem-load-") as temporary:
        display.show("starting")
        try:
            async with System(scenario.mode, Path(temporary)) as system:
                recorded, figures = await _observe(scenario, system, folder, bounds, display)
        finally:
            shutil.copytree(Path(temporary) / "state" / "logs", folder / "logs", dirs_exist_ok=True)
        write_history(folder, recorded, clients=False)
        display.show("judging")
        report = await asyncio.to_thread(judge, read_history(folder), bounds)
        goals = goals_of(scenario, report, figures)
        if scenario.controls and report.clean:
            display.show("negative controls")
            goals += await asyncio.to_thread(controls, folder, bounds, scenario.seed)
    return Outcome(scenario, report, {"scenario": asdict(scenario), **figures, **report.figures()}, goals, folder)


async def _observe(
    scenario: Scenario, system: System, folder: Path, bounds: Bounds, display: Display
) -> tuple[History, dict[str, Any]]:
    random = Random(scenario.seed)
    names = [f"/load-test/{number:03}" for number in range(scenario.endpoints)]
    writer = Writer(system.rest, system.write_key, names, random, rate=scenario.rate)
    async with Crowd(_plan(scenario, system, names)) as crowd:
        await writer.put_all()
        display.show("connecting")
        if not await crowd.until(lambda figures: figures["connected"] == scenario.clients, CONNECT_SECONDS):
            raise TimeoutError(f"only {crowd.figures.get('connected')} of {scenario.clients} clients connected")
        before, own, start = system.measure(), process_time(), monotonic()
        showing = asyncio.create_task(_show(crowd, system, display))
        faulting = asyncio.create_task(_inject(scenario, system, writer))
        await writer.run(scenario.seconds)
        faults, elapsed = await faulting, monotonic() - start
        cpu = {name: round(seconds - before.get(name, 0), 2) for name, seconds in system.measure().items()}
        showing.cancel()
        display.show("converging")
        await crowd.churn(0)
        final = await writer.final()
        converged = await _converge(crowd, final, scenario, bounds)
        snapshots = await system.snapshots()
        final = await writer.final()
        display.show("writing histories")
        end = await crowd.finish(folder)
        figures = {
            "accepted_per_s": round(writer.changed_since(start) / elapsed, 1),
            "write_s": quantiles(writer.latencies),
            "write_answers": dict(writer.statuses),
            "converged_s_after_writes": converged,
            "clients": {name: crowd.figures[name] for name in ("connected", "raw", "events", "refused", "fetches")},
            "cpu_seconds": {**cpu, "clients": crowd.figures["cpu"], "writer": round(process_time() - own, 2)},
            "run_seconds": round(elapsed, 2),
        }
    await writer.close()
    uncertain = _unexplained(writer.uncertain, faults)
    return History(writer.accepted, {}, end, faults, uncertain, snapshots, final), figures


def _plan(scenario: Scenario, system: System, names: list[str]) -> Plan:
    return Plan(
        servers=system.servers,
        rest=system.rest,
        endpoints=names,
        clients=scenario.clients,
        subscriptions=scenario.subscriptions,
        probes=scenario.probes,
        churn_seconds=scenario.churn_seconds,
        filtered=scenario.mode == "all-to-all",
        seed=scenario.seed,
    )


async def _inject(scenario: Scenario, system: System, writer: Writer) -> list[Fault]:
    start, gap = monotonic(), scenario.seconds / (len(scenario.faults) + 1)
    found = []
    for number, name in enumerate(scenario.faults, start=1):
        await asyncio.sleep(max(0.0, start + number * gap - monotonic()))
        found.append(await FAULTS[name](system, writer))
    return found


async def _show(crowd: Crowd, system: System, display: Display) -> None:
    while True:
        figures = crowd.figures
        display.show("writing", f"{figures.get('connected', 0)} clients, {figures.get('events', 0)} events")
        # So that the CPU time of a process that is killed is not lost.
        system.measure()
        await asyncio.sleep(0.5)


async def _converge(crowd: Crowd, final: dict[str, int], scenario: Scenario, bounds: Bounds) -> float | None:
    """Seconds until everybody was at the final versions, then a little more; None when not everybody came there."""
    start = monotonic()
    await crowd.expect(final)
    everybody = await crowd.until(
        lambda figures: figures["behind"] == 0 and figures["connected"] == scenario.clients,
        bounds.t_conv + bounds.t_heal,
    )
    reached = round(monotonic() - start, 2)
    await asyncio.sleep(QUIET_SECONDS)
    return reached if everybody else None


def _unexplained(uncertain: list[Uncertain], faults: list[Fault]) -> list[Uncertain]:
    """The lost answers that only a wiped store can make a difference for: else the repeated request got the version."""
    wipes = [fault for fault in faults if fault.kind == WIPE]
    return [lost for lost in uncertain if any(lost.start <= wipe.end and wipe.start <= lost.end for wipe in wipes)]
