import asyncio
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import orjson
import pytest

from diem.client import Timing
from diem.protocol.frames import text_frame
from diem.protocol.update import UPDATE, Change, encode
from tests.load.client import LoadClient
from tests.load.contents import UNKNOWN, dataset
from tests.load.link import WebSocketConnection
from tests.oracle import Event, History, Kind, judge
from tests.oracle.history import Accepted
from tests.oracle.violations import WrongData
from tests.support.patience import FACTOR, until
from tests.support.small import System, small_system
from tests.unit.diem.client.fakes import FakeServer


def client_of(system: System, *wants: str, **options: Any) -> LoadClient:
    return LoadClient("1", "127.0.0.9", [system.url], list(wants), Random(1), **options)


def kinds(client: LoadClient) -> list[str]:
    return [event.kind for event in client.events()]


def events(client: LoadClient, kind: Kind) -> list[Event]:
    return [event for event in client.events() if event.kind == kind]


async def test_client_records_what_it_is_told_once(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system:
        first = system.feed.put("/a")
        client = client_of(system, "/a", "/b")
        client.start(0)
        await until(lambda: client.announced)
        second = system.feed.put("/a")
        await until(lambda: client.level(b"/a") == second)
        client.leave()
        await until(lambda: "close" in kinds(client))
        assert [event.version for event in events(client, Kind.UPDATE)] == [first, second]
        assert kinds(client)[:5] == ["open", "subscribe", "subscribe", "subscribed", "subscribed"]
        assert events(client, Kind.RAW)[0].code == 2
        accepted = [Accepted("/a", version, 0) for version in (first, second)]
        assert judge(History(accepted, {"1": client.events()}, client.events()[-1].time)).clean


async def test_client_comes_back_with_the_versions_that_it_holds(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system:
        client = client_of(system, "/a")
        version = system.feed.put("/a")
        client.start(0)
        await until(lambda: client.announced)
        client.drop()
        await until(lambda: kinds(client).count("subscribed") == 2)
        assert [event.version for event in events(client, Kind.SUBSCRIBE)] == [0, version]
        assert len(events(client, Kind.UPDATE)) == 1
        client.leave()


def put_with_data(system: System, endpoint: str, stamp: int, *, named: int = 0) -> int:
    """Change an endpoint, with data of the version ``named`` instead of the change's own; return the version."""
    feed = system.feed
    version = feed.clock = feed.clock + 1
    data = orjson.dumps({**dataset(endpoint, stamp), "version": named or version})
    value = encode(endpoint, version, version, data=data)
    feed.changes.apply(Change(feed.changes.sequence + 1, endpoint.encode(), version, UPDATE, value))
    feed.server.changed()
    return version


@pytest.mark.parametrize("compression", [False, True], ids=["as it is", "compressed"])
async def test_client_that_asks_for_data_holds_it_and_the_oracle_finds_that_of_another_version(
    tmp_path: Path, *, compression: bool
) -> None:
    async with small_system(tmp_path) as system:
        client = client_of(system, "/a", data=True, compression=compression)
        plain = client_of(system, "/a")
        for one in (client, plain):
            one.start(0)
        await until(lambda: "subscribed" in kinds(client) and "subscribed" in kinds(plain))
        first = put_with_data(system, "/a", 7)
        await until(lambda: client.held.get(b"/a") == first)
        second = system.feed.put("/a")
        await until(lambda: client.level(b"/a") == second)
        stale = put_with_data(system, "/a", 7)
        renamed = put_with_data(system, "/a", 9, named=first)
        await until(lambda: client.held.get(b"/a") == renamed and plain.level(b"/a") == renamed)
        assert (client.without_data, plain.with_data, plain.held, plain.unexpected) == (1, 0, {}, [])
        for one in (client, plain):
            one.leave()
        await until(lambda: "close" in kinds(client))
        assert (client.compressed == client.with_data) is compression
        assert [event.code for event in events(client, Kind.OPEN)] == [int(compression)]
        held = [(event.version, event.code) for event in events(client, Kind.HELD)]
        assert held[0] == (first, 7)
        assert held[-1] == (renamed, UNKNOWN)
        stamps = {first: 7, second: 0, stale: 8, renamed: 9}
        accepted = [Accepted("/a", version, 0, stamp=stamp) for version, stamp in stamps.items()]
        report = judge(History(accepted, {"1": client.events(), "2": plain.events()}, client.events()[-1].time))
        assert {type(violation) for violation in report.violations} == {WrongData}
        assert report.violations[0].versions == ((stale, first) if (stale, 7) in held else (renamed, 0))


async def test_data_that_was_not_asked_for_is_unexpected(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system:
        client = client_of(system, "/a", data=True)
        client.start(0)
        await until(lambda: "subscribed" in kinds(client))
        client.asks_data = False
        put_with_data(system, "/a", 7)
        await until(lambda: client.announced)
        assert client.unexpected[0].startswith("data that was not asked for")
        client.leave()


async def test_compressed_data_that_was_not_asked_for_and_damaged_frames_are_unexpected(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system:
        client = client_of(system, "/a", data=True, compression=True)
        client.start(0)
        await until(lambda: "subscribed" in kinds(client))
        client.asks_data = False
        put_with_data(system, "/a", 7)
        await until(lambda: client.announced)
        assert client.unexpected[0].startswith("data that was not asked for")
        (link,) = client.links
        assert isinstance(link, WebSocketConnection)
        link.data_received(b"\xc1\x02\xff\xff")
        assert client.unexpected[1].startswith("compressed frame: ")
        await until(lambda: "close" in kinds(client))
        client.leave()


async def test_requests_and_replies_of_a_swap_are_recorded(tmp_path: Path) -> None:
    async with small_system(tmp_path) as system:
        client = client_of(system, "/a")
        client.start(0)
        await until(lambda: "subscribed" in kinds(client))
        await client.swap("/a", "/b")
        await until(lambda: kinds(client).count("subscribed") == 2)
        version = system.feed.put("/a", "/b")
        await until(lambda: client.announced)
        assert client.announced == {b"/b": version}
        assert kinds(client)[3:] == ["unsubscribe", "subscribe", "unsubscribed", "subscribed", "update"]
        client.leave()


async def test_what_a_new_connection_never_subscribed_to_is_filtered_without_a_confirmation(tmp_path: Path) -> None:
    async with small_system(tmp_path, mode="all-to-all") as system:
        client = client_of(system, "/a", "/b", filtered=True)
        await client.remove("/b")
        client.start(0)
        await until(lambda: b"/a" in client.registered)
        system.feed.put("/b")
        version = system.feed.put("/a")
        await until(lambda: client.level(b"/a") == version)
        assert client.level(b"/b") == 0
        client.leave()


async def test_updates_before_the_first_request_of_a_connection_are_filtered() -> None:
    client = LoadClient("1", "127.0.0.9", ["ws://127.0.0.1:1/ws"], ["/a"], Random(1), filtered=True)
    for version in (1, 2):
        link, frame = WebSocketConnection(client, "ws://127.0.0.1:1/ws"), text_frame(encode("/a", version, version))
        client.opened_link(link)
        client.record_frames(frame, 0, len(frame), 0.0, 0)
        assert client.level(b"/a") == version - 1
        client.sent({"type": "subscribe", "id": 1, "endpoints": {"/a": None}}, link)
        client.record_frames(frame, 0, len(frame), 0.0, 0)
        assert client.level(b"/a") == version


@pytest.mark.parametrize("filtered", [False, True])
async def test_foreign_updates_are_counted_and_recorded_only_without_the_filter(
    tmp_path: Path, *, filtered: bool
) -> None:
    async with small_system(tmp_path, mode="all-to-all") as system:
        client = client_of(system, "/a", filtered=filtered)
        client.start(0)
        await until(lambda: "subscribed" in kinds(client))
        system.feed.put("/b", "/a")
        await until(lambda: client.level(b"/a"))
        assert client.links[0].updates == 2
        assert (client.level(b"/b") == 0) is filtered
        client.leave()


async def test_updates_are_no_silence_and_a_server_that_sends_nothing_is_left() -> None:
    silence_s = 0.5 * FACTOR
    server = await FakeServer().start()
    timing = Timing(base_s=0.01, silence_s=silence_s, late_s=0.05)
    client = LoadClient("1", "127.0.0.9", [server.url], ["/a"], Random(1), timing=timing)
    client.start(0)
    await until(lambda: "subscribed" in kinds(client))
    over, sent = monotonic() + 3 * silence_s, 0
    while monotonic() < over:
        sent += 1
        await server.update("/a", sent)
        await asyncio.sleep(silence_s / 10)
    await until(lambda: client.level(b"/a") == sent)
    assert "close" not in kinds(client)
    await until(lambda: kinds(client).count("open") == 2)
    assert [event.code for event in events(client, Kind.CLOSE)] == [1006]
    client.leave()
    await until(lambda: not client.links)
    await server.stop()
