"""Groups of connections: each client is connected wherever its endpoints are, and what arrives is counted."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, Self

from experiments.peers.contenders import Contender, Update
from tests.bench.drain import After, Drain, draining

OPEN_WITHIN_S: Final = 120.0
STABLE_S: Final = 0.6
"""Clients have what their subscriptions bring when nothing arrives for so long."""
_nets: Final = itertools.cycle(range(1, 250))


class Door(NamedTuple):
    """Connections to one port."""

    drain: Drain
    wishes: Sequence[Sequence[str]]
    """Endpoints of each connection."""
    subscribers: Counter[str]

    @property
    def is_uniform(self) -> bool:
        return all(wish == self.wishes[0] for wish in self.wishes)


class Clients:
    """Clients of one system."""

    def __init__(self, contender: Contender, doors: Sequence[Door], count: int, seconds: float) -> None:
        self.contender = contender
        self.count = count
        self.seconds = seconds
        """Until all were connected."""
        self.connections = sum(door.drain.count for door in doors)
        self._doors = doors

    @classmethod
    async def connect(
        cls,
        stack: AsyncExitStack,
        contender: Contender,
        wishes: Sequence[Sequence[str]],
        program: Path,
        core: int | None,
    ) -> Self:
        """Connect a client for each list of endpoints; ``program`` is that of drain.c."""
        doors, began = [], monotonic()
        found = await contender.doors([*dict.fromkeys(name for wish in wishes for name in wish)])
        for port, names in found.items():
            own = set(names)
            members = [mine for wish in wishes if (mine := [name for name in wish if name in own])]
            paths = program.with_name(f"paths-{port}")
            paths.write_text("\n".join(map(contender.path, members)) + "\n", encoding="utf-8")
            clients = draining(
                program,
                port,
                len(members),
                net=next(_nets),
                core=core,
                path=f"@{paths}",
                dialect=contender.dialect,
                within=OPEN_WITHIN_S,
            )
            drain = await stack.enter_async_context(clients)
            paths.unlink()
            doors.append(Door(drain, members, Counter(name for mine in members for name in mine)))
        return cls(contender, doors, len(wishes), monotonic() - began)

    async def join(self) -> None:
        """Subscribe all of them, and wait until they have what that brings."""
        for door in self._doors:
            if door.is_uniform:
                for text in self.contender.join(door.wishes[0]):
                    door.drain.join(text)
            else:
                for number, wish in enumerate(door.wishes):
                    for text in self.contender.join(wish):
                        door.drain.send(number, text)
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing more arrives."""
        counted, since = await self._counted(), monotonic()
        while monotonic() < since + STABLE_S:
            await asyncio.sleep(STABLE_S / 6)
            if (now := await self._counted()) != counted:
                counted, since = now, monotonic()

    async def _counted(self) -> list[int]:
        return [(await door.drain.count_now()).updates for door in self._doors]

    async def resume(self) -> None:
        """Count from now on: what came late of earlier updates belongs to no tick."""
        await self._counted()

    async def tick(self, updates: Sequence[Update]) -> int:
        """Publish, and wait until all have all of it; return the frames. Raises ``Lost``, ``Refused``."""
        wanted = [sum(door.subscribers[each.endpoint] for each in updates) for door in self._doors]
        await self.contender.publish(updates)
        await asyncio.gather(*(door.drain.reach(updates=n) for door, n in zip(self._doors, wanted, strict=True) if n))
        return sum(wanted)

    def forget(self, mark: str) -> None:
        """From now on note who receives a mark."""
        for door in self._doors:
            door.drain.forget(mark)

    async def after(self, endpoint: str) -> After:
        """Return what became of all connections since; of ``endpoint``'s subscribers for the mark."""
        found = [(door, await door.drain.after()) for door in self._doors]
        mine = [each for door, each in found if door.subscribers[endpoint]]
        return After(
            sum(each.open for _, each in found),
            sum(each.marked for each in mine),
            max(each.last_open_s for _, each in found),
            max(each.last_marked_s for each in mine),
            sum(each.refused for _, each in found),
        )
