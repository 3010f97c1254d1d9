"""An instance's plans, on a map that the test writes."""

from pathlib import Path

from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import MapReader
from diem.process.clock import ManualClock
from diem.protocol.partition_map import Head, PartitionMap, Phase
from metadata.plans.migration_driver import MigrationDriver
from metadata.plans.plan_service import PlanService
from metadata.plans.plan_store import PlanStore
from metadata.plans.steps import MapStep

NO_CLUSTER = KafkaOptions("nobody:1")
START_MS = 1_767_323_045_000


class ScriptedReader(MapReader):
    """A reader of the map in ``latest``."""

    def __init__(self) -> None:
        super().__init__(NO_CLUSTER)
        self.caught_up = True
        self.latest: PartitionMap | None = None

    @property
    def map(self) -> PartitionMap | None:
        return self.latest


class ScriptedDriver(MigrationDriver):
    """A driver that records its steps; none of them gets to the reader."""

    def __init__(self, reader: ScriptedReader, clock: ManualClock) -> None:
        super().__init__(NO_CLUSTER, reader, clock, 30.0)
        self.steps: list[MapStep] = []

    async def write(self, expected: Head, step: MapStep) -> bool:
        assert self.map is not None
        self.steps.append(step)
        return expected == self.map.head


class ScriptedService:
    """The plans of one instance, and the map that it reads."""

    def __init__(self, directory: Path) -> None:
        self.reader, self.clock = ScriptedReader(), ManualClock(wall_ms=START_MS)
        self.driver = ScriptedDriver(self.reader, self.clock)
        self.store = PlanStore(directory)
        self.plans = PlanService(NO_CLUSTER, self.driver, self.store)

    def read_map(self, epoch: int, phase: Phase, plan: str) -> None:
        self.reader.latest = PartitionMap(Head(4, epoch, phase, plan))
        self.driver.changed()
