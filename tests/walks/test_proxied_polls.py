"""Clients that poll at a proxy while endpoints move, partitions go to other servers, and links are lost.

The servers, the proxy and its other clients are those of ``proxying``; edge and requests are the real ones, as in
``test_polls``. At rest no poll waits for what there is, each has the latest versions, and nothing is left of them.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules
from diem.links.http_updates import UpdatesConnection
from diem.links.shared_polls import KEPT_S
from tests.walks import walk_settings
from tests.walks.proxying import NAMES, Cluster, Walk, hints, walks
from tests.walks.test_polls import Loop, Transport

pytestmark = pytest.mark.usefixtures("silent_log")

POLLERS: Final = 3
LONGEST_S: Final = 25


class Poller:
    """A client with one poll at a time, which fetches what it is told to fetch."""

    def __init__(self, cluster: Cluster, edge: Edge, loop: Loop) -> None:
        self.known: dict[str, int] = {}
        self._cluster = cluster
        self._edge = edge
        self._loop = loop
        self._until = 0.0
        """When its poll may be answered without news."""
        self._told: dict[str, Any] = {"live": True, "stale": [], "resynced": []}
        """What it states of the last answers."""
        self.names: list[str] = []
        self._poll: tuple[UpdatesConnection, Transport] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._poll is not None

    def start(self, names: list[str], wait: int) -> None:
        self.leave()
        self.names = names
        connection, transport = UpdatesConnection(self._edge, None), Transport()
        connection.connection_made(transport)
        self._poll = connection, transport
        self._until = self._loop.time() + wait
        stated = {key: each if key == "live" else sorted({*each} & {*names}) for key, each in self._told.items()}
        body = orjson.dumps({"endpoints": {name: self.known.get(name, 0) for name in names}, "wait": wait, **stated})
        head = b"POST /v1/updates HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.data_received(head + body)

    def leave(self) -> None:
        if self._poll is not None:
            self._poll[0].connection_lost(None)
            self._poll = None

    def receive(self) -> None:
        """Apply and check the answer, if there is one."""
        if self._poll is None or not self._poll[1].written:
            return
        head, _, body = self._poll[1].written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        self.leave()
        is_news = self._loop.time() >= self._until
        held: dict[str, int] = {}
        """Endpoint -> the lesser of the version that it had and the stated one."""
        newest: dict[str, int] = {}
        stale: set[str] = set()
        resynced = {*self._told["resynced"]}
        for message in orjson.loads(body)["messages"]:
            match message["type"]:
                case "subscribed":
                    assert held.keys().isdisjoint(message["endpoints"]), "answered twice"
                    for name, version in message["endpoints"].items():
                        held[name] = min(version or 0, self.known.get(name, 0))
                case "update":
                    name, version = message["endpoint"], message["version"]
                    is_news = is_news or version > held[name]
                    assert newest.get(name, 0) < version <= self._cluster.latest[name]
                    newest[name] = version
                    self.known[name] = max(version, self.known.get(name, 0))
                    resynced.discard(name)
                case "resync":
                    is_news = True
                    resynced.update(message["endpoints"])
                    self.known.update({name: self._cluster.latest[name] for name in message["endpoints"]})
                case "status" if "endpoints" in message:
                    (stale.difference_update if message["live"] else stale.update)(message["endpoints"])
        assert is_news or stale != {*self._told["stale"]}, "answered without news"
        self._told |= {"stale": stale, "resynced": resynced}


class PolledWalk(Walk):
    """A walk with clients of both kinds."""

    def __init__(self, cluster: Cluster, loop: Loop) -> None:
        admission = Admission(AdmissionRules(page_port=8000, limit_loopback=False))
        edge = Edge(cluster.fanout, admission, EdgeRules("proxy-1", "z-proxy"), cluster.shared)
        edge.ready = True
        edge.publish_status(live=True, since="-")
        super().__init__(cluster, clients=1)
        self.pollers = [Poller(cluster, edge, loop) for _ in range(POLLERS)]
        self._edge = edge
        self._loop = loop

    def poll(self, number: int, names: list[str], wait: int) -> None:
        self.pollers[number].start(names, wait)

    def abandon(self, number: int) -> None:
        self.pollers[number].leave()

    async def walk(self, steps: Iterable[tuple[Any, ...]]) -> None:
        for kind, *arguments in steps:
            getattr(self, kind)(*arguments)
            await self._turn()
        for client in self.clients:
            client.read_on()
        await self._rest()
        await self._follow()
        for name in NAMES:
            self.put(name)
        await self._rest()
        assert not any(poller.is_waiting for poller in self.pollers), "there is news"
        await self._follow()
        await self._leave()
        # The proxy subscribes anew.
        await self._follow()
        await self._leave()
        assert len(self._edge.polls) == 0
        assert not self._edge.connections
        self.end()

    async def _follow(self) -> None:
        """Poll until there is nothing new, which must be soon."""
        for _ in range(3):
            for poller in self.pollers:
                if not poller.is_waiting or poller.names != NAMES:
                    poller.start(NAMES, LONGEST_S)
            await self._rest()
        for poller in self.pollers:
            assert poller.is_waiting, "answered again and again"
            assert poller.known == self.cluster.latest, "behind, and waiting"

    async def _leave(self) -> None:
        """Go, for so long that nothing is kept."""
        for poller in self.pollers:
            poller.leave()
        self.cluster.advance(KEPT_S)
        await self._turn()

    async def _turn(self) -> None:
        """Let what is due on the loop happen."""
        self._loop.now = self.cluster.clock.monotonic()
        for _ in range(4):
            await asyncio.sleep(0)
        for poller in self.pollers:
            poller.receive()

    async def _rest(self) -> None:
        """Let everything come to rest, but no wait of a poll end."""
        self.cluster.settle()
        await self._turn()
        self.cluster.advance(0.5)
        await self._turn()


_POLLS: Final = st.one_of(
    st.tuples(
        st.just("poll"),
        st.integers(0, POLLERS - 1),
        st.sampled_from([NAMES[:1], NAMES[:2], NAMES]),
        st.sampled_from([0, LONGEST_S, LONGEST_S]),
    ),
    st.tuples(st.just("abandon"), st.integers(0, POLLERS - 1)),
)


@st.composite
def polled_walks(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps of a walk with polls between."""
    steps = draw(walks())
    for place, step in draw(st.lists(st.tuples(st.integers(0, 70), _POLLS), min_size=5, max_size=40)):
        steps.insert(place, step)
    return steps


@walk_settings(examples=30)
@given(steps=polled_walks(), named=hints)
def test_whoever_polls_at_a_proxy_is_current_when_all_is_at_rest(steps: list[tuple[Any, ...]], named: str) -> None:
    loop = Loop()

    async def walk() -> None:
        await PolledWalk(Cluster(named), loop).walk(steps)

    try:
        loop.run_until_complete(walk())
    finally:
        loop.close()
