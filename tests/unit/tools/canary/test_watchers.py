"""Watchers of a real server: as a client, and by a link to its internal listener."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson

from diem.links.client import UpdatesClient
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from tests.support.patience import PATIENCE_S
from tests.support.small import System, small_system
from tools.canary.watchers import ClientWatcher, ServerWatcher

NAMES = ("/canary/p0", "/canary/p1")
KEY = SharedKey("k" * 32)
Watcher = ClientWatcher | ServerWatcher


class Log:
    """An observer that keeps what happened."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self._changed = asyncio.Event()

    def opened(self, edge: str) -> None:
        self._add("opened", edge)

    def lost(self, edge: str, reason: str) -> None:
        self._add("lost", edge, reason)

    def confirmed(self, edge: str, name: str, version: int) -> None:
        self._add("confirmed", edge, name, str(version))

    def refused(self, edge: str, name: str, reason: str) -> None:
        self._add("refused", edge, name, reason)

    def updated(self, edge: str, name: str, version: int) -> None:
        self._add("updated", edge, name, str(version))

    def _add(self, *event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, *event: str) -> None:
        """Wait until something has happened."""
        async with asyncio.timeout(PATIENCE_S):
            while event not in self.events:
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def watching(watcher: Watcher) -> AsyncIterator[None]:
    task = asyncio.create_task(watcher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def server_watcher(system: System, log: Log) -> ServerWatcher:
    url = f"ws://127.0.0.1:{system.settings.internal_port}/ws"
    return ServerWatcher("s", url, NAMES, log, KeyRing.of(system.feed.key))


async def test_both_report_subscriptions_updates_and_the_end_of_the_server(tmp_path: Path) -> None:
    log = Log()
    async with small_system(tmp_path) as system:
        before = system.feed.put(NAMES[0])
        client = ClientWatcher("c", lambda: UpdatesClient(system.url, origin=system.page), NAMES, log)
        async with watching(server_watcher(system, log)), watching(client):
            for edge in ("s", "c"):
                await log.until("opened", edge)
                await log.until("confirmed", edge, NAMES[0], str(before))
                await log.until("confirmed", edge, NAMES[1], "0")
            version = system.feed.put(NAMES[1])
            for edge in ("s", "c"):
                await log.until("updated", edge, NAMES[1], str(version))
            system.life.stop("test")
            await log.until("lost", "s", "")
            await log.until("lost", "c", "retry=500")


async def test_client_that_is_refused_reports_why(tmp_path: Path) -> None:
    log = Log()
    async with small_system(tmp_path) as system:
        stranger = ClientWatcher("c", lambda: UpdatesClient(system.url, origin="http://elsewhere"), NAMES, log)
        async with watching(stranger), asyncio.timeout(PATIENCE_S):
            while not log.events:
                await asyncio.sleep(0.01)
    kind, edge, reason = log.events[0]
    assert (kind, edge, reason[:4]) == ("lost", "c", "403:")


async def test_more_endpoints_than_a_client_may_subscribe_to_are_divided_among_clients(tmp_path: Path) -> None:
    log = Log()
    names = [f"/canary/p{number}" for number in range(150)]
    async with small_system(tmp_path) as system:
        many = ClientWatcher("c", lambda: UpdatesClient(system.url, origin=system.page), names, log)
        async with watching(many):
            for name in (names[0], names[-1]):
                await log.until("confirmed", "c", name, "0")
            many.request_missing()
    assert not any(event[0] == "refused" for event in log.events)


def test_server_of_a_group_is_asked_again_for_what_it_refuses_or_gives_away() -> None:
    async def test() -> None:
        log, sent = Log(), []
        watcher = ServerWatcher("s", "ws://127.0.0.1:1/ws", NAMES, log, KeyRing.of(KEY))

        class Link:
            def send_text(self, payload: bytes) -> None:
                sent.append(payload)

        watcher._on_open(Link(), "")  # type: ignore[arg-type]
        rejected = {NAMES[1]: {"code": "not_owner", "message": "elsewhere"}}
        watcher.on_message({"type": "subscribed", "id": 1, "endpoints": {NAMES[0]: None}, "rejected": rejected})
        watcher.request_missing()
        watcher.on_message({"type": "moved", "endpoints": [NAMES[0]]})
        watcher.request_missing()
        watcher.on_message({"type": "subscribed", "id": 3, "endpoints": dict.fromkeys(NAMES, 5)})
        watcher.request_missing()
        requests = [(request["type"], set(request["endpoints"])) for request in map(orjson.loads, sent)]
        assert requests == [
            ("subscribe", set(NAMES)),
            ("subscribe", {NAMES[1]}),
            ("unsubscribe", {NAMES[0]}),
            ("subscribe", set(NAMES)),
        ]
        assert ("refused", "s", NAMES[1], "not_owner") in log.events
        assert ("refused", "s", NAMES[0], "moved") in log.events

    asyncio.run(test())
