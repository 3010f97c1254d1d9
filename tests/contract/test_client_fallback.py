"""The Python client at the real socket of a server, behind proxies that let no WebSocket through."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from diem.client import Event, Timing, UpdatesClient, polling
from tests.contract.test_client_tokens import Tokens, settings
from tests.support.obstacles import Obstacle, Proxy, proxy
from tests.support.patience import until
from tests.support.small import System, small_system

QUICK = Timing(base_s=0.01, cap_s=0.02, welcome_s=0.3)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "CONFIRM_S", 0.05)
    monkeypatch.setattr(polling, "FIRST_EVENT_S", 0.3)


class Watcher:
    """A client behind a proxy, and its events."""

    def __init__(self, system: System, between: Proxy, client: UpdatesClient) -> None:
        self.feed = system.feed
        self.between = between
        self.client = client
        self.events: list[Event] = []

    async def follow(self) -> None:
        async for event in self.client:
            self.events.append(event)

    def of(self, kind: str, name: str) -> list[int | None]:
        return [event.version for event in self.events if (event.kind, event.endpoint) == (kind, name)]

    async def sees_updates(self, *names: str) -> None:
        """Change endpoints twice, and wait each time for the update of the last one."""
        for _ in range(2):
            version = self.feed.put(*names, size=1, media_type="application/json")
            await until(functools.partial(self.has_seen, names[-1], version))

    def has_seen(self, name: str, version: int) -> bool:
        return self.of("update", name)[-1:] == [version]


@asynccontextmanager
async def watcher(directory: Path, obstacle: Obstacle, options: Any = None, **settings: Any) -> AsyncIterator[Watcher]:
    async with small_system(directory, **settings) as system:
        page = f"http://127.0.0.1:{system.settings.page_port}"
        async with proxy(obstacle, page, urlsplit(system.url).netloc) as between:
            url = f"ws://127.0.0.1:{between.port}/ws"
            async with UpdatesClient(url, timing=QUICK, data=True, **(options or {})) as client:
                made = Watcher(system, between, client)
                following = asyncio.create_task(made.follow())
                yield made
                following.cancel()


@pytest.mark.parametrize("obstacle", Obstacle)
async def test_updates_come_over_http_where_no_websocket_gets_through(tmp_path: Path, obstacle: Obstacle) -> None:
    async with watcher(tmp_path, obstacle) as watched:
        version = watched.feed.put("/a", size=1, media_type="application/json")
        await watched.client.subscribe({"/a": None})
        await until(lambda: watched.of("update", "/a") == [version])
        assert watched.client.transport == "http"
        await watched.sees_updates("/a")
        (update, *_) = [event for event in watched.events if event.kind == "update"]
        assert update.value == {"version": version, "text": "x"}
        handshakes = watched.between.handshakes
        await watched.client.subscribe({"/b": None})
        await watched.sees_updates("/a", "/b")
        await watched.client.unsubscribe(["/a"])
        before = watched.of("update", "/a")
        await watched.sees_updates("/a", "/b")
        assert watched.of("update", "/a") == before
        assert watched.between.handshakes == handshakes
        if obstacle is Obstacle.STRIPS:
            assert handshakes == 1


async def test_a_websocket_that_gets_through_later_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "RETRY_S", (0.02,))
    async with watcher(tmp_path, Obstacle.STRIPS) as watched:
        await watched.client.subscribe({"/a": None})
        await watched.sees_updates("/a")
        await until(lambda: watched.between.handshakes > 2)
        assert watched.client.transport == "http"
        watched.between.obstacle = None
        await until(lambda: watched.client.transport == "websocket" and watched.of("subscribed", "/a"))
        await watched.sees_updates("/a")


async def test_a_refusal_of_the_server_itself_is_no_obstacle(tmp_path: Path) -> None:
    async with (
        small_system(tmp_path) as system,
        UpdatesClient(system.url, timing=QUICK, origin="https://other.example") as client,
    ):
        closed = 0
        async for event in client:
            closed += event.code == 403
            if closed == 5:
                break
        assert client.transport == "websocket"


async def test_a_token_is_presented_with_each_request_and_replaced(tmp_path: Path) -> None:
    tokens = Tokens(["/a"], ["/a", "/b"])
    async with watcher(tmp_path, Obstacle.STRIPS, {"token": tokens}, **settings(tmp_path)) as watched:
        await watched.client.subscribe({"/a": None, "/b": None})
        await watched.sees_updates("/a")
        assert watched.of("rejected", "/b") == [None]
        await until(lambda: tokens.made > 2)
        await watched.client.subscribe({"/b": None})
        await watched.sees_updates("/a", "/b")
        assert [event for event in watched.events if event.kind == "closed"][1:] == []


async def test_a_client_whose_token_is_refused_ends(tmp_path: Path) -> None:
    async with watcher(tmp_path, Obstacle.STRIPS, {"token": lambda: "a.e30.c"}, **settings(tmp_path)) as watched:
        await watched.client.subscribe({"/a": None})
        await until(lambda: [event.code for event in watched.events if event.kind == "closed"][-1:] == [None])


async def test_a_lost_version_and_the_status_are_stated_as_by_a_connection(tmp_path: Path) -> None:
    async with watcher(tmp_path, Obstacle.STRIPS) as watched:
        version = watched.feed.put("/a")
        await watched.client.subscribe({"/a": version + 1000})
        await until(lambda: watched.of("subscribed", "/a") == [version])
        states = [(event.endpoint, event.live) for event in watched.events if event.kind == "status"]
        assert states == [(None, True)]
