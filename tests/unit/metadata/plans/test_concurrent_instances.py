"""Two instances of the metadata service on one topic, with writes of unknown outcome: no plan is lost."""

import random
from pathlib import Path

import pytest

from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import MapReader
from diem.process.clock import ManualClock
from diem.protocol.partition_map import HEAD_KEY, HOT, Head, MapBuilder, PartitionMap, Phase, encode_head
from metadata.plans import plan_service, plan_store
from metadata.plans.migration_driver import MigrationDriver
from metadata.plans.plan import Plan
from metadata.plans.plan_service import PlanConflict, PlanNotFound, PlanService
from metadata.plans.plan_store import PlanStore
from metadata.plans.steps import ROLLBACK, MapStep, moving, proceed
from tests.unit.metadata.plans.scripted_service import NO_CLUSTER

NAMES = [f"/e/{number}" for number in range(6)]


class Topic:
    """The map's topic: its committed records, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, bytes]] = []
        self._builder = MapBuilder()
        self.write(MapStep({}, Head(4, 0)))

    @property
    def map(self) -> PartitionMap:
        assert self._builder.map is not None
        return self._builder.map

    def write(self, step: MapStep) -> None:
        new = [(key, value or b"") for key, value in step.records.items()] + [(HEAD_KEY, encode_head(step.head))]
        for key, value in new:
            self._builder.apply(key, value)
        self.log += new


class LaggingReader(MapReader):
    """A reader that reads as much of the topic as the test lets it."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(NO_CLUSTER)
        self.caught_up = True
        self._written = topic
        self._read = MapBuilder()
        self._at = 0
        self.pull(1)

    @property
    def map(self) -> PartitionMap | None:
        return self._read.map

    def pull(self, count: int) -> None:
        for key, value in self._written.log[self._at : self._at + count]:
            self._read.apply(key, value)
        self._at = min(self._at + count, len(self._written.log))


class UnreliableDriver(MigrationDriver):
    """A driver whose writes fail at times, before or after their records are in the topic."""

    def __init__(self, topic: Topic, reader: MapReader, chance: random.Random) -> None:
        super().__init__(NO_CLUSTER, reader, ManualClock(), 30.0)
        self._topic = topic
        self._chance = chance

    async def write(self, expected: Head, step: MapStep) -> bool:
        self._fail()
        if self._topic.map.head != expected:
            return False
        self._topic.write(step)
        self._fail()
        return True

    def _fail(self) -> None:
        if self._chance.random() < 0.1:
            raise KafkaUnavailable("k:1", "injected")


class World:
    """Two instances that share a directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topic, self.store = Topic(), PlanStore(directory)
        readers = [LaggingReader(self.topic) for _ in range(2)]
        drivers = [UnreliableDriver(self.topic, reader, self.chance) for reader in readers]
        self.instances = [
            (reader, driver, PlanService(NO_CLUSTER, driver, PlanStore(directory)))
            for reader, driver in zip(readers, drivers, strict=True)
        ]
        self.plans: dict[str, Plan] = {}

    async def act(self) -> None:
        """Have an instance that lags more or less do what an operator or the driver might do."""
        reader, driver, service = self.chance.choice(self.instances)
        reader.pull(self.chance.choice((0, 1, 3, 100)))
        driver.changed()
        assert reader.map is not None
        what, known = self.chance.random(), list(self.plans)[-4:]
        if what < 0.25:
            plan = self._plan(reader.map.head.epoch)
            self.plans[plan.id] = plan
            await service.submit(plan)
        elif what < 0.45 and known:
            await service.apply(self.chance.choice(known))
        elif what < 0.6 and (last := self.topic.map.head.plan.removeprefix(ROLLBACK)):
            await service.rollback(last)
        elif step := proceed(reader.map, reader.map.head.epoch, 30.0, 30.0):
            await driver.write(reader.map.head, step)

    def check(self) -> None:
        """Check that the last plan can be rolled back, and that the homes are those of the plan or its rollback."""
        map_ = self.topic.map
        name = map_.head.plan.removeprefix(ROLLBACK)
        if not name:
            return
        before = self.store.before(name)
        assert before is not None
        assert self.store.get(name) == self.plans[name]
        if map_.head.phase is Phase.STABLE:
            assert not moving(map_)
            expected = before if map_.head.plan.startswith(ROLLBACK) else self.plans[name].homes
            assert {endpoint: map_.home(endpoint.encode()) for endpoint in expected} == expected

    def _plan(self, epoch: int) -> Plan:
        number = len(self.plans)
        names = self.chance.sample(NAMES, self.chance.randint(1, len(NAMES)))
        homes = {name: self.chance.randint(HOT, 3) for name in names}
        return Plan(epoch, 4, homes, created=f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z")


@pytest.mark.parametrize("seed", range(6))
async def test_no_plan_is_lost_when_writes_fail_and_instances_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def grow(*_: object) -> None:
        """The topic has enough partitions."""

    monkeypatch.setattr(plan_service, "grow", grow)
    monkeypatch.setattr(plan_store, "MAX_PLANS", 5)
    monkeypatch.setattr(plan_store, "PROTECTED", 3)
    world = World(tmp_path, seed)
    refused = applied = 0
    for _ in range(120):
        try:
            await world.act()
        except (PlanConflict, PlanNotFound, KafkaUnavailable):
            refused += 1
        applied += world.topic.map.head.phase is Phase.STABLE and bool(world.topic.map.head.plan)
        world.check()
    assert min(refused, applied) > 5
