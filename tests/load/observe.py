"""One run: starts the system, the clients and the writes, injects faults, waits until all is quiet, asks the oracle."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from time import monotonic, process_time
from typing import Any
from urllib.parse import urlsplit

from tests.load.bench import BUILD, Goal
from tests.load.brokers import Brokers
from tests.load.clients import Plan
from tests.load.crowd import Crowd
from tests.load.goals import controls, goals_of
from tests.load.injection import CUTS, FAULTS, Scene
from tests.load.progress import Display
from tests.load.relay import Relay
from tests.load.scenario import Outcome, Scenario
from tests.load.system import NotUp, System
from tests.load.writes import Writer
from tests.oracle import Bounds, Fault, History, Uncertain, judge, read_history, write_history
from tests.oracle.accounting import WIPE
from tests.oracle.judge import quantiles

CONNECT_SECONDS = 30.0
QUIET_SECONDS = 1.0
"""Observed after everybody has converged: what must not come may still come."""
FAULT_SECONDS = 8.0
"""What a fault and its healing take, more or less, for the progress bar."""
LONG_SECONDS = {"cut-black-hole": 20.0, "recreate-topic": 18.0, "stop-broker": 25.0, "all-brokers-down": 90.0}


async def run(scenario: Scenario, bounds: Bounds | None = None) -> Outcome:
    """Run it all. The histories are kept in build/histories/NAME, with the logs of the processes."""
    bounds = bounds or scenario.bounds
    folder = BUILD / "histories" / scenario.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected = 24 + max(scenario.seconds, sum(LONG_SECONDS.get(fault, FAULT_SECONDS) for fault in scenario.faults))
    goals: list[Goal] = []
    with Display(scenario.name, expected) as display, tempfile.TemporaryDirectory(prefix="diem-load-") as temporary:
        display.show("starting")
        try:
            async with _scene(scenario, Path(temporary), goals) as scene:
                recorded, figures = await _observe(scenario, scene, folder, bounds, display)
        finally:
            shutil.copytree(Path(temporary) / "state" / "logs", folder / "logs", dirs_exist_ok=True)
        write_history(folder, recorded, clients=False)
        display.show("judging")
        report = await asyncio.to_thread(judge, read_history(folder), bounds)
        goals = [*goals_of(scenario, report, figures), *goals, *[look(read_history(folder)) for look in scene.later]]
        if scenario.controls and report.clean:
            display.show("negative controls")
            goals += await asyncio.to_thread(controls, folder, bounds, scenario.seed)
    described = {**asdict(scenario), "kafka": scenario.kafka and scenario.kafka.bootstrap_servers}
    return Outcome(scenario, report, {"scenario": described, **figures, **report.figures()}, goals, folder)


@asynccontextmanager
async def _scene(scenario: Scenario, folder: Path, goals: list[Goal]) -> AsyncIterator[Scene]:
    """The running system, with everything that the faults need."""

    def bridge() -> tuple[str, int]:
        try:
            url = urlsplit(system.process("bridge-1").internal_url or "")
        except NotUp as error:
            raise ConnectionRefusedError(str(error)) from error
        return url.hostname or "", url.port or 0

    async with Relay(bridge) as relay:
        options = list(scenario.options)
        if CUTS & set(scenario.faults):
            options += ["--set", f"websocket-1:DIEM_WEBSOCKET_FEED_URL=ws://127.0.0.1:{relay.port}/feed"]
        system = System(scenario.mode, folder, options)
        async with system:
            names = [f"/load-test/{number:03}" for number in range(scenario.endpoints)]
            writer = Writer(system.rest, system.write_key, names, Random(scenario.seed), rate=scenario.rate)
            yield Scene(system, writer, Brokers(system, scenario.kafka), relay, scenario.quick, goals)
            await writer.close()


async def _observe(
    scenario: Scenario, scene: Scene, folder: Path, bounds: Bounds, display: Display
) -> tuple[History, dict[str, Any]]:
    system, writer = scene.system, scene.writer
    async with Crowd(_plan(scenario, system, writer.endpoints)) as crowd:
        await writer.put_all()
        display.show("connecting")
        if not await crowd.until(lambda figures: figures["connected"] == scenario.clients, CONNECT_SECONDS):
            raise TimeoutError(f"only {crowd.figures.get('connected')} of {scenario.clients} clients connected")
        before, own, start = system.measure(), process_time(), monotonic()
        theirs = crowd.figures["cpu"]
        over, now = asyncio.Event(), ["writing"]
        showing = asyncio.create_task(_show(crowd, system, display, now))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.run_until(over))
            faults = await _inject(scenario, scene, crowd, now)
            await asyncio.sleep(max(0.0, start + scenario.seconds - monotonic()))
            over.set()
        elapsed = monotonic() - start
        cpu = {name: round(seconds - before.get(name, 0), 2) for name, seconds in system.measure().items()}
        cpu |= {"clients": round(crowd.figures["cpu"] - theirs, 2), "writer": round(process_time() - own, 2)}
        showing.cancel()
        display.show("converging")
        await crowd.churn(0)
        final = await writer.final()
        converged = await _converge(crowd, final, scenario, bounds.t_conv + bounds.t_heal)
        await asyncio.sleep(QUIET_SECONDS)
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
            "cpu_seconds": cpu,
            "run_seconds": round(elapsed, 2),
        }
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


async def _inject(scenario: Scenario, scene: Scene, crowd: Crowd, now: list[str]) -> list[Fault]:
    """Inject the faults, each when everybody knows of what was accepted after the one before."""
    found = []
    for name in scenario.faults:
        await asyncio.sleep(scenario.gap)
        now[0] = name
        fault = await FAULTS[name](scene)
        found.append(fault)
        now[0] = f"after {name}"
        heal = scenario.bounds.t_heal if fault.heal is None else max(fault.heal, scenario.bounds.t_heal)
        await _converge(crowd, scene.writer.newest(), scenario, heal)
        now[0] = "writing"
    return found


async def _show(crowd: Crowd, system: System, display: Display, now: list[str]) -> None:
    while True:
        figures = crowd.figures
        display.show(
            now[0], ", ".join(f"{figures.get(name, 0)} {name}" for name in ("connected", "live", "behind", "events"))
        )
        # So that the CPU time of a process that is killed is not lost.
        system.measure()
        await asyncio.sleep(0.5)


async def _converge(crowd: Crowd, versions: dict[str, int], scenario: Scenario, within: float) -> float | None:
    """Seconds until everybody is connected, live, and at these versions or later ones; None when not ``within``."""
    start = monotonic()
    await crowd.expect(versions)
    everybody = await crowd.until(
        lambda figures: figures["behind"] == 0 and figures["live"] == figures["connected"] == scenario.clients, within
    )
    return round(monotonic() - start, 2) if everybody else None


def _unexplained(uncertain: list[Uncertain], faults: list[Fault]) -> list[Uncertain]:
    """The lost answers that only a wiped store can make a difference for: else the repeated request got the version."""
    wipes = [fault for fault in faults if fault.kind == WIPE]
    return [lost for lost in uncertain if any(lost.start <= wipe.end and wipe.start <= lost.end for wipe in wipes)]
