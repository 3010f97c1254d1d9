"""The client of the other modes: one server of several, what it is told after a reconnect, and what ends it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from diem.links.client import UpdatesClient, line
from diem.protocol.endpoints import BadName
from tests.unit.diem.links.client.fakes import QUICK, FakeServer, eventually, seeing


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    running = await FakeServer().start()
    yield running
    await running.stop()


async def test_after_a_reconnect_the_server_hears_what_was_told(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": 3, "/b": None})
        await eventually(lambda: server.held == {"/a", "/b"})
        for version in (3, 5, 5, 4):
            await server.update("/a", version)
        await server.update("/stranger", 9)
        await eventually(lambda: seen.versions("/a") == [5])
        await server.kick(1012, "restart retry=10")
        await eventually(lambda: server.subscribed_with("/a") == [3, 5])
        assert server.subscribed_with("/b") == [None, None]
        assert [event.code for event in seen.of("closed")] == [1012]


async def test_what_is_subscribed_again_is_sent_again_with_its_version(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client):
        await client.subscribe({"/a": None})
        await eventually(lambda: server.held == {"/a"})
        await client.subscribe({"/a": 8})
        await eventually(lambda: server.subscribed_with("/a") == [None, 8])
        await client.unsubscribe(["/a"])
        await eventually(lambda: not server.held)


async def test_what_is_left_and_wanted_again_at_once_is_asked_for_with_what_is_known_now(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client):
        await client.subscribe({"/a": 8})
        await eventually(lambda: server.held == {"/a"})
        await client.unsubscribe(["/a"])
        await client.subscribe({"/a": None})
        await eventually(lambda: server.subscribed_with("/a") == [8, None])


async def test_a_rejected_name_is_not_asked_for_again(server: FakeServer) -> None:
    server.refuse["/a"] = None
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await eventually(lambda: len(seen.of("rejected")) == 1)
        assert (seen.of("rejected")[0].endpoint, seen.of("rejected")[0].message) == ("/a", "not_owner: m")
        await server.kick()
        await eventually(lambda: server.dials == 2 and server.held == {"/b"})
        assert len(server.subscribed_with("/a")) == 1


async def test_a_status_says_which_endpoints_it_is_about(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await eventually(lambda: len(seen.of("status")) == 1)
        await server.status(live=False, names=["/a", "/b"])
        await eventually(lambda: len(seen.of("status")) == 3)
        assert [(event.endpoint, event.live) for event in seen.of("status")] == [
            (None, True),
            ("/a", False),
            ("/b", False),
        ]


async def test_one_of_several_servers_is_dialled_until_one_answers(server: FakeServer) -> None:
    gone = await FakeServer().start()
    await gone.stop()
    client = UpdatesClient([gone.url, server.url], timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await eventually(lambda: server.held == {"/a"})
        assert [event.message for event in seen.of("open")] == [server.url]


async def test_what_is_not_of_the_protocol_is_an_error_and_a_new_attempt(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await eventually(lambda: len(seen.of("open")) == 1)
        await server.say({"type": "update"})
        await eventually(lambda: server.dials == 2)
        assert seen.of("error")[0].message == "the server sent what is not of the protocol"


async def test_a_close_code_that_forbids_to_come_back_ends_the_iteration(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await eventually(lambda: len(seen.of("open")) == 1)
        await server.kick(4503, "logged out")
        await eventually(lambda: seen.ended)
        assert (seen.events[-1].kind, seen.events[-1].code) == ("closed", 4503)
    assert server.dials == 1


async def test_a_bad_name_is_the_callers_fault_and_nothing_is_sent(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await eventually(lambda: len(seen.of("open")) == 1)
        with pytest.raises(BadName):
            await client.subscribe({"/a": None, "no slash": None})
        await client.subscribe({"/b": None})
        await eventually(lambda: server.held == {"/b"})


def connected(server: FakeServer, dials: int) -> bool:
    return server.dials == dials and bool(server.connections)


@pytest.mark.parametrize(("held_after", "grows"), [(0.0, False), (1000.0, True)])
async def test_no_window_is_longer_than_the_outage(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, held_after: float, grows: bool
) -> None:
    windows = list[float]()

    def jitter(_attempt: int, _base: float, cap: float) -> float:
        windows.append(cap)
        return 0.001

    monkeypatch.setattr(line, "full_jitter", jitter)
    client = UpdatesClient(server.url, timing=replace(QUICK, held_after=held_after))
    async with seeing(client):
        for kicks in range(1, 7):
            await eventually(partial(connected, server, kicks))
            # Longer than the first window: as an outage, or as the life of a connection that held.
            await asyncio.sleep(2 * QUICK.base)
            await server.kick(1011)
        await eventually(lambda: len(windows) == 6)
    assert (max(windows) > QUICK.base) == grows
    assert min(windows) >= QUICK.base
