"""The listener for health alone, and its connections of clients that send nothing."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from diem.links import health
from diem.links.health import HealthListener, health_service
from diem.process.settings import ProcessSettings
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.security_events import recorded_events

why_not: list[str | None] = [None]


@pytest.fixture(autouse=True)
def _ready() -> None:
    why_not[0] = None


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HealthListener]:
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(health, "MAX_PER_ADDRESS", 2)
    # Nothing is evicted unless a test says so.
    monkeypatch.setattr(health, "GRACE_S", 1e6)
    made = HealthListener("127.0.0.1", 0, lambda: why_not[0])
    made.start()
    yield made
    made.stop()


async def answer(port: int, path: str) -> tuple[int, str]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        got = await http.get(f"http://127.0.0.1:{port}{path}")
    return got.status_code, got.text


async def test_alive_and_ready_differ(listener: HealthListener) -> None:
    assert await answer(listener.port, "/livez") == await answer(listener.port, "/readyz?verbose") == (200, "ok\n")
    why_not[0] = "draining"
    assert await answer(listener.port, "/livez") == (200, "ok\n")
    assert await answer(listener.port, "/readyz") == (503, "draining\n")


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/feed", "/ws", "/v1/keys", "/challenge", "/livez/"])
async def test_nothing_else_is_served(listener: HealthListener, path: str) -> None:
    assert await answer(listener.port, path) == (404, "not found\n")


async def test_no_link_is_served(listener: HealthListener) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        url = f"http://127.0.0.1:{listener.port}/livez"
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "A" * 22 + "=="}
        assert (await http.get(url, headers={**upgrade, "Sec-WebSocket-Version": "13"})).status_code == 200


async def test_silent_connections_of_one_address_keep_nobody_else_away(listener: HealthListener) -> None:
    with recorded_events() as events:
        made = [await asyncio.open_connection("127.0.0.1", listener.port, local_addr=("127.0.0.2", 0)) for _ in "123"]
        assert await asyncio.wait_for(made[2][0].read(), PATIENCE_S) == b""
        assert await answer(listener.port, "/livez") == (200, "ok\n")
    for _, writer in made:
        writer.close()
    assert [(line["address"], line["detail"]) for line in events.of("rate_exceeded")] == [
        ("127.0.0.2", "health listener")
    ]


async def test_connections_are_counted_until_they_end(listener: HealthListener) -> None:
    for _ in range(10):
        assert (await answer(listener.port, "/livez"))[0] == 200
    await until(lambda: not len(listener.connections))


async def test_there_is_no_listener_without_a_port() -> None:
    async with health_service(ProcessSettings(), lambda: None):
        pass
    port = free_port()
    async with health_service(ProcessSettings(health_port=port), lambda: None):
        assert (await answer(port, "/livez"))[0] == 200
    with pytest.raises(httpx.ConnectError):
        await answer(port, "/livez")
