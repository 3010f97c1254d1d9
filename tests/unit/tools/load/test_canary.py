"""The loop of a canary, in virtual time and with scripted edges."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from deploy.clients.data_service import DataServiceUnavailable
from deploy.terminal import Terminal
from diem.client import BaseClient, Event
from tests.support.virtual_time import VirtualLoop, run_virtual
from tools.load.canary import Canary
from tools.load.edges import EdgeAddress

NAMES = {"/canary/p0": 0, "/canary/p1": 1}


class Client(BaseClient):
    """A client of an edge that delivers every write at once, unless it is stuck; or one that refuses connections."""

    received_bytes = 0

    def __init__(self, edge: str, world: "World") -> None:
        super().__init__()
        self.edge, self.world = edge, world

    def _add(self, names: Sequence[str]) -> None:
        self.world.subscribed[self.edge] = [*self.world.subscribed.get(self.edge, []), len(names)]

    _remove = _add

    async def _run(self) -> None:
        if self.edge in self.world.down:
            self._publish(Event("closed", message="connection refused"))
            return
        self._publish(Event("open"))
        if self.edge in self.world.lossy:
            self._publish(Event("closed"))
        for name in self._known:
            self._publish(Event("subscribed", name))
        async with self.world.written:
            while True:
                await self.world.written.wait()
                for name in self._known.keys() - self.world.stuck.get(self.edge, set()):
                    self._publish(Event("update", name, self.world.version))


class World(Terminal):
    """A system, and the output of its canary."""

    def __init__(self, loop: VirtualLoop, names: dict[str, int] = NAMES) -> None:
        super().__init__()
        self.loop = loop
        self.edges = ["websocket-1", "websocket-2"]
        self.stuck: dict[str, set[str]] = {}
        self.down: set[str] = set()
        self.lossy: set[str] = set()
        self.subscribed: dict[str, list[int]] = {}
        """Numbers of names that the clients of each edge have subscribed to."""
        self.broken = False
        self.version = 0
        self.written = asyncio.Condition()
        self.lines: list[tuple[float, str]] = []
        self.stopping = asyncio.Event()
        self.names = names
        self.canary = Canary(
            names,
            find_edges=self.find,
            write=self.write,
            connect=lambda address: Client(address.name, self),
            terminal=self,
            every_s=2.0,
            late_after_s=10.0,
            clock=loop.time,
        )

    def info(self, text: str) -> None:
        self.lines.append((self.loop.time(), text))

    warn = info

    async def find(self) -> list[EdgeAddress]:
        return [EdgeAddress(name, "", is_server=name != "proxy") for name in self.edges]

    async def write(self) -> dict[str, int]:
        if self.broken:
            raise DataServiceUnavailable("http://d", "connection refused")
        self.version = max(self.version + 1, int(1000 * time.time()))
        async with self.written:
            self.written.notify_all()
        return dict.fromkeys(self.names, self.version)

    def samples(self) -> list[tuple[str, float, tuple[str, ...]]]:
        return [(each.metric.name, each.value, each.labels) for each in self.canary.samples()]

    async def run(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def in_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run a test beside a canary."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        running = asyncio.ensure_future(world.canary.run(world.stopping))
        await test(world)
        world.stopping.set()
        await running

    run_virtual(main)


def test_edge_that_delivers_nothing_is_named_within_15_seconds_and_again_when_it_has_recovered() -> None:
    async def test(world: World) -> None:
        await world.run(31.3)
        assert world.lines == []
        world.stuck["websocket-2"] = {"/canary/p1"}
        await world.run(15)
        ((at, line),) = world.lines
        assert line == "websocket-2 is late: nothing for 10 s of partition 1"
        assert 31.3 + 10 <= at < 31.3 + 13
        assert ("diem_canary_late", 1, ("websocket-2", "1")) in world.samples()
        assert ("diem_canary_late", 0, ("websocket-1", "")) in world.samples()
        assert world.canary.status()["late"].keys() == {"websocket-2"}
        await world.run(60)
        assert len(world.lines) == 1
        world.stuck.clear()
        await world.run(3)
        assert world.lines[1][1].startswith("websocket-2 is up to date again, after ")
        assert world.canary.status()["late"] == {}

    in_world(test)


def test_further_partitions_of_an_edge_that_is_late_are_named() -> None:
    async def test(world: World) -> None:
        world.stuck["websocket-1"] = {"/canary/p0"}
        await world.run(20)
        world.stuck["websocket-1"] = set(NAMES)
        await world.run(20)
        assert [line.partition(" of ")[2] for _, line in world.lines] == ["partition 0", "partitions 0, 1"]

    in_world(test)


def test_edges_are_added_and_removed_with_the_system() -> None:
    async def test(world: World) -> None:
        world.edges.append("websocket-3")
        await world.run(12)
        assert ("diem_canary_late", 0, ("websocket-3", "")) in world.samples()
        world.stuck["websocket-3"] = set(NAMES)
        world.edges.remove("websocket-3")
        await world.run(30)
        assert world.lines == []
        assert {labels[0] for _, _, labels in world.samples() if labels} == {"websocket-1", "websocket-2"}

    in_world(test)


def test_data_service_that_accepts_no_writes_is_named_instead_of_the_edges() -> None:
    async def test(world: World) -> None:
        await world.run(5)
        world.broken = True
        await world.run(60)
        ((_, line),) = world.lines
        assert line.startswith("nothing was written for 1")
        assert line.endswith(" s: the Data Service at http://d does not answer: connection refused")
        world.broken = False
        await world.run(5)
        assert world.lines[1][1].startswith("writes are accepted again, after ")

    in_world(test)


@pytest.mark.parametrize(
    ("faults", "passes", "within_s"),
    [
        ({}, True, 5),
        ({"down": {"websocket-2"}}, False, 12),
        ({"lossy": {"websocket-2"}}, False, 12),
        ({"stuck": {"websocket-1": set(NAMES)}}, False, 13),
        ({"broken": True}, False, 12),
    ],
)
def test_single_run_ends_when_everything_is_measured_or_something_is_late(
    faults: dict[str, Any], passes: bool, within_s: float
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        vars(world).update(faults)
        assert await world.canary.run(world.stopping, once=True) == passes
        assert loop.time() < within_s
        shown = dict(line.split(": ") for line in world.canary.lines())
        assert shown.keys() == {"websocket-1", "websocket-2"}
        assert all("no update yet" in shown[edge] for edge in (*world.down, *world.stuck))

    run_virtual(main)


def test_endpoints_are_divided_among_clients_at_a_public_address_but_not_at_a_server() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, {f"/canary/p{number}": number for number in range(150)})
        # The loss of one of several connections is none of the edge.
        world.edges, world.lossy = ["proxy", "websocket-1"], {"proxy"}
        assert await world.canary.run(world.stopping, once=True)
        assert world.subscribed == {"proxy": [100, 50], "websocket-1": [150]}

    run_virtual(main)
