"""Clients with a token: presented before anything is requested, replaced before it expires; servers that refuse it."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from diem.client import PartitionedClient, UpdatesClient
from diem.client.tokens import NoToken, TokenSource, refresh_delay_s
from tests.support.patience import until
from tests.unit.diem.client.fakes import FORBIDDEN, QUICK, FakeServer, deployed, seeing, unsigned

LIFE_S = 0.6
"""Replaced after 0.22 to 0.3 s."""


class Page:
    """The application's function; ``fail`` makes it fail, ``slow`` is how long it takes."""

    def __init__(self, life_s: float = 600.0) -> None:
        self.made: list[str] = []
        self.calls = 0
        self.pending = 0
        self.most_pending = 0
        self.fail = False
        self.slow = asyncio.Event()
        self.slow.set()
        self.life_s = life_s

    async def __call__(self) -> str:
        self.calls += 1
        self.pending += 1
        self.most_pending = max(self.pending, self.most_pending)
        await self.slow.wait()
        self.pending -= 1
        if self.fail:
            raise PermissionError("logged out")
        now = time.time()
        self.made.append(unsigned({"iat": now, "exp": now + self.life_s, "jti": self.calls}))
        return self.made[-1]


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    running = await FakeServer().start()
    yield running
    await running.stop()


async def test_nothing_is_requested_before_the_server_has_accepted_the_token(server: FakeServer) -> None:
    server.token_reply = None
    page = Page()
    client = UpdatesClient(server.url, timing=QUICK, token=page)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: len(server.tokens) == 1)
        await asyncio.sleep(0.05)
        assert (server.requests, seen.events, server.tokens) == ([], [], page.made)
        await server.send({"type": "authenticated", "id": 0, "expires": 1})
        await until(lambda: server.held == {"/a"})
        await until(lambda: len(seen.of("subscribed")) == 1)
        assert [event.kind for event in seen.events] == ["open", "status", "subscribed"]
        assert server.dials == 1


async def test_a_token_is_replaced_on_the_open_connection_and_nothing_is_requested_again(server: FakeServer) -> None:
    page = Page(LIFE_S)
    client = UpdatesClient(server.url, timing=QUICK, token=page)
    async with seeing(client):
        await client.subscribe({"/a": None})
        began = time.monotonic()
        await until(lambda: len(server.tokens) >= 3)
        assert time.monotonic() - began > 0.4
        # One that was due before it could be presented was replaced unseen.
        assert server.tokens == [token for token in page.made if token in server.tokens]
        assert (server.dials, len(server.requests)) == (1, 1)


async def test_a_function_that_fails_is_called_again_while_the_token_is_good_and_then_at_each_dial(
    server: FakeServer,
) -> None:
    page = Page(LIFE_S)
    client = UpdatesClient(server.url, timing=QUICK, token=page)
    async with seeing(client) as seen:
        await until(lambda: bool(server.tokens))
        page.fail = True
        made, calls = len(page.made), page.calls
        await until(lambda: page.calls > calls + 2)
        assert server.connections
        await server.kick(4001)
        calls = page.calls
        await until(lambda: page.calls > calls + 3)
        assert server.dials == 1
        await until(lambda: "no token: logged out" in [event.message for event in seen.of("closed")])
        page.fail = False
        await until(lambda: server.tokens[-1] in page.made[made:])


async def test_a_token_that_is_good_is_used_for_the_next_dial(server: FakeServer) -> None:
    page = Page()
    client = UpdatesClient(server.url, timing=QUICK, token=page)
    async with seeing(client):
        for dials in (1, 2, 3):
            await until(lambda dials=dials: len(server.tokens) == dials)  # type: ignore[misc]
            await server.kick(1012, "retry=10")
        assert page.calls == 1


async def test_what_is_no_token_is_not_presented_nor_published(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK, token=lambda: "secret")
    async with seeing(client) as seen:
        await until(lambda: len(seen.of("closed")) > 1)
        assert server.dials == 0
        assert "secret" not in str(seen.events)
        assert seen.of("closed")[0].message == "no token: what was returned is not a JWT with iat and exp"


async def test_the_same_token_again_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    clock = SimpleNamespace(time=lambda: now)
    monkeypatch.setattr("diem.client.tokens.time", clock)
    only = unsigned({"iat": now - 10, "exp": now + 0.2})
    tokens = TokenSource(lambda: only, replace(QUICK, base_s=0.01))
    assert await tokens.ready() == only
    waiting = asyncio.create_task(tokens.replaced(only))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    waiting.cancel()
    clock.time = lambda: now + 0.3
    with pytest.raises(NoToken, match="held already"):
        await tokens.ready()  # it has expired


async def test_rejected_names_are_reported_and_dropped_when_a_token_does_not_cover_them(server: FakeServer) -> None:
    server.forbidden = {"/b"}
    page = Page(LIFE_S)
    client = UpdatesClient(server.url, timing=QUICK, token=page)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None, "/c": None})
        await until(lambda: server.held == {"/a", "/c"})
        await until(lambda: [event.endpoint for event in seen.of("rejected")] == ["/b"])
        await server.send({"type": "subscribed", "id": 0, "endpoints": {}, "rejected": {"/c": FORBIDDEN}})
        await until(lambda: [event.endpoint for event in seen.of("rejected")] == ["/b", "/c"])
        assert seen.of("rejected")[1].message == "forbidden: m"
        await server.update("/c", 5)
        await server.update("/a", 6)
        await until(lambda: seen.versions("/a") == [6])
        assert seen.versions("/c") == []
        await server.kick()
        await until(lambda: server.dials == 2 and server.held == {"/a"})
        server.forbidden = set()
        await client.subscribe({"/b": None})
        await until(lambda: server.held == {"/a", "/b"})


async def test_a_server_that_takes_no_tokens_serves_all_the_same(server: FakeServer) -> None:
    server.token_reply = {"type": "error", "code": "unauthorised", "message": "m"}
    client = UpdatesClient(server.url, timing=QUICK, token=Page())
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: server.held == {"/a"})
        assert seen.of("error") == []


async def test_a_server_that_does_not_reply_to_the_token_is_given_up(server: FakeServer) -> None:
    server.token_reply = None
    client = UpdatesClient(server.url, timing=replace(QUICK, auth_timeout_s=0.1), token=Page())
    async with seeing(client):
        await client.subscribe({"/a": None})
        await until(lambda: server.dials > 1)
        assert server.requests == []


async def test_a_server_that_sends_without_end_instead_of_a_reply_is_given_up(server: FakeServer) -> None:
    server.token_reply = None
    client = UpdatesClient(server.url, timing=QUICK, token=Page())
    async with seeing(client) as seen:
        await until(lambda: len(server.tokens) == 1)
        for _ in range(20):
            await server.status(live=True)
        await until(lambda: server.dials > 1)
        assert seen.of("open") == []


async def test_one_token_serves_all_servers_and_is_requested_once_at_a_time() -> None:
    async with deployed() as system:
        page = Page(LIFE_S)
        page.slow.clear()
        client = PartitionedClient(system.urls, timing=QUICK, token=page)
        async with seeing(client):
            system.own(a=system.a, b=system.b, c=system.c)
            await client.subscribe({"/a": None, "/b": None, "/c": None})
            await until(lambda: page.calls == 1)
            page.slow.set()
            await until(lambda: all(len(server.tokens) > 2 for server in system.servers))
            assert page.most_pending == 1
            for server in system.servers:
                presented = server.tokens
                assert presented == page.made[page.made.index(presented[0]) :][: len(presented)]


def test_2000_clients_that_got_their_tokens_together_replace_them_over_minutes() -> None:
    seconds = [int(refresh_delay_s(1800, 1800, client / 2000)) for client in range(2000)]
    assert max(seconds.count(second) for second in set(seconds)) < 10


async def test_a_version_of_the_day_after_tomorrow_is_not_believed(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: server.held == {"/a"})
        now_ms = int(time.time() * 1000)
        for version in (9_999_999_999_999, now_ms + 86_500_000, now_ms, now_ms + 86_000_000):
            await server.update("/a", version)
            if version < now_ms + 86_400_000:
                await until(lambda version=version: client.known("/a") == version)  # type: ignore[misc]
        assert client.known("/a") == now_ms + 86_000_000
        assert len(seen.of("resync")) >= 1
