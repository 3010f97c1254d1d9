"""Accept plans, start them and roll them back, and grow the topic for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiokafka.admin import NewPartitions
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from diem.errors import DiemError
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe
from diem.protocol.partition_map import Head, PartitionMap, Phase
from diem.protocol.update import iso
from metadata.plans.migration_driver import MigrationDriver
from metadata.plans.plan import Plan
from metadata.plans.plan_store import PlanStore, PlanSummary
from metadata.plans.steps import BACK, MapStep, begin, moves, reverse

WITHIN_S: Final = 10.0


async def grow(options: KafkaOptions, partitions: int) -> None:
    """Give the updates topic as many partitions, if it has fewer.

    A partition more moves nobody: only entries name it.

    Raises:
        KafkaUnavailable: they are not there within 10 s.
    """
    topic = options.names.updates
    why = f"{topic} did not get {partitions} partitions"
    try:
        async with connected_client(options) as client, asyncio.timeout(WITHIN_S):
            if not await _has(client, topic, partitions):
                async with admin_client(options) as admin:
                    await admin.create_partitions({topic: NewPartitions(partitions)})
            # Whoever is told of them is to find them.
            while not await _has(client, topic, partitions):  # noqa: ASYNC110 - Kafka tells nobody
                await asyncio.sleep(0.1)
    except (KafkaError, TimeoutError) as error:
        raise KafkaUnavailable(options.bootstrap_servers, f"{why}: {type(error).__name__} {error}") from error


async def _has(client: AIOKafkaClient, topic: str, partitions: int) -> bool:
    found = (await describe(client, topic)).topics.get(topic)
    return found is not None and sum(part.leader >= 0 for part in found.partitions.values()) >= partitions


class PlanNotFound(DiemError):
    """There is no such plan here."""


class PlanConflict(DiemError):
    """It cannot be done now; the text has the reason."""


class PlanService:
    """Operations of the REST interface. Every answer is a status, as JSON values."""

    def __init__(self, options: KafkaOptions, driver: MigrationDriver, store: PlanStore) -> None:
        self._options = options
        self._driver = driver
        self._store = store
        self._beginning: set[str] = set()
        self._keeping = asyncio.Lock()

    async def submit(self, plan: Plan) -> dict[str, Any]:
        """Keep a plan, to be applied.

        Raises:
            PlanConflict: it was made for another epoch, or the map is not known yet.
            PlanNotStored: it cannot be written down.
        """
        async with self._keeping:
            map_ = self._map()
            self._must_fit(plan, map_)
            # What is on its way, or was applied last, can be taken back as long as it is kept.
            spared = {map_.head.plan.removeprefix(BACK), *self._beginning}
            await asyncio.to_thread(self._store.put, plan, spared)
        return await self.status(plan.id)

    async def apply(self, name: str) -> dict[str, Any]:
        """Begin to move endpoints to where a plan has them.

        Raises:
            PlanNotFound: there is no such plan.
            PlanConflict: another one is on its way, or the map has changed since this one was made.
            KafkaUnavailable: it was not begun, or that is not known: ask for the status.
        """
        async with self._kept_while_it_begins(name):
            plan = await self._plan(name)
            map_ = self._map()
            if map_.head.plan == name and map_.head.phase is not Phase.STABLE:
                return await self.status(name)
            self._must_rest(map_)
            self._must_fit(plan, map_)
            homes = {endpoint.encode(): home for endpoint, home in plan.homes.items()}
            unknown = self._driver.unknown
            before = {endpoint.decode(): entry.home for endpoint, entry in moves(map_, homes, unknown).items()}
            # First: whoever can apply a plan can take it back.
            self._store.put_before(name, before)
            await grow(self._options, plan.partitions)
            return await self._write(map_, begin(map_, homes, name, unknown), name)

    async def rollback(self, name: str) -> dict[str, Any]:
        """Take a plan back: while it is being applied, from where it is; afterwards, by moving everything back.

        Raises:
            PlanNotFound: there is no such plan, or nothing is known of what was before it.
            PlanConflict: it is not the plan that was applied last.
            KafkaUnavailable: it was not begun, or that is not known: ask for the status.
        """
        map_ = self._map()
        if map_.head.plan == BACK + name:
            return await self.status(name)
        if map_.head.plan != name:
            await self._plan(name)
            raise PlanConflict(f"{name} is not what was applied last: that is {map_.head.plan or 'nothing'}")
        if map_.head.phase is not Phase.STABLE:
            return await self._write(map_, reverse(map_), name)
        before = self._store.before(name)
        if before is None:
            raise PlanNotFound(f"what was before {name} is not kept here: make a plan instead")
        homes = {endpoint.encode(): home for endpoint, home in before.items()}
        return await self._write(map_, begin(map_, homes, BACK + name), name)

    async def _write(self, map_: PartitionMap, step: MapStep, name: str) -> dict[str, Any]:
        if not await self._driver.write(map_.head, step):
            raise PlanConflict("the map has changed just now: look, and try again")
        stage = _stage(step.head.plan, step.head.phase, name)
        # What was written just now has perhaps not been read yet.
        return {**await self.status(name), **stage, "moves": len(step.records), "since": self._since(step.head)}

    # Status

    async def all(self) -> list[dict[str, Any]]:
        """Return the status of every plan, the latest last; those whose file cannot be read are left out."""
        summaries = await asyncio.to_thread(self._store.summaries)
        return [self._status(name, summary) for name, summary in summaries.items()]

    async def status(self, name: str) -> dict[str, Any]:
        """Return how far a plan is.

        Raises:
            PlanNotFound: there is no such plan here.
        """
        summary = await asyncio.to_thread(self._store.summary, name)
        if summary is None and not self._is_current(name):
            raise PlanNotFound(f"there is no plan {name} here")
        return self._status(name, summary)

    def _is_current(self, name: str) -> bool:
        map_ = self._driver.map
        return map_ is not None and map_.head.plan in {name, BACK + name}

    def _status(self, name: str, summary: PlanSummary | None) -> dict[str, Any]:
        map_, driver = self._driver.map, self._driver
        head, current = map_.head if map_ else None, self._is_current(name)
        busy = current and driver.busy
        return {
            "id": name,
            **(_stage(head.plan, head.phase, name) if head else {"state": "ready", "phase": None}),
            "since": self._since(head) if head and current else None,
            "epoch": head.epoch if head else None,
            "moves": driver.moving if busy else summary.moves if summary else 0,
            "waiting_for": driver.waiting_for() if busy else None,
            "epoch_of_plan": summary.epoch if summary else None,
            "created": summary.created if summary else None,
            "partitions": summary.partitions if summary else None,
            "endpoints": summary.endpoints if summary else None,
        }

    def _since(self, head: Head) -> str | None:
        began = self._driver.began_ms(head)
        return None if began is None else iso(began)

    async def report(self, name: str) -> Mapping[str, Any]:
        """Return the report of a plan: what it promised.

        Raises:
            PlanNotFound: there is no such plan here.
        """
        return (await self._plan(name)).report

    # Preconditions

    @contextlib.asynccontextmanager
    async def _kept_while_it_begins(self, name: str) -> AsyncIterator[None]:
        # Not while others are forgotten: it might be one of them.
        async with self._keeping:
            self._beginning.add(name)
        try:
            yield
        finally:
            self._beginning.discard(name)

    async def _plan(self, name: str) -> Plan:
        plan = await asyncio.to_thread(self._store.get, name)
        if plan is None:
            raise PlanNotFound(f"there is no plan {name} here: the instance that it was given to has it")
        return plan

    def _map(self) -> PartitionMap:
        if self._driver.map is None:
            raise PlanConflict("the partition map has not been read yet")
        return self._driver.map

    def _must_rest(self, map_: PartitionMap) -> None:
        if map_.head.phase is not Phase.STABLE:
            raise PlanConflict(
                f"{map_.head.plan.removeprefix(BACK) or 'another move'} is on its way ({map_.head.phase})"
            )

    def _must_fit(self, plan: Plan, map_: PartitionMap) -> None:
        if plan.epoch != map_.head.epoch:
            raise PlanConflict(
                f"the plan was made for epoch {plan.epoch} of the map, which is at {map_.head.epoch} now"
            )


_GOING = {Phase.PREPARE: "preparing", Phase.MOVE: "moving", Phase.RETIRE: "retiring", Phase.STABLE: "applied"}


def _stage(plan: str, phase: Phase, name: str) -> dict[str, Any]:
    if plan == BACK + name:
        return {"state": "rolled_back" if phase is Phase.STABLE else "rolling_back", "phase": phase}
    return {"state": _GOING[phase] if plan == name else "ready", "phase": phase}
