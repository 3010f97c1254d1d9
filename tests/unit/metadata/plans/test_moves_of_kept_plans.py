"""Plans as operators see them, whatever has become of their files."""

import asyncio
import os
from pathlib import Path

import pytest

from diem.protocol.partition_map import Phase
from metadata.plans import plan_service, plan_store
from metadata.plans.plan import Plan
from metadata.plans.plan_store import PlanStore
from metadata.plans.steps import BACK
from tests.unit.metadata.plans.scripted import Service


def plan(number: int, epoch: int = 3) -> Plan:
    return Plan(epoch=epoch, partitions=4, homes={"/a": 1}, created=f"2026-01-02T03:04:{number:02}Z")


async def test_a_plan_that_cannot_be_read_any_more_hides_no_other(tmp_path: Path) -> None:
    for number in (1, 2):
        PlanStore(tmp_path).put(plan(number))
    (tmp_path / f"{plan(1).id}.plan").write_bytes(b"")
    assert [status["id"] for status in await Service(tmp_path).moves.all()] == [plan(2).id]


async def test_a_plan_that_another_instance_forgets_meanwhile_hides_no_other(tmp_path: Path) -> None:
    PlanStore(tmp_path).put(plan(1))
    (tmp_path / "p-gone.plan").symlink_to(tmp_path / "nowhere")
    assert [status["id"] for status in await Service(tmp_path).moves.all()] == [plan(1).id]


def test_a_plan_that_is_submitted_after_the_clock_was_set_back_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_store, "KEPT", 2)
    kept = PlanStore(tmp_path)
    for number in (1, 2):
        kept.put(plan(number))
        os.utime(tmp_path / f"{plan(number).id}.plan", (2e9 + number, 2e9 + number))
    kept.put(plan(3))
    assert set(kept.names()) == {plan(3).id, plan(2).id}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("taken", ["", BACK])
async def test_what_a_rollback_needs_is_kept_however_many_plans_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase, taken: str
) -> None:
    monkeypatch.setattr(plan_store, "KEPT", 4)
    monkeypatch.setattr(plan_store, "BEGUN", 1)
    service = Service(tmp_path)
    for number in (1, 2):
        service.store.put(plan(number))
        service.store.put_before(plan(number).id, {"/a": 3})
    # The other one was not written to the map in the end.
    service.read(7, phase, taken + plan(1).id)
    for number in range(3, 9):
        await service.moves.submit(plan(number, epoch=7))
    assert service.store.before(plan(1).id) == {"/a": 3}
    assert service.store.names() == [plan(1).id, plan(2).id, plan(7, 7).id, plan(8, 7).id]
    assert (await service.moves.status(plan(1).id))["moves"] == (1 if phase is Phase.STABLE else 0)


async def test_a_plan_that_is_just_being_begun_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_store, "KEPT", 2)
    monkeypatch.setattr(plan_store, "BEGUN", 1)
    service, growing, grown = Service(tmp_path), asyncio.Event(), asyncio.Event()

    async def grow(*_: object) -> None:
        growing.set()
        await grown.wait()

    monkeypatch.setattr(plan_service, "grow", grow)
    service.store.put(plan(1))
    service.read(3, Phase.STABLE, "")
    begun = asyncio.create_task(service.moves.apply(plan(1).id))
    await growing.wait()
    # As if others had been begun later.
    for path in tmp_path.iterdir():
        os.utime(path, (1e9, 1e9))
    service.store.put(plan(2))
    service.store.put_before(plan(2).id, {})
    for number in (3, 4):
        await service.moves.submit(plan(number))
    grown.set()
    assert (await begun)["state"] == "preparing"
    assert set(service.store.names()) == {plan(1).id, plan(2).id, plan(4).id}
    assert service.store.before(plan(1).id) is not None
