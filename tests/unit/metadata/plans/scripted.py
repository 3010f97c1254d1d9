"""The plans of an instance of the metadata service, on a map that a test writes."""

from pathlib import Path

from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import MapReader
from diem.process.clock import ManualClock
from diem.protocol.partition_map import Head, PartitionMap, Phase
from metadata.plans.migration_driver import MigrationDriver
from metadata.plans.plan_service import PlanService
from metadata.plans.plan_store import PlanStore
from metadata.plans.steps import MapStep

NOBODY = KafkaOptions("nobody:1")
START_MS = 1_767_323_045_000


class Read(MapReader):
    """A reader of what a test has written."""

    def __init__(self) -> None:
        super().__init__(NOBODY)
        self.caught_up = True
        self.last: PartitionMap | None = None

    @property
    def map(self) -> PartitionMap | None:
        return self.last


class Written(MigrationDriver):
    """A driver whose steps all get to the topic, where they are read only when the test says so."""

    async def write(self, expected: Head, step: MapStep) -> bool:
        assert self.map is not None
        return expected == self.map.head


class Service:
    """The plans of an instance of the metadata service, and the map that it reads."""

    def __init__(self, directory: Path) -> None:
        self.reader, self.clock = Read(), ManualClock(wall_ms=START_MS)
        self.driver = Written(NOBODY, self.reader, self.clock, 30.0)
        self.store = PlanStore(directory)
        self.moves = PlanService(NOBODY, self.driver, self.store)

    def read(self, epoch: int, phase: Phase, plan: str) -> None:
        self.reader.last = PartitionMap(Head(4, epoch, phase, plan))
        self.driver.changed()
