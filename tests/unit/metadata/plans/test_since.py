"""Since when a plan is in its phase, as an instance that follows the map's topic has seen it."""

from pathlib import Path

import pytest

from diem.protocol.partition_map import Phase
from metadata.plans.plan import Plan
from metadata.plans.steps import BACK
from tests.unit.metadata.plans.scripted import Service

PLAN = Plan(epoch=3, partitions=4, homes={"/a": 1}, created="2026-01-02T03:04:05Z")
OTHER = Plan(epoch=3, partitions=4, homes={"/a": 2}, created="2026-01-02T03:04:06Z")
START = "2026-01-02T03:04:05.000Z"


async def since(service: Service, plan: Plan = PLAN) -> object:
    return (await service.moves.status(plan.id))["since"]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    made = Service(tmp_path)
    made.store.put(PLAN)
    made.store.put(OTHER)
    return made


async def test_it_is_said_since_when_a_plan_is_in_its_phase(service: Service) -> None:
    service.read(3, Phase.STABLE, "")
    service.read(4, Phase.PREPARE, PLAN.id)
    assert await since(service) == START
    service.clock.advance(1.5)
    service.driver.changed()
    assert await since(service) == START, "records that change no phase change nothing"
    service.read(5, Phase.MOVE, PLAN.id)
    assert await since(service) == "2026-01-02T03:04:06.500Z"
    assert await since(service, OTHER) is None, "the map has another plan"


@pytest.mark.parametrize("phase", Phase)
async def test_a_service_that_has_just_been_started_does_not_know_since_when(service: Service, phase: Phase) -> None:
    assert await since(service) is None
    service.read(4, phase, PLAN.id)
    assert await since(service) is None


async def test_a_step_that_was_not_read_yet_has_no_beginning(service: Service) -> None:
    service.read(6, Phase.RETIRE, PLAN.id)
    service.read(7, Phase.STABLE, PLAN.id)
    assert await since(service) == START
    service.store.put_before(PLAN.id, {"/a": 3})
    answer = await service.moves.rollback(PLAN.id)
    assert (answer["state"], answer["since"]) == ("rolling_back", None)
    service.clock.advance(1)
    service.read(8, Phase.PREPARE, BACK + PLAN.id)
    assert await since(service) == "2026-01-02T03:04:06.000Z"
