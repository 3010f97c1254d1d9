"""Choose the plan that a command works on."""

from dataclasses import dataclass
from pathlib import Path

from deploy.found import ServiceRefused
from deploy.plans.follow import APPLYING, ROLLING_BACK
from deploy.plans.service import MetadataService, PlanStatus
from diem.errors import DiemError
from diem.process.faults import ConfigurationError
from metadata.plans.plan import BadPlan, decode


class NoPlan(DiemError):
    """There is none to do this with."""


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


def is_file(plan: str) -> bool:
    """Whether it is a file that a command was given, there or not, and no name of a plan."""
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


async def handed_over(service: MetadataService, name: str, content: bytes) -> PlanStatus:
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


async def to_apply(service: MetadataService, name: str | None) -> PlanStatus:
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
        if plan.state in APPLYING.doing:
            return plan
    for plan in reversed(found):
        if plan.state == "ready" and not plan.is_outdated:
            return plan
    raise NoPlan("there is no plan that fits the map as it is: `diem plan` makes one")


async def to_take_back(service: MetadataService, name: str | None) -> PlanStatus:
    """Return the plan of that name, else the one that was applied last, or is on its way.

    Raises:
        NoPlan: none was applied, or not that one.
        MetadataUnavailable: nobody answers.
        ServiceRefused: there is none of that name.
    """
    applied = APPLYING.doing | ROLLING_BACK.doing | {APPLYING.done, ROLLING_BACK.done}
    if name is None:
        last = next((plan for plan in reversed(await service.plans()) if plan.state in applied), None)
        if last is None:
            raise NoPlan("no plan was applied last: there is nothing to take back")
        return last
    plan = await service.plan(name)
    if plan.state not in applied:
        raise NoPlan(f"{name} is not what was applied last: only that can be taken back")
    return plan
