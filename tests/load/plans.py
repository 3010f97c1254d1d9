"""Plans of a running system, as an operator uses them: draw by seed, submit, apply, roll back, observe."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import httpx

from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import read_map
from diem.protocol.assignment import decode
from diem.protocol.partition_map import HOT, PartitionMap, Phase
from metadata.plans.plan import Plan, encode
from metadata.plans.plan import decode as decode_plan
from tests.load.system import NotUp, System
from tests.support.patience import PATIENCE_S

SHARE = 1 / 3
"""Of the endpoints, that a plan moves."""
KINDS = 6
"""Of so many that move, one gets hot, and one goes to another partition of the server that has it."""
POLL_SECONDS = 0.05
ANSWER_SECONDS = 20.0


def draw_plan(
    names: Sequence[str], map_: PartitionMap, owners: Mapping[int, str], random: Random, *, more: int = 0
) -> Plan:
    """Return a plan that moves a third of ``names``, including half of the hot ones, each to another home.

    ``owners`` are those of all partitions. The plan needs ``more`` additional partitions.
    """
    homes = {name: map_.home(name.encode()) for name in names}
    hot = [name for name in names if homes[name] == HOT]
    back = random.sample(hot, (len(hot) + 1) // 2)
    moved = [
        *back,
        *random.sample([name for name in names if homes[name] != HOT], round(len(names) * SHARE) - len(back)),
    ]
    partitions = range(1 + max(owners) + more)
    for number, name in enumerate(moved):
        now = homes[name]
        elsewhere = [partition for partition in partitions if partition != now]
        beside = [partition for partition in elsewhere if owners.get(partition) == owners.get(now, "")]
        if now != HOT and number % KINDS == 0:
            homes[name] = HOT
        else:
            homes[name] = random.choice(beside if beside and number % KINDS == 1 else elsewhere)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    targets = {name: homes[name] for name in moved}
    return Plan(epoch=map_.head.epoch, partitions=len(partitions), homes=targets, created=created)


async def apply_file(system: System, options: KafkaOptions, path: Path) -> None:
    """Apply a plan, for the map as it is; return when it is applied.

    Raises ``NotUp`` if it is not in time, or endpoints are not where it has them.
    """
    plans = Plans(system, options)
    plan = replace(decode_plan(path.read_bytes()), epoch=(await plans.map()).head.epoch)
    await plans.submit(plan)
    await plans.apply(plan)
    await plans.until_state(plan, "applied", PATIENCE_S)
    map_ = await plans.map()
    elsewhere = sum(map_.home(name.encode()) != home for name, home in plan.homes.items())
    if elsewhere:
        raise NotUp(f"{elsewhere} of {len(plan.homes)} endpoints are not where the plan has them")


class Plans:
    """Client of a running system's metadata service, and of the map in Kafka."""

    def __init__(self, system: System, options: KafkaOptions) -> None:
        self._system = system
        self._options = options

    async def map(self) -> PartitionMap:
        """Return the map in its topic. Raises ``NotUp`` if it cannot be read in time."""
        limit = monotonic() + ANSWER_SECONDS
        while monotonic() < limit:
            with suppress(KafkaUnavailable):
                if found := await read_map(self._options):
                    return found
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"the partition map could not be read within {ANSWER_SECONDS:.0f} s")

    async def owners(self) -> dict[int, str]:
        """Return the owner of each partition, in the first clone."""
        answer = await self.ask("GET", "/v1/partitions")
        clones = decode(answer.content).clones
        return dict(clones[min(clones)].owners)

    async def submit(self, plan: Plan) -> None:
        """Submit a plan. Raises ``NotUp`` if it is refused."""
        await self.ask("POST", "/v1/plans", encode(plan))

    async def apply(self, plan: Plan) -> dict[str, Any]:
        """Start to apply a plan; return its status."""
        status: dict[str, Any] = (await self.ask("POST", f"/v1/plans/{plan.id}/apply")).json()
        return status

    async def rollback(self, plan: Plan) -> dict[str, Any]:
        """Start to roll a plan back; return its status."""
        status: dict[str, Any] = (await self.ask("POST", f"/v1/plans/{plan.id}/rollback")).json()
        return status

    async def until_phase(self, phase: Phase, within: float = ANSWER_SECONDS) -> float:
        """Wait until the map is in a phase; return the time."""
        return await self._until("/status", "phase", phase, within)

    async def until_state(self, plan: Plan, state: str, within: float) -> float:
        """Wait until a plan is in a state; return the time."""
        return await self._until(f"/v1/plans/{plan.id}", "state", state, within)

    async def ask(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        """Return a reply of the metadata service. Raises ``NotUp`` if it refuses, or does not reply in time."""
        limit, said = monotonic() + ANSWER_SECONDS, "nothing"
        while monotonic() < limit:
            try:
                answer = await self._system.ask("metadata", method, path, body)
            except httpx.HTTPError as error:
                said = repr(error)
            else:
                if answer.is_success:
                    return answer
                said = f"{answer.status_code} {answer.text[:300]}"
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    break
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"{method} {path}: {said}")

    async def _until(self, path: str, name: str, value: str, within: float) -> float:
        limit, said = monotonic() + within, None
        while monotonic() < limit:
            # It may be the one that was killed.
            with suppress(httpx.HTTPError, NotUp, ValueError):
                said = (await self._system.ask("metadata", "GET", path)).json().get(name)
                if said == value:
                    return monotonic()
            await asyncio.sleep(POLL_SECONDS)
        raise NotUp(f"{path} has {name} {said}, not {value}, after {within:.0f} s")
