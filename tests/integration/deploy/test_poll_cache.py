"""nginx with the cache of polls of docs/going-public.md before a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from diem.links.edge import AdmissionRules
from tests.support.nginx import changed, documented, front_nginx, needs_nginx
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.unit.diem.links.test_http_updates import PAGE, VERSION, World, worlds

pytestmark = needs_nginx

POLLERS: Final = 50
AT_MOST: Final = POLLERS // 2
"""Polls that reach the server: one, but on a busy machine nginx looks too late for the answer; without a cache all."""


class Front:
    """A server behind nginx."""

    def __init__(self, origin: World, client: httpx.AsyncClient) -> None:
        self.origin = origin
        self.client = client

    @property
    def polls(self) -> int:
        """Number of polls that reached the server."""
        return self.origin.edge.received["poll"]

    async def poll(self, query: str, **fields: str) -> httpx.Response:
        answer = await self.client.get(f"/app/v1/updates?endpoint=/a&{query}", headers=fields)
        assert answer.status_code == 200, answer.text
        return answer

    def poll_all(self, query: str) -> list[asyncio.Task[httpx.Response]]:
        return [asyncio.create_task(self.poll(query)) for _ in range(POLLERS)]


def configuration(directory: Path, port: int, origin: int) -> str:
    """Return both configurations of the guide as one, without TLS."""
    http, _, location = documented("polls.conf").partition("\nlocation = ")
    server = changed(documented("front.conf"), "listen 443 ssl http2", f"listen 127.0.0.1:{port}")
    kept = [line for line in server.splitlines() if not line.startswith("  ssl_") and "= /app/v1/updates" not in line]
    server = changed("\n".join(kept), "  location = /app {", f"location = {location}  location = /app {{")
    text = changed(http + server, "/var/cache/nginx/polls", str(directory / "polls"))
    return changed(text, "127.0.0.1:8101", f"127.0.0.1:{origin}", 2)


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    port = free_port()
    url, limits = f"http://127.0.0.1:{port}", httpx.Limits(max_connections=2 * POLLERS)
    async with (
        worlds(AdmissionRules(page_port=8000, anonymous="on", tokens=True)) as origin,
        front_nginx(tmp_path / "nginx", configuration(tmp_path, port, origin.port), port),
        httpx.AsyncClient(base_url=url, headers=PAGE, limits=limits, timeout=PATIENCE_S) as client,
    ):
        origin.put("/a")
        yield Front(origin, client)


async def test_polls_of_one_version_are_one_at_the_origin(front: Front) -> None:
    for version in range(VERSION + 1, VERSION + 3):
        before = front.polls
        polls = front.poll_all(f"after={version - 1}")
        await until(lambda before=before: front.polls > before)  # type: ignore[misc]
        front.origin.put("/a", version=version)
        answers = [answer.json()["messages"] for answer in await asyncio.gather(*polls)]
        assert {messages[-1]["version"] for messages in answers} == {version}
        assert front.polls - before <= AT_MOST


async def test_polls_without_news_do_not_wait_in_turn(front: Front) -> None:
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*front.poll_all(f"after={VERSION}&wait=0.5"))
    assert asyncio.get_running_loop().time() - began < 0.5 * POLLERS / 2
    assert {answer.json()["messages"][-1]["type"] for answer in answers} == {"subscribed"}
    assert front.polls <= AT_MOST


async def test_what_no_cache_may_store_passes_it_by(front: Front) -> None:
    cases: tuple[tuple[str, dict[str, str]], ...] = (
        ("", {}),
        ("after=0&", {}),
        (f"after={VERSION}&", {"Authorization": "Basic eA=="}),
        (f"after={VERSION}&", {"Accept": "text/*"}),
    )
    for query, fields in cases:
        before = front.polls
        for _ in range(2):
            await front.poll(f"{query}wait=0", **fields)
        assert front.polls == before + 2, (query, fields)
    path = f"/app/v1/updates?endpoint=/a&after={VERSION}"
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            stream = front.client.stream("GET", path, headers={"Accept": "text/event-stream"})
            answer = await stack.enter_async_context(stream)
            assert "welcome" in await anext(answer.aiter_lines())
