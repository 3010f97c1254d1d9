"""One plan on the running system under load: applied, held in a phase, or rolled back, while endpoints change."""

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
from tests.load.plans import Plans, draw_plan
from tests.load.system import NotUp

MOVE_SECONDS: Final = 3.0
"""Duration of MOVE in these runs: long enough for a kill to fall into it."""
EARLY_SECONDS: Final = 0.8
"""Time before the end of MOVE at which the publisher is stopped, so that RETIRE waits for it."""
ENDS_SECONDS: Final = MOVE_SECONDS + 5.0
"""Time within which a plan is applied, or rolled back."""
STOPPED_SECONDS: Final = 8.0
"""Longest stop of the publisher until RETIRE begins: after 10 s no server would be live."""
CHANGED_SECONDS: Final = ((0.0, 0.5), (0.5, MOVE_SECONDS), (MOVE_SECONDS, MOVE_SECONDS + 0.6))
"""Intervals after the start of a move in which quiet endpoints change, equally many in each: some in every phase."""
PATIENCE_SECONDS: Final = 30.0
"""Extra time for a late plan, so that none is in progress at the next fault."""


@dataclass(frozen=True)
class Attempt:
    """One plan on the running system; its results are goals of the run."""

    kind: str
    scene: Scene
    plans: Plans
    plan: Plan
    before: PartitionMap
    random: Random
    changes: list[asyncio.Task[None]] = field(default_factory=list)

    async def apply(self, share: float = 1.0) -> int:
        """Start to apply; return the number of endpoints that move. A share of the quiet ones changes meanwhile.

        One of three does not: its subscribers get the update that was written before the move.
        """
        self._change_quiet(0.0, share)
        return int((await self.plans.apply(self.plan))["moves"])

    async def rollback(self, share: float) -> int:
        """Start to roll back; return the number of endpoints that move."""
        self._change_quiet(1.0 - share, 1.0)
        return int((await self.plans.rollback(self.plan))["moves"])

    def _change_quiet(self, first: float, last: float) -> None:
        quiet = sorted(self.scene.writer.quiet & self.plan.homes.keys())
        changing = [name for number, name in enumerate(quiet) if number % 3]
        for name in changing[round(first * len(changing)) : round(last * len(changing))]:
            self.changes.append(asyncio.create_task(self._change(name)))

    async def _change(self, name: str) -> None:
        await asyncio.sleep(self.random.uniform(*self.random.choice(CHANGED_SECONDS)))
        await self.scene.writer.change([name])

    @asynccontextmanager
    async def held_in(self, phase: Phase, share: float = 1.0) -> AsyncIterator[None]:
        """Apply the plan and hold it in the phase, by stopping the publisher where the phase waits for it."""
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
        """Wait until the plan is applied, check all homes, and return the time."""
        end = await self.plans.until_state(self.plan, "applied", within + PATIENCE_SECONDS)
        map_ = await self.plans.map()
        misplaced = sum(map_.home(name.encode()) != home for name, home in self.plan.homes.items())
        self._found("the plan is applied", "s", within, end - start)
        self._found("endpoints that are not where the plan has them", "", 0, misplaced)
        return end

    async def restored(self, start: float) -> float:
        """Wait until the plan is rolled back, check all homes, and return the time."""
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
async def submitted_attempt(kind: str, scene: Scene, *, more: int = 0) -> AsyncIterator[Attempt]:
    """Draw a plan for the current map and submit it."""
    plans, random = Plans(scene.system, scene.brokers.options), Random(f"{scene.seed} {kind}")
    before, owners = await plans.map(), await plans.owners()
    plan = draw_plan(scene.writer.endpoints, before, owners, random, more=more)
    await plans.submit(plan)
    attempt = Attempt(kind, scene, plans, plan, before, random)
    try:
        yield attempt
    finally:
        # Also after a failure: pending changes may be accepted, and must be recorded then.
        await asyncio.gather(*attempt.changes)


@asynccontextmanager
async def _publisher_stopped(scene: Scene) -> AsyncIterator[None]:
    """Stop the Data Service (SIGSTOP); it may be killed meanwhile."""
    pid = scene.system.process("data").pid
    if pid is None:
        raise NotUp("data does not run")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
