"""The library against a real server, with a configuration and data as the Data Service answers them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from diem.client import Client, ConnectionLost, DataMissing, Rejected, ServiceProblem, Update
from diem.client.backoff import Timing
from diem.errors import ConfigurationError, DiemError
from diem.protocol.endpoints import BadName
from diem.protocol.media_types import COLLECTION
from diem.protocol.update import Change, encode
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.small import MemoryFeed, System, small_system
from tests.unit.diem.client.fakes import FakeServer
from tests.unit.diem.links.test_http_server import serving

ROOT = Path(__file__).parents[4]
QUICK = Timing(base_s=0.01, cap_s=0.02)


class Deployed(NamedTuple):
    system: System
    url: str
    bearers: list[str | None]
    """Of requests for data."""

    def client(self, **options: Any) -> Client:
        return Client(self.url, timing=QUICK, **options)


@asynccontextmanager
async def deployed(directory: Path, **settings: Any) -> AsyncIterator[Deployed]:
    async with small_system(directory, **settings) as system:
        bearers: list[str | None] = []

        def data(request: Request) -> Response:
            bearers.append(request.headers.get("Authorization"))
            held = system.feed.changes.get(request.url.path.removeprefix("/v1/data").encode())
            if held is None:
                return JSONResponse({"detail": "there is no endpoint"}, 404)
            return JSONResponse({"fetched": held.version}, headers={"Diem-Version": str(held.version)})

        config = {"mode": "single", "servers": [{"url": system.url}], "rest": "/v1"}
        routes = [
            Route("/config.json", lambda _: JSONResponse(config)),
            Route("/v1/tokens", lambda _: JSONResponse({"detail": "unknown key"}, 401), methods=["POST"]),
            Route("/v1/data/{name:path}", data),
        ]
        async with serving(Starlette(routes=routes)) as port:
            yield Deployed(system, f"http://127.0.0.1:{port}", bearers)


async def first(updates: AsyncIterator[Update]) -> Update:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(updates)


def put_collection(feed: MemoryFeed, name: str, *members: str) -> None:
    feed.clock += 1
    body = orjson.dumps({"endpoint": name, "version": feed.clock, "members": list(members)})
    data = body + b',"media_type":"%b"' % COLLECTION.encode()
    value = encode(name, feed.clock, feed.clock, data=data)
    feed.changes.apply(Change(feed.changes.sequence + 1, name.encode(), feed.clock, 0, value))
    feed.server.changed()


async def test_a_watch_yields_each_version_with_data_from_updates_or_fetched(
    tmp_path: Path,
) -> None:
    async with deployed(tmp_path) as deployment, deployment.client() as client:
        feed = deployment.system.feed
        one = feed.put("/a", size=2, media_type="application/json")
        async with aclosing(client.watch("/a", "/b")) as updates:
            found = await first(updates)
            assert (found.endpoint, found.version, found.data, found.live) == (
                "/a",
                one,
                {"version": one, "text": "xx"},
                True,
            )
            two = feed.put("/b")
            found = await first(updates)
            assert (found.endpoint, found.version, found.data) == ("/b", two, {"fetched": two})
            three = feed.put("/a", gone=True)
            found = await first(updates)
            assert (found.version, found.gone, found.data) == (three, True, None)


async def test_iterations_share_a_subscription_and_break_ends_it(tmp_path: Path) -> None:
    async with deployed(tmp_path) as deployment, deployment.client() as client:
        version = deployment.system.feed.put("/a", size=1, media_type="application/json")
        async with aclosing(client.watch("/a")) as one:
            assert (await first(one)).version == version
            async with aclosing(client.watch("/a")) as two:
                assert (await first(two)).version == version
            later = deployment.system.feed.put("/a", size=1, media_type="application/json")
            assert (await first(one)).version == later
        assert client._latest == {}
        async with aclosing(client.watch("/a")) as again:
            assert (await first(again)).version == later


async def test_a_slow_iteration_gets_the_latest_version(tmp_path: Path) -> None:
    async with deployed(tmp_path) as deployment, deployment.client() as client:
        feed = deployment.system.feed
        feed.put("/a", size=1, media_type="application/json")
        async with aclosing(client.watch("/a")) as updates:
            await first(updates)
            for _ in range(20):
                last = feed.put("/a", size=1, media_type="application/json")
                await asyncio.sleep(0)
            await until(lambda: client._latest["/a"].version == last)
            assert (await first(updates)).version == last


async def test_a_lost_connection_is_a_problem_and_no_longer_live_and_the_watch_goes_on_after_it() -> None:
    problems: list[DiemError] = []
    server = await FakeServer().start()
    held = {"Diem-Version": "5"}
    config = {"mode": "single", "servers": [{"url": server.url}], "rest": "/v1"}
    routes = [
        Route("/config.json", lambda _: JSONResponse(config)),
        Route("/v1/data/a", lambda _: JSONResponse({}, headers=held)),
    ]
    async with serving(Starlette(routes=routes)) as port:
        url = f"http://127.0.0.1:{port}/"
        async with Client(url, timing=QUICK, on_problem=problems.append) as client:
            updates = client.watch("/a", liveness=True)
            task = asyncio.create_task(first(updates))
            await until(lambda: server.held == {"/a"})
            await server.status(live=True)
            await server.update("/a", 5)
            assert (await task)[:2] == ("/a", 5)
            while not client.is_live("/a"):
                await first(updates)
            await server.stop()
            while (found := await first(updates)).live:
                pass
            assert found.version == 5
            assert any(isinstance(problem, ConnectionLost) for problem in problems)
            await server.start()
            await until(lambda: server.held == {"/a"})
            await server.status(live=True)
            held["Diem-Version"] = "6"
            await server.update("/a", 6)
            while (found := await first(updates)).version < 6:
                pass
            await updates.aclose()
    await server.stop()


async def test_a_collection_yields_its_members_as_they_come_and_go(tmp_path: Path) -> None:
    async with deployed(tmp_path) as deployment, deployment.client() as client:
        feed = deployment.system.feed
        feed.put("/g/1", "/g/2", size=1, media_type="application/json")
        put_collection(feed, "/g/", "/g/1", "/g/sub/")
        async with aclosing(client.watch_collection("/g/")) as updates:
            assert (await first(updates)).endpoint == "/g/1"
            put_collection(feed, "/g/", "/g/1", "/g/2")
            assert (await first(updates)).endpoint == "/g/2"
            put_collection(feed, "/g/", "/g/2")
            found = await first(updates)
            assert (found.endpoint, found.gone) == ("/g/1", True)


async def test_a_rejected_endpoint_ends_its_iteration_alone(tmp_path: Path) -> None:
    async with deployed(tmp_path, subscriptions=1) as deployment, deployment.client() as client:
        deployment.system.feed.put("/a", size=1, media_type="application/json")
        async with aclosing(client.watch("/a")) as updates:
            await first(updates)
            with pytest.raises(Rejected, match=r"/b: limit: .*subscriptions"):
                await first(client.watch("/b"))
            later = deployment.system.feed.put("/a", size=1, media_type="application/json")
            assert (await first(updates)).version == later


async def test_get_returns_the_current_version_with_the_key_and_names_what_is_missing(tmp_path: Path) -> None:
    async with deployed(tmp_path) as deployment, deployment.client(api_key="diem_1") as client:
        version = deployment.system.feed.put("/a")
        assert (await client.get("/a"))[:3] == ("/a", version, {"fetched": version})
        assert deployment.bearers == ["Bearer diem_1"]
        with pytest.raises(DataMissing, match="/b has no data"):
            await client.get("/b")


async def test_a_deployment_that_is_down_at_first_is_tried_again(tmp_path: Path) -> None:
    problems: list[DiemError] = []
    async with Client(f"http://127.0.0.1:{free_port()}", timing=QUICK, on_problem=problems.append):
        await until(lambda: len(problems) > 1)
    assert {type(problem).__name__ for problem in problems} == {"Unreachable"}
    assert problems[0].retriable
    assert not isinstance(problems[0], ServiceProblem)


@pytest.mark.parametrize("url", ["localhost:8080", "ws://localhost/ws", "http:///"])
def test_an_address_of_no_deployment_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://localhost:8080"):
        Client(url)


def test_a_bad_name_is_refused_when_it_is_watched() -> None:
    client = Client("http://localhost")
    with pytest.raises(BadName):
        client.watch("load")
    with pytest.raises(ConfigurationError, match="did you mean /load/"):
        client.watch_collection("/load")


def test_the_client_imports_three_libraries() -> None:
    code = (
        "import sys, diem.client\n"
        "site = {name.partition('.')[0] for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')}\n"
        "print(*sorted(site - {'_distutils_hack'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["h11", "orjson", "websockets"]
