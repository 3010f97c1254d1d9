"""Follows a plan that is on its way until it is over, through restarts of the metadata service."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from deploy.plans.service import MetadataService, MetadataUnavailable, PlanStatus
from diem.errors import DiemError
from diem.process.clock import Clock

EVERY_S: Final = 0.5
GIVEN_UP_AFTER_S: Final = 600.0
"""Without an answer. The move itself waits for the service, however long that takes."""

Tell = Callable[[str, str], None]
"""Shows a text; what has another key than the text before is news."""


class Course(NamedTuple):
    """Where a plan is going."""

    command: str
    """What follows it."""
    doing: frozenset[str]
    done: str


APPLYING: Final = Course("apply", frozenset({"preparing", "moving", "retiring"}), "applied")
ROLLING_BACK: Final = Course("rollback", frozenset({"rolling_back"}), "rolled_back")


@dataclass(eq=False)
class PlanSuperseded(DiemError):
    """Somebody else did something else meanwhile."""

    plan: PlanStatus

    def __str__(self) -> str:
        """Return the text."""
        now = self.plan.state.replace("_", " ")
        return f"somebody did something else meanwhile: {self.plan.id} is {now} at epoch {self.plan.epoch}"


class PlanFollower:
    """Looks at one plan every `EVERY_S`."""

    def __init__(self, service: MetadataService, way: Course, tell: Tell, clock: Clock) -> None:
        self._service = service
        self._way = way
        self._tell = tell
        self._clock = clock
        self._since = self._heard = clock.monotonic()

    async def follow(self, begun: PlanStatus) -> PlanStatus:
        """Return how it ended; `begun` is what the service said when it began.

        Raises:
            PlanSuperseded: it went another way.
            MetadataUnavailable: the service has not answered for too long; it goes on when the service is back.
            ServiceRefused: the service does not know the plan.
        """
        plan: PlanStatus | None = begun
        while plan is None or not self._is_over(plan, begun.epoch or 0):
            await asyncio.sleep(EVERY_S)
            plan = await self._look(begun.id)
        return plan

    async def _look(self, name: str) -> PlanStatus | None:
        try:
            plan = await self._service.plan(name)
        except MetadataUnavailable as error:
            silent = self._clock.monotonic() - self._heard
            if silent > GIVEN_UP_AFTER_S:
                raise MetadataUnavailable(
                    f"{error.reason}, for {silent:.0f} s now; the move goes on when it is back"
                ) from error
            self._tell("away", f"{error}; going on when it is back ({silent:.0f} s)")
            return None
        self._heard = self._clock.monotonic()
        return plan

    def _is_over(self, plan: PlanStatus, epoch: int) -> bool:
        if plan.state == self._way.done:
            return True
        if plan.state in self._way.doing:
            text = _words(plan)
            self._tell(re.sub(r"\d+", "", text), f"{text} ({self._clock.monotonic() - self._since:.0f} s)")
        # What was begun is in the map from a later epoch on; until it is read, the state is the one before.
        elif plan.phase is not None and (plan.epoch or 0) > epoch:
            raise PlanSuperseded(plan)
        return False


def _words(plan: PlanStatus) -> str:
    endpoints = f"{plan.moves:,} endpoint{'' if plan.moves == 1 else 's'}"
    waits = f"; waits for {plan.waiting_for}" if plan.waiting_for else ""
    back = "back: " if plan.state == "rolling_back" else ""
    return f"{back}{plan.phase or plan.state}, {endpoints}{waits}"
