"""The page: caching by kind of file, and policies that allow its own servers only."""

from pathlib import Path

import pytest

from tests.unit.services.data.conftest import Rest


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


@pytest.mark.usefixtures("built")
async def test_the_page_may_connect_to_its_servers_and_nothing_else(rest: Rest) -> None:
    servers = [{"port": 8101, "path": "/ws"}, {"url": "wss://edge.example/ws"}]
    client = rest.make(options={"servers": servers})
    policy = (await client.get("/", headers={"Host": "127.0.0.1:8080"})).headers["content-security-policy"]
    assert "connect-src 'self' ws://127.0.0.1:8101 wss://127.0.0.1:8101 wss://edge.example;" in policy
    assert "default-src 'none'" in policy
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
        "rest": "/v1",
    }
