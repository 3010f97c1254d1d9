"""Select the plan to apply or to roll back, and monitor its migration."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from deploy.clients.data_service import ServiceRefused
from deploy.clients.metadata import MetadataService, MetadataUnavailable, PlanStatus
from diem.errors import ConfigurationError, DiemError
from diem.process.clock import Clock
from metadata.plans.plan import BadPlan, decode


class NoPlan(DiemError):
    """No plan is in the state that the command needs."""


@dataclass(eq=False)
class PlanOutdated(DiemError):
    """The map has changed since the plan was made."""

    plan: PlanStatus

    def __str__(self) -> str:
        """Return the text."""
        plan = self.plan
        return (
            f"{plan.id} was made for epoch {plan.epoch_of_plan} of the map, which is at {plan.epoch} now: "
            "`diem plan` makes another one"
        )


@dataclass(eq=False)
class BadPlanFile(ConfigurationError):
    """A file holds no plan."""

    template = "{file}: {reason}"

    file: Path
    reason: str


def names_file(plan: str) -> bool:
    """Return whether it is a file that a command was given, there or not, and no name of a plan."""
    return Path(plan).is_file() or "/" in plan or plan.endswith(".json")


def read_plan(file: Path) -> tuple[str, bytes]:
    """Return the name and the content of the plan in a file. Raises `BadPlanFile`."""
    try:
        content = file.read_bytes()
        return decode(content).id, content
    except OSError as error:
        raise BadPlanFile(file, error.strerror or str(error)) from error
    except BadPlan as error:
        raise BadPlanFile(file, str(error)) from error


async def submit_once(service: MetadataService, name: str, content: bytes) -> PlanStatus:
    """Return the plan of that name and content, which is submitted if the service does not have it.

    Raises:
        MetadataUnavailable: nobody answers.
        ServiceRefused: the service does not take it.
    """
    try:
        return await service.plan(name)
    except ServiceRefused as error:
        if error.status != 404:
            raise
    return await service.submit(content)


async def select_to_apply(service: MetadataService, name: str | None) -> PlanStatus:
    """Return the plan of that name; else the one that is on its way, else the latest that may be applied.

    Raises:
        NoPlan: there is none.
        MetadataUnavailable: nobody answers.
        ServiceRefused: there is none of that name.
    """
    if name is not None:
        return await service.plan(name)
    found = await service.plans()
    for plan in found:
        if plan.state in APPLYING.in_progress:
            return plan
    for plan in reversed(found):
        if plan.state == "ready" and not plan.is_outdated:
            return plan
    raise NoPlan("there is no plan that fits the map as it is: `diem plan` makes one")


async def select_to_roll_back(service: MetadataService, name: str | None) -> PlanStatus:
    """Return the plan of that name, else the one that was applied last, or is on its way.

    Raises:
        NoPlan: none was applied, or not that one.
        MetadataUnavailable: nobody answers.
        ServiceRefused: there is none of that name.
    """
    applied = APPLYING.in_progress | ROLLING_BACK.in_progress | {APPLYING.final, ROLLING_BACK.final}
    if name is None:
        last = next((plan for plan in reversed(await service.plans()) if plan.state in applied), None)
        if last is None:
            raise NoPlan("no plan was applied last: there is nothing to take back")
        return last
    plan = await service.plan(name)
    if plan.state not in applied:
        raise NoPlan(f"{name} is not what was applied last: only that can be taken back")
    return plan


POLL_INTERVAL_S: Final = 0.5
GIVE_UP_AFTER_S: Final = 600.0
"""Without an answer. The move itself waits for the service, however long that takes."""

ShowProgress = Callable[[str, str], None]
"""Shows a text; what has another key than the text before is news."""


class MigrationKind(NamedTuple):
    """A direction of migration: states of a plan on the way, and at the end."""

    command: str
    """The command that shows its progress."""
    in_progress: frozenset[str]
    final: str


APPLYING: Final = MigrationKind("apply", frozenset({"preparing", "moving", "retiring"}), "applied")
ROLLING_BACK: Final = MigrationKind("rollback", frozenset({"rolling_back"}), "rolled_back")


@dataclass(eq=False)
class PlanSuperseded(DiemError):
    """Another command changed the course of the migration."""

    plan: PlanStatus

    def __str__(self) -> str:
        """Return the text."""
        now = self.plan.state.replace("_", " ")
        return f"somebody did something else meanwhile: {self.plan.id} is {now} at epoch {self.plan.epoch}"


class MigrationMonitor:
    """Polls the status of one plan until its migration is over, through restarts of the metadata service."""

    def __init__(self, service: MetadataService, kind: MigrationKind, show: ShowProgress, clock: Clock) -> None:
        self._service = service
        self._kind = kind
        self._show = show
        self._clock = clock
        self._started_at = self._answered_at = clock.monotonic()

    async def wait(self, begun: PlanStatus) -> PlanStatus:
        """Return the final status; `begun` is the status when the migration began.

        Raises:
            PlanSuperseded: it went another way.
            MetadataUnavailable: the service has not answered for too long; it goes on when the service is back.
            ServiceRefused: the service does not know the plan.
        """
        plan: PlanStatus | None = begun
        while plan is None or not self._is_over(plan, begun.epoch or 0):
            await asyncio.sleep(POLL_INTERVAL_S)
            plan = await self._poll(begun.id)
        return plan

    async def _poll(self, name: str) -> PlanStatus | None:
        try:
            plan = await self._service.plan(name)
        except MetadataUnavailable as error:
            silent = self._clock.monotonic() - self._answered_at
            if silent > GIVE_UP_AFTER_S:
                raise MetadataUnavailable(
                    f"{error.reason}, for {silent:.0f} s now; the move goes on when it is back"
                ) from error
            self._show("away", f"{error}; going on when it is back ({silent:.0f} s)")
            return None
        self._answered_at = self._clock.monotonic()
        return plan

    def _is_over(self, plan: PlanStatus, epoch: int) -> bool:
        if plan.state == self._kind.final:
            return True
        if plan.state in self._kind.in_progress:
            text = _describe(plan)
            self._show(re.sub(r"\d+", "", text), f"{text} ({self._clock.monotonic() - self._started_at:.0f} s)")
        # What was begun is in the map from a later epoch on; until it is read, the state is the one before.
        elif plan.phase is not None and (plan.epoch or 0) > epoch:
            raise PlanSuperseded(plan)
        return False


def _describe(plan: PlanStatus) -> str:
    endpoints = f"{plan.moves:,} endpoint{'' if plan.moves == 1 else 's'}"
    waits = f"; waits for {plan.waiting_for}" if plan.waiting_for else ""
    back = "back: " if plan.state == "rolling_back" else ""
    return f"{back}{plan.phase or plan.state}, {endpoints}{waits}"
