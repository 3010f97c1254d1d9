"""One plan on the running system, under load: applied, held in a phase, taken back; endpoints change meanwhile."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Final

from diem.protocol.partition_map import PartitionMap, Phase
from metadata.plans.plan import Plan
from tests.load.bench import Goal
from tests.load.injection.scene import Scene
from tests.load.plans import Plans, drawn
from tests.load.system import NotUp

MOVE_SECONDS: Final = 3.0
"""That MOVE lasts in these runs: long enough for a kill to fall into it."""
EARLY_SECONDS: Final = 0.8
"""Before the end of MOVE, for RETIRE to find the publisher stopped."""
ENDS_SECONDS: Final = MOVE_SECONDS + 5.0
"""Within which a plan is applied, or taken back."""
STOPPED_SECONDS: Final = 8.0
"""For which the publisher is stopped at most until RETIRE begins: after 10 s no server would be live."""
CHANGED_SECONDS: Final = ((0.0, 0.5), (0.5, MOVE_SECONDS), (MOVE_SECONDS, MOVE_SECONDS + 0.6))
"""After the start of a move, when quiet endpoints change: as many in each, so that some change in every phase."""
PATIENCE_SECONDS: Final = 30.0
"""Beyond these, for a plan that is late: so that the next fault finds none on its way."""


@dataclass(frozen=True)
class Attempt:
    """One plan on the running system; what is found out about it are goals of the run."""

    kind: str
    scene: Scene
    plans: Plans
    plan: Plan
    before: PartitionMap
    random: Random
    changes: list[asyncio.Task[None]] = field(default_factory=list)

    async def apply(self, share: float = 1.0) -> int:
        """Begin to move; returns how many endpoints. A share of those that are quiet changes in the meantime.

        One of three does not: who subscribes to it has its update from where it was written before anybody moved.
        """
        self._stir(0.0, share)
        return int((await self.plans.apply(self.plan))["moves"])

    async def rollback(self, share: float) -> int:
        """Take the plan back from where it is; returns how many endpoints move."""
        self._stir(1.0 - share, 1.0)
        return int((await self.plans.rollback(self.plan))["moves"])

    def _stir(self, first: float, last: float) -> None:
        quiet = sorted(self.scene.writer.quiet & self.plan.homes.keys())
        changing = [name for number, name in enumerate(quiet) if number % 3]
        for name in changing[round(first * len(changing)) : round(last * len(changing))]:
            self.changes.append(asyncio.create_task(self._change(name)))

    async def _change(self, name: str) -> None:
        await asyncio.sleep(self.random.uniform(*self.random.choice(CHANGED_SECONDS)))
        await self.scene.writer.change([name])

    @asynccontextmanager
    async def standing_in(self, phase: Phase, share: float = 1.0) -> AsyncIterator[None]:
        """Applies the plan; inside it stands in the phase: what waits for the publisher finds it stopped."""
        if phase is Phase.PREPARE:
            async with _publisher_stopped(self.scene):
                await self.apply(share)
                await self.plans.until_phase(phase)
                yield
            return
        await self.apply(share)
        since = await self.plans.until_phase(Phase.MOVE)
        if phase is Phase.MOVE:
            yield
            return
        await asyncio.sleep(since + MOVE_SECONDS - EARLY_SECONDS - monotonic())
        async with _publisher_stopped(self.scene):
            await self.plans.until_phase(phase, STOPPED_SECONDS)
            yield

    async def applied(self, start: float, within: float = ENDS_SECONDS) -> float:
        """Wait until the plan is applied, and look whether everything is where it says; returns when it was."""
        end = await self.plans.until_state(self.plan, "applied", within + PATIENCE_SECONDS)
        map_ = await self.plans.map()
        astray = sum(map_.home(name.encode()) != home for name, home in self.plan.homes.items())
        self._found("the plan is applied", "s", within, end - start)
        self._found("endpoints that are not where the plan has them", "", 0, astray)
        return end

    async def restored(self, start: float) -> float:
        """Wait until the plan is taken back, and look whether everything is where it was; returns when it was."""
        end = await self.plans.until_state(self.plan, "rolled_back", ENDS_SECONDS + PATIENCE_SECONDS)
        map_ = await self.plans.map()
        names = map(str.encode, self.scene.writer.endpoints)
        changed = {name for name in names if map_.home(name) != self.before.home(name)}
        self._found("the plan is taken back", "s", ENDS_SECONDS, end - start)
        self._found("endpoints that are not where they were", "", 0, len(changed))
        self._found("entries of the map that are others than before", "", 0, map_.entries != self.before.entries)
        return end

    def _found(self, what: str, unit: str, goal: float, measured: float) -> None:
        self.scene.goals.append(Goal(f"{self.kind}, {what}", unit, goal, round(measured, 2)))


@asynccontextmanager
async def attempting(kind: str, scene: Scene, *, more: int = 0) -> AsyncIterator[Attempt]:
    """A plan that follows from the map as it is now, handed in."""
    plans, random = Plans(scene.system, scene.brokers.options), Random(f"{scene.seed} {kind}")
    before, owners = await plans.map(), await plans.owners()
    plan = drawn(scene.writer.endpoints, before, owners, random, more=more)
    await plans.submit(plan)
    attempt = Attempt(kind, scene, plans, plan, before, random)
    try:
        yield attempt
    finally:
        # Also after a failure: what was asked for may be accepted, and is to be remembered then.
        await asyncio.gather(*attempt.changes)


@asynccontextmanager
async def _publisher_stopped(scene: Scene) -> AsyncIterator[None]:
    """The Data Service stopped (SIGSTOP), unless it is killed meanwhile."""
    pid = scene.system.process("data").pid
    if pid is None:
        raise NotUp("data does not run")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
