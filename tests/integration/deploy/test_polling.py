"""An API is polled while somebody watches, once for the whole system, whichever process is killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from diem.client import UpdatesClient
from tests.support.patience import until
from tests.support.publisher import Publisher, Reply, Sent, published
from tests.support.running import Running, running

EVERY_S = 0.5
NAME = "/orders/a~7"
CONFIG = """\
[[source]]
type = "http"
name = "orders"
url = "%s/v2/orders/{rest}"
prefix = "/orders"
kind = "document"
every = 0.5
"""


class Api:
    """Counts the requests, and answers each with the same document."""

    def __init__(self, publisher: Publisher) -> None:
        self.at: list[float] = []
        self.paths: set[str] = set()
        publisher.answer = self._answer

    def _answer(self, request: Sent) -> Reply:
        self.at.append(monotonic())
        self.paths.add(request.path)
        if request.headers.get("if-none-match") == '"1"':
            return Reply(status=304)
        return Reply('{"state": "packed"}', headers={"ETag": '"1"', "Content-Type": "application/json"})

    async def more(self, requests: int) -> None:
        """Wait for further requests."""
        wanted = len(self.at) + requests
        await until(lambda: len(self.at) >= wanted)


@asynccontextmanager
async def watching(system: Running, count: int) -> AsyncIterator[list[dict[str, int]]]:
    """Keep clients subscribed; yield the latest versions that each was sent."""
    origin = system.page.rstrip("/").replace("127.0.0.1", "localhost")
    seen: list[dict[str, int]] = [{} for _ in range(count)]

    async def watch(versions: dict[str, int]) -> None:
        async with UpdatesClient(system.websocket_urls, origin=origin) as client:
            await client.subscribe({NAME: None})
            async for event in client:
                if event.kind == "update" and event.endpoint and event.version:
                    versions[event.endpoint] = event.version

    async with AsyncExitStack() as stack:
        for versions in seen:
            task = asyncio.create_task(watch(versions))
            stack.callback(task.cancel)
        yield seen


@pytest.mark.takes(8)
async def test_an_api_is_polled_once_an_interval_while_it_is_watched_also_when_processes_are_killed(
    tmp_path: Path,
) -> None:
    async with (
        published() as publisher,
        running(tmp_path, "x-broadcast", config=CONFIG % publisher.url, servers=2) as system,
    ):
        api = Api(publisher)
        async with watching(system, 4) as seen:
            await until(lambda: all(seen))
            await api.more(2)
            for name in ("websocket-1", "data"):
                before = system.kill(name)
                await until(lambda name=name, before=before: system.processes[name]["pid"] not in {None, before})  # type: ignore[misc]
                await api.more(3)
        assert api.paths == {"/v2/orders/a~7"}
        (version,) = {each[NAME] for each in seen}
        answer = await system.http.get(f"{system.page}v1/data{NAME}")
        assert (answer.json(), answer.headers["diem-version"]) == ({"state": "packed"}, str(version))
        # Four clients at two servers. How far two polls are apart is a matter of the machine, their number is not: each
        # process has one that follows its first at once.
        assert len(api.at) < 1.5 * (api.at[-1] - api.at[0]) / EVERY_S + 3
        status = await system.status("data")
        (source,) = status["sources"]
        assert (source["ok"], source["error"]) == (True, None)
        # A poll may have been under way; from then on nobody watches, and the next would have come.
        await asyncio.sleep(0.5 * EVERY_S)
        requests = len(api.at)
        await asyncio.sleep(2.5 * EVERY_S)
        assert len(api.at) == requests
