"""A public system in Chromium: https and wss with an authority of its own, API keys, tokens, refreshes, revocation."""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from diem.process.auth import SharedKey
from diem.process.tls import client_context
from tests.e2e.chromium import chromium
from tests.support.certificates import Authority
from tests.support.internal import http_client
from tests.support.nss import trust
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.running import Running, running

pytestmark = [pytest.mark.chromium, pytest.mark.takes(40)]

REVOKED_S: Final = 60
"""Longest time from a revocation to the end of the connections of its key."""
TOKEN_S: Final = 30
"""Replaced after 11 to 15 s: the servers know of a revocation before the page requests another token."""
PLAN: Final = f"""
source = []
[[plan]]
name = "page"
prefixes = ["/dam"]
token_seconds = {TOKEN_S}
"""


class Traffic:
    """What the page sends and is sent over WebSockets."""

    def __init__(self, page: Page) -> None:
        self.urls: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.closed = 0
        page.on("websocket", self._opened)

    def _opened(self, socket: Any) -> None:
        self.urls.append(socket.url)
        socket.on("framesent", lambda frame: self.sent.append(json.loads(frame)))
        socket.on("framereceived", lambda frame: self.received.append(json.loads(frame)))
        socket.on("close", lambda _: setattr(self, "closed", self.closed + 1))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of a type that the page was sent."""
        return [message for message in self.received if message["type"] == kind]


async def wait_for_token_keys(system: Running) -> None:
    """Wait until every server has read the key by which it checks tokens: before, clients are told to try again."""
    servers = [process for name, process in system.processes.items() if name.startswith("websocket-")]
    async with http_client(SharedKey.load(system.state_dir / "internal.key")) as http, asyncio.timeout(PATIENCE_S):
        for server in servers:
            while (await http.get(f"{server['urls']['internal']}/status")).json()["tokens"]["keys"] == 0:
                await asyncio.sleep(0.1)


async def create_key(system: Running) -> dict[str, Any]:
    """Create an API key, as `diem keys create` does."""
    url = f"{system.processes['data']['urls']['internal']}/v1/keys"
    async with http_client(SharedKey.load(system.state_dir / "internal.key")) as http:
        made: dict[str, Any] = (await http.post(url, json={"name": "page", "plan": "page"})).json()
    return made


async def revoke(system: Running, key_id: str) -> None:
    """Revoke an API key, as `diem keys revoke` does."""
    url = f"{system.processes['data']['urls']['internal']}/v1/keys/{key_id}"
    async with http_client(SharedKey.load(system.state_dir / "internal.key")) as http:
        (await http.delete(url)).raise_for_status()


async def test_a_user_logs_in_over_tls_outlives_a_token_and_is_logged_out_when_the_key_is_revoked(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue()
    trust(tmp_path / "home", authority)
    certificate = ("--tls-certificate", str(issued.certificate), "--tls-key", str(issued.key))
    # A client of this machine would need no token.
    off = ("--anonymous", "off", "--set", "data:DIEM_DATA_ANONYMOUS_READS=off")
    options = ("--listen", "127.0.0.1", *certificate, *off)
    context = client_context(authority.file)
    async with (
        chromium(tmp_path / "home") as browser,
        running(tmp_path, config=PLAN, options=options, tls=context) as system,
    ):
        assert system.page.startswith("https://")
        (await system.put({"/dam/a": 0, "/load/a": 0})).raise_for_status()
        await wait_for_token_keys(system)
        key = await create_key(system)
        page = await browser.new_page()
        traffic, errors = Traffic(page), list[str]()
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"{system.page}login.html")
        state, rows = page.locator("#state"), page.locator("#endpoints li")

        await page.fill("#key", key["key"])
        await page.fill("#endpoint", "/dam/a")
        await page.click("text=Log in")
        await expect(state).to_have_text("logged in")
        await expect(rows).to_contain_text(["0 MW"])
        await page.fill("#endpoint", "/load/a")
        await page.click("text=Log in")
        await expect(rows).to_contain_text(["0 MW", "your key does not cover it"])
        (url,) = traffic.urls
        assert url.startswith("wss://")
        assert key["key"] not in url

        # Each change arrives while the token is replaced on the open connection.
        accepted: list[int] = []
        for value in itertools.count(1):
            answer = await system.put({"/dam/a": value, "/load/a": value})
            accepted += [item["version"] for item in answer.json()["accepted"] if item["endpoint"] == "/dam/a"]
            await expect(rows.first).to_contain_text(f"{value} MW")
            if traffic.of("authenticated"):
                break
        assert [message["type"] for message in traffic.sent].count("auth") <= 2
        assert set(accepted) <= {message["version"] for message in traffic.of("update")}
        assert len({message["session"] for message in traffic.of("welcome")}) == 1
        await expect(state).to_have_text("logged in")

        began = time.monotonic()
        await revoke(system, key["id"])
        await expect(state).to_have_text("logged out: the key was revoked", timeout=REVOKED_S * FACTOR * 1000)
        assert time.monotonic() - began < REVOKED_S * FACTOR
        assert len(traffic.urls) == traffic.closed == 1
        named = [message for message in traffic.received if "/load/a" in json.dumps(message)]
        assert {message["type"] for message in named} == {"subscribed"}
        assert {message["rejected"]["/load/a"]["code"] for message in named} == {"forbidden"}
        assert not any("/load/a" in message["endpoints"] for message in named)
        assert errors == []
