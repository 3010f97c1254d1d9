"""The login page in Chromium, connected to a real server: tokens, refreshes, names that are refused, revocation."""

import itertools
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Route, expect

from tests.support.running import ROOT
from tests.support.small import System, small_system
from tests.support.tokens import Issuer, key_set

pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

DIST: Final = ROOT / "client/dist"
TYPES: Final = {".js": "text/javascript", ".html": "text/html"}
ISSUER: Final = Issuer()
KEY_ID: Final = "k3v9x0ab"
LIFE_S: Final = 6
"""Replaced after 2.25 to 3 s."""


class Deployment:
    """Everything but the WebSocket server: the page, its configuration, the tokens of one key, and data."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.versions = {"/dam/a": 1, "/secret": 1}
        self.tokens = 0

    async def serve(self, route: Route) -> None:
        path = route.request.url.removeprefix(self.system.page).partition("?")[0]
        authorization = route.request.headers.get("authorization", "")
        if path == "/config.json":
            await route.fulfill(json={"mode": "single", "rest": "/v1", "servers": [{"url": self.system.url}]})
        elif path == "/v1/tokens":
            good = route.request.method == "POST" and authorization == "Bearer diem_good"
            await route.fulfill(status=200 if good else 401, json={"token": self.token()} if good else {})
        elif path.startswith("/v1/data"):
            allowed = authorization.startswith("Bearer ey") and path.startswith("/v1/data/dam")
            await route.fulfill(status=200 if allowed else 403, json=self.dataset(path.removeprefix("/v1/data")))
        else:
            file = DIST / path.lstrip("/")
            await route.fulfill(path=file, content_type=TYPES.get(file.suffix, "text/plain"))

    def token(self) -> str:
        self.tokens += 1
        now = int(time.time())
        changes = {"exp": now + LIFE_S, "jti": str(self.tokens)}
        return ISSUER.token(now, key=KEY_ID, prefixes=["/dam"], changes=changes)

    def dataset(self, endpoint: str) -> dict[str, Any]:
        version = self.versions[endpoint]
        point = {"time": "2026-01-01T00:00:00Z", "value": version % 1000}
        head = {"endpoint": endpoint, "version": version, "time": "2026-01-01T00:00:00Z"}
        return {**head, "unit": "MW", "resolution": "PT1H", "points": [point]}

    def put(self, endpoint: str) -> str:
        """Change an endpoint; return the value that a page then shows."""
        self.versions[endpoint] = self.system.feed.put(endpoint)
        return f"{self.versions[endpoint] % 1000} MW"


async def test_a_user_logs_in_is_refused_a_name_outlives_a_token_and_is_logged_out(
    tmp_path: Path, browser: Browser
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(ISSUER))
    limits: dict[str, Any] = {"anonymous": "off", "token_keys": [str(keys)]}
    async with small_system(tmp_path, **limits) as system:
        deployment = Deployment(system)
        deployment.put("/secret")
        value = deployment.put("/dam/a")
        # The page comes from no address of this machine, and is to reach a server that does.
        context = await browser.new_context(permissions=["local-network-access"])
        page = await context.new_page()
        errors: list[str] = []
        sockets: list[str] = []
        frames: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("websocket", lambda socket: sockets.append(socket.url))
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
        await page.route(f"{system.page}/**", deployment.serve)
        await page.goto(f"{system.page}/login.html")
        state, rows = page.locator("#state"), page.locator("#endpoints li")

        await page.fill("#key", "diem_wrong")
        await page.click("text=Log in")
        await expect(state).to_have_text("the key is not valid")
        assert sockets == []

        await page.fill("#key", "diem_good")
        await page.fill("#endpoint", "/dam/a")
        await page.click("text=Log in")
        await expect(state).to_have_text("logged in")
        await expect(rows).to_contain_text([value])
        await page.fill("#endpoint", "/secret")
        await page.click("text=Log in")
        await expect(rows).to_contain_text([value, "your key does not cover it"])

        for _ in itertools.takewhile(lambda _: deployment.tokens < 4, itertools.count()):
            await expect(rows.first).to_contain_text(deployment.put("/dam/a"))
            deployment.put("/secret")
        assert len(sockets) == 1
        assert "token" not in sockets[0]
        assert "ey" not in sockets[0]

        keys.write_bytes(key_set(ISSUER, revoked={KEY_ID: time.time()}))
        await expect(state).to_have_text("logged out: the key was revoked", timeout=60_000)
        assert [json.loads(frame) for frame in frames if '"/secret"' in frame and '"rejected"' not in frame] == []
        assert errors == []
