"""The Python client with tokens at the real socket of a server: refreshes, names that no token covers, and refusals."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final, Self

import pytest

from diem.client import Event, UpdatesClient
from diem.client.tokens import TokenFunction
from diem.tokens.key_source import KeyFile
from tests.support.patience import PATIENCE_S, until
from tests.support.small import System, small_system
from tests.support.tokens import Issuer, key_set

ISSUER = Issuer()
LIFE_S: Final = 4
"""Replaced after 0.75 to 2 s."""


def settings(directory: Path, **revoked: float) -> dict[str, Any]:
    file = directory / "keys.json"
    file.write_bytes(key_set(ISSUER, revoked=revoked))
    return {"anonymous": "off", "token_keys": [str(file)]}


class Tokens:
    """The application's function: one token after another for the given prefixes, the last ones for all later ones."""

    def __init__(self, *prefixes: list[str], issuer: Issuer = ISSUER, life_s: int = LIFE_S, age_s: int = 0) -> None:
        self.made = 0
        self._prefixes = prefixes
        self._issuer = issuer
        self._life_s = life_s
        self._age_s = age_s

    def __call__(self) -> str:
        self.made += 1
        prefixes = self._prefixes[min(self.made, len(self._prefixes)) - 1]
        now = int(time.time()) - self._age_s
        return self._issuer.token(now, prefixes=prefixes, changes={"exp": now + self._life_s, "jti": str(self.made)})


class Watcher:
    """A client, and what it has seen."""

    def __init__(self, system: System, tokens: TokenFunction) -> None:
        self.client = UpdatesClient(system.url, token=tokens)
        self.events: list[Event] = []
        self.ended = False

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.wait([self._following])
        await self.client.__aexit__(None, None, None)

    async def _follow(self) -> None:
        async for event in self.client:
            self.events.append(event)
        self.ended = True

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def count(self, kind: str) -> int:
        return len(self.of(kind))

    def last(self, name: str) -> int | None:
        return next((e.version for e in reversed(self.events) if e.kind == "update" and e.endpoint == name), None)


async def test_what_a_new_token_does_not_cover_is_rejected_and_its_updates_end(tmp_path: Path) -> None:
    tokens, is_due = Tokens(["/dam", "/load"], ["/dam"]), asyncio.Event()

    async def token() -> str:
        if tokens.made:
            await is_due.wait()
        return tokens()

    async with small_system(tmp_path, **settings(tmp_path)) as system, Watcher(system, token) as watcher:
        await watcher.client.subscribe({"/dam/a": None, "/load/a": None, "/secret": None})
        await until(lambda: watcher.count("subscribed") == 2)
        before = system.feed.put("/load/a", "/dam/a", "/secret")
        await until(lambda: watcher.last("/dam/a") is not None and watcher.last("/load/a") is not None)
        assert [event.endpoint for event in watcher.of("rejected")] == ["/secret"]
        is_due.set()
        await until(lambda: watcher.count("rejected") == 2)
        assert watcher.of("rejected")[-1].endpoint == "/load/a"
        assert watcher.of("rejected")[-1].message.startswith("forbidden")
        system.feed.put("/load/a")
        version = system.feed.put("/dam/a")
        await until(lambda: watcher.last("/dam/a") == version)
        assert (watcher.last("/load/a") or 0) < before
        assert watcher.count("closed") == 0


async def test_a_token_of_another_issuer_is_tried_twice(tmp_path: Path) -> None:
    tokens = Tokens(["/dam"], issuer=Issuer())
    async with small_system(tmp_path, **settings(tmp_path)) as system, Watcher(system, tokens) as watcher:
        await until(lambda: watcher.ended)
        assert [event.code for event in watcher.events if event.kind == "closed"] == [4501, 4501]
        assert (tokens.made, watcher.count("open")) == (2, 0)


async def test_an_expired_token_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    now = int(time.time())
    tokens = iter([ISSUER.token(now - 300, changes={"exp": now - 60}), ISSUER.token(now)])
    async with (
        small_system(tmp_path, **settings(tmp_path)) as system,
        Watcher(system, lambda: next(tokens)) as watcher,
    ):
        await until(lambda: watcher.count("open") == 1)
        assert [event.code for event in watcher.events if event.kind == "closed"] == [4001]


async def test_a_revoked_key_ends_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyFile, "poll_s", 0.05)
    tokens = Tokens(["/dam"], life_s=600)
    async with small_system(tmp_path, **settings(tmp_path)) as system, Watcher(system, tokens) as watcher:
        await until(lambda: watcher.count("open") == 1)
        settings(tmp_path, k3v9x0ab=time.time())
        await until(lambda: watcher.ended)
        assert [event.code for event in watcher.events if event.kind == "closed"] == [4503]
        assert tokens.made == 1


@pytest.mark.parametrize("clients", [100])
async def test_clients_whose_tokens_expire_together_miss_no_update(tmp_path: Path, clients: int) -> None:
    # Valid for 9 s, and replaced after one.
    sources = [Tokens(["/dam"], life_s=16, age_s=7) for _ in range(clients)]
    names = [f"/dam/{n}" for n in range(10)]
    limits: dict[str, Any] = {"connections_per_address": clients + 10, "connection_rate_per_address": clients}
    limits["connections_per_user"] = clients
    async with small_system(tmp_path, **settings(tmp_path), **limits) as system:
        watchers = [Watcher(system, source) for source in sources]
        for watcher in watchers:
            await watcher.__aenter__()
            await watcher.client.subscribe(dict.fromkeys(names))
        await until(lambda: all(watcher.count("subscribed") == len(names) for watcher in watchers))
        last: dict[str, int] = {}
        async with asyncio.timeout(PATIENCE_S):
            while min(source.made for source in sources) < 4:
                for name in names:
                    last[name] = system.feed.put(name)
                await asyncio.sleep(0.25)
        await until(lambda: all(watcher.last(name) == last[name] for watcher in watchers for name in names))
        assert all(watcher.count("closed") == 0 for watcher in watchers)
        for watcher in watchers:
            await watcher.__aexit__(None, None, None)
