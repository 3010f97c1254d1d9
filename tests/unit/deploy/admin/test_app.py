import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from deploy.admin.app import make_app
from deploy.admin.sessions import WRONG_AT_ONCE, Sessions
from diem.process.clock import ManualClock

KEY = "a-key-of-the-operator-page"
HERE = "http://localhost:8090"
Browser = Callable[..., httpx.AsyncClient]


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """Return a function that opens a browser with cookies of its own at the page."""
    pages = tmp_path / "admin"
    (pages / "assets").mkdir(parents=True)
    (pages / "index.html").write_text("<title>overview</title>")
    (pages / "login.html").write_text("<title>sign in</title>")
    (pages / "assets" / "operator-abc.js").write_text("1")
    (tmp_path / "secret").write_text("secret")
    file = tmp_path / "operator.key"
    file.write_text(KEY)
    file.chmod(0o600)
    clock = ManualClock()

    async def latest() -> bytes:
        return b'{"headline":"All well"}'

    app = make_app(pages, Sessions(file, clock), latest)

    def opened(base: str = HERE) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base)

    return opened


async def log_in(client: httpx.AsyncClient, key: str = KEY, origin: str | None = HERE) -> httpx.Response:
    headers = {} if origin is None else {"Origin": origin}
    return await client.post("/admin/login", data={"user": "operator", "key": key}, headers=headers)


async def test_without_a_session_there_is_the_sign_in_and_nothing_else(browser: Browser) -> None:
    client = browser()
    answer = await client.get("/admin/")
    assert (answer.status_code, answer.headers["location"]) == (303, "login")
    assert "sign in" in (await client.get("/admin/login")).text
    refused = await client.get("/admin/status.json")
    assert (refused.status_code, refused.json()["code"]) == (401, "signed_out")
    for path in ("/", "/admin"):
        assert (await client.get(path)).headers["location"] == "admin/"


async def test_key_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(browser: Browser) -> None:
    client = browser()
    answer = await log_in(client)
    assert (answer.status_code, answer.headers["location"]) == (303, ".")
    cookie = answer.headers["set-cookie"]
    assert re.match(r"diem_operator_8090=[\w-]{43}; ", cookie)
    assert {"HttpOnly", "SameSite=strict", "Max-Age=43200"} <= set(cookie.split("; "))
    assert KEY not in cookie
    assert "overview" in (await client.get("/admin/")).text
    shown = await client.get("/admin/status.json")
    assert (shown.status_code, shown.json(), shown.headers["cache-control"]) == (
        200,
        {"headline": "All well"},
        "no-store",
    )


async def test_cookie_has_the_port_by_which_the_browser_connects(browser: Browser) -> None:
    assert (
        (await log_in(browser("http://localhost:9999"), origin="http://localhost:9999"))
        .headers["set-cookie"]
        .startswith("diem_operator_9999=")
    )


async def test_sign_out_ends_the_session_itself(browser: Browser) -> None:
    client = browser()
    await log_in(client)
    cookies = dict(client.cookies)
    answer = await client.post("/admin/logout", headers={"Origin": HERE})
    assert (answer.status_code, answer.headers["location"]) == (303, "login")
    assert (
        await browser().get("/admin/status.json", headers={"Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())})
    ).status_code == 401


async def test_wrong_keys_are_refused_and_many_of_them_slowly(browser: Browser) -> None:
    client = browser()
    for _ in range(WRONG_AT_ONCE):
        assert (await log_in(client, "wrong")).headers["location"] == "login#wrong"
    assert (await log_in(client, "wrong")).headers["location"] == "login#later"
    assert not client.cookies
    assert (await log_in(client)).headers["location"] == "."


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "localhost.evil.example", "", "[::2]:8090"])
async def test_a_foreign_host_is_refused_on_every_path(browser: Browser, host: str) -> None:
    client = browser()
    await log_in(client)
    for path in ("/admin/", "/admin/login", "/admin/status.json", "/admin/assets/operator-abc.js"):
        assert (await client.get(path, headers={"Host": host})).status_code == 400


@pytest.mark.parametrize(
    "origin", [None, "null", "http://localhost:5173", "https://localhost:8090", "http://127.0.0.1:8090"], ids=str
)
async def test_forms_are_accepted_from_the_page_itself_only(browser: Browser, origin: str | None) -> None:
    assert (await log_in(browser(), origin=origin)).status_code == 403


@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "http://localhost:5173"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    ],
    ids=["origin", "same-site", "cross-site"],
)
async def test_pages_of_other_ports_read_nothing_though_they_send_the_cookie(
    browser: Browser, fields: dict[str, str]
) -> None:
    client = browser()
    await log_in(client)
    answer = await client.get("/admin/status.json", headers=fields)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    link = await client.get("/admin/", headers={"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"})
    assert link.status_code == 200


async def test_every_answer_has_the_policies(browser: Browser) -> None:
    client = browser()
    for path in ("/admin/", "/admin/login", "/admin/status.json", "/admin/assets/operator-abc.js", "/nothing"):
        headers = (await client.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


async def test_files_are_the_page_and_nothing_beside_it(browser: Browser) -> None:
    client = browser()
    asset = await client.get("/admin/assets/operator-abc.js")
    assert (asset.text, asset.headers["cache-control"]) == ("1", "private, max-age=31536000, immutable")
    for path in ("/admin/assets/%2e%2e/index.html", "/admin/assets/..%2f..%2fsecret", "/admin/index.html", "/secret"):
        assert (await client.get(path)).status_code == 404


async def test_nothing_can_be_changed(browser: Browser) -> None:
    client = browser()
    await log_in(client)
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        for path in ("/admin/", "/admin/status.json"):
            assert (await client.request(method, path, headers={"Origin": HERE})).status_code == 405


async def test_an_oversized_form_is_refused(browser: Browser) -> None:
    assert (await log_in(browser(), "x" * 100_000)).status_code == 413


async def test_before_the_build_a_plain_page_explains_what_to_do(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "admin" / "login.html").unlink()
    answer = await browser().get("/admin/login")
    assert (answer.status_code, "make page" in answer.text) == (200, True)
