import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import httpx
import pytest

from deploy.cli.watch import MAX_VALUE_CHARS, EventPrinter, as_object, describe, watch
from deploy.clients.data_service import (
    DataService,
    DataServiceUnavailable,
    RequestRefused,
    ServiceRefused,
    StoredContent,
)
from deploy.clients.updates import ANONYMOUS, Credentials, credentials_of
from diem.client import Event, TokenFunction
from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.protocol.media_types import COLLECTION, DOCUMENT, NOTICE, SERIES
from tests.unit.deploy.clients.test_data_service import Server

URL = ("--url", "http://h:1")
POINTS = {"unit": "MW", "points": [{"time": "1970-01-01T00:00:00.006Z", "value": 1.5}, {"time": "u", "value": None}]}


class FakeService(DataService):
    """A Data Service with given documents."""

    __slots__ = ()
    servers: Sequence[Mapping[str, Any]] = ({"port": 1, "path": "/ws"},)
    stored: ClassVar[int | None] = None
    """Version of every endpoint; None: it does not answer."""

    async def json(self, path: str, key: SharedKey | None = None) -> dict[str, Any]:
        if path == "/config.json":
            return {"servers": self.servers}
        return {"endpoints": [{"endpoint": "/known"}]}

    async def get(
        self, key: SharedKey | None, endpoint: str, version: int | None = None, accept: str = "*/*"
    ) -> StoredContent:
        assert (key, accept) == (None, "*/*")
        if self.stored is None:
            raise DataServiceUnavailable(self.base, "gone for lunch")
        if version not in {None, self.stored}:
            raise RequestRefused(endpoint, "read", 404, "not kept")
        headers = {"Content-Type": SERIES, "Diem-Version": str(self.stored), "Diem-Time": "1970-01-01T00:00:00.006Z"}
        return StoredContent(json.dumps({"version": self.stored, "endpoint": endpoint, **POINTS}).encode(), headers)


class FakeClient:
    """A client that yields the given events."""

    events: Sequence[Event] = ()
    subscribed: Sequence[str] = ()
    data: ClassVar[bool]
    tokens: ClassVar[list[TokenFunction | None]] = []
    """The functions that clients were given."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        origin: str | None,
        token: TokenFunction | None,
        tls: None,
        data: bool,
        local_address: None,
    ) -> None:
        type(self).data = data
        assert list(urls) == ["ws://h:1/ws"]
        type(self).tokens.append(token)
        assert (origin, tls, local_address) == ("http://h:2", None, None)
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
    names: Sequence[str] = ("/known", "/new"),
    service: DataService = SERVICE,
) -> tuple[list[str], list[str]]:
    monkeypatch.setattr("deploy.clients.updates.UpdatesClient", FakeClient)
    monkeypatch.setattr(FakeClient, "events", events)
    printed: list[str] = []
    noted: list[str] = []
    with pytest.raises(DiemError, match=r"closed the connection \(4500: bad request\)"):
        await watch(
            service,
            names,
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


@pytest.mark.parametrize("as_json", [True, False])
async def test_values_are_printed_whether_they_come_with_the_update_or_not(
    monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    monkeypatch.setattr(FakeService, "stored", 6)
    events = [
        Event("update", "/known", 5, media_type=DOCUMENT, value=None),
        Event("update", "/gone", 7, gone=True),
        Event("update", "/b", 6),
        Event("update", "/c", 4),
    ]
    printed, _ = await watched(monkeypatch, [*events, CLOSED], as_json=as_json, with_data=True)
    assert FakeClient.data
    if as_json:
        objects = [each for each in map(json.loads, printed) if each["event"] == "update"]
        assert [(each["version"], each.get("media_type"), each.get("value", "none")) for each in objects] == [
            (5, DOCUMENT, None),
            (7, None, "none"),
            (6, SERIES, POINTS),
            (6, SERIES, POINTS),  # version 4 is not kept
        ]
    else:
        assert [line.split("  ", 2)[2] for line in printed] == [
            "version 5  1970-01-01T00:00:00.005Z  null",
            "gone 7  1970-01-01T00:00:00.007Z",
            "version 6  1970-01-01T00:00:00.006Z  MW: 1.5 -",
            "version 6  1970-01-01T00:00:00.006Z  MW: 1.5 -",
        ]


@pytest.mark.parametrize(
    ("media_type", "value", "shown"),
    [
        (DOCUMENT, {"teams": ["Ajax", "Πάοκ"], "score": [2, 1]}, '{"teams":["Ajax","Πάοκ"],"score":[2,1]}'),
        (DOCUMENT, "a\x9b31mb\u202e", '"a 31mb "'),
        ("text/plain", "two\nlines\x1b[2J", '"two\\nlines\\u001b[2J"'),
        ("image/png", b"\x89PNG" * 1000, "image/png, 4,000 bytes"),
        (NOTICE, {"url": "https://shop.example/42"}, "https://shop.example/42"),
        (NOTICE, {}, "changed"),
        (DOCUMENT, "x" * MAX_VALUE_CHARS, '"' + "x" * (MAX_VALUE_CHARS - 2) + "…"),
    ],
)
def test_value_is_printed_in_one_line_by_its_kind(media_type: str, value: object, shown: str) -> None:
    text = describe(Event("update", "/a", 5, media_type=media_type, value=value))
    assert text == f"/a  version 5  1970-01-01T00:00:00.005Z  {shown}"


def test_collection_is_printed_with_what_was_added_and_removed() -> None:
    written: list[str] = []
    printer = EventPrinter(written.append, written.append, as_json=False)
    for version, names in enumerate(["a b", "a c d/", "a c", "a c"], 1):
        value = {"members": [f"/game/{name}" for name in names.split()]}
        printer.print(Event("update", "/game/", version, media_type=COLLECTION, value=value))
    printer.print(Event("update", "/game/", 5, gone=True))
    printer.print(Event("update", "/game/", 6, media_type=COLLECTION, value={"members": ["/game/e"]}))
    assert [line.split("  ")[4:] for line in written] == [
        ["members: a b"],
        ["added: c d/, removed: b"],
        ["removed: d/"],
        ["members: a c"],
        [],
        ["members: e"],
    ]


async def test_collections_are_not_expected_in_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    _, noted = await watched(monkeypatch, [CLOSED], names=["/game/"])
    assert not any("catalogue" in line for line in noted)


@pytest.mark.parametrize("with_data", [True, False])
async def test_where_the_values_of_a_collection_are_is_noted_with_data(
    monkeypatch: pytest.MonkeyPatch, *, with_data: bool
) -> None:
    _, noted = await watched(monkeypatch, [CLOSED], names=["/known", "/game/"], with_data=with_data)
    notes = [line for line in noted if "for the value of one, watch" in line]
    assert [line.rpartition(" ")[2] for line in notes] == ["/game/NAME"] * with_data


def test_bytes_are_base64_in_json() -> None:
    event = Event("update", "/a", 5, time="1970-01-01T00:00:00.006Z", media_type="image/png", value=b"\x89PNG")
    found = as_object(event)
    del found["at"]
    assert found == {
        "event": "update",
        "endpoint": "/a",
        "version": 5,
        "time": "1970-01-01T00:00:00.006Z",
        "media_type": "image/png",
        "value": "iVBORw==",
        "encoding": "base64",
    }


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


@pytest.mark.parametrize("status", [401, 403])
async def test_watch_takes_a_token_that_only_servers_accept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/config.json":
            return httpx.Response(200, json={"servers": FakeService.servers})
        return httpx.Response(status, json={"detail": "no token of this service"})

    service = DataService("http://h:2", lambda: httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    (tmp_path / "token").write_text("header.claims.signature")
    (tmp_path / "token").chmod(0o600)
    _, noted = await watched(monkeypatch, [CLOSED], credentials_of(None, tmp_path / "token"), service=service)
    assert not any("catalogue" in line for line in noted)
    SharedKey.create(tmp_path / "key")
    with pytest.raises(ServiceRefused, match="at http://h:2 refuses: GET /v1/endpoints: no token of this service"):
        await watch(service, ["/known"], print, print, credentials_of(tmp_path / "key", None))


def test_token_file_that_others_may_read_is_refused(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, httpx.Response(200, json={"servers": [{"port": 1, "path": "/ws"}]}))
    (tmp_path / "token").write_text("header.claims.signature")
    (tmp_path / "token").chmod(0o644)
    assert diem("watch", "/a", *URL, "--token-file", "token") == 2
    assert "others may read it" in capsys.readouterr().err


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
