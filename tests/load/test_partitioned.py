import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from time import monotonic
from typing import Any

import httpx
import orjson
import pytest
from websockets.asyncio.server import Server as Listener
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from diem.links.client.backoff import ReconnectBackoff
from diem.protocol import messages
from diem.protocol.update import encode
from tests.load.locator import Locator
from tests.load.partitioned import PartitionedLoadClient
from tests.load.routes import MAX_HOPS
from tests.oracle import Accepted, Event, History, Kind, judge
from tests.support.patience import PATIENCE_S

V = 1_700_000_000_000


class Owner:
    """A scripted server of a group."""

    def __init__(self, *names: str) -> None:
        self.names = {*names, "/hot"}
        self.next: str | None = None
        """The owner that it names for other endpoints."""
        self.asked: list[str] = []
        self.left: list[str] = []
        self.connections: set[ServerConnection] = set()
        self.url = ""

    async def serve(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        try:
            await self._send(connection, {"type": "welcome", "limits": {}})
            async for text in connection:
                await self._answer(connection, orjson.loads(text))
        finally:
            self.connections.discard(connection)

    async def send(self, message: dict[str, Any]) -> None:
        for connection in self.connections:
            await self._send(connection, message)

    async def update(self, name: str, version: int) -> None:
        for connection in self.connections:
            await connection.send(encode(name, version, version), text=True)

    async def cut(self) -> None:
        for connection in self.connections:
            connection.transport.abort()

    async def _answer(self, connection: ServerConnection, request: dict[str, Any]) -> None:
        names = list(request["endpoints"])
        if request["type"] == "unsubscribe":
            self.left += names
            await self._send(connection, {"type": "unsubscribed", "id": request["id"], "endpoints": names})
            return
        self.asked += names
        why = {"code": "not_owner", "message": "no"} | ({"owner": self.next} if self.next else {})
        registered = {name: None for name in names if name in self.names}
        rejected = {name: why for name in names if name not in self.names}
        answer = {"type": "subscribed", "id": request["id"], "endpoints": registered, "rejected": rejected}
        await self._send(connection, answer)

    async def _send(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send(orjson.dumps(message), text=True)


class Group:
    """Two servers, and a scripted metadata service."""

    def __init__(self) -> None:
        self.one, self.two = Owner("/a", "/b"), Owner("/c")
        self.owners: dict[str, Owner | None] = {"/a": self.one, "/b": self.one, "/c": self.two}
        self.hot: set[str] = set()
        self.answers = True
        self.questions: list[dict[str, Any]] = []
        self.moves: list[int] = []
        """Number of moves before each request."""
        self.client: PartitionedLoadClient
        self._versions: list[Accepted] = []

    def locate(self, request: httpx.Request) -> httpx.Response:
        if not self.answers:
            return httpx.Response(503)
        self.questions.append(orjson.loads(request.content))
        self.moves.append(self.client.moves)
        places = {name: self._place(name) for name in self.questions[-1]["endpoints"]}
        servers = [self.two.url, self.one.url]
        return httpx.Response(200, json={"clone": 2, "epoch": 0, "endpoints": places, "servers": servers})

    def _place(self, name: str) -> dict[str, Any]:
        if name in self.hot:
            return {"owner": None, "hot": True}
        owner = self.owners.get(name)
        return {"owner": owner.url if owner else None}

    async def update(self, owner: Owner, name: str) -> int:
        """Accept a change, and announce it by a server."""
        version = V + len(self._versions) + 1
        self._versions.append(Accepted(name, version, monotonic()))
        await owner.update(name, version)
        await until(lambda: self.client.level(name.encode()) == version)
        return version

    def events(self, *kinds: Kind) -> list[Event]:
        return [event for event in self.client.events() if event.kind in kinds]

    def judged_clean(self) -> bool:
        return judge(History(self._versions, {"1": self.client.events()}, monotonic())).clean


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*wants: str, hot: str = "") -> AsyncIterator[Group]:
    group = Group()
    group.hot = {hot}
    async with listening(group.one), listening(group.two):
        http = httpx.AsyncClient(transport=httpx.MockTransport(group.locate), base_url="http://metadata/v1/")
        async with http:
            group.client = PartitionedLoadClient("1", "127.0.0.9", Locator(http), list(wants), Random(1))
            group.client.start(0)
            await until(lambda: group.client.connected)
            yield group
            group.client.leave()
            await until(lambda: not group.client.links)


@asynccontextmanager
async def listening(owner: Owner) -> AsyncIterator[Listener]:
    async with serve(owner.serve, "127.0.0.1", 0, subprotocols=[Subprotocol(messages.SUBPROTOCOL)]) as listener:
        owner.url = f"ws://127.0.0.1:{next(iter(listener.sockets)).getsockname()[1]}/ws"
        yield listener


async def test_client_has_one_connection_for_each_owner_and_is_told_on_all() -> None:
    async with running("/a", "/b", "/c") as group:
        assert (sorted(group.one.asked), group.two.asked) == (["/a", "/b"], ["/c"])
        await group.update(group.one, "/a")
        await group.update(group.two, "/c")
        assert len(group.client.links) == 2
        assert len({event.link for event in group.events(Kind.UPDATE)}) == 2
        assert group.judged_clean()


async def test_all_connections_of_a_client_are_known_as_those_of_one() -> None:
    async with running("/a", "/c") as group:
        requests = [connection.request for owner in (group.one, group.two) for connection in owner.connections]
        assert [request and request.path for request in requests] == ["/ws?client=load-client-1"] * 2


async def test_client_keeps_the_clone_that_it_was_given() -> None:
    async with running("/a") as group:
        assert "clone" not in group.questions[0]
        group.client.swap("/a", "/c")
        await until(lambda: group.client.connected)
        assert group.questions[1] == {"endpoints": ["/c"], "clone": 2}
        await until(lambda: group.one.left == ["/a"])


async def test_moved_endpoint_is_subscribed_at_its_new_owner_before_it_is_left() -> None:
    async with running("/a", "/c") as group:
        group.two.names.add("/a")
        await group.one.send({"type": "moved", "endpoints": ["/a"], "owner": group.two.url})
        await until(lambda: group.one.left == ["/a"])
        assert group.two.asked == ["/c", "/a"]
        await group.update(group.two, "/a")
        kinds = [
            (event.kind, event.code) for event in group.events(Kind.MOVED, Kind.SUBSCRIBED) if event.endpoint == "/a"
        ]
        assert kinds == [(Kind.SUBSCRIBED, 0), (Kind.MOVED, 1), (Kind.SUBSCRIBED, 0), (Kind.MOVED, 0)]
        assert group.judged_clean()


async def test_moved_endpoint_without_a_new_owner_is_located() -> None:
    async with running("/a", "/c") as group:
        group.two.names.add("/a")
        group.owners["/a"] = group.two
        await group.one.send({"type": "moved", "endpoints": ["/a"]})
        await until(lambda: group.one.left == ["/a"])
        assert group.client.connected


async def test_hops_are_followed_three_times_and_then_with_back_off() -> None:
    async with running("/a", "/c") as group:
        group.one.names.discard("/a")
        group.one.next, group.two.next = group.two.url, group.one.url
        asked = len(group.questions)
        await group.one.send({"type": "moved", "endpoints": ["/a"], "owner": group.two.url})
        await until(lambda: len(group.questions) > asked)
        # The first move, and those that were followed after it.
        assert group.moves[asked] == MAX_HOPS + 1
        group.one.names.add("/a")
        await until(lambda: group.client.connected)
        assert group.judged_clean()


async def test_lost_connection_is_made_again_and_leaves_the_others_alone() -> None:
    async with running("/a", "/c") as group:
        asked = len(group.questions)
        await group.one.cut()
        await until(lambda: not group.client.connected)
        await until(lambda: group.client.connected)
        assert group.questions[asked]["endpoints"] == ["/a"]
        assert group.two.asked == ["/c"]
        assert [event.code for event in group.events(Kind.CLOSE)] == [1006]


async def test_lost_connection_goes_where_it_was_while_nobody_knows_better() -> None:
    async with running("/a", "/c") as group:
        group.answers = False
        await group.one.cut()
        await until(lambda: not group.client.connected)
        await until(lambda: group.client.connected)
        assert group.one.asked == ["/a", "/a"]


async def test_lost_connection_is_not_made_again_where_nothing_is_wanted_any_more() -> None:
    async with running("/a", "/c") as group:
        group.two.names.add("/a")
        group.owners["/a"] = group.two
        await group.one.cut()
        await until(lambda: group.two.asked == ["/c", "/a"])
        await until(lambda: group.client.connected)
        assert group.one.asked == ["/a"]


@pytest.mark.parametrize("moves", [True, False])
async def test_server_that_is_not_live_is_doubted_and_left_only_for_another_owner(*, moves: bool) -> None:
    async with running("/a", "/c") as group:
        if moves:
            group.two.names.add("/a")
            group.owners["/a"] = group.two
        await group.one.send({"type": "status", "live": False})
        await until(lambda: not group.client.live)
        asked = len(group.questions)
        now = monotonic()
        group.client.check(now)
        group.client.check(now + 4.9)
        assert group.questions[asked:] == []
        group.client.check(now + 10.1)
        await until(lambda: group.questions[asked:] == [{"endpoints": ["/a"], "clone": 2}])
        await until(lambda: group.client.connected and group.client.live is moves)
        # Leaving comes after the new owner's answer, and reaches the old one later still.
        await until(lambda: group.one.left == (["/a"] if moves else []))


async def test_connection_that_nothing_needs_is_closed_after_a_while() -> None:
    async with running("/a", "/c") as group:
        group.client.swap("/a", "/c2")
        group.two.names.add("/c2")
        group.owners["/c2"] = group.two
        await until(lambda: group.client.connected)
        group.client.check(monotonic())
        assert len(group.client.links) == 2
        group.client.check(monotonic() + 5.1)
        await until(lambda: len(group.client.links) == 1)


async def test_hot_endpoint_goes_to_a_server_that_is_connected_already() -> None:
    async with running("/a", "/hot", hot="/hot") as group:
        await until(lambda: sorted(group.one.asked) == ["/a", "/hot"])
        assert group.two.asked == []


async def test_refusal_of_another_kind_is_unexpected() -> None:
    async with running("/a") as group:
        await group.one.send({"type": "error", "id": 1, "code": "rate", "message": "no"})
        await until(lambda: group.client.unexpected)


async def test_server_that_is_named_again_is_dialled_at_once_and_not_after_its_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running("/a", "/c") as group:
        with monkeypatch.context() as patched:
            patched.setattr(ReconnectBackoff, "delay_s", lambda *_: 3600.0)
            await group.one.cut()
            await until(lambda: not group.client.connected)
        group.one.names.add("/c")
        await group.two.send({"type": "moved", "endpoints": ["/c"], "owner": group.one.url})
        await until(lambda: group.client.connected)
        assert sorted(group.one.asked) == ["/a", "/a", "/c"]
