"""The whole loop on the running system: traffic becomes statistics, those a plan, the plan is applied, and taken back.

Everything is done by the commands that an operator has, while clients are served. What the plan promised is laid
beside what is counted before and after it.
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
from tests.load.injection import promised
from tests.load.injection.counting import SECONDS, count
from tests.load.injection.promised import beside, goals_of
from tests.load.injection.scene import Scene
from tests.load.plans import Plans
from tests.load.system import NotUp
from tests.oracle.history import Fault

LEARNED: Final = "learned-plan"
STATISTICS: Final = f"statistics {LEARNED}"
MINUTE_SECONDS: Final = 60
"""Processes count updates by whole minutes of the clock: in a window of one, the rates are exact."""
WRITTEN_SECONDS, FILE_SECONDS = 4.0, 62.0
"""After a minute, until it can be read: the counts follow it, and a file is complete a minute after it was begun."""
MOVE_SECONDS: Final = 8.0
"""That clients have to go over in these runs."""
SETTLED_SECONDS: Final = 15.0
"""Connections that nobody needs any more are kept 5 s by clients and 10 s by proxies."""
COMMAND_SECONDS: Final = 900.0
"""Within which a command must end; Spark needs 25 s where it has a core for itself."""
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives so shortly: it shares the cores with the system that is looked at."""


async def learned_plan(scene: Scene) -> Fault:
    """Record, learn, plan, apply, take back, and count before and after. Nobody may notice."""
    start, loop = monotonic(), _Loop(scene)
    plans = Plans(scene.system, scene.brokers.options)
    names = scene.writer.endpoints
    map_ = await plans.map()
    old = {name: map_.home(name.encode()) for name in names}

    begin = await _full_minute()
    await _until(begin + MINUTE_SECONDS - SECONDS)
    before = await count(scene)
    await _until(begin + MINUTE_SECONDS + WRITTEN_SECONDS + (FILE_SECONDS if loop.files else 0.0))
    statistics = await loop.learn(begin, begin + MINUTE_SECONDS)
    # Where it does not pay, what it changes is looked at all the same.
    file = scene.system.state / f"{LEARNED}.json"
    said = await loop.diem("plan", "--anyway", "--out", str(file))
    plan = decode(file.read_bytes())
    await loop.diem("apply", "--yes", plan.id)
    astray = await _elsewhere(plans, plan.homes)
    await asyncio.sleep(SETTLED_SECONDS)
    after = await count(scene)
    await loop.diem("rollback", "--yes", plan.id)
    astray_then = await _elsewhere(plans, old)

    clients = int(statistics["clients"])
    first, second = (
        beside(plan, placement, before, counted, clients)
        for placement, counted in (("current", before), ("plan", after))
    )
    proxies = sum(process.name.startswith("proxy-") for process in scene.system.processes())
    goals = [
        Goal("endpoints that are not where the plan has them", "", 0, astray),
        Goal("endpoints that are not where they were, when it is taken back", "", 0, astray_then),
        Goal("clients taken for several, or several for one", "", 0, abs(clients - scene.crowd.clients)),
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
    """What ``diem up`` is told when this is among the faults of a run."""
    return ["--set", f"metadata:DIEM_METADATA_MOVE_SECONDS={MOVE_SECONDS}"] if LEARNED in names else []


def table(name: str, figures: Mapping[str, Any]) -> str | None:
    """For people; None when a run has not come to its end, or had another fault."""
    found = figures.get(LEARNED)
    return found and promised.table(f"{name} ({found['recorded_in']})", found["before"], found["after"])


class _Loop:
    """The commands, on the state directory of the system."""

    def __init__(self, scene: Scene) -> None:
        self.state = scene.system.state
        self.files = (self.state / "traffic" / "in").is_dir()
        """Whether traffic is recorded there, and not in Kafka."""
        self.took: dict[str, float] = {}
        """Seconds by command."""

    async def learn(self, begin: int, end: int) -> dict[str, Any]:
        """Have the statistics of a window computed, by Unix time in seconds; returns what they say of it."""
        window = ("--from", iso(begin * 1000), "--to", iso(end * 1000), "--name", LEARNED)
        await self.diem("pipeline", "run", "--source", "files" if self.files else "kafka", *window)
        folder = self.state / "traffic" / "warehouse" / "statistics" / LEARNED
        found: dict[str, Any] = orjson.loads((folder / "window.json").read_bytes())
        return found

    async def diem(self, *words: str) -> str:
        """What a command says. Raises ``NotUp`` when it fails."""
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
                # Politely: it may have a JVM to end.
                process.terminate()
                await process.wait()
        self.took[words[0]] = round(monotonic() - start, 1)
        if process.returncode:
            raise NotUp(f"diem {' '.join(words)} ended with {process.returncode}: {said.decode()[-1000:]}")
        return said.decode()


async def _full_minute() -> int:
    """Wait for the next one of the clock to begin; returns when that is, in Unix time."""
    begin = (int(time()) // MINUTE_SECONDS + 1) * MINUTE_SECONDS
    await _until(begin)
    return begin


async def _until(when: float) -> None:
    await asyncio.sleep(when - time())


async def _elsewhere(plans: Plans, homes: Mapping[str, int]) -> int:
    """How many endpoints are not where they should be."""
    map_ = await plans.map()
    return sum(map_.home(name.encode()) != home for name, home in homes.items())
