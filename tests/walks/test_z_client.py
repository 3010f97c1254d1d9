"""The client of mode z-client over a group of real servers' edges, hubs and maps, in virtual time.

Endpoints move in all phases, partitions go from server to server, connections and servers are lost, servers refuse for
their limit or lag behind. At rest nobody may be behind who believes to be
live.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from diem.client import Event, PartitionedClient
from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import ManualClock
from diem.protocol import feed
from diem.protocol.codes import Close
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from diem.protocol.update import Change, encode
from services.websocket.server import WebSocketServer
from tests.support.maps import changes_of
from tests.support.virtual_time import VirtualLoop, run_virtual
from tests.walks import walk_settings

SOURCE: Final = "cluster/topic"
MAP: Final = "diem.partition-map/0"
HOT_NAME: Final = "diem.updates.hot/0"
PARTITIONS: Final = 4
SERVERS: Final = 3
PORT: Final = 8101
FIRST_VERSION: Final = 1_700_000_000_000
NEXT_PHASE: Final = {
    Phase.STABLE: Phase.PREPARE,
    Phase.PREPARE: Phase.MOVE,
    Phase.MOVE: Phase.RETIRE,
    Phase.RETIRE: Phase.STABLE,
}
REST_S: Final = 240.0
"""Longer than all delays of a client that begin with the last thing that went wrong."""


def name_of(place: int) -> str:
    """Return the feed name of a partition, or of the topic of hot updates."""
    return HOT_NAME if place == HOT else f"diem.updates/{place}"


class Node:
    """One life of a server, and its bridge."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.port = PORT + number
        self.clock = ManualClock()
        self.hub = FeedHub(limit=world.limit, ownership=(ownership := Ownership()))
        rules = EdgeRules(f"websocket-{number}", "z-client", subscriptions=world.limit)
        self.edge = Edge(
            self.hub.fanout, Admission(AdmissionRules(subscriptions=world.limit)), rules, HubService(self.hub)
        )
        self.server = WebSocketServer(self.hub, self.edge, self.clock, ownership)
        self.places: tuple[int, ...] = ()
        self.read: dict[int, int] = {}
        self.stalled = False
        self.tasks = [asyncio.create_task(self.edge.run()), asyncio.create_task(self._beat())]
        world.loop.listening[self.port] = lambda: EdgeConnection(self.edge)
        self.assign(())
        self.take_map()

    @property
    def url(self) -> str:
        """What clients dial."""
        return f"ws://127.0.0.1:{self.port}/ws"

    def stop(self) -> None:
        """Die, with all connections."""
        for task in self.tasks:
            task.cancel()
        self.world.loop.end_process(self.port)

    def assign(self, places: Iterable[int]) -> None:
        """Serve these partitions; what is new is caught up with at once."""
        self.places = (*sorted(places), HOT)
        self.server.hello(feed.Hello(SOURCE, [*map(name_of, self.places), MAP]))
        gained = [place for place in self.places if place not in self.read]
        self.read = {place: self.read.get(place, 0) for place in self.places}
        for place in gained:
            self._read(place)
            self.server.caught_up(name_of(place))

    def take_map(self) -> None:
        """Read the map as it is now."""
        changes = changes_of(self.world.map)
        self.server.batch(feed.decode_batch(feed.encode_batch(MAP, len(changes), changes)))
        self.server.caught_up(MAP)

    def take_news(self) -> None:
        """Read what is new in all partitions, unless the bridge hangs."""
        if not self.stalled:
            for place in self.places:
                self._read(place)

    def _read(self, place: int) -> None:
        log = self.world.logs[place]
        fresh = sorted(change for change in log.values() if change.sequence >= self.read[place])
        if fresh:
            self.read[place] = fresh[-1].sequence + 1
            batch = feed.encode_batch(name_of(place), self.read[place], fresh)
            self.server.batch(feed.decode_batch(batch))

    async def _beat(self) -> None:
        while True:
            if not self.stalled:
                self.server.heartbeat()
            self.server.check_liveness()
            await asyncio.sleep(1.0)
            self.clock.advance(1.0)


class World:
    """The group, its log and map, and one client with its application."""

    def __init__(self, loop: VirtualLoop, names: int, limit: int) -> None:
        self.loop = loop
        self.limit = limit
        self.names = [f"/e/{number}" for number in range(names)]
        self.versions = dict.fromkeys(self.names, 0)
        self.logs: dict[int, dict[str, Change]] = {place: {} for place in range(HOT, PARTITIONS + 2)}
        self.written = 0
        self.map = PartitionMap(Head(PARTITIONS, 0))
        self.behind: set[int] = set()
        """Servers that have not read the newest map."""
        self.owners: dict[int, int] = {place: place % SERVERS for place in range(PARTITIONS + 2)}
        self.nodes: dict[int, Node] = {number: Node(self, number) for number in range(SERVERS)}
        self.faults: list[str] = []
        self.share_out()
        self.client = PartitionedClient([f"ws://127.0.0.1:{PORT + number}/ws" for number in range(SERVERS)])
        self.wanted: dict[str, int] = {}
        """Endpoint -> the version that the application holds or was told."""
        self.live: dict[str, bool | None] = {}
        self.ended = False

    # The application

    async def follow(self) -> None:
        """Take what the client says."""
        async for event in self.client:
            self._hear(event)
        self.ended = True

    def _hear(self, event: Event) -> None:
        name = event.endpoint
        if event.kind == "rejected" and name in self.wanted:
            if self.live[name] is not None:
                self.faults.append(f"{name}: was subscribed, and is rejected: {event.message}")
            del self.wanted[name]
        elif event.kind == "status" and name in self.wanted:
            self.live[name] = event.live
        elif event.kind == "update" and name in self.wanted and event.version is not None:
            if event.version <= self.wanted[name]:
                self.faults.append(f"{name}: {event.version} after {self.wanted[name]}")
            self.wanted[name] = event.version

    async def subscribe(self, names: Iterable[str], *, informed: bool) -> None:
        """Subscribe to what is not subscribed; informed: with its data as it is now."""
        known = {name: self.versions[name] if informed else 0 for name in names if name not in self.wanted}
        self.wanted |= known
        self.live.update(dict.fromkeys(known))
        await self.client.subscribe({name: version or None for name, version in known.items()})

    async def unsubscribe(self, names: Iterable[str]) -> None:
        """Unsubscribe from what is subscribed."""
        leaving = [name for name in names if name in self.wanted]
        for name in leaving:
            del self.wanted[name]
        await self.client.unsubscribe(leaving)

    # The publisher and the map

    def publish(self, names: Iterable[str]) -> None:
        """Write a new version of each."""
        for name in names:
            self.versions[name] = FIRST_VERSION + self.written
            for place in self.map.written_to(name.encode()):
                self._write(place, name)
        for node in self.nodes.values():
            node.take_news()

    def _write(self, place: int, name: str) -> None:
        self.written += 1
        version = self.versions[name]
        self.logs[place][name] = Change(self.written, name.encode(), version, 0, encode(name, version, version))

    def advance(self, targets: dict[str, int], late: set[int]) -> None:
        """Take the next step of a move; it begins with ``targets``, if none is under way. ``late`` see it later."""
        self.sync()  # a phase lasts longer than anybody takes to see it
        head = self.map.head
        phase = NEXT_PHASE[head.phase]
        entries = dict(self.map.entries)
        if phase is Phase.PREPARE:
            homes = {name: self.map.home(name.encode()) for name in targets}
            entries |= {n.encode(): Entry(homes[n], target) for n, target in targets.items() if homes[n] != target}
        moving = {name: (e.home, e.target) for name, e in entries.items() if e.target is not None}
        for name, (home, target) in moving.items():
            if phase is Phase.PREPARE and self.versions[name.decode()]:
                self._write(target, name.decode())
            elif phase is Phase.RETIRE:
                self.logs[home].pop(name.decode(), None)
            elif phase is Phase.STABLE:
                entries[name] = Entry(target)
        self.map = PartitionMap(Head(PARTITIONS, head.epoch + 1, phase), entries)
        self.behind = late & self.nodes.keys()
        for number, node in self.nodes.items():
            node.take_news()
            if number not in self.behind:
                node.take_map()

    def sync(self) -> None:
        """Everybody has the newest map."""
        for number in self.behind & self.nodes.keys():
            self.nodes[number].take_map()
        self.behind = set()

    # The group

    def share_out(self, *, hinted: bool = True) -> None:
        """Have the servers serve what the group gave them; hinted: and say where the rest is."""
        for number, node in self.nodes.items():
            if hinted:
                urls = {name_of(place): self.nodes[o].url for place, o in self.owners.items() if o in self.nodes}
                node.server.owners(feed.Owners(urls))
            node.assign(place for place, owner in self.owners.items() if owner == number)

    def rebalance(self, owners: list[int], *, hinted: bool) -> None:
        """Give each partition to another server that is up."""
        up = sorted(self.nodes)
        if up:
            self.owners = {place: up[owner % len(up)] for place, owner in enumerate(owners)}
            self.share_out(hinted=hinted)

    def kill(self, number: int) -> None:
        """End a server."""
        if number in self.nodes:
            self.nodes.pop(number).stop()

    def stall(self, number: int) -> None:
        """Have the bridge of a server hang, or work again."""
        node = self.nodes.get(number)
        if node is not None:
            node.stalled = not node.stalled
            node.take_news()

    def start(self, number: int) -> None:
        """Start a server that is away, empty."""
        if number not in self.nodes:
            self.nodes[number] = Node(self, number)
            self.behind.discard(number)
            self.share_out()

    def cut(self, number: int, code: int) -> None:
        """End the connections of a server; 0 = without a word."""
        node = self.nodes.get(number)
        for connection in list(node.edge.connections) if node else []:
            assert isinstance(connection, EdgeConnection)
            connection.close(code, "retry=2000") if code else connection.abort()

    # At rest

    async def rest(self) -> None:
        """Mend all that is broken, end the move that is under way, and let time pass."""
        for number in range(SERVERS):
            self.start(number)
        self.share_out()
        while self.map.head.phase is not Phase.STABLE:
            self.advance({}, set())
            await asyncio.sleep(30.0)
        self.sync()
        for node in self.nodes.values():
            node.stalled = False
            node.take_news()
        await asyncio.sleep(REST_S)

    async def make_room(self) -> None:
        """Give up half of what is live: what there was no room for takes its places."""
        live = [name for name in sorted(self.wanted) if self.live[name]]
        await self.unsubscribe(live[::2])
        await asyncio.sleep(REST_S)

    def check(self) -> None:
        """Nobody is behind who believes to be live, and everybody is live for whom there is room."""
        assert not self.faults
        assert not self.ended
        for node in self.nodes.values():
            assert not node.edge.closes[Close.RATE]
            assert not node.edge.closes[Close.POLICY_VIOLATION]
        behind = [name for name, version in self.wanted.items() if version < self.versions[name]]
        assert not [name for name in behind if self.live[name]]
        # What is not live has no place where there is room for it.
        room = {number for number, node in self.nodes.items() if self._held(node) < self.limit}
        homes = {name: self.map.home(name.encode()) for name in self.wanted if not self.live[name]}
        assert not [name for name, home in homes.items() if self.owners.get(home, -1) in room]

    @staticmethod
    def _held(node: Node) -> int:
        return max((len(session.endpoints) for session in node.hub.fanout.sessions), default=0)


async def step(world: World, data: st.DataObject) -> None:
    """Do one thing that may happen."""
    kind = data.draw(st.sampled_from(STEPS))
    some = st.sets(st.sampled_from(world.names), min_size=1, max_size=4)
    names = sorted(data.draw(some | st.just(set(world.names)) if kind in {"subscribe", "move"} else some))
    number = data.draw(st.integers(0, SERVERS - 1))
    if kind == "move":
        target = data.draw(st.integers(HOT, PARTITIONS + 1))
        world.advance(dict.fromkeys(names, target), data.draw(st.sets(st.integers(0, SERVERS - 1))))
    elif kind == "rebalance":
        owners = st.lists(st.integers(0, SERVERS - 1), min_size=PARTITIONS + 2, max_size=PARTITIONS + 2)
        world.rebalance(data.draw(owners), hinted=data.draw(st.booleans()))
    elif kind == "cut":
        world.cut(number, data.draw(st.sampled_from([0, 0, Close.RESTART, Close.OVERLOAD, Close.MOVED])))
    elif kind in SERVER_STEPS:
        SERVER_STEPS[kind](world, number)
    else:
        await application_step(world, kind, names, data)


async def application_step(world: World, kind: str, names: list[str], data: st.DataObject) -> None:
    """Do one thing that the application, or a source, may do."""
    if kind == "subscribe":
        await world.subscribe(names, informed=data.draw(st.booleans()))
    elif kind == "unsubscribe":
        await world.unsubscribe(names)
    elif kind == "publish":
        world.publish(names)
    elif kind == "flicker":
        gap_s = data.draw(st.sampled_from([0.0005, 0.03]))
        cut_every = data.draw(st.sampled_from([8, 15, 31]))
        for turn in range(1, data.draw(st.integers(3, 31))):
            if turn % cut_every == 0:
                for number in range(SERVERS):
                    world.cut(number, 0)
            await world.unsubscribe(names)
            await asyncio.sleep(gap_s)
            await world.subscribe(names, informed=True)
            await asyncio.sleep(gap_s)
    elif kind == "wait":
        await asyncio.sleep(data.draw(st.sampled_from([0.0005, 0.002, 0.01, 0.3, 1.5, 6.0, 20.0])))


SERVER_STEPS: Final[dict[str, Callable[[World, int], None]]] = {
    "kill": World.kill,
    "start": World.start,
    "stall": World.stall,
    "sync": lambda world, _number: world.sync(),
}
STEPS: Final = [
    *["subscribe", "publish", "wait", "move", "rebalance"] * 2,
    *["unsubscribe", "sync", "cut", "kill", "start", "stall", "flicker"],
]


def walk(data: st.DataObject, *, names: int, limit: int, steps: int) -> None:
    """Walk, rest, and look."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, names, limit)
        async with world.client:
            following = asyncio.create_task(world.follow())
            for _ in range(data.draw(st.integers(1, steps))):
                await step(world, data)
            await world.rest()
            world.check()
            await world.make_room()
            world.check()
            following.cancel()
        for node in list(world.nodes.values()):
            node.stop()
        await asyncio.sleep(1.0)

    run_virtual(main)


@walk_settings(examples=20)
@given(data=st.data(), limit=st.sampled_from([3, 5, 100]))
def test_nobody_is_behind_who_believes_to_be_live(data: st.DataObject, limit: int) -> None:
    walk(data, names=6, limit=limit, steps=40)


@walk_settings(examples=4)
@given(data=st.data(), limit=st.sampled_from([128, 1024]))
def test_nor_with_more_subscriptions_than_one_server_takes(data: st.DataObject, limit: int) -> None:
    walk(data, names=200, limit=limit, steps=20)
