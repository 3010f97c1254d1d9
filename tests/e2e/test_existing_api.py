"""The guide to live updates for an API that one already has, followed to its page in a browser."""

from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.async_api import Browser, expect

from tests.support.guides import ROOT, walking
from tests.support.ports import free_port
from tests.support.required import in_cluster

pytestmark = [in_cluster("it takes 5 s of CPU time"), pytest.mark.chromium, pytest.mark.asyncio(loop_scope="session")]

GUIDE: Final = ROOT / "docs" / "guide" / "live-updates-for-your-api.md"


@pytest.mark.takes(12)
async def test_the_page_of_an_existing_api_shows_each_change_with_the_rights_of_its_user(
    tmp_path: Path, browser: Browser
) -> None:
    ports = {port: str(free_port()) for port in ("8080", "8101", "8200")}
    shop = f"http://localhost:{ports['8200']}"
    async with walking(tmp_path, ports, instead={}) as walk, httpx.AsyncClient(trust_env=False) as http:
        await walk.follow(GUIDE)
        page = await browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(shop)
        await expect(page.locator("#order")).to_have_text("Bicycle: sent")
        for state in ("on its way", "delivered"):
            (await http.put(f"{shop}/orders/7", json={"state": state})).raise_for_status()
            await expect(page.locator("#order")).to_have_text(f"Bicycle: {state}")
        assert errors == []

        # What the token does not cover is refused, before and after there is a notice of it.
        (await http.put(f"{shop}/orders/8", json={"state": "sent"})).raise_for_status()
        refused = await page.evaluate(
            f"""async () => {{
              const {{ createDiem }} = await import("http://localhost:{ports["8080"]}/diem.js");
              const token = async () => (await (await fetch("/diem-token")).json()).token;
              const diem = createDiem({{ configUrl: "http://localhost:{ports["8080"]}/config.json", token }});
              return new Promise((resolve) => diem.watch("/orders/8", () => {{}}, (problem) => resolve(problem.code)));
            }}"""
        )
        assert refused == "forbidden"
        data = await http.get(f"http://localhost:{ports['8080']}/v1/data/orders/7")
        assert data.status_code == 401
        forged = await http.post(f"http://localhost:{ports['8080']}/v1/hooks/shop", json={"data": {"id": "7"}})
        assert forged.status_code == 401
        await page.close()
