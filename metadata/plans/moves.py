"""Plans as operators use them: submitted, applied, taken back, and how far each is."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.admin import NewPartitions
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from diem.errors import DiemError
from diem.kafka.admin import administering
from diem.kafka.connecting import connected
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.metadata import describe
from diem.kafka.options import KafkaOptions
from diem.protocol.partition_map import Head, PartitionMap, Phase
from diem.protocol.versions import iso
from metadata.plans.driver import Driver
from metadata.plans.library import Library
from metadata.plans.plan import Plan
from metadata.plans.steps import BACK, Step, begin, moves, reverse

GROW_WITHIN_S: Final = 10.0


class Unknown(DiemError):
    """There is no such plan here."""


class Conflict(DiemError):
    """It cannot be done now; what was found is said."""


class Moves:
    """What the REST interface does. Every answer is a status, as JSON values."""

    def __init__(self, options: KafkaOptions, driver: Driver, library: Library) -> None:
        self._options = options
        self._driver = driver
        self._library = library

    def submit(self, plan: Plan) -> dict[str, Any]:
        """Keep a plan, to be applied.

        Raises:
            Conflict: it was made for another epoch, or the map is not known yet.
            NotKept: it cannot be written down.
        """
        self._must_fit(plan, self._map())
        self._library.put(plan)
        return self.status(plan.id)

    async def apply(self, name: str) -> dict[str, Any]:
        """Begin to move endpoints to where a plan has them.

        Raises:
            Unknown: there is no such plan.
            Conflict: another one is on its way, or the map has changed since this one was made.
            KafkaUnavailable: it was not begun, or that is not known: ask for the status.
        """
        plan, map_ = self._plan(name), self._map()
        if map_.head.plan == name and map_.head.phase is not Phase.STABLE:
            return self.status(name)
        self._must_rest(map_)
        self._must_fit(plan, map_)
        homes = {endpoint.encode(): home for endpoint, home in plan.homes.items()}
        before = {endpoint.decode(): entry.home for endpoint, entry in moves(map_, homes).items()}
        # First: whoever can apply a plan can take it back.
        self._library.put_before(name, before)
        await self._grow(plan.partitions)
        return await self._write(map_, begin(map_, homes, name), name)

    async def rollback(self, name: str) -> dict[str, Any]:
        """Take a plan back: while it is being applied, from where it is; afterwards, by moving everything back.

        Raises:
            Unknown: there is no such plan, or nothing is known of what was before it.
            Conflict: it is not the plan that was applied last.
            KafkaUnavailable: it was not begun, or that is not known: ask for the status.
        """
        map_ = self._map()
        if map_.head.plan == BACK + name:
            return self.status(name)
        if map_.head.plan != name:
            self._plan(name)
            raise Conflict(f"{name} is not what was applied last: that is {map_.head.plan or 'nothing'}")
        if map_.head.phase is not Phase.STABLE:
            return await self._write(map_, reverse(map_), name)
        before = self._library.before(name)
        if before is None:
            raise Unknown(f"what was before {name} is not kept here: make a plan instead")
        homes = {endpoint.encode(): home for endpoint, home in before.items()}
        return await self._write(map_, begin(map_, homes, BACK + name), name)

    async def _write(self, map_: PartitionMap, step: Step, name: str) -> dict[str, Any]:
        if not await self._driver.write(map_.head, step):
            raise Conflict("the map has changed just now: look, and try again")
        stage = _stage(step.head.plan, step.head.phase, name)
        # What was written just now has perhaps not been read yet.
        return {**self.status(name), **stage, "moves": len(step.records), "since": self._since(step.head)}

    async def _grow(self, partitions: int) -> None:
        """Give the updates topic as many partitions, if it has fewer.

        A partition more moves nobody: only entries name it.
        """
        topic = self._options.names.updates
        why = f"{topic} did not get {partitions} partitions"
        try:
            async with connected(self._options) as client, asyncio.timeout(GROW_WITHIN_S):
                if not await _has(client, topic, partitions):
                    async with administering(self._options) as admin:
                        await admin.create_partitions({topic: NewPartitions(partitions)})
                # Whoever is told of them is to find them.
                while not await _has(client, topic, partitions):  # noqa: ASYNC110 - Kafka tells nobody
                    await asyncio.sleep(0.1)
        except (KafkaError, TimeoutError) as error:
            raise KafkaUnavailable(self._options.bootstrap_servers, f"{why}: {type(error).__name__} {error}") from error

    # What it says

    def all(self) -> list[dict[str, Any]]:
        """The status of every plan, the latest last; one whose file cannot be read is as good as none."""
        found = []
        for name in self._library.names():
            with contextlib.suppress(Unknown):
                found.append(self.status(name))
        return found

    def status(self, name: str) -> dict[str, Any]:
        """How far a plan is.

        Raises:
            Unknown: there is no such plan here.
        """
        map_, driver = self._driver.map, self._driver
        head = map_.head if map_ else None
        current = head is not None and head.plan in {name, BACK + name}
        plan = self._library.get(name)
        if plan is None and not current:
            raise Unknown(f"there is no plan {name} here")
        busy = current and driver.busy
        return {
            "id": name,
            **(_stage(head.plan, head.phase, name) if head else {"state": "ready", "phase": None}),
            "since": self._since(head) if head and current else None,
            "epoch": head.epoch if head else None,
            "moves": driver.moving if busy else len(self._library.before(name) or ()),
            "waiting_for": driver.waiting_for() if busy else None,
            "epoch_of_plan": plan.epoch if plan else None,
            "created": plan.created if plan else None,
            "partitions": plan.partitions if plan else None,
            "endpoints": len(plan.homes) if plan else None,
        }

    def _since(self, head: Head) -> str | None:
        began = self._driver.began_ms(head)
        return None if began is None else iso(began)

    def report(self, name: str) -> Mapping[str, Any]:
        """What a plan promised."""
        return self._plan(name).report

    # What must hold

    def _plan(self, name: str) -> Plan:
        plan = self._library.get(name)
        if plan is None:
            raise Unknown(f"there is no plan {name} here: the instance that it was given to has it")
        return plan

    def _map(self) -> PartitionMap:
        if self._driver.map is None:
            raise Conflict("the partition map has not been read yet")
        return self._driver.map

    def _must_rest(self, map_: PartitionMap) -> None:
        if map_.head.phase is not Phase.STABLE:
            raise Conflict(f"{map_.head.plan.removeprefix(BACK) or 'another move'} is on its way ({map_.head.phase})")

    def _must_fit(self, plan: Plan, map_: PartitionMap) -> None:
        if plan.epoch != map_.head.epoch:
            raise Conflict(f"the plan was made for epoch {plan.epoch} of the map, which is at {map_.head.epoch} now")


async def _has(client: AIOKafkaClient, topic: str, partitions: int) -> bool:
    found = (await describe(client, topic)).topics.get(topic)
    return found is not None and sum(part.leader >= 0 for part in found.partitions.values()) >= partitions


_GOING = {Phase.PREPARE: "preparing", Phase.MOVE: "moving", Phase.RETIRE: "retiring", Phase.STABLE: "applied"}


def _stage(plan: str, phase: Phase, name: str) -> dict[str, Any]:
    if plan == BACK + name:
        return {"state": "rolled_back" if phase is Phase.STABLE else "rolling_back", "phase": phase}
    return {"state": _GOING[phase] if plan == name else "ready", "phase": phase}
