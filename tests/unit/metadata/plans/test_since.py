"""Since when a plan is in its phase, as an instance that follows the map's topic has seen it."""

from pathlib import Path

import pytest

from diem.kafka.options import KafkaOptions
from diem.kafka.partition_map import MapReader
from diem.process.clock import ManualClock
from diem.protocol.partition_map import Head, PartitionMap, Phase
from metadata.plans.driver import Driver
from metadata.plans.library import Library
from metadata.plans.moves import Moves
from metadata.plans.plan import Plan
from metadata.plans.steps import BACK, Step

NOBODY = KafkaOptions("nobody:1")
PLAN = Plan(epoch=3, partitions=4, homes={"/a": 1}, created="2026-01-02T03:04:05Z")
OTHER = Plan(epoch=3, partitions=4, homes={"/a": 2}, created="2026-01-02T03:04:06Z")
START_MS = 1_767_323_045_000
START = "2026-01-02T03:04:05.000Z"


class Read(MapReader):
    """A reader of what a test has written."""

    def __init__(self) -> None:
        super().__init__(NOBODY)
        self.caught_up = True
        self.last: PartitionMap | None = None

    @property
    def map(self) -> PartitionMap | None:
        return self.last


class Written(Driver):
    """A driver whose steps all get to the topic, where they are read only when the test says so."""

    async def write(self, expected: Head, step: Step) -> bool:
        assert self.map is not None
        return expected == self.map.head


class Service:
    """The plans of an instance of the metadata service, and the map that it reads."""

    def __init__(self, directory: Path) -> None:
        self.reader, self.clock = Read(), ManualClock(wall_ms=START_MS)
        self.driver = Written(NOBODY, self.reader, self.clock, 30.0)
        self.library = Library(directory)
        self.moves = Moves(NOBODY, self.driver, self.library)

    def read(self, epoch: int, phase: Phase, plan: str) -> None:
        self.reader.last = PartitionMap(Head(4, epoch, phase, plan))
        self.driver.changed()

    def since(self, plan: Plan = PLAN) -> object:
        return self.moves.status(plan.id)["since"]


@pytest.fixture
def service(tmp_path: Path) -> Service:
    made = Service(tmp_path)
    made.library.put(PLAN)
    made.library.put(OTHER)
    return made


def test_it_is_said_since_when_a_plan_is_in_its_phase(service: Service) -> None:
    service.read(3, Phase.STABLE, "")
    service.read(4, Phase.PREPARE, PLAN.id)
    assert service.since() == START
    service.clock.advance(1.5)
    service.driver.changed()
    assert service.since() == START, "records that change no phase change nothing"
    service.read(5, Phase.MOVE, PLAN.id)
    assert service.since() == "2026-01-02T03:04:06.500Z"
    assert service.since(OTHER) is None, "the map has another plan"


@pytest.mark.parametrize("phase", Phase)
def test_a_service_that_has_just_been_started_does_not_know_since_when(service: Service, phase: Phase) -> None:
    assert service.since() is None
    service.read(4, phase, PLAN.id)
    assert service.since() is None


async def test_a_step_that_was_not_read_yet_has_no_beginning(service: Service) -> None:
    service.read(6, Phase.RETIRE, PLAN.id)
    service.read(7, Phase.STABLE, PLAN.id)
    assert service.since() == START
    service.library.put_before(PLAN.id, {"/a": 3})
    answer = await service.moves.rollback(PLAN.id)
    assert (answer["state"], answer["since"]) == ("rolling_back", None)
    service.clock.advance(1)
    service.read(8, Phase.PREPARE, BACK + PLAN.id)
    assert service.since() == "2026-01-02T03:04:06.000Z"
