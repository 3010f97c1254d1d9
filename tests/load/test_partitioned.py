"""The history of a client with a connection to each owner; where it connects is tested with the Python client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from time import monotonic
from typing import Any

import httpx
import orjson

from tests.load.client import PartitionedLoadClient
from tests.load.locator import Locator
from tests.oracle import Accepted, Event, History, Kind, judge
from tests.support.patience import until
from tests.unit.diem.client.fakes import Deployment, FakeServer, deployed

V = 1_700_000_000_000


class Group:
    """Servers, a metadata service, and a client of ``/a``, which the first server has, and ``/c``, the third one's."""

    def __init__(self, servers: Deployment) -> None:
        self.servers = servers
        self.a, self.b, self.c = servers.servers
        servers.own(a=self.a, c=self.c)
        self.owners = {"/a": self.a, "/c": self.c}
        """What the metadata service answers; no owners: it is down."""
        self.forbidden: set[str] = set()
        """Endpoints that the client has no right to."""
        self.questions: list[dict[str, Any]] = []
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._locate), base_url="http://metadata/v1/")
        self.locator = Locator(http)
        wants = ["/a", "/c"]
        self.client = PartitionedLoadClient("1", "127.0.0.9", [self.b.url], wants, Random(1), locator=self.locator)
        self.accepted: list[Accepted] = []

    def _locate(self, request: httpx.Request) -> httpx.Response:
        self.questions.append(orjson.loads(request.content))
        asked = self.questions[-1]["endpoints"]
        found = {name: self.owners.get(name) for name in asked if name not in self.forbidden}
        places = {name: {"owner": server and server.url} for name, server in found.items()}
        rejected = {name: {"code": "forbidden", "message": "not covered"} for name in self.forbidden & {*asked}}
        body = {"clone": 2, "endpoints": places, **({"rejected": rejected} if rejected else {})}
        return httpx.Response(200 if self.owners else 503, json=body)

    async def update(self, server: FakeServer, name: str) -> None:
        """Accept a change, and announce it by a server."""
        version = V + len(self.accepted) + 1
        self.accepted.append(Accepted(name, version, monotonic()))
        await server.update(name, version)
        await until(lambda: self.client.level(name.encode()) == version)

    def events(self, *kinds: Kind) -> list[Event]:
        return [event for event in self.client.events() if event.kind in kinds]

    def judged_clean(self) -> bool:
        return judge(History(self.accepted, {"1": self.client.events()}, monotonic())).clean


@asynccontextmanager
async def running() -> AsyncIterator[Group]:
    async with deployed() as servers:
        group = Group(servers)
        group.client.start(0)
        await until(lambda: group.client.connected and group.client.live)
        yield group
        group.client.leave()
        await until(lambda: not group.client.links)
        assert group.client.unexpected == []


async def test_updates_are_recorded_with_the_connection_on_which_they_came() -> None:
    async with running() as group:
        await group.update(group.a, "/a")
        await group.update(group.c, "/c")
        assert len({event.link for event in group.events(Kind.UPDATE)}) == len(group.client.links) == 2
        assert group.judged_clean()


async def test_owners_are_located_with_one_request_and_in_the_clone_that_the_first_answer_chose() -> None:
    async with running() as group:
        assert [sorted(question.pop("endpoints")) for question in group.questions] == [["/a", "/c"]]
        # Its URL was never dialled.
        assert group.b.dials == 0
        group.owners["/d"] = group.b
        group.servers.own(d=group.b)
        await group.client.swap("/c", "/d")
        await until(lambda: group.client.connected)
        assert group.questions == [{}, {"endpoints": ["/d"], "clone": 2}]


async def test_servers_are_asked_while_the_metadata_service_does_not_answer() -> None:
    async with running() as group:
        group.owners.clear()
        group.servers.own(d=group.b)
        await group.client.swap("/c", "/d")
        await until(lambda: group.client.connected)
        assert (group.locator.failed > 0, "/d" in group.b.held) == (True, True)


async def test_endpoint_that_moves_is_recorded_when_the_server_says_so_and_when_it_is_left_there() -> None:
    async with running() as group:
        group.servers.own(a=group.c)
        await group.a.moved(["/a"], group.c.url)
        await until(lambda: not group.a.held)
        await group.update(group.c, "/a")
        kinds = [(event.kind, event.code) for event in group.events(Kind.MOVED, Kind.SUBSCRIBED) if "/a" in event]
        assert kinds == [(Kind.SUBSCRIBED, 0), (Kind.MOVED, 1), (Kind.SUBSCRIBED, 0), (Kind.MOVED, 0)]
        assert (group.client.connected, group.client.live, group.client.moves) == (True, True, 1)
        assert group.judged_clean()


async def test_lost_connection_is_recorded_and_made_again_and_an_endpoint_that_is_not_live_is_known() -> None:
    async with running() as group:
        before = len(group.client.links)
        await group.a.status(live=False, names=["/a"])
        await until(lambda: not group.client.live)
        group.client.drop()
        await until(lambda: not group.client.connected)
        await until(lambda: group.client.connected and group.client.live)
        assert [event.code for event in group.events(Kind.CLOSE)] == [1006] * before


async def test_refusals_are_unexpected_but_those_of_a_server_that_is_no_owner() -> None:
    async with running() as group:
        group.owners["/b"] = group.b
        group.servers.own(b=group.c)
        await group.client.add("/b")
        await until(lambda: group.client.connected)
        assert (group.client.moves, group.client.unexpected) == (1, [])
        group.servers.own(e=group.c)
        group.c.forbidden.add("/e")
        group.owners["/e"] = group.c
        await group.client.add("/e")
        await group.a.send({"type": "error", "id": None, "code": "rate", "message": "no"})
        await until(lambda: len(group.client.unexpected) == 2)
        group.client.unexpected.clear()


async def test_endpoint_without_the_right_is_refused_by_the_metadata_service_and_the_others_go_on() -> None:
    async with running() as group:
        group.client.start(0)
        await until(lambda: group.client.connected)
        group.forbidden = {"/b"}
        await group.client.attempt("/b")
        await until(lambda: group.client.forbidden)
        await group.update(group.a, "/a")
        assert not group.client.unexpected
        group.forbidden = {"/d"}
        await group.client.subscribe({"/d": None})
        await until(lambda: group.client.unexpected)
        assert group.client.forbidden == 1
        group.client.unexpected.clear()
