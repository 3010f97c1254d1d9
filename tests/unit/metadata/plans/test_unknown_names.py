"""What the publisher says of names that it does not have, and what becomes of their entries."""

from pathlib import Path

import pytest

from diem.kafka.map_reader import MapRecord
from diem.process.clock import ManualClock
from diem.protocol.partition_map import PUBLISHER_ACK, Entry, Head, PartitionMap, Phase, encode_ack, partition_of
from metadata.plans import plan_service
from metadata.plans.plan import Plan
from metadata.plans.plan_service import PlanService
from metadata.plans.plan_store import PlanStore
from metadata.plans.steps import MapStep
from tests.unit.metadata.plans.scripted import NOBODY, Read, Written

MOVED, OLD = b"/invented/1", b"/invented/2"
ELSEWHERE = (partition_of(MOVED, 4) + 1) % 4


class Kept(Written):
    """Its steps, too."""

    def __init__(self, reader: Read) -> None:
        super().__init__(NOBODY, reader, ManualClock(), 30.0)
        self.steps: list[MapStep] = []

    async def write(self, expected: Head, step: MapStep) -> bool:
        self.steps.append(step)
        return await super().write(expected, step)


def acknowledged(reader: Read, epoch: int, *unknown: bytes) -> None:
    reader.records[PUBLISHER_ACK] = MapRecord(1, encode_ack(epoch, unknown))


@pytest.mark.parametrize(("epoch", "moves_on", "cancelled"), [(6, False, False), (7, True, True), (8, True, False)])
def test_only_what_was_said_of_this_epoch_cancels_a_move(epoch: int, moves_on: bool, cancelled: bool) -> None:
    reader = Read()
    driver = Kept(reader)
    home = partition_of(MOVED, 4)
    reader.last = PartitionMap(Head(4, 7, Phase.PREPARE, "p"), {MOVED: Entry(home, ELSEWHERE)})
    acknowledged(reader, epoch, MOVED)
    step = driver._next_step(reader.last)
    assert (step is not None) is moves_on
    assert step is None or step.records == ({MOVED: None} if cancelled else {})


async def test_a_plan_takes_entries_of_unknown_names_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def grow(*_: object) -> None:
        """There are enough partitions."""

    monkeypatch.setattr(plan_service, "grow", grow)
    reader = Read()
    driver = Kept(reader)
    reader.last = PartitionMap(Head(4, 7), {OLD: Entry((partition_of(OLD, 4) + 1) % 4)})
    acknowledged(reader, 5, OLD)
    service = PlanService(NOBODY, driver, PlanStore(tmp_path))
    plan = Plan(epoch=7, partitions=4, homes={"/a": (partition_of(b"/a", 4) + 1) % 4}, created="2026-01-02T03:04:05Z")
    await service.submit(plan)
    await service.apply(plan.id)
    (step,) = driver.steps
    assert step.records.keys() == {b"/a", OLD}
