import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.clients.data_service import (
    KEYS_PATH,
    BadUrl,
    DataService,
    DataServiceUnavailable,
    RequestRefused,
    ServiceRefused,
    Upload,
    admin_service,
    data_service,
)
from deploy.system.state_dir import NotUp, StateDir
from diem.process.auth import SharedKey

KEY = SharedKey("0123456789abcdef")
CSV = Upload(b"time,value\n", "text/csv", {"unit": "MW"}, {"If-None-Match": "*"})


class Server:
    """Answers every request of the commands with one reply, and keeps the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reply: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._reply = reply
        real = httpx.AsyncClient
        transport = httpx.MockTransport(self._answer)
        monkeypatch.setattr("httpx.AsyncClient", lambda **options: real(transport=transport, **options))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


async def test_file_is_sent_with_key_type_and_declared_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"endpoint": "/a/b", "version": 5, "changed": True}))
    answer = await DataService("http://h:1").put(KEY, "/a/b", CSV)
    assert answer["version"] == 5
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("PUT", "http://h:1/v1/data/a/b?unit=MW")
    assert (request.headers["Content-Type"], request.headers["If-None-Match"]) == ("text/csv", "*")
    assert request.headers["Authorization"] == KEY.header
    assert request.content == b"time,value\n"


async def test_token_is_requested_with_the_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"token": "a.b.c", "expires": 1_700_000_900}))
    assert await DataService("http://h:1").client_token(KEY) == "a.b.c"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("POST", "http://h:1/v1/tokens")
    assert request.headers["Authorization"] == KEY.header


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (httpx.Response(401, json={"detail": "no such key"}), "the Data Service refuses: no such key"),
        (httpx.Response(200, text="<html>"), "POST /v1/tokens gives no token"),
        (httpx.Response(200, json=[]), "POST /v1/tokens gives no token"),
    ],
)
async def test_no_token_is_an_error(monkeypatch: pytest.MonkeyPatch, reply: httpx.Response, expected: str) -> None:
    Server(monkeypatch, reply)
    with pytest.raises((ServiceRefused, DataServiceUnavailable), match=expected):
        await DataService("http://h:1").client_token(KEY)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (httpx.Response(422, json={"detail": "value is not a number", "line": 3}), "value is not a number (line 3)"),
        (httpx.Response(422, json={"detail": "line 3: not\na number", "line": 3}), "line 3: not a number"),
        (httpx.Response(401, json={"title": "Unauthorized"}), "Unauthorized"),
        (httpx.Response(500, text="<html>"), "Internal Server Error"),
        (httpx.Response(503, json=[]), "Service Unavailable"),
    ],
)
async def test_refusal_is_one_line_with_the_problem_detail(
    monkeypatch: pytest.MonkeyPatch, reply: httpx.Response, expected: str
) -> None:
    Server(monkeypatch, reply)
    with pytest.raises(RequestRefused) as caught:
        await DataService("http://h:1").put(KEY, "/a", CSV)
    assert str(caught.value) == f"/a was not stored ({reply.status_code}): {expected}"


async def test_data_service_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch, httpx.ConnectError("All connection attempts failed"))
    with pytest.raises(DataServiceUnavailable, match="at http://h:1 does not answer: All connection"):
        await DataService("http://h:1").put(KEY, "/a", CSV)


@pytest.mark.parametrize("mode", ["z-client", "z-proxy"])
async def test_edges_are_those_of_the_page_configuration_and_metadata_services_in_z_client_alone(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    servers = [
        {"port": 8101, "path": "/ws"},
        {"url": "wss://edge.example/ws"},
        {"href": "ws", "port": 1, "path": "/ws"},
    ]
    metadata = [{"port": 8400, "path": "/v1"}, {"url": "https://m/v1"}]
    Server(monkeypatch, httpx.Response(200, json={"servers": servers, "mode": mode, "metadata": metadata}))
    located = ["http://h:8400/v1", "https://m/v1"] if mode == "z-client" else []
    found = ["ws://h:8101/ws", "wss://edge.example/ws", "ws://h:1/app/ws"]
    assert await DataService("http://h:1/app").edges() == (found, located)
    assert (await DataService("https://[::1]:1").edges()).servers[0] == "wss://[::1]:8101/ws"


@pytest.mark.parametrize("reply", [httpx.Response(404), httpx.Response(200, text="x"), httpx.Response(200, json=[])])
async def test_response_of_another_server_is_an_error(monkeypatch: pytest.MonkeyPatch, reply: httpx.Response) -> None:
    Server(monkeypatch, reply)
    with pytest.raises(DataServiceUnavailable, match=r"GET /config.json gives"):
        await DataService("http://h:1").edges()


def test_data_service_is_the_running_or_the_named_one(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    with pytest.raises(NotUp):
        data_service(state, None)
    state.write_processes({"urls": {"page": "http://127.0.0.1:8080/"}})
    assert data_service(state, None).base == "http://127.0.0.1:8080"
    assert data_service(state, "https://h.example/").base == "https://h.example"


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "http://", "http://h/v1", "http://h:x", "http://[::1"])
def test_bad_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadUrl, match="--url is"):
        data_service(StateDir(tmp_path), url)


SHARED = SharedKey("a-shared-key-of-the-tests")
PROCESSES = {
    "processes": [
        {"process": "websocket", "urls": {"internal": "http://127.0.0.1:9101"}},
        {"process": "data", "urls": {"internal": "http://127.0.0.1:9080"}},
    ]
}


def recorded_requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, dict[str, Any]]]:
    """Record the requests to a service that does not answer."""
    requests: list[tuple[str, str, dict[str, Any]]] = []

    async def request(service: DataService, method: str, path: str, **options: Any) -> None:
        requests.append((method, service.base + path, options))
        raise DataServiceUnavailable(service.base, "refused")

    monkeypatch.setattr(DataService, "request", request)
    return requests


async def test_key_service_is_that_of_the_running_diem_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requests = recorded_requests(monkeypatch)
    (tmp_path / "processes.json").write_text(json.dumps(PROCESSES))
    with pytest.raises(DataServiceUnavailable):
        await admin_service(StateDir(tmp_path), None, SHARED).create("a", plan="free")
    with pytest.raises(DataServiceUnavailable):
        await admin_service(StateDir(tmp_path), "http://10.0.0.1:9080/", SHARED).revoke("abcd1234")
    assert requests == [
        ("POST", "http://127.0.0.1:9080/v1/keys", {"json": {"name": "a", "plan": "free"}}),
        ("DELETE", "http://10.0.0.1:9080/v1/keys/abcd1234", {}),
    ]


async def test_invalid_key_id_is_rejected_without_a_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requests = recorded_requests(monkeypatch)
    for text in ("", "../x", "a b", "é"):
        with pytest.raises(ServiceRefused):
            await admin_service(StateDir(tmp_path), "http://10.0.0.1:9080", SHARED).revoke(text)
    assert requests == []


def test_key_service_that_is_neither_named_rightly_nor_running_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadUrl, match="--data is"):
        admin_service(StateDir(tmp_path), "http://a/v1/keys", SHARED)
    with pytest.raises(NotUp):
        admin_service(StateDir(tmp_path), None, SHARED)


def test_client_and_service_have_the_same_path() -> None:
    from services.data.api.keys import PREFIX  # noqa: PLC0415  # for this comparison alone

    assert KEYS_PATH == PREFIX
