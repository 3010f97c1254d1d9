"""The phases of a load test, with clients that are scripted."""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import httpx
import pytest

from deploy.clients.data_service import DataService, DataServiceUnavailable
from deploy.clients.updates import Credentials
from deploy.terminal import Terminal
from diem.client import Event, TokenFunction
from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S
from tests.unit.deploy.clients.test_data_service import Server
from tools.load import run as module
from tools.load.run import LoadOptions, LoadRun, LoadTest


class Client:
    """A client that is sent the version of a script for every endpoint, once it has subscribed."""

    made: list["Client"]

    def __init__(self, token: TokenFunction | None) -> None:
        self.token = token
        self.received_bytes = 0
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.held: dict[str, int] = {}
        Client.made.append(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def subscribe(self, known: Mapping[str, int | None]) -> None:
        for name in known:
            self.events.put_nowait(Event("subscribed", name, 1))

    def update(self, name: str, version: int) -> None:
        self.held[name] = version
        self.received_bytes += 100
        self.events.put_nowait(Event("update", name, version))

    def known(self, name: str) -> int | None:
        return self.held.get(name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.events.get()


class Service(DataService):
    """A Data Service with one endpoint, whose later catalogues have what is set."""

    __slots__ = ()
    versions_now: dict[str, int] | None = None
    versions_then: dict[str, int] | None = None
    """Of the catalogues after the next one; None: the same."""

    async def json(self, path: str, key: SharedKey | None = None) -> dict[str, Any]:
        if path == "/config.json":
            return {"servers": [{"port": 1, "path": "/ws"}]}
        if Service.versions_now is None:
            raise DataServiceUnavailable(self.base, "gone for lunch")
        versions, Service.versions_now = Service.versions_now, Service.versions_then or Service.versions_now
        return {"endpoints": [{"endpoint": name, "version": v} for name, v in versions.items()]}

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return httpx.Response(200)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    Client.made = []
    Service.versions_now, Service.versions_then = {"/a": 1}, None
    monkeypatch.setattr(module, "CATALOGUE_AGE_S", 0.0)
    monkeypatch.setattr(module, "client_of", lambda _edges, _origin, token, _tls, **_options: Client(token))


async def finish(
    test: LoadTest,
    stopping: asyncio.Event,
    sent: Sequence[int],
    latest: dict[str, int] | None,
    then: dict[str, int] | None = None,
) -> LoadRun:
    """Run a test of as many clients as versions are sent; the catalogue ends with ``latest``, and then has ``then``."""
    running = asyncio.create_task(test.run(stopping))
    async with asyncio.timeout(PATIENCE_S):
        while len(Client.made) < len(sent):
            await asyncio.sleep(0.01)
    Service.versions_now, Service.versions_then = latest, then
    for client, version in zip(Client.made, sent, strict=True):
        client.update("/a", version)
    async with asyncio.timeout(PATIENCE_S):
        return await running


def options(clients: int = 2, **more: Any) -> LoadOptions:
    return LoadOptions(clients=clients, subscriptions=1, seconds=0.05, rate=1000, wait_s=0, **more)


def load_test(wanted: LoadOptions) -> LoadTest:
    return LoadTest(Service("http://127.0.0.1:1"), wanted, Terminal(quiet=True))


async def test_clients_with_the_versions_of_the_catalogue_pass() -> None:
    outcome = await finish(load_test(options()), asyncio.Event(), [5, 6], {"/a": 5}, {"/a": 6})
    assert outcome.result().passed, "others write meanwhile"
    assert outcome.completeness is not None
    assert (outcome.completeness.checked, outcome.subscribed) == (2, 2)
    assert outcome.measured_s >= 0.05


async def test_a_client_with_an_earlier_version_fails() -> None:
    outcome = await finish(load_test(options()), asyncio.Event(), [5, 4], {"/a": 5})
    assert outcome.completeness is not None
    assert (outcome.completeness.missed, outcome.result().passed) == (1, False)


async def test_a_client_with_a_version_that_the_store_does_not_have_fails() -> None:
    outcome = await finish(load_test(options()), asyncio.Event(), [5, 7], {"/a": 5}, {"/a": 6})
    assert outcome.completeness is not None
    assert (outcome.completeness.missed, outcome.result().passed) == (0, False)
    assert outcome.completeness.ahead == [(2, "/a", 7, 6)]


async def test_without_a_catalogue_at_the_end_nothing_is_claimed() -> None:
    outcome = await finish(load_test(options()), asyncio.Event(), [5, 5], None)
    assert (outcome.completeness, outcome.result().passed, outcome.interrupted) == (None, False, False)
    assert "gone for lunch" in outcome.problems[0]


async def test_an_interrupted_test_ends_at_once_and_claims_nothing() -> None:
    stopping = asyncio.Event()
    stopping.set()
    outcome = await finish(load_test(LoadOptions(clients=1, seconds=3600)), stopping, [], {"/a": 5})
    assert (outcome.interrupted, outcome.completeness, outcome.result().passed) == (True, None, False)


async def test_a_test_that_is_interrupted_before_any_time_has_passed_has_measured_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure, loop = LoadTest._measure, asyncio.get_running_loop()

    async def interrupted(
        test: LoadTest, outcome: LoadRun, tasks: list[asyncio.Task[None]], stopping: asyncio.Event
    ) -> None:
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)
        loop.call_soon(stopping.set)
        await measure(test, outcome, tasks, stopping)

    monkeypatch.setattr(LoadTest, "_measure", interrupted)
    outcome = await load_test(options()).run(asyncio.Event())
    assert (outcome.interrupted, outcome.measured_s, outcome.cpu_share) == (True, 0.0, 0.0)


async def test_a_fault_of_a_client_is_an_error_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a fault of the tool")

    monkeypatch.setattr(Client, "subscribe", fail)
    monkeypatch.setattr(module, "CONNECT_S", 0.0)
    with pytest.raises(RuntimeError, match="a fault of the tool"):
        await load_test(options()).run(asyncio.Event())


async def test_each_client_of_an_api_key_is_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    SharedKey.create(tmp_path / "key")
    test = load_test(options(credentials=Credentials(key_file=tmp_path / "key")))
    await finish(test, asyncio.Event(), [5, 5], {"/a": 5})
    monkeypatch.setattr(Service, "request", DataService.request)
    server = Server(monkeypatch, httpx.Response(200, json={"token": "a.b.c"}))
    for client in Client.made:
        assert client.token is not None
        assert await cast("Awaitable[str]", client.token()) == "a.b.c"
    assert [json.loads(request.content)["subject"] for request in server.requests] == ["load-1", "load-2"]
