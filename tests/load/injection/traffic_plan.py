"""The whole loop on the running system: compute statistics of traffic, plan, apply, and roll back.

All steps are an operator's commands, while clients are served. The plan's prediction is compared with measurements
before and after it.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from time import monotonic, time
from typing import Any, Final

import orjson

from diem.protocol.update import iso
from metadata.plans.plan import decode
from tests.load.bench import Goal
from tests.load.injection import prediction
from tests.load.injection.measurement import SECONDS, measure
from tests.load.injection.prediction import compare, goals_of
from tests.load.injection.scene import Scene
from tests.load.plans import Plans
from tests.load.system import NotUp
from tests.oracle.history import Fault

LEARNED: Final = "learned-plan"
STATISTICS: Final = f"statistics {LEARNED}"
MINUTE_SECONDS: Final = 60
"""Processes count updates by whole minutes of the clock: for a window of one minute, the rates are exact."""
WRITTEN_SECONDS, FILE_SECONDS = 4.0, 62.0
"""Delay until a minute can be read: the counts follow it, and a file is complete a minute after its start."""
MOVE_SECONDS: Final = 8.0
"""Time for clients to move in these runs."""
SETTLED_SECONDS: Final = 15.0
"""Time for unused connections to end: clients keep them for 5 s, proxies for 10 s."""
COMMAND_SECONDS: Final = 900.0
"""Time-out of a command; Spark needs 25 s with a core of its own."""
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a short-lived JVM, which shares the cores with the system under test."""


async def learned_plan(scene: Scene) -> Fault:
    """Record, compute statistics, plan, apply and roll back; measure before and after. No client may notice."""
    start, loop = monotonic(), _Loop(scene)
    plans = Plans(scene.system, scene.brokers.options)
    names = scene.writer.endpoints
    map_ = await plans.map()
    old = {name: map_.home(name.encode()) for name in names}

    begin = await _full_minute()
    await _until(begin + MINUTE_SECONDS - SECONDS)
    before = await measure(scene)
    await _until(begin + MINUTE_SECONDS + WRITTEN_SECONDS + (FILE_SECONDS if loop.files else 0.0))
    statistics = await loop.learn(begin, begin + MINUTE_SECONDS)
    # With --anyway, because its effect is measured even if it does not pay.
    file = scene.system.state / f"{LEARNED}.json"
    said = await loop.diem("plan", "--anyway", "--out", str(file))
    plan = decode(file.read_bytes())
    await loop.diem("apply", "--yes", plan.id)
    misplaced = await _count_misplaced(plans, plan.homes)
    await asyncio.sleep(SETTLED_SECONDS)
    after = await measure(scene)
    await loop.diem("rollback", "--yes", plan.id)
    misplaced_after = await _count_misplaced(plans, old)

    clients = int(statistics["clients"])
    first, second = (
        compare(plan, placement, before, counted, clients)
        for placement, counted in (("current", before), ("plan", after))
    )
    proxies = sum(process.name.startswith("proxy-") for process in scene.system.processes())
    goals = [
        Goal("endpoints that are not where the plan has them", "", 0, misplaced),
        Goal("endpoints that are not where they were, when it is taken back", "", 0, misplaced_after),
        Goal("clients taken for several, or several for one", "", 0, abs(clients - scene.clients.count)),
        *goals_of(plan, proxies, first, second, said),
    ]
    scene.goals.extend(goal._replace(name=f"{LEARNED}, {goal.name}") for goal in goals)
    scene.figures[LEARNED] = {
        "recorded_in": "files" if loop.files else "kafka",
        # Reports are kept: no folder of this machine is in them.
        "said": said.replace(str(loop.state), "STATE").splitlines(),
        "plan": {
            "id": plan.id,
            "partitions": plan.partitions,
            "window": plan.window,
            **plan.report,
            "source": STATISTICS,
        },
        "before": {"predicted": first.predicted._asdict(), "counted": first.counted._asdict(), **before._asdict()},
        "after": {"predicted": second.predicted._asdict(), "counted": second.counted._asdict(), **after._asdict()},
        "statistics": statistics,
        "command_s": loop.took,
    }
    moves = plan.report["moves"]
    return Fault(LEARNED, f"{moves['endpoints']} of {moves['of']} endpoints", start, monotonic(), excuses=False)


def settings_of(names: Sequence[str]) -> list[str]:
    """Return the options of ``diem up`` for this fault."""
    return ["--set", f"metadata:DIEM_METADATA_MOVE_SECONDS={MOVE_SECONDS}"] if LEARNED in names else []


def table(name: str, figures: Mapping[str, Any]) -> str | None:
    """Return the comparison as text; None if the run did not complete, or did not have this fault."""
    found = figures.get(LEARNED)
    return found and prediction.table(f"{name} ({found['recorded_in']})", found["before"], found["after"])


class _Loop:
    """The commands, for the state directory of the system."""

    def __init__(self, scene: Scene) -> None:
        self.state = scene.system.state
        self.files = (self.state / "traffic" / "in").is_dir()
        """Whether traffic is recorded in files, not in Kafka."""
        self.took: dict[str, float] = {}
        """Seconds by command."""

    async def learn(self, begin: int, end: int) -> dict[str, Any]:
        """Compute the statistics of a window (Unix time in seconds); return their summary."""
        window = ("--from", iso(begin * 1000), "--to", iso(end * 1000), "--name", LEARNED)
        await self.diem("pipeline", "run", "--source", "files" if self.files else "kafka", *window)
        folder = self.state / "traffic" / "warehouse" / "statistics" / LEARNED
        found: dict[str, Any] = orjson.loads((folder / "window.json").read_bytes())
        return found

    async def diem(self, *words: str) -> str:
        """Run a command and return its output. Raises ``NotUp`` if it fails."""
        start = monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deploy", *words, "--state-dir", str(self.state)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
        except TimeoutError:
            raise NotUp(f"diem {' '.join(words)} took more than {COMMAND_SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                # Not SIGKILL: it may have a JVM to end.
                process.terminate()
                await process.wait()
        self.took[words[0]] = round(monotonic() - start, 1)
        if process.returncode:
            raise NotUp(f"diem {' '.join(words)} ended with {process.returncode}: {said.decode()[-1000:]}")
        return said.decode()


async def _full_minute() -> int:
    """Wait for the next full minute of the clock; return its start as Unix time."""
    begin = (int(time()) // MINUTE_SECONDS + 1) * MINUTE_SECONDS
    await _until(begin)
    return begin


async def _until(when: float) -> None:
    await asyncio.sleep(when - time())


async def _count_misplaced(plans: Plans, homes: Mapping[str, int]) -> int:
    """Return the number of endpoints that are not at their homes."""
    map_ = await plans.map()
    return sum(map_.home(name.encode()) != home for name, home in homes.items())
