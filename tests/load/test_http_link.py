from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from diem.links import http_clients
from tests.load import http_link
from tests.load.client import LoadClient, PollClient, StreamClient
from tests.oracle import Bounds, Event, History, Kind, Report, judge
from tests.oracle.history import Accepted
from tests.support.patience import until
from tests.support.small import System, small_system


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "PACE_SECONDS", 0.05)


CARRIERS = pytest.mark.parametrize("kind", [PollClient, StreamClient])


def client_of(kind: type[LoadClient], system: System, *wants: str, **options: Any) -> LoadClient:
    return kind("1", "127.0.0.9", [system.url], list(wants), Random(1), **options)


def events(client: LoadClient, kind: Kind) -> list[Event]:
    return [event for event in client.events() if event.kind == kind]


def judged(client: LoadClient, versions: Sequence[int], **more: Any) -> Report:
    """Judge a client of one endpoint whose versions were all accepted long before the end."""
    accepted = [Accepted("/a", version, 0) for version in versions]
    return judge(History(accepted, {"1": client.events()}, monotonic() + 60, **more), Bounds())


@CARRIERS
async def test_client_records_what_it_is_told_and_the_oracle_finds_nothing(
    tmp_path: Path, kind: type[LoadClient]
) -> None:
    async with small_system(tmp_path) as system:
        versions = [system.feed.put("/a")]
        client = client_of(kind, system, "/a", "/b")
        client.start(0)
        await until(lambda: client.announced)
        for _ in range(2):
            versions.append(system.feed.put("/a"))
            await until(lambda: client.level(b"/a") == versions[-1])
        assert client.connected
        assert client.live
        await client.swap("/b", "/c")
        await until(lambda: b"/c" in client.registered and b"/b" not in client.registered)
        system.feed.put("/b")
        other = system.feed.put("/c")
        await until(lambda: client.level(b"/c") == other)
        assert not client.level(b"/b")
        assert [event.version for event in events(client, Kind.UPDATE) if event.endpoint == "/a"] == versions
        # To the application all its requests are one connection.
        assert len(events(client, Kind.OPEN)) == 1
        assert client.requests > 2
        accepted = [Accepted("/a", version, 0) for version in versions] + [Accepted("/c", other, 0)]
        assert judge(History(accepted, {"1": client.events()}, monotonic() + 60), Bounds()).clean
        client.leave()
        await until(lambda: events(client, Kind.CLOSE))
        assert events(client, Kind.RAW)[0].code == len(versions) + 1
        assert client.unexpected == []


@CARRIERS
async def test_client_holds_data_and_asks_for_it_with_its_endpoints(tmp_path: Path, kind: type[LoadClient]) -> None:
    async with small_system(tmp_path) as system:
        version = system.feed.put("/a", size=10)
        client = client_of(kind, system, "/a", data=True)
        client.start(0)
        await until(lambda: client.held.get(b"/a") == version)
        assert (client.with_data, client.without_data, client.unexpected) == (1, 0, [])
        client.leave()


@CARRIERS
async def test_client_goes_to_the_server_that_is_left(tmp_path: Path, kind: type[LoadClient]) -> None:
    async with small_system(tmp_path) as system:
        gone = "ws://127.0.0.1:1/ws"
        client = client_of(kind, system, "/a")
        client.urls.append(gone)
        client.start(0)
        await until(lambda: client.registered)
        version = system.feed.put("/a")
        await until(lambda: client.level(b"/a") == version)
        # Aborted while it waits, it asks the other one first.
        client.drop()
        version = system.feed.put("/a")
        await until(lambda: client.level(b"/a") == version)
        assert events(client, Kind.CLOSE) == []
        client.leave()


@CARRIERS
async def test_oracle_finds_a_client_that_states_later_versions_than_it_has(
    tmp_path: Path, kind: type[LoadClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small_system(tmp_path) as system:
        versions = [system.feed.put("/a")]
        client = client_of(kind, system, "/a")
        monkeypatch.setattr(client, "known", lambda _: versions[0] + 1000)
        client.start(0)
        await until(lambda: client.requests > 1 and client.registered)
        client.rows = [row for row in client.rows if row[1] != "subscribe"]
        found = {type(violation).__name__ for violation in judged(client, versions).violations}
        assert found >= {"NotConverged", "BarrierBroken"}
        client.leave()


@CARRIERS
async def test_oracle_finds_a_server_that_keeps_what_came_between_two_requests(
    tmp_path: Path, kind: type[LoadClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty: Any = http_clients.SharedSubscription if kind is PollClient else http_clients.EventStream
    respond = faulty.respond
    monkeypatch.setattr(faulty, "respond", lambda self, reply, _replay=(): respond(self, reply))
    async with small_system(tmp_path) as system:
        versions = [system.feed.put("/a")]
        client = client_of(kind, system, "/a")
        client.start(0)
        await until(lambda: client.registered)
        found = {type(violation).__name__ for violation in judged(client, versions).violations}
        assert found >= {"NotConverged", "BarrierBroken"}
        client.leave()
