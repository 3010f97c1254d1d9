"""Clients with tokens at the real socket of a server that was configured with the keys of their issuer."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from diem.process.lifecycle import Lifecycle
from diem.process.listeners import RefusedBind
from diem.tokens.key_source import KeyFile
from services.websocket import main as websocket
from services.websocket.settings import Settings
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.small import small_system
from tests.support.tokens import Issuer, key_set

ISSUER = Issuer()


def token(**claims: Any) -> str:
    return ISSUER.token(time.time(), **claims)


def keys_in(directory: Path, **revoked: float) -> list[str]:
    file = directory / "keys.json"
    file.write_bytes(key_set(ISSUER, revoked=revoked))
    return [str(file)]


def subscribe(request_id: int, *names: str) -> dict[str, Any]:
    return {"type": "subscribe", "id": request_id, "endpoints": dict.fromkeys(names)}


@pytest.mark.parametrize("mode", ["single", "all-to-all"])
async def test_client_is_sent_what_its_token_covers_and_nothing_else(tmp_path: Path, mode: str) -> None:
    async with small_system(tmp_path, mode=mode, anonymous="off", token_keys=keys_in(tmp_path)) as system:
        system.feed.put("/secret", "/dam/a")
        async with system.client() as stranger, system.client(origin=None) as client:
            assert (await stranger.ask(subscribe(1, "/secret")))["code"] == "unauthorised"
            answer = await client.ask({"type": "auth", "id": 1, "token": token(prefixes=["/dam"])})
            assert answer["type"] == "authenticated"
            assert time.time() < answer["expires"] < time.time() + 3600
            answer = await client.ask(subscribe(2, "/dam/a", "/secret", "/none"))
            assert answer["endpoints"].keys() == {"/dam/a"}
            assert answer["rejected"]["/secret"] == answer["rejected"]["/none"]
            assert (await client.receive())["endpoint"] == "/dam/a"
            system.feed.put("/secret", "/none", "/dam/a")
            assert (await client.receive())["endpoint"] == "/dam/a"
            system.feed.put("/secret", gone=True)
            system.feed.wipe("store-2")
            system.feed.put("/dam/a")
            assert await stranger.receives_nothing()


async def test_clients_of_this_machine_need_no_token_and_others_do(tmp_path: Path) -> None:
    trusted: Any = ["127.0.0.1/32"]
    elsewhere = {"X-Forwarded-For": "192.0.2.1"}
    async with small_system(tmp_path, token_keys=keys_in(tmp_path), trusted_proxies=trusted) as system:
        async with system.client() as here, system.client(additional_headers={"X-Forwarded-For": "127.0.0.1"}) as too:
            for client in (here, too):
                assert (await client.ask(subscribe(1, "/a")))["type"] == "subscribed"
        for origin in (None, Origin(system.page)):
            async with system.client(additional_headers=elsewhere, origin=origin) as client:
                assert (await client.ask(subscribe(1, "/a")))["code"] == "unauthorised"
                await client.ask({"type": "auth", "id": 2, "token": token(prefixes=["/a"])})
                assert (await client.ask(subscribe(3, "/a")))["type"] == "subscribed"
        async with system.client(additional_headers={"Via": "1.1 relay"}) as client:
            assert (await client.ask(subscribe(1, "/a")))["code"] == "unauthorised"


async def test_foreign_origin_is_refused_even_with_a_token(tmp_path: Path) -> None:
    async with small_system(tmp_path, token_keys=keys_in(tmp_path)) as system:
        protocols = [Subprotocol("diem.v1.json"), Subprotocol(f"bearer.{token()}")]
        with pytest.raises(InvalidStatus) as caught:
            async with system.client(subprotocols=protocols, origin=Origin("http://evil.example")):
                pass
        assert caught.value.response.status_code == 403


async def test_revoked_api_key_closes_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyFile, "poll_s", 0.05)
    async with small_system(tmp_path, anonymous="off", token_keys=keys_in(tmp_path)) as system:
        protocols = [Subprotocol("diem.v1.json"), Subprotocol(f"bearer.{token(key='k3v9x0ab')}")]
        async with system.client(subprotocols=protocols) as client:
            await client.ask(subscribe(1, "/dam/a"))
            keys_in(tmp_path, k3v9x0ab=time.time())
            assert await _close_code(client.connection) == 4503
        with pytest.raises(InvalidStatus):
            async with system.client(subprotocols=protocols):
                pass


async def _close_code(connection: Any) -> int:
    async with asyncio.timeout(PATIENCE_S):
        try:
            while True:
                await connection.recv()
        except ConnectionClosed as error:
            assert error.rcvd is not None
            return error.rcvd.code


async def test_public_bind_needs_keys_or_an_explicit_anonymous(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system:
        given: dict[str, Any] = {
            "internal_key_file": system.settings.internal_key_file,
            "host": "0.0.0.0",
            "port": free_port(),
            "internal_port": free_port(),
            "feed_url": [system.feed.url],
            "origins": ["https://app.example"],
        }
        with pytest.raises(RefusedBind):
            await websocket.main(Settings(**given), Lifecycle(1.0))
    assert Settings(**given, anonymous="on").access_decided
    assert Settings(**given, token_keys=["keys.json"]).access_decided
