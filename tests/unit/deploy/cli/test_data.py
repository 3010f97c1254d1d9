import asyncio
import io
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import httpx
import pytest

from deploy.cli import data as module
from deploy.cli.data import (
    MAX_FILE_BYTES,
    describe,
    guess_form,
    read_file,
    watch,
)
from deploy.cli.options import UnusableFile
from deploy.clients.data_service import DataService, DataServiceUnavailable, RequestRefused, ServiceRefused
from deploy.clients.updates import ANONYMOUS, Credentials, credentials_of
from diem.errors import DiemError
from diem.links.client import Event, TokenFunction
from diem.process.auth import SharedKey
from tests.unit.deploy.clients.test_data_service import Server

URL = ("--url", "http://h:1")
BODY = b'{"endpoint":"/a/b","version":5}'


@pytest.fixture
def write_key(tmp_path: Path) -> str:
    (tmp_path / ".diem").mkdir(0o700)
    return SharedKey.create(tmp_path / ".diem" / "write.key").header


def test_get_prints_json_with_anonymous_access(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, content=BODY))
    assert diem("get", "/a/b", *URL) == 0
    assert capfdbinary.readouterr().out == BODY + b"\n"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("GET", "http://h:1/v1/data/a/b")
    assert request.headers["Accept"] == "*/*"
    assert "Authorization" not in request.headers


def test_old_version_is_written_to_a_file_as_csv_with_an_api_key(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, content=b"time,value\n"))
    key = SharedKey.create(tmp_path / "key")
    assert diem("get", "/a", *URL, "--csv", "--version", "7", "-o", "a.csv", "--key-file", "key") == 0
    assert (tmp_path / "a.csv").read_bytes() == b"time,value\n"
    assert capsys.readouterr().out == ""
    (request,) = server.requests
    assert str(request.url) == "http://h:1/v1/data/a?version=7"
    assert request.headers["Accept"] == "text/csv"
    assert request.headers["Authorization"] == key.header


def test_failed_get_is_a_one_line_error_and_keeps_the_file(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("before")
    Server(monkeypatch, httpx.Response(404, json={"detail": "there is no endpoint /a"}))
    assert diem("get", "/a", *URL, "-o", "a") == 1
    assert (tmp_path / "a").read_text() == "before"
    assert capsys.readouterr().err == "diem: /a was not read (404): there is no endpoint /a\n"


def test_unwritable_file_is_a_one_line_error(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(200, content=BODY))
    assert diem("get", "/a", *URL, "-o", "none/a") == 2
    assert capsys.readouterr().err == "diem: none/a: No such file or directory\n"


def test_deletion_with_yes_is_not_confirmed(
    diem: Callable[..., int], write_key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"endpoint": "/a", "version": 6, "changed": True}))
    assert diem("delete", "/a", *URL, "--yes") == 0
    assert capsys.readouterr().out == "/a deleted as of version 6\n"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("DELETE", "http://h:1/v1/data/a")
    assert request.headers["Authorization"] == write_key


class Keyboard(io.StringIO):
    """Standard input of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 130)])
@pytest.mark.usefixtures("write_key")
def test_deletion_is_confirmed_at_a_terminal(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, code: int
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    assert diem("delete", "/a", *URL) == code
    err = capsys.readouterr().err
    assert "Delete /a at http://h:1? [y/N]" in err
    assert ("/a was not deleted" in err) == (code == 1)
    assert len(server.requests) == (code == 0)


@pytest.mark.usefixtures("write_key")
def test_deletion_without_a_terminal_needs_yes(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert diem("delete", "/a", *URL) == 2
    assert capsys.readouterr().err == "diem: this needs confirmation, and there is no terminal: add --yes\n"
    assert not server.requests


@pytest.mark.usefixtures("write_key")
def test_refused_deletion_is_a_one_line_error(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(409, json={"detail": "the source market keeps /a"}))
    assert diem("delete", "/a", *URL, "-y") == 1
    assert capsys.readouterr().err == "diem: /a was not deleted (409): the source market keeps /a\n"


class FakeService(DataService):
    """A Data Service with given documents."""

    __slots__ = ()
    servers: Sequence[Mapping[str, Any]] = ({"port": 1, "path": "/ws"},)
    stored: ClassVar[Mapping[str, Any] | None] = None

    async def json(self, path: str, key: SharedKey | None = None) -> dict[str, Any]:
        if path == "/config.json":
            return {"servers": self.servers}
        return {"endpoints": [{"endpoint": "/known"}]}

    async def get(self, _key: SharedKey | None, endpoint: str, form: str, version: int | None) -> bytes:
        if self.stored is None:
            raise DataServiceUnavailable(self.base, "gone for lunch")
        assert form == "json"
        if version not in {None, self.stored["version"]}:
            raise RequestRefused(endpoint, "read", 404, "not kept")
        return json.dumps({**self.stored, "endpoint": endpoint}).encode()


class FakeClient:
    """A client that yields the given events."""

    events: Sequence[Event] = ()
    subscribed: Sequence[str] = ()
    data: ClassVar[bool]
    tokens: ClassVar[list[TokenFunction | None]] = []
    """The functions that clients were given."""

    def __init__(
        self, urls: Sequence[str], *, origin: str | None, token: TokenFunction | None, tls: None, data: bool
    ) -> None:
        type(self).data = data
        assert list(urls) == ["ws://h:1/ws"]
        type(self).tokens.append(token)
        assert (origin, tls) == ("http://h:2", None)
        self._left = list(self.events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass

    def correct(self, name: str, version: int) -> None:
        raise AssertionError("the service has what was announced")

    async def subscribe(self, known: Mapping[str, int | None]) -> None:
        type(self).subscribed = list(known)
        assert set(known.values()) == {None}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop(0)


UPDATE = Event("update", "/known", 1_700_000_000_123)
CLOSED = Event("closed", code=4500, message="bad request")
SERVICE = FakeService("http://h:2")


async def watched(
    monkeypatch: pytest.MonkeyPatch,
    events: Sequence[Event],
    credentials: Credentials = ANONYMOUS,
    *,
    as_json: bool = False,
    with_data: bool = False,
) -> tuple[list[str], list[str]]:
    monkeypatch.setattr("deploy.clients.updates.UpdatesClient", FakeClient)
    monkeypatch.setattr(FakeClient, "events", events)
    printed: list[str] = []
    noted: list[str] = []
    with pytest.raises(DiemError, match=r"closed the connection \(4500: bad request\)"):
        await watch(
            SERVICE,
            ["/known", "/new"],
            printed.append,
            noted.append,
            credentials,
            as_json=as_json,
            with_data=with_data,
        )
    return printed, noted


async def test_updates_go_to_standard_output_and_other_events_to_standard_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed, noted = await watched(monkeypatch, [Event("open", message="ws://h:1/ws"), UPDATE, CLOSED])
    assert [line.partition("  ")[2] for line in printed] == ["/known  version 1700000000123  2023-11-14T22:13:20.123Z"]
    assert noted[0] == "/new is not in the catalogue yet: watching it anyway"
    assert noted[1].endswith("connected to ws://h:1/ws")
    assert FakeClient.subscribed == ["/known", "/new"]


POINTS = {"version": 5, "unit": "MW", "points": [{"time": "t", "value": 1.5}, {"time": "u", "value": None}]}


@pytest.mark.parametrize("as_json", [True, False])
async def test_values_are_printed_whether_they_come_with_the_update_or_not(
    monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    monkeypatch.setattr(FakeService, "stored", {**POINTS, "version": 6})
    events = [
        Event("update", "/known", 5, data=POINTS),
        Event("update", "/gone", 7, gone=True),
        Event("update", "/b", 6),
        Event("update", "/c", 4),
    ]
    printed, _ = await watched(monkeypatch, [*events, CLOSED], as_json=as_json, with_data=True)
    assert FakeClient.data
    if as_json:
        objects = [each for each in map(json.loads, printed) if each["event"] == "update"]
        assert [(each.get("version"), each.get("data", {}).get("version")) for each in objects] == [
            (5, 5),
            (7, None),
            (6, 6),
            (6, 6),  # version 4 is not kept
        ]
    else:
        assert [line.split("  ", 2)[2] for line in printed] == [
            "version 5  1970-01-01T00:00:00.005Z  MW: 1.5 -",
            "gone 7  1970-01-01T00:00:00.007Z",
            "version 6  1970-01-01T00:00:00.006Z  MW: 1.5 -",
            "version 6  1970-01-01T00:00:00.006Z  MW: 1.5 -",
        ]


async def test_values_that_cannot_be_fetched_leave_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, noted = await watched(monkeypatch, [UPDATE, CLOSED], with_data=True)
    assert printed[0].endswith("/known  version 1700000000123  2023-11-14T22:13:20.123Z")
    assert any("/known  error: " in line and "gone for lunch" in line for line in noted)
    await watched(monkeypatch, [CLOSED])
    assert not FakeClient.data


async def test_failed_attempts_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, noted = await watched(monkeypatch, [Event("closed")] * 5 + [CLOSED])
    assert sum(line.endswith("no connection") for line in noted) == 1


async def test_json_has_every_event_as_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, _ = await watched(monkeypatch, [Event("status", live=False), UPDATE, CLOSED], as_json=True)
    objects = [json.loads(line) for line in printed]
    assert [entry["event"] for entry in objects] == ["status", "update", "closed"]
    assert objects[0]["live"] is False
    assert objects[1]["version"] == 1_700_000_000_123
    assert "gone" not in objects[1]


async def test_repeated_status_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    live, not_live = Event("status", live=True), Event("status", live=False)
    _, noted = await watched(monkeypatch, [live, UPDATE, live, not_live, not_live, live, CLOSED])
    statuses = [line.partition("  ")[2] for line in noted if "live" in line]
    assert statuses == ["live", "not live: data may be out of date", "live"]


async def test_status_is_printed_again_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    live, opened = Event("status", live=True), Event("open", message="ws://h:1/ws")
    _, noted = await watched(monkeypatch, [opened, live, Event("closed", code=1006), opened, live, live, CLOSED])
    assert [line.partition("  ")[2] for line in noted if line.endswith("  live")] == ["live", "live"]


async def test_watch_gets_tokens_for_its_api_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await watched(monkeypatch, [CLOSED])
    assert FakeClient.tokens[-1] is None
    key = SharedKey.create(tmp_path / "key")
    await watched(monkeypatch, [CLOSED], credentials_of(tmp_path / "key", None))
    function = FakeClient.tokens[-1]
    assert function is not None
    server = Server(monkeypatch, httpx.Response(200, json={"token": "a.b.c", "expires": 1}))
    assert await cast("Awaitable[str]", function()) == "a.b.c"
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("POST", "http://h:2/v1/tokens")
    assert request.headers["Authorization"] == key.header


async def test_watch_reads_its_token_file_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("header.claims.signature1\n")
    file.chmod(0o600)
    await watched(monkeypatch, [CLOSED], credentials_of(None, file))
    function = FakeClient.tokens[-1]
    assert function is not None
    assert function() == "header.claims.signature1"
    file.write_text("header.claims.signature2\n")
    assert function() == "header.claims.signature2"


async def test_watch_takes_a_token_that_only_servers_accept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def refuse(*_: object) -> set[str]:
        raise ServiceRefused("the Data Service", 401, "this is no token of this service")

    monkeypatch.setattr(FakeService, "endpoints", refuse)
    (tmp_path / "token").write_text("header.claims.signature")
    (tmp_path / "token").chmod(0o600)
    _, noted = await watched(monkeypatch, [CLOSED], credentials_of(None, tmp_path / "token"))
    assert not any("catalogue" in line for line in noted)
    SharedKey.create(tmp_path / "key")
    with pytest.raises(ServiceRefused):
        await watch(SERVICE, ["/known"], print, print, credentials_of(tmp_path / "key", None))


def test_token_file_that_others_may_read_is_refused(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(200, json={"servers": [{"port": 1, "path": "/ws"}]}))
    (tmp_path / "token").write_text("header.claims.signature")
    (tmp_path / "token").chmod(0o644)
    assert diem("watch", "/a", *URL, "--token-file", "token") == 2
    assert "others may read it" in capsys.readouterr().err


def test_get_sends_a_token(diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server(monkeypatch, httpx.Response(200, content=BODY))
    (tmp_path / "token").write_text("header.claims.signature")
    (tmp_path / "token").chmod(0o600)
    assert diem("get", "/a/b", *URL, "--token-file", "token") == 0
    assert server.requests[0].headers["Authorization"] == "Bearer header.claims.signature"


def test_a_key_and_a_token_are_one_too_many(diem: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("get", "/a", *URL, "--key-file", "key", "--token-file", "token") == 2
    assert "choose one of them" in capsys.readouterr().err


async def test_service_without_servers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeService, "servers", ())
    with pytest.raises(DataServiceUnavailable, match="has no WebSocket server"):
        await watch(SERVICE, ["/known"], print, print)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("subscribed", "/a", None), "/a  subscribed, no data yet"),
        (Event("subscribed", "/a", 5), "/a  subscribed, at version 5"),
        (Event("update", "/a", 5, gone=True), "/a  gone 5  1970-01-01T00:00:00.005Z"),
        (Event("status", live=False), "not live: data may be out of date"),
        (Event("status", live=True), "live"),
        (Event("status", "/a", live=False), "/a  not live: data may be out of date"),
        (Event("resync", "/a"), "/a  resync: fetch it again"),
        (Event("rejected", "/a", message="forbidden: no"), "/a  rejected: forbidden: no"),
        (Event("error", message="rate: slow down"), "server  error: rate: slow down"),
        (Event("closed", code=1012, message="retry=500"), "connection closed (1012): retry=500"),
        (Event("closed", code=429, message="429: too many"), "refused: 429: too many"),
        (Event("closed"), "no connection"),
    ],
)
def test_every_event_is_described(event: Event, text: str) -> None:
    assert describe(event) == text


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
def test_form_is_guessed_by_name_or_content(file: str, content: bytes, form: str) -> None:
    assert guess_form(file, content) == form


def test_content_comes_from_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert read_file(str(tmp_path / "a")) == b"x"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y")))
    assert read_file("-") == b"y"


def test_standard_input_can_be_interrupted(diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: str) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        raise UnusableFile(file, "interrupted")

    monkeypatch.setattr(module, "read_file", interrupted)
    assert diem("put", "/a", "-", *URL) == 2


@pytest.mark.usefixtures("write_key")
def test_options_of_put_are_the_query(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("time,value\n2026-01-01T02:00,1\n")
    server = Server(monkeypatch, httpx.Response(200, json={"version": 6}))
    options = ("--unit", "MW", "--zone", "Europe/Athens", "--title", "Load", "--area", "GR", "--quantity", "load")
    assert diem("put", "/a", "a.csv", *URL, *options) == 0
    assert dict(server.requests[0].url.params) == {
        "unit": "MW", "zone": "Europe/Athens", "title": "Load", "area": "GR", "quantity": "load"
    }  # fmt: skip


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="No such file"):
        read_file(str(tmp_path / "none"))
    (tmp_path / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(UnusableFile, match="which no endpoint holds: split it"):
        read_file(str(tmp_path / "big"))
