"""The loop of a canary, in virtual time and with scripted edges."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from deploy.clients.data_service import DataServiceUnavailable
from tests.support.virtual_time import VirtualLoop, run_virtual
from tools.canary.edges import EdgeAddress, EdgeKind
from tools.canary.lateness import Late
from tools.canary.run import Canary, CanaryOptions, describe
from tools.canary.watchers import Observer

NAMES = {"/canary/p0": 0, "/canary/p1": 1}


class Edge:
    """An edge that delivers every write at once, unless it is stuck; or one that refuses connections."""

    def __init__(self, address: EdgeAddress, observer: Observer, world: "World") -> None:
        self.name, self.observer, self.world = address.name, observer, world

    async def run(self) -> None:
        if self.name in self.world.down:
            self.observer.lost(self.name, "connection refused")
            return
        self.observer.opened(self.name)
        for name in NAMES:
            self.observer.confirmed(self.name, name, 0)
        async with self.world.written:
            while True:
                await self.world.written.wait()
                for name in NAMES.keys() - self.world.stuck.get(self.name, set()):
                    self.observer.updated(self.name, name, self.world.version)

    def request_missing(self) -> None:
        pass


class World:
    """A system, and the output of its canary."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.edges = ["websocket-1", "websocket-2"]
        self.stuck: dict[str, set[str]] = {}
        self.down: set[str] = set()
        self.broken = False
        self.version = 0
        self.written = asyncio.Condition()
        self.lines: list[tuple[float, str]] = []
        self.stopping = asyncio.Event()
        self.canary = Canary(
            NAMES,
            find_edges=self.find,
            write=self.write,
            watch=lambda address, observer: Edge(address, observer, self),
            output=self,
            options=CanaryOptions(),
            clock=loop.time,
        )

    def info(self, text: str) -> None:
        self.lines.append((self.loop.time(), text))

    warn = info

    async def find(self) -> list[EdgeAddress]:
        return [EdgeAddress(name, "", EdgeKind.SERVER) for name in self.edges]

    async def write(self) -> dict[str, int]:
        if self.broken:
            raise DataServiceUnavailable("http://d", "connection refused")
        self.version = max(self.version + 1, int(1000 * time.time()))
        async with self.written:
            self.written.notify_all()
        return dict.fromkeys(NAMES, self.version)

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
    ("down", "stuck", "broken", "passes", "within_s"),
    [
        ((), (), False, True, 5),
        (("websocket-2",), (), False, False, 12),
        ((), ("websocket-1",), False, False, 13),
        ((), (), True, False, 12),
    ],
)
def test_single_run_ends_when_everything_is_measured_or_something_is_late(
    down: tuple[str, ...], stuck: tuple[str, ...], broken: bool, passes: bool, within_s: float
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        world.down, world.broken = set(down), broken
        world.stuck = {edge: set(NAMES) for edge in stuck}
        assert await world.canary.run_once(world.stopping) == passes
        assert loop.time() < within_s
        shown = dict(line.split(": ") for line in world.canary.lines())
        assert shown.keys() == {"websocket-1", "websocket-2"}
        assert {"no update yet" in shown[edge] for edge in (*down, *stuck)} <= {True}

    run_virtual(main)


def test_line_of_an_edge_has_what_is_known_of_the_reason() -> None:
    assert describe(Late("a", tuple(range(20)), 12.3, connected=True, reason="")) == (
        "a is late: nothing for 12 s of partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ..."
    )
    assert describe(Late("a", (), 12, connected=False, reason="")) == "a is late: not connected for 12 s"
    assert describe(Late("a", (3,), 12, connected=False, reason="403: a token is needed")) == (
        "a is late: not connected for 12 s (1 partition: 3): 403: a token is needed"
    )
