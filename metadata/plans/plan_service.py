"""Accepts plans, starts them and rolls them back, and grows the topic for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
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
from metadata.plans.plan import Plan, overfull
from metadata.plans.plan_store import PlanStore, PlanSummary
from metadata.plans.steps import ROLLBACK, MapStep, begin, moves, prepare, reverse

GROW_WITHIN_S: Final = 10.0
"""Time for new partitions of the updates topic to get leaders."""


async def grow(options: KafkaOptions, partitions: int) -> None:
    """Grow the updates topic to ``partitions``, if it has fewer.

    New partitions move no endpoint: only entries of the map refer to them.

    Raises:
        KafkaUnavailable: they have no leaders within 10 s.
    """
    topic = options.names.updates
    why = f"{topic} did not get {partitions} partitions"
    try:
        async with connected_client(options) as client, asyncio.timeout(GROW_WITHIN_S):
            if not await _has_partitions(client, topic, partitions):
                async with admin_client(options) as admin:
                    await admin.create_partitions({topic: NewPartitions(partitions)})
            # Before anything refers to them. Polled, as Kafka announces nothing.
            while not await _has_partitions(client, topic, partitions):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except (KafkaError, TimeoutError) as error:
        raise KafkaUnavailable(options.bootstrap_servers, f"{why}: {type(error).__name__} {error}") from error


async def _has_partitions(client: AIOKafkaClient, topic: str, partitions: int) -> bool:
    description = (await describe(client, topic)).topics.get(topic)
    return description is not None and sum(part.leader >= 0 for part in description.partitions.values()) >= partitions


class PlanNotFound(DiemError):
    """This instance has no such plan."""


class PlanConflict(DiemError):
    """The operation is impossible now; the text gives the reason."""


class PlanService:
    """Operations of the REST interface. Every result is a status, as JSON values."""

    def __init__(self, options: KafkaOptions, driver: MigrationDriver, store: PlanStore) -> None:
        self._options = options
        self._driver = driver
        self._store = store
        self._beginning: set[str] = set()
        """Plans that are just being begun; they must not be removed."""
        self._storing = asyncio.Lock()

    async def submit(self, plan: Plan) -> dict[str, Any]:
        """Store a plan, so that it can be applied.

        Raises:
            PlanConflict: it was computed for another epoch, a server would have more clients than it accepts, or the
                map has not been read yet.
            PlanNotStored: the directory cannot be written to.
        """
        async with self._storing:
            map_ = self._map()
            self._check_epoch(plan, map_)
            self._check_capacity(plan)
            # The current or last applied plan can be rolled back only while it is stored.
            protected = {map_.head.plan.removeprefix(ROLLBACK), *self._beginning}
            await asyncio.to_thread(self._store.put, plan, protected)
        return await self.status(plan.id)

    async def apply(self, name: str) -> dict[str, Any]:
        """Begin to move endpoints to their homes in a plan.

        Raises:
            PlanNotFound: there is no such plan.
            PlanConflict: another plan is in progress, the map has changed since this one was computed, or a server
                would have more clients than it accepts.
            KafkaUnavailable: it was not begun, or the outcome is unknown until the next status.
        """
        async with self._protected_while_beginning(name):
            plan = await self._plan(name)
            map_ = self._map()
            if map_.head.plan == name and map_.head.phase is not Phase.STABLE:
                return await self.status(name)
            self._check_stable(map_)
            self._check_epoch(plan, map_)
            self._check_capacity(plan)
            # In threads, here and below: a million endpoints take many seconds, too long to block the event loop.
            before, step = await asyncio.to_thread(_prepare, map_, plan, self._driver.unknown)
            # First, so that every plan begun can be rolled back.
            await asyncio.to_thread(self._store.put_before, name, before)
            await grow(self._options, plan.partitions)
            return await self._write(map_, step, name)

    async def rollback(self, name: str) -> dict[str, Any]:
        """Roll a plan back: while it is being applied, from its current phase; afterwards, by moving everything back.

        Raises:
            PlanNotFound: there is no such plan, or what it replaced is not stored.
            PlanConflict: another plan was applied last.
            KafkaUnavailable: it was not begun, or the outcome is unknown until the next status.
        """
        map_ = self._map()
        if map_.head.plan == ROLLBACK + name:
            return await self.status(name)
        if map_.head.plan != name:
            await self._plan(name)
            raise PlanConflict(f"{name} is not the plan that was applied last, which is {map_.head.plan or 'none'}")
        if map_.head.phase is not Phase.STABLE:
            return await self._write(map_, await asyncio.to_thread(reverse, map_), name)
        before = await asyncio.to_thread(self._store.before, name)
        if before is None:
            raise PlanNotFound(f"what {name} replaced is not stored here: compute a new plan instead")
        homes = {endpoint.encode(): home for endpoint, home in before.items()}
        step = await asyncio.to_thread(begin, map_, homes, ROLLBACK + name)
        return await self._write(map_, step, name)

    async def _write(self, map_: PartitionMap, step: MapStep, name: str) -> dict[str, Any]:
        if not await self._driver.write(map_.head, step):
            raise PlanConflict("the map has just been changed: see the status, and try again")
        stage = _stage(step.head.plan, step.head.phase, name)
        # The record just written may not have been read back yet.
        return {**await self.status(name), **stage, "moves": len(step.records), "since": self._since(step.head)}

    # Status

    async def all(self) -> list[dict[str, Any]]:
        """Return the status of every plan, latest last, except those with an unreadable file."""
        summaries = await asyncio.to_thread(self._store.summaries)
        return [self._status(name, summary) for name, summary in summaries.items()]

    async def status(self, name: str) -> dict[str, Any]:
        """Return the status of a plan.

        Raises:
            PlanNotFound: there is no such plan here.
        """
        summary = await asyncio.to_thread(self._store.summary, name)
        if summary is None and not self._is_current(name):
            raise PlanNotFound(f"there is no plan {name} here")
        return self._status(name, summary)

    def _is_current(self, name: str) -> bool:
        map_ = self._driver.map
        return map_ is not None and map_.head.plan in {name, ROLLBACK + name}

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
        """Return the report of a plan: its expected results.

        Raises:
            PlanNotFound: there is no such plan here.
        """
        return (await self._plan(name)).report

    # Preconditions

    @contextlib.asynccontextmanager
    async def _protected_while_beginning(self, name: str) -> AsyncIterator[None]:
        # Not during the removal of plans, which might include this one.
        async with self._storing:
            self._beginning.add(name)
        try:
            yield
        finally:
            self._beginning.discard(name)

    async def _plan(self, name: str) -> Plan:
        plan = await asyncio.to_thread(self._store.get, name)
        if plan is None:
            raise PlanNotFound(f"there is no plan {name} here: use the instance that it was submitted to")
        return plan

    def _map(self) -> PartitionMap:
        if self._driver.map is None:
            raise PlanConflict("the partition map has not been read yet")
        return self._driver.map

    def _check_stable(self, map_: PartitionMap) -> None:
        if map_.head.phase is not Phase.STABLE:
            raise PlanConflict(
                f"{map_.head.plan.removeprefix(ROLLBACK) or 'another move'} is in progress ({map_.head.phase})"
            )

    def _check_epoch(self, plan: Plan, map_: PartitionMap) -> None:
        if plan.epoch != map_.head.epoch:
            raise PlanConflict(
                f"the plan was made for epoch {plan.epoch} of the map, which is at {map_.head.epoch} now"
            )

    def _check_capacity(self, plan: Plan) -> None:
        if (why := overfull(plan.report)) is not None:
            raise PlanConflict(why)


def _prepare(map_: PartitionMap, plan: Plan, unknown: Collection[bytes]) -> tuple[dict[str, int], MapStep]:
    """Return the homes of the endpoints moved by ``plan``, and the first step of the migration."""
    entries = moves(map_, {endpoint.encode(): home for endpoint, home in plan.homes.items()}, unknown)
    return {endpoint.decode(): entry.home for endpoint, entry in entries.items()}, prepare(map_, entries, plan.id)


_STATES = {Phase.PREPARE: "preparing", Phase.MOVE: "moving", Phase.RETIRE: "retiring", Phase.STABLE: "applied"}


def _stage(plan: str, phase: Phase, name: str) -> dict[str, Any]:
    if plan == ROLLBACK + name:
        return {"state": "rolled_back" if phase is Phase.STABLE else "rolling_back", "phase": phase}
    return {"state": _STATES[phase] if plan == name else "ready", "phase": phase}
