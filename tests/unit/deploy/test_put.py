import io
import sys
from pathlib import Path

import httpx
import pytest

from deploy.found import BadUrl, DataService, DataServiceUnavailable, data_service
from deploy.put import MAX_BYTES, RequestRefused, UnusableFile, Upload, guess_form, put, read
from deploy.statedir import NotUp, StateDir
from diem.process.auth import SharedKey

KEY = SharedKey("0123456789abcdef")
CSV = Upload(b"time,value\n", "csv", {"unit": "MW"})


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
    answer = await put(DataService("http://h:1"), KEY, "/a/b", CSV)
    assert answer["version"] == 5
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("PUT", "http://h:1/v1/data/a/b?unit=MW")
    assert request.headers["Content-Type"] == "text/csv"
    assert request.headers["Authorization"] == KEY.header
    assert request.content == b"time,value\n"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (httpx.Response(422, json={"detail": "value is not a number", "line": 3}), "value is not a number (line 3)"),
        (httpx.Response(422, json={"detail": "line 3: not\na number", "line": 3}), "line 3: not a number"),
        (httpx.Response(401, json={"title": "Unauthorized"}), "Unauthorized"),
        (httpx.Response(500, text="<html>"), "Internal Server Error"),
        (httpx.Response(503, json=[]), "Service Unavailable"),
    ],
)
async def test_refusal_is_one_line_with_what_the_problem_document_says(
    monkeypatch: pytest.MonkeyPatch, reply: httpx.Response, said: str
) -> None:
    Server(monkeypatch, reply)
    with pytest.raises(RequestRefused) as caught:
        await put(DataService("http://h:1"), KEY, "/a", CSV)
    assert str(caught.value) == f"/a was not stored ({reply.status_code}): {said}"


async def test_data_service_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Server(monkeypatch, httpx.ConnectError("All connection attempts failed"))
    with pytest.raises(DataServiceUnavailable, match="at http://h:1 does not answer: All connection"):
        await put(DataService("http://h:1"), KEY, "/a", CSV)


@pytest.mark.parametrize(
    ("file", "content", "form"),
    [
        ("a.csv", b"{", "csv"),
        ("a.JSON", b"", "json"),
        ("-", b' {"unit"', "json"),
        ("-", b"time,value", "csv"),
        ("a.txt", b"", "csv"),
    ],
)
def test_form_is_known_by_name_or_content(file: str, content: bytes, form: str) -> None:
    assert guess_form(file, content) == form


def test_content_comes_from_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert read(str(tmp_path / "a")) == b"x"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y")))
    assert read("-") == b"y"


def test_unusable_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="No such file"):
        read(str(tmp_path / "none"))
    (tmp_path / "big").write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(UnusableFile, match="larger than"):
        read(str(tmp_path / "big"))


async def test_websocket_servers_are_those_that_the_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [{"port": 8101, "path": "/ws"}, {"url": "wss://edge.example/ws"}]
    Server(monkeypatch, httpx.Response(200, json={"servers": servers}))
    assert await DataService("http://h:1").websocket_urls() == ["ws://h:8101/ws", "wss://edge.example/ws"]
    assert (await DataService("https://[::1]:1").websocket_urls())[0] == "wss://[::1]:8101/ws"


@pytest.mark.parametrize("reply", [httpx.Response(404), httpx.Response(200, text="x"), httpx.Response(200, json=[])])
async def test_answer_that_is_no_data_services_is_an_error(
    monkeypatch: pytest.MonkeyPatch, reply: httpx.Response
) -> None:
    Server(monkeypatch, reply)
    with pytest.raises(DataServiceUnavailable, match=r"GET /config.json gives"):
        await DataService("http://h:1").websocket_urls()


def test_data_service_is_the_one_that_is_up_or_the_named_one(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    with pytest.raises(NotUp):
        data_service(state, None)
    state.write_processes({"urls": {"page": "http://127.0.0.1:8080/"}})
    assert data_service(state, None).base == "http://127.0.0.1:8080"
    assert data_service(state, "https://h.example/").base == "https://h.example"


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "http://", "http://h/v1"])
def test_bad_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadUrl, match="--url is"):
        data_service(StateDir(tmp_path), url)
