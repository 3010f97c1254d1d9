import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pytest

from deploy import watch as module
from deploy.found import DataService, DataServiceUnavailable, Edges
from deploy.watch import ConnectionRejected, client_of, describe, watch
from diem.links.client import Event, PartitionedClient, UpdatesClient


class FakeService(DataService):
    """A Data Service whose documents are given."""

    __slots__ = ()
    servers: Sequence[Mapping[str, Any]] = ({"port": 1, "path": "/ws"},)
    more: Mapping[str, Any] = {}

    async def json(self, path: str) -> dict[str, Any]:
        if path == "/config.json":
            return {"servers": self.servers, **self.more}
        return {"endpoints": [{"endpoint": "/known"}]}


class FakeClient:
    """A client to whom the given events happen."""

    events: Sequence[Event] = ()
    subscribed: Sequence[str] = ()

    def __init__(self, urls: Sequence[str], *, origin: str | None) -> None:
        assert list(urls) == ["ws://h:1/ws"]
        assert origin == "http://h:2"
        self._left = list(self.events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass

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
    monkeypatch: pytest.MonkeyPatch, events: Sequence[Event], *, as_json: bool = False
) -> tuple[list[str], list[str]]:
    monkeypatch.setattr(module, "UpdatesClient", FakeClient)
    monkeypatch.setattr(FakeClient, "events", events)
    said: list[str] = []
    noted: list[str] = []
    with pytest.raises(ConnectionRejected, match=r"closed the connection \(4500: bad request\)"):
        await watch(SERVICE, ["/known", "/new"], said.append, noted.append, as_json=as_json)
    return said, noted


async def test_updates_are_printed_and_the_rest_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    said, noted = await watched(monkeypatch, [Event("open", message="ws://h:1/ws"), UPDATE, CLOSED])
    assert [line.partition("  ")[2] for line in said] == ["/known  version 1700000000123  2023-11-14T22:13:20.123Z"]
    assert noted[0] == "/new is not in the catalogue: watching it all the same"
    assert noted[1].endswith("connected to ws://h:1/ws")
    assert FakeClient.subscribed == ["/known", "/new"]


async def test_failed_attempts_are_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, noted = await watched(monkeypatch, [Event("closed")] * 5 + [CLOSED])
    assert sum(line.endswith("no connection") for line in noted) == 1


async def test_json_has_every_event_as_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = await watched(monkeypatch, [Event("status", live=False), UPDATE, CLOSED], as_json=True)
    objects = [json.loads(line) for line in said]
    assert [entry["event"] for entry in objects] == ["status", "update", "closed"]
    assert objects[0]["live"] is False
    assert objects[1]["version"] == 1_700_000_000_123
    assert "gone" not in objects[1]


async def test_that_nothing_has_changed_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    live, not_live = Event("status", live=True), Event("status", live=False)
    _, noted = await watched(monkeypatch, [live, UPDATE, live, not_live, not_live, live, CLOSED])
    told = [line.partition("  ")[2] for line in noted if "live" in line]
    assert told == ["live", "not live: what you see may be old", "live"]


@pytest.mark.parametrize(("mode", "metadata"), [("z-client", ["http://h:8400/v1", "https://m/v1"]), ("z-proxy", [])])
async def test_only_in_z_client_the_metadata_services_are_where_clients_ask(
    monkeypatch: pytest.MonkeyPatch, mode: str, metadata: Sequence[str]
) -> None:
    entries = [{"port": 8400, "path": "/v1"}, {"url": "https://m/v1"}]
    monkeypatch.setattr(FakeService, "more", {"mode": mode, "metadata": entries})
    edges = await SERVICE.edges()
    assert edges == Edges(["ws://h:1/ws"], list(metadata))
    assert type(client_of(edges, SERVICE.origin)) is (PartitionedClient if metadata else UpdatesClient)


async def test_service_without_servers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeService, "servers", ())
    with pytest.raises(DataServiceUnavailable, match="names no WebSocket server"):
        await watch(SERVICE, ["/known"], print, print)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("subscribed", "/a", None), "/a  subscribed, nothing there yet"),
        (Event("subscribed", "/a", 5), "/a  subscribed, version 5 is there"),
        (Event("update", "/a", 5, gone=True), "/a  gone 5  1970-01-01T00:00:00.005Z"),
        (Event("status", live=False), "not live: what you see may be old"),
        (Event("status", live=True), "live"),
        (Event("status", "/a", live=False), "/a  not live: what you see may be old"),
        (Event("resync", "/a"), "/a  resync: fetch it again"),
        (Event("rejected", "/a", message="forbidden: no"), "/a  rejected: forbidden: no"),
        (Event("error", message="rate: slow down"), "server  error: rate: slow down"),
        (Event("closed", code=1012, message="retry=500"), "connection closed (1012): retry=500"),
    ],
)
def test_every_event_is_described(event: Event, text: str) -> None:
    assert describe(event) == text
