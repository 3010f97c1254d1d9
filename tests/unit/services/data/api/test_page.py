"""The page: caching by kind of file, and policies that allow its own servers only."""

from pathlib import Path

import httpx
import pytest

from tests.support.security_events import recorded_events
from tests.unit.services.data.conftest import BODY, Rest


@pytest.fixture
def built(rest: Rest) -> Path:
    (rest.page / "assets").mkdir(parents=True)
    (rest.page / "index.html").write_text("<!doctype html><title>page</title>")
    (rest.page / "assets" / "page-abc123.js").write_text("1")
    (rest.page / "icon.svg").write_text("<svg/>")
    (rest.page.parent / "secret").write_text("secret")
    return rest.page


async def test_before_the_build_a_plain_page_explains_what_to_do(rest: Rest) -> None:
    response = await rest.reader.get("/")
    assert response.status_code == 200
    assert "has not been built" in response.text
    assert (await rest.reader.get("/assets/page.js")).status_code == 404


@pytest.mark.usefixtures("built")
async def test_hashed_assets_are_immutable_and_the_page_is_revalidated(rest: Rest) -> None:
    page = await rest.reader.get("/")
    assert "<title>page</title>" in page.text
    assert page.headers["cache-control"] == "no-cache"
    assert (await rest.reader.get("/index.html")).headers["cache-control"] == "no-cache"
    assert (await rest.reader.get("/icon.svg")).headers["cache-control"] == "no-cache"
    asset = await rest.reader.get("/assets/page-abc123.js")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (await rest.reader.get("/assets/..%2ficon.svg")).headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("built")
async def test_no_answer_depends_on_a_time_that_was_modified(rest: Rest) -> None:
    """A clock that is wrong, ours or a reader's, would keep what is old: validators are versions and digests."""
    await rest.writer.put("/v1/data/a", json=BODY)
    for path in ("/", "/icon.svg", "/assets/page-abc123.js", "/v1/data/a", "/v1/endpoints", "/v1/history/a"):
        answer = await rest.reader.get(path, headers={"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})
        assert answer.status_code == 200, path
        assert {"last-modified", "expires"}.isdisjoint(answer.headers), path
        again = await rest.reader.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304, path


async def test_the_operator_page_is_elsewhere_and_only_this_machine_learns_where(rest: Rest, built: Path) -> None:
    (built / "admin").mkdir()
    (built / "admin" / "index.html").write_text("operator")
    options = {"operator_url": "http://localhost:8090/admin"}
    answer = await rest.make(options=options).get("/admin")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://localhost:8090/admin")
    assert (await rest.make(options=options, client="192.0.2.1").get("/admin")).status_code == 404
    assert (await rest.make().get("/admin")).status_code == 404
    hidden = ("/admin/", "/admin/index.html", "/admin/status.json")
    for path in (*hidden, "/%2fadmin", "/%2fadmin/index.html", "/assets/..%2fadmin/index.html"):
        assert (await rest.make(options=options).get(path)).status_code == 404


@pytest.mark.usefixtures("built")
async def test_the_page_may_connect_to_its_servers_and_nothing_else(rest: Rest) -> None:
    servers = [{"port": 8101, "path": "/ws"}, {"url": "wss://edge.example/ws"}]
    client = rest.make(options={"servers": servers})
    policy = (await client.get("/", headers={"Host": "127.0.0.1:8080"})).headers["content-security-policy"]
    here = [f"{scheme}://127.0.0.1:8101" for scheme in ("http", "https", "ws", "wss")]
    assert " ".join(["connect-src 'self'", *here, "https://edge.example", "wss://edge.example;"]) in policy
    assert "default-src 'none'" in policy
    assert "img-src 'self' blob: data:;" in policy, "images of endpoints; a blob of the page runs nothing as an image"
    assert "unsafe" not in policy


@pytest.mark.usefixtures("built")
async def test_the_page_may_connect_to_the_metadata_services_over_http_and_websocket(rest: Rest) -> None:
    metadata = [{"port": 8400, "path": "/v1"}, {"url": "https://meta.example/v1"}]
    client = rest.make(options={"metadata": metadata})
    policy = (await client.get("/", headers={"Host": "localhost:8080"})).headers["content-security-policy"]
    here = [f"{scheme}://localhost:8400" for scheme in ("http", "https", "ws", "wss")]
    assert " ".join([*here, "https://meta.example", "wss://meta.example;"]) in policy


@pytest.mark.usefixtures("built")
async def test_every_answer_forbids_content_sniffing(rest: Rest) -> None:
    for path in ("/", "/assets/page-abc123.js", "/config.json", "/v1/endpoints", "/nothing"):
        assert (await rest.reader.get(path)).headers["x-content-type-options"] == "nosniff"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/assets/..%2f..%2fsecret", "/assets", "/%00"])
async def test_nothing_outside_the_page_is_served(rest: Rest, path: str) -> None:
    response = await rest.reader.get(path)
    assert response.status_code == 404
    assert "secret" not in response.text


async def test_the_configuration_of_a_partitioned_deployment_names_the_metadata_services(rest: Rest) -> None:
    metadata = [{"port": 8400, "path": "/v1"}]
    client = rest.make(options={"mode": "z-client", "metadata": metadata})
    config = (await client.get("/config.json")).json()
    assert (config["mode"], config["metadata"]) == ("z-client", metadata)


async def test_the_configuration_names_mode_and_servers(rest: Rest) -> None:
    assert (await rest.reader.get("/config.json")).json() == {
        "mode": "single",
        "servers": [{"port": 8101, "path": "/ws"}],
        "rest": "v1",
    }


async def test_a_server_beside_the_page_is_named_relatively_to_those_who_come_through_the_proxy(rest: Rest) -> None:
    client = rest.make(options={"servers": [{"port": 8000, "path": "/ws", "href": "ws"}]})
    forwarded = await client.get("/config.json", headers={"X-Forwarded-For": "192.0.2.1"})
    assert forwarded.json()["servers"] == [{"port": 8000, "path": "/ws", "href": "ws"}]
    assert (await client.get("/config.json")).json()["servers"] == [{"port": 8000, "path": "/ws"}]


async def test_the_description_is_relative_to_its_own_address(rest: Rest) -> None:
    assert (await rest.reader.get("/openapi.json")).json()["servers"] == [{"url": "."}]


@pytest.fixture
def own(rest: Rest, built: Path) -> Path:
    """A directory of own pages, beside the built page."""
    own = rest.page.parent / "own"
    (own / "my shop").mkdir(parents=True)
    (own / "mine.html").write_text('<!doctype html><script type="module" src="/mine.js"></script>')
    (own / "mine.js").write_text('import { createDiem } from "/diem.js";')
    (own / "my shop" / "index.html").write_text("shop")
    (own / ".env").write_text("secret")
    (built / "diem.js").write_text("export {}")
    return own


async def test_own_pages_are_read_at_each_request_and_never_cached(rest: Rest, own: Path) -> None:
    client = rest.make(options={"own_pages": own})
    first = await client.get("/mine.js")
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-store")
    assert "javascript" in first.headers["content-type"]
    (own / "mine.js").write_text("changed")
    conditional = await client.get("/mine.js", headers={"If-None-Match": first.headers["etag"]})
    assert (conditional.status_code, conditional.text) == (200, "changed")
    (own / "new.html").write_text("new")
    assert (await client.get("/new.html")).text == "new"
    assert (await client.head("/new.html")).headers["content-length"] == "3"


async def test_own_pages_have_the_policies_of_the_page(rest: Rest, own: Path) -> None:
    client = rest.make(options={"own_pages": own})
    built, mine = await client.get("/"), await client.get("/mine.html")
    for name in ("content-security-policy", "x-frame-options", "x-content-type-options", "permissions-policy"):
        assert built.headers[name].startswith(mine.headers[name])
    assert "script-src 'self';" in mine.headers["content-security-policy"]


@pytest.mark.usefixtures("built")
async def test_the_built_page_makes_no_markup_of_strings_and_own_pages_may(rest: Rest, own: Path) -> None:
    client = rest.make(options={"own_pages": own})
    policies = [(await client.get(path)).headers["content-security-policy"] for path in ("/diem.js", "/mine.html")]
    assert ["require-trusted-types-for 'script'; trusted-types 'none'" in each for each in policies] == [True, False]


async def test_own_pages_are_beside_the_sdk_and_come_first(rest: Rest, own: Path) -> None:
    client = rest.make(options={"own_pages": own})
    assert (await client.get("/diem.js")).text == "export {}"
    assert "<title>page</title>" in (await client.get("/")).text
    (own / "index.html").write_text("mine")
    (own / "config.json").write_text("mine")
    (own / "v1").mkdir()
    (own / "v1" / "endpoints").write_text("mine")
    assert (await client.get("/")).text == "mine"
    assert "rest" in (await client.get("/config.json")).json()
    assert "mine" not in (await client.get("/v1/endpoints")).text
    assert (await client.get("/v1/other")).status_code == 404


async def test_own_directory_without_its_slash_is_redirected_on_the_same_host(rest: Rest, own: Path) -> None:
    client = rest.make(options={"own_pages": own})
    redirect = await client.get("/my%20shop?day=1")
    assert (redirect.status_code, redirect.headers["location"]) == (307, "./my%20shop/?day=1")
    assert (await client.get("/my%20shop/")).text == "shop"


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/my%20shop/..%2f..%2fsecret", "/.env", "/%00"])
async def test_nothing_outside_the_own_pages_is_served(rest: Rest, own: Path, path: str) -> None:
    (own / "link").symlink_to("../secret")
    client = rest.make(options={"own_pages": own})
    for each in (path, "/link"):
        response = await client.get(each)
        assert response.status_code == 404
        assert "secret" not in response.text


DEV, OTHER = "http://localhost:5173", "https://other.example"
ALLOW = "access-control-allow-origin"


async def config_for(rest: Rest, origin: str | None, **options: frozenset[str]) -> httpx.Response:
    client = rest.make(options={"client_origins": frozenset({DEV}), **options})
    return await client.get("/config.json", headers={} if origin is None else {"Origin": origin})


async def test_a_page_that_is_not_admitted_may_read_why_and_nothing_else(rest: Rest) -> None:
    with recorded_events() as events:
        answer = await config_for(rest, OTHER)
    detail = f"{OTHER} is not an allowed origin; if this page is yours, add it with --origin"
    assert answer.json() == {"allowed": False, "reason": "origin", "detail": detail}
    assert (answer.headers[ALLOW], answer.headers["vary"]) == ("*", "Origin")
    assert [(line["origin"], line["detail"]) for line in events.of("forbidden")] == [(OTHER, detail)]


@pytest.mark.parametrize("origin", [None, "http://localhost:8080"])
async def test_the_pages_own_configuration_says_nothing_of_origins(rest: Rest, origin: str | None) -> None:
    answer = await config_for(rest, origin)
    assert answer.json()["servers"]
    assert "allowed" not in answer.json()
    assert ALLOW not in answer.headers


async def test_a_page_that_may_connect_and_read_gets_the_configuration(rest: Rest) -> None:
    answer = await config_for(rest, DEV, cors_origins=frozenset({DEV}))
    assert answer.headers[ALLOW] == DEV
    assert "allowed" not in answer.json()
    # Connecting alone is not enough for the SDK, which fetches what does not come with updates.
    assert (await config_for(rest, DEV)).json()["allowed"] is False


async def test_a_page_that_may_read_and_not_connect_gets_the_configuration_and_the_reason(rest: Rest) -> None:
    answer = await config_for(rest, OTHER, cors_origins=frozenset({OTHER}))
    assert answer.headers[ALLOW] == OTHER
    assert (answer.json()["rest"], answer.json()["allowed"]) == ("v1", False)
