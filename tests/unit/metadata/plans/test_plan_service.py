import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from diem.kafka.map_reader import MapRecord
from diem.protocol.partition_map import PUBLISHER_ACK, Entry, Head, PartitionMap, Phase, encode_ack
from diem.protocol.partitioners import partition_of
from metadata.plans import migration_driver, plan_service, plan_store
from metadata.plans.plan import Plan
from metadata.plans.plan_service import PlanConflict
from metadata.plans.plan_store import PlanStore
from metadata.plans.steps import ROLLBACK
from tests.unit.metadata.plans.scripted_service import ScriptedService

START = "2026-01-02T03:04:05.000Z"


def plan(number: int, epoch: int = 3) -> Plan:
    return Plan(epoch=epoch, partitions=4, homes={"/a": 1}, created=f"2026-01-02T03:04:{number:02}Z")


# Which plans are listed and stored


async def test_an_unreadable_plan_does_not_hide_the_others(tmp_path: Path) -> None:
    for number in (1, 2):
        PlanStore(tmp_path).put(plan(number))
    (tmp_path / f"{plan(1).id}.plan").write_bytes(b"")
    assert [status["id"] for status in await ScriptedService(tmp_path).plans.all()] == [plan(2).id]


async def test_a_plan_that_another_instance_removes_meanwhile_does_not_hide_the_others(tmp_path: Path) -> None:
    PlanStore(tmp_path).put(plan(1))
    (tmp_path / "p-gone.plan").symlink_to(tmp_path / "nowhere")
    assert [status["id"] for status in await ScriptedService(tmp_path).plans.all()] == [plan(1).id]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("prefix", ["", ROLLBACK])
async def test_the_applied_plan_can_be_rolled_back_however_many_plans_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase, prefix: str
) -> None:
    monkeypatch.setattr(plan_store, "MAX_PLANS", 4)
    monkeypatch.setattr(plan_store, "PROTECTED", 1)
    service = ScriptedService(tmp_path)
    for number in (1, 2):
        service.store.put(plan(number))
        service.store.put_before(plan(number).id, {"/a": 3})
    # The step that begins the second plan failed to be written.
    service.read_map(7, phase, prefix + plan(1).id)
    for number in range(3, 9):
        await service.plans.submit(plan(number, epoch=7))
    assert service.store.before(plan(1).id) == {"/a": 3}
    assert service.store.names() == [plan(1).id, plan(2).id, plan(7, 7).id, plan(8, 7).id]
    assert (await service.plans.status(plan(1).id))["moves"] == (1 if phase is Phase.STABLE else 0)


async def test_a_plan_is_not_removed_while_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_store, "MAX_PLANS", 2)
    monkeypatch.setattr(plan_store, "PROTECTED", 1)
    service, growing, grown = ScriptedService(tmp_path), asyncio.Event(), asyncio.Event()

    async def grow(*_: object) -> None:
        growing.set()
        await grown.wait()

    monkeypatch.setattr(plan_service, "grow", grow)
    service.store.put(plan(1))
    service.read_map(3, Phase.STABLE, "")
    begun = asyncio.create_task(service.plans.apply(plan(1).id))
    await growing.wait()
    # As if others had been begun later.
    for path in tmp_path.iterdir():
        os.utime(path, (1e9, 1e9))
    service.store.put(plan(2))
    service.store.put_before(plan(2).id, {})
    for number in (3, 4):
        await service.plans.submit(plan(number))
    grown.set()
    assert (await begun)["state"] == "preparing"
    assert set(service.store.names()) == {plan(1).id, plan(2).id, plan(4).id}
    assert service.store.before(plan(1).id) is not None
    service.read_map(3, Phase.STABLE, "")
    await service.plans.submit(plan(5))
    assert plan(1).id not in service.store.names()


# Entries of endpoints that the publisher does not know


async def test_applying_a_plan_also_moves_unknown_endpoints_to_the_partition_of_their_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def grow(*_: object) -> None:
        """The topic has enough partitions."""

    monkeypatch.setattr(plan_service, "grow", grow)
    service, unknown = ScriptedService(tmp_path), b"/invented/2"
    service.reader.latest = PartitionMap(Head(4, 7), {unknown: Entry((partition_of(unknown, 4) + 1) % 4)})
    service.reader.records[PUBLISHER_ACK] = MapRecord(1, encode_ack(5, (unknown,)))
    moving = Plan(epoch=7, partitions=4, homes={"/a": (partition_of(b"/a", 4) + 1) % 4}, created="2026-01-02T03:04:05Z")
    await service.plans.submit(moving)
    await service.plans.apply(moving.id)
    (step,) = service.driver.steps
    assert step.records.keys() == {b"/a", unknown}


# Clients of servers


def with_clients(*each: float) -> Plan:
    capacity = {"limits": {"clients": 10_000.0}, "servers": {str(len(each)): {"clients": each}}, "enough": None}
    return replace(plan(1), report={"capacity": capacity})


async def test_a_plan_with_more_clients_than_a_server_accepts_is_neither_stored_nor_applied(tmp_path: Path) -> None:
    service, made = ScriptedService(tmp_path), with_clients(100, 12_000, 100, 100)
    service.read_map(3, Phase.STABLE, "")
    with pytest.raises(PlanConflict, match="server 2 of 4 would have 12,000 clients of 10,000: "):
        await service.plans.submit(made)
    assert service.store.names() == []
    # As one that an earlier release stored.
    service.store.put(made)
    with pytest.raises(PlanConflict, match="server 2 of 4 would have 12,000 clients of 10,000: "):
        await service.plans.apply(made.id)
    assert service.driver.steps == []


async def test_a_plan_with_as_many_clients_as_servers_accept_is_stored(tmp_path: Path) -> None:
    service, made = ScriptedService(tmp_path), with_clients(10_000, 2_000, 100, 100)
    service.read_map(3, Phase.STABLE, "")
    await service.plans.submit(made)
    assert service.store.names() == [made.id]


# Large plans


class Threads:
    """Names of functions that ran, inside and outside the event loop's thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: ModuleType | type, *names: str) -> None:
        self.in_loop, self.outside = set[str](), set[str]()
        for name in names:
            monkeypatch.setattr(owner, name, self._recording(name, getattr(owner, name)))

    def _recording(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            is_loop = threading.current_thread() is threading.main_thread()
            (self.in_loop if is_loop else self.outside).add(name)
            return function(*arguments)

        return run


async def test_steps_and_files_of_plans_are_computed_outside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 200,000 endpoints a step blocked the event loop, and with it all clients and proxies, for 3 to 5 s."""

    async def grow(*_: object) -> None:
        """The topic has enough partitions."""

    monkeypatch.setattr(plan_service, "grow", grow)
    steps = Threads(monkeypatch, plan_service, "moves", "prepare", "begin", "reverse")
    migration = Threads(monkeypatch, migration_driver, "proceed")
    files = Threads(monkeypatch, PlanStore, "put", "put_before", "before")
    service, homes = ScriptedService(tmp_path), {b"/a": Entry(1, 0)}
    service.read_map(3, Phase.STABLE, "")
    await service.plans.submit(plan(1))
    await service.plans.apply(plan(1).id)
    service.reader.latest = PartitionMap(Head(4, 4, Phase.RETIRE, plan(1).id), homes)
    await service.driver._next_step(service.reader.latest)
    await service.plans.rollback(plan(1).id)
    service.read_map(4, Phase.STABLE, plan(1).id)
    await service.plans.rollback(plan(1).id)
    assert steps.in_loop | migration.in_loop | files.in_loop == set()
    assert steps.outside == {"moves", "prepare", "begin", "reverse"}
    assert (migration.outside, files.outside) == ({"proceed"}, {"put", "put_before", "before"})


# Since when a plan is in its phase


@pytest.fixture
def service(tmp_path: Path) -> ScriptedService:
    made = ScriptedService(tmp_path)
    for number in (1, 2):
        made.store.put(plan(number))
    return made


async def since(service: ScriptedService, number: int = 1) -> object:
    return (await service.plans.status(plan(number).id))["since"]


async def test_since_is_when_the_phase_was_first_seen(service: ScriptedService) -> None:
    service.read_map(3, Phase.STABLE, "")
    service.read_map(4, Phase.PREPARE, plan(1).id)
    assert await since(service) == START
    service.clock.advance(1.5)
    service.driver.changed()
    assert await since(service) == START, "records that do not change the phase do not count"
    service.read_map(5, Phase.MOVE, plan(1).id)
    assert await since(service) == "2026-01-02T03:04:06.500Z"
    assert await since(service, 2) is None, "the map has the other plan"


@pytest.mark.parametrize("phase", Phase)
async def test_since_is_unknown_for_a_phase_that_began_before_the_instance(
    service: ScriptedService, phase: Phase
) -> None:
    assert await since(service) is None
    service.read_map(4, phase, plan(1).id)
    assert await since(service) is None


async def test_since_is_unknown_until_the_step_is_read_back(service: ScriptedService) -> None:
    service.read_map(6, Phase.RETIRE, plan(1).id)
    service.read_map(7, Phase.STABLE, plan(1).id)
    assert await since(service) == START
    service.store.put_before(plan(1).id, {"/a": 3})
    answer = await service.plans.rollback(plan(1).id)
    assert (answer["state"], answer["since"]) == ("rolling_back", None)
    service.clock.advance(1)
    service.read_map(8, Phase.PREPARE, ROLLBACK + plan(1).id)
    assert await since(service) == "2026-01-02T03:04:06.000Z"
