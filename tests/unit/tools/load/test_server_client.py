"""A client of the internal listener of a server, real or scripted."""

import asyncio
from pathlib import Path
from typing import Any, cast

import orjson

from diem.client import Event
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from tests.support.patience import PATIENCE_S
from tests.support.small import small_system
from tools.load.client import follow
from tools.load.server_client import ServerClient, ServerLink

NAMES = ("/canary/p0", "/canary/p1")


async def test_subscriptions_updates_and_the_end_of_the_server_are_events(tmp_path: Path) -> None:
    events: asyncio.Queue[tuple[str, str | None, int | None]] = asyncio.Queue()

    def apply(event: Event, _unix_s: float) -> None:
        events.put_nowait((event.kind, event.endpoint, event.version))

    async def expect(*kinds: str) -> dict[str | None, int | None]:
        """Wait for events of these kinds; return the versions of their endpoints."""
        got = [await events.get() for _ in kinds]
        assert [kind for kind, *_ in got] == list(kinds)
        return {name: version for _, name, version in got}

    async with small_system(tmp_path) as system, asyncio.timeout(PATIENCE_S):
        before = system.feed.put(NAMES[0])
        url = f"ws://127.0.0.1:{system.settings.internal_port}/ws"
        client = ServerClient("s", url, KeyRing.of(system.feed.key))
        following = asyncio.create_task(follow(client, NAMES, apply))
        await expect("open")
        assert await expect("subscribed", "subscribed", "update") == {NAMES[0]: before, NAMES[1]: None}
        version = system.feed.put(NAMES[1])
        assert await expect("update") == {NAMES[1]: version}
        assert client.received_bytes > 100
        system.life.stop("test")
        await expect("closed")
        following.cancel()
        await asyncio.wait([following])


async def test_server_of_a_group_is_asked_again_for_what_it_refuses_or_gives_away() -> None:
    sent: list[tuple[str, set[str]]] = []
    client = ServerClient("s", "ws://127.0.0.1:1/ws", KeyRing.of(SharedKey("k" * 32)))

    class Link:
        def send_text(self, payload: bytes) -> None:
            request = orjson.loads(payload)
            sent.append((request["type"], set(request["endpoints"])))

    def receive(**message: Any) -> None:
        client.on_text(orjson.dumps(message))

    await client.subscribe(dict.fromkeys(NAMES))
    client._on_open(cast("ServerLink", Link()), "")
    rejected = {NAMES[1]: {"code": "not_owner", "message": "elsewhere"}}
    receive(type="subscribed", id=1, endpoints={NAMES[0]: None}, rejected=rejected)
    client.request_missing()
    receive(type="moved", endpoints=[NAMES[0]])
    client.request_missing()
    receive(type="subscribed", id=3, endpoints=dict.fromkeys(NAMES, 5))
    client.request_missing()
    assert sent == [
        ("subscribe", set(NAMES)),
        ("subscribe", {NAMES[1]}),
        ("unsubscribe", {NAMES[0]}),
        ("subscribe", set(NAMES)),
    ]
    events = [await anext(client) for _ in range(5)]
    rejected_names = [(event.endpoint, event.message) for event in events if event.kind == "rejected"]
    assert rejected_names == [(NAMES[1], "not_owner"), (NAMES[0], "moved")]
