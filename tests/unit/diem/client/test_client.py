"""The client of one of several servers: known versions after a reconnect, rejections, and the end of the iteration."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from diem.client import UpdatesClient, backoff
from diem.protocol.endpoints import BadName
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.unit.diem.client.fakes import QUICK, FakeServer, seeing


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    running = await FakeServer().start()
    yield running
    await running.stop()


async def test_after_a_reconnect_the_known_versions_are_those_announced(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": 3, "/b": None})
        await until(lambda: server.held == {"/a", "/b"})
        for version in (3, 5, 5, 4):
            await server.update("/a", version)
        await server.update("/unknown", 9)
        await until(lambda: seen.versions("/a") == [5])
        await server.kick(1012, "restart retry=10")
        await until(lambda: server.subscribed_with("/a") == [3, 5])
        assert server.subscribed_with("/b") == [None, None]
        assert [event.code for event in seen.of("closed")] == [1012]


async def test_versions_below_one_that_the_service_has_lost_are_reported_again(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": 20})
        await until(lambda: server.held == {"/a"})
        await server.update("/a", 25)
        await until(lambda: seen.versions("/a") == [25])
        client.correct("/a", 11)
        client.correct("/unknown", 11)
        await server.update("/a", 11)
        await server.update("/a", 12)
        await until(lambda: seen.versions("/a") == [25, 12])
        await server.kick(1012, "restart retry=10")
        await until(lambda: server.subscribed_with("/a") == [20, 12])


async def test_what_is_subscribed_again_is_sent_again_with_its_version(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client):
        await client.subscribe({"/a": None})
        await until(lambda: server.held == {"/a"})
        await client.subscribe({"/a": 8})
        await until(lambda: server.subscribed_with("/a") == [None, 8])
        await client.unsubscribe(["/a"])
        await until(lambda: not server.held)


async def test_what_is_unsubscribed_and_subscribed_at_once_is_requested_with_the_version_known_now(
    server: FakeServer,
) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client):
        await client.subscribe({"/a": 8})
        await until(lambda: server.held == {"/a"})
        await client.unsubscribe(["/a"])
        await client.subscribe({"/a": None})
        await until(lambda: server.subscribed_with("/a") == [8, None])


def dataset(name: str, version: int) -> dict[str, object]:
    return {"endpoint": name, "version": version, "unit": "MW", "points": []}


async def test_data_is_asked_for_where_it_is_offered_only(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK, data=True)
    async with seeing(client):
        await client.subscribe({"/a": None})
        await until(lambda: len(server.requests) == 1)
        server.more_welcome = {"data": True}
        await server.kick(1012, "restart retry=10")
        await until(lambda: len(server.requests) == 2)
        await client.unsubscribe(["/a"])
        await until(lambda: len(server.requests) == 3)
    assert server.asked_for_data == [None, True, None]


@pytest.mark.parametrize(("window_ms", "window_s"), [(None, 0.0), (2500, 2.5), (10**9, 10.0), (-1, 0.0)])
async def test_what_has_to_be_fetched_comes_with_the_window_of_its_server(
    server: FakeServer, window_ms: int | None, window_s: float
) -> None:
    server.more_welcome = {"data": True} | ({} if window_ms is None else {"fetch_window_ms": window_ms})
    client = UpdatesClient(server.url, timing=QUICK, data=True)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: server.held == {"/a"})
        await server.update("/a", 3)
        await server.send({"type": "resync", "endpoints": ["/a"]})
        await until(lambda: len(seen.of("resync")) == 1)
        await server.send({"type": "update", "endpoint": "/a", "version": 4, "data": dataset("/a", 4)})
        await until(lambda: seen.versions("/a") == [3, 4])
    windows = [event.fetch_window_s for event in (*seen.of("update"), *seen.of("resync"))]
    assert windows == [window_s, 0.0, window_s]


@pytest.mark.parametrize("data", [True, False])
async def test_an_update_with_data_is_an_event_unless_data_of_its_version_was(*, data: bool) -> None:
    client = UpdatesClient("ws://127.0.0.1:1/ws", timing=QUICK, data=data)
    await client.subscribe({"/a": 3})
    reported = []
    for version, sent in [
        (3, dataset("/a", 3)),  # held
        (4, None),
        (4, dataset("/a", 4)),  # notified of, and not held
        (4, dataset("/a", 4)),
        (6, None),
        (5, dataset("/a", 5)),  # a newer one has to be fetched anyway
        (7, dataset("/b", 7)),  # another's
        (8, dataset("/a", 7)),
        (9, dataset("/a", 9)),
        (9, None),
        (10, None),
    ]:
        for message in (
            {"type": "update", "endpoint": "/a", "version": version} | ({"data": sent} if sent else {}),
            {"type": "unsubscribed", "endpoints": ["/marker"]},
        ):
            client.on_message(client._link, message)
        while (event := await anext(client)).kind == "update":
            reported.append((event.version, event.value))
    value = {"unit": "MW", "points": []}
    with_data = {4: value, 9: value} if data else {}
    again = [(4, with_data[4])] if data else []
    assert reported == [(4, None), *again, (6, None), (7, None), (8, None), (9, with_data.get(9)), (10, None)]


async def test_events_of_an_endpoint_that_wait_are_not_reported_after_an_unsubscribe() -> None:
    client = UpdatesClient("ws://127.0.0.1:1/ws", timing=QUICK)
    await client.subscribe({"/a": None, "/b": None})
    for message in (
        {"type": "update", "endpoint": "/a", "version": 1},
        {"type": "status", "live": False, "endpoints": ["/a", "/b"]},
        {"type": "update", "endpoint": "/b", "version": 2},
    ):
        client.on_message(client._link, message)
    await client.unsubscribe(["/a"])
    reported = [await anext(client) for _ in range(2)]
    assert [(event.kind, event.endpoint) for event in reported] == [("status", "/b"), ("update", "/b")]


async def test_a_rejected_name_is_not_requested_again(server: FakeServer) -> None:
    server.refuse["/a"] = None
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: len(seen.of("rejected")) == 1)
        assert (seen.of("rejected")[0].endpoint, seen.of("rejected")[0].message) == ("/a", "not_owner: m")
        await server.kick()
        await until(lambda: server.dials == 2 and server.held == {"/b"})
        assert len(server.subscribed_with("/a")) == 1


async def test_an_answer_in_parts_and_repeated_is_one_answer_and_a_repeated_update_is_one_event(
    server: FakeServer,
) -> None:
    server.mute = True
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: len(server.requests) == 1)
        for _ in range(2):
            await server.send({"type": "subscribed", "id": 1, "endpoints": {"/a": 5}})
            await server.update("/a", 5)
            rejected = {"/b": {"code": "limit", "message": "m"}}
            await server.send({"type": "subscribed", "id": 1, "endpoints": {}, "rejected": rejected})
        await server.update("/a", 6)
        await until(lambda: client.known("/a") == 6)
        await until(lambda: 6 in seen.versions("/a"))
        assert seen.versions("/a") in ([5, 6], [6])  # conflated, if this test was slow to take them
        assert (len(seen.of("rejected")), len(server.requests)) == (1, 1)


async def test_an_answer_to_a_request_before_the_latest_says_nothing(server: FakeServer) -> None:
    server.mute = True
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: len(server.requests) == 1)
        await client.unsubscribe(["/a"])
        await until(lambda: len(server.requests) == 2)
        await client.subscribe({"/a": None})
        await until(lambda: len(server.requests) == 3)
        await server.send({"type": "subscribed", "id": 1, "endpoints": {"/a": 5}})
        await server.update("/a", 6)
        await until(lambda: seen.versions("/a") == [6])
        assert seen.of("subscribed") == []
        await server.send({"type": "subscribed", "id": 3, "endpoints": {"/a": 7}})
        await until(lambda: len(seen.of("subscribed")) == 1)


async def test_a_status_says_which_endpoints_it_is_about(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: len(seen.of("status")) == 1 and len(seen.of("subscribed")) == 2)
        await server.status(live=False, names=["/a", "/unknown", "/b"])
        await until(lambda: len(seen.of("status")) == 3)
        assert [(event.endpoint, event.live) for event in seen.of("status")] == [
            (None, True),
            ("/a", False),
            ("/b", False),
        ]


async def test_a_status_without_endpoints_speaks_for_those_that_were_named_before(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None, "/c": None})
        await until(lambda: len(seen.of("subscribed")) == 3)
        await server.status(live=False, names=["/a", "/b"])
        await until(lambda: (seen.live("/a"), seen.live("/b")) == (False, False))
        await server.status(live=True, names=["/b"])
        await until(lambda: seen.live("/b") is True)
        await server.status(live=False)  # nothing is: /a stays what it was
        await server.status(live=True)
        await until(lambda: seen.live("/a") is True)
        assert [event.live for event in seen.of("status") if event.endpoint == "/a"] == [False, True]
        assert len([event for event in seen.of("status") if event.endpoint == "/b"]) == 2
        assert seen.live("/c") is None


async def test_a_status_of_an_endpoint_ends_when_the_server_has_unsubscribed_it(server: FakeServer) -> None:
    """It may have been sent before that, and recovered before the endpoint was subscribed again: nothing tells that."""
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: len(seen.of("subscribed")) == 1)
        server.mute = True
        await client.unsubscribe(["/a"])
        await until(lambda: len(server.requests) == 2)
        await client.subscribe({"/a": None})
        await until(lambda: len(server.requests) == 3)
        await server.status(live=False, names=["/a"])
        await until(lambda: seen.live("/a") is False)
        await server.send({"type": "unsubscribed", "id": 2, "endpoints": ["/a"]})
        await server.send({"type": "subscribed", "id": 3, "endpoints": {"/a": None}})
        await until(lambda: len(seen.of("subscribed")) == 2)
        assert seen.live("/a") is True


async def test_a_new_connection_resets_the_status_of_endpoints(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: len(seen.of("subscribed")) == 2)
        await server.status(live=False, names=["/a", "/b"])
        await until(lambda: seen.live("/b") is False)
        await client.unsubscribe(["/b"])
        await until(lambda: server.held == {"/a"})
        await server.kick()
        await until(lambda: seen.live("/a") is True)
        assert seen.live("/b") is False  # no event for an endpoint that was unsubscribed


@pytest.mark.parametrize("code", ["limit", "rate"])
async def test_a_request_that_failed_for_load_is_repeated(server: FakeServer, code: str) -> None:
    server.errors = [code, code]
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": 3, "/b": None})
        await until(lambda: server.held == {"/a", "/b"})
        await until(lambda: len(seen.of("subscribed")) == 2)
        assert server.subscribed_with("/a") == [3, 3, 3]
        assert (server.dials, seen.of("rejected")) == (1, [])


async def test_a_request_that_is_refused_as_a_whole_is_rejected(server: FakeServer) -> None:
    server.errors = ["bad_message"]
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: len(seen.of("rejected")) == 2)
        assert {event.endpoint: event.message for event in seen.of("rejected")} == dict.fromkeys(
            ["/a", "/b"], "bad_message: m"
        )
        await client.subscribe({"/c": None})
        await until(lambda: server.held == {"/c"})
        assert len(server.requests) == 2


async def test_an_unsubscribe_that_failed_leads_to_a_new_connection(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client):
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: server.held == {"/a", "/b"})
        server.errors = ["limit"]
        await client.unsubscribe(["/a"])
        await until(lambda: server.dials == 2 and server.held == {"/b"})


async def test_one_of_several_servers_is_dialled_until_one_answers(server: FakeServer) -> None:
    gone = await FakeServer().start()
    await gone.stop()
    client = UpdatesClient([gone.url, server.url], timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: server.held == {"/a"})
        assert [event.message for event in seen.of("open")] == [server.url]


async def test_what_is_not_of_the_protocol_is_an_error_and_a_new_attempt(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await until(lambda: len(seen.of("open")) == 1)
        await server.send({"type": "update"})
        await until(lambda: server.dials == 2)
        assert seen.of("error")[0].message == "the server violated the protocol"


async def test_a_close_code_that_forbids_to_come_back_ends_the_iteration(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await until(lambda: len(seen.of("open")) == 1)
        await server.kick(4503, "logged out")
        await until(lambda: seen.ended)
        assert (seen.events[-1].kind, seen.events[-1].code) == ("closed", 4503)
    assert server.dials == 1


async def test_a_bad_name_is_the_callers_fault_and_nothing_is_sent(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await until(lambda: len(seen.of("open")) == 1)
        with pytest.raises(BadName):
            await client.subscribe({"/a": None, "no slash": None})
        await client.subscribe({"/b": None})
        await until(lambda: server.held == {"/b"})


def connected(server: FakeServer, dials: int) -> bool:
    return server.dials == dials and bool(server.connections)


@pytest.mark.parametrize(("held_after", "grows"), [(0.0, False), (1000.0, True)])
async def test_no_window_is_longer_than_the_outage(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, held_after: float, grows: bool
) -> None:
    windows = list[float]()

    def jitter(_attempt: int, _base: float, cap: float, _rng: object) -> float:
        windows.append(cap)
        return 0.001

    monkeypatch.setattr(backoff, "full_jitter", jitter)
    client = UpdatesClient(server.url, timing=replace(QUICK, held_after_s=held_after))
    async with seeing(client):
        for kicks in range(1, 7):
            await until(partial(connected, server, kicks))
            # Longer than the first window: as an outage, or as the life of a connection that held.
            await asyncio.sleep(2 * QUICK.base_s)
            await server.kick(1011)
        await until(lambda: len(windows) == 6)
    assert (max(windows) > QUICK.base_s) == grows
    assert min(windows) >= QUICK.base_s


async def test_the_payload_of_all_connections_is_counted(server: FakeServer) -> None:
    client = UpdatesClient(server.url, timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: server.held == {"/a"} and bool(seen.of("subscribed")))
        before = client.received_bytes
        await server.update("/a", 5)
        await until(lambda: seen.versions("/a") == [5])
        update = client.received_bytes - before
        assert update > len('{"endpoint":"/a","version":5}')
        await server.kick(1012, "restart retry=10")
        await until(lambda: server.subscribed_with("/a") == [None, 5])
        await server.update("/a", 6)
        await until(lambda: seen.versions("/a") == [5, 6])
        # Another welcome, reply and update, besides those of the connection before.
        assert client.received_bytes >= 2 * before + 2 * update


async def test_a_server_that_falls_silent_is_given_up_after_two_of_its_heartbeats(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "MIN_HEARTBEAT_S", 0.05)
    server.more_welcome["heartbeat_ms"] = 50
    async with UpdatesClient(server.url, timing=QUICK):
        await until(lambda: server.dials == 1)
        server.more_welcome.clear()
        await until(lambda: server.dials == 2)


async def test_a_frame_that_is_handled_late_is_no_silence(server: FakeServer) -> None:
    silence_s = 0.05
    async with UpdatesClient(server.url, timing=replace(QUICK, silence_s=silence_s, late_s=PATIENCE_S)) as client:
        await until(lambda: server.dials == 1)
        for _ in range(3):
            await asyncio.sleep(2 * silence_s)
            await server.status(live=True, names=[])
        await client.subscribe({"/a": None})
        await until(lambda: bool(server.requests))
    assert server.dials == 1


async def test_the_server_that_was_lost_is_not_the_next_one_where_there_are_others(server: FakeServer) -> None:
    other = await FakeServer().start()
    async with UpdatesClient([server.url, other.url], timing=QUICK):
        for times in range(3):
            await until(lambda times=times: server.dials + other.dials == times + 1)  # type: ignore[misc]
            await until(lambda: bool(server.connections | other.connections))
            await server.kick(1011)
            await other.kick(1011)
        await until(lambda: server.dials == other.dials == 2)
    await other.stop()


async def test_closed_names_the_system_s_reason_where_nobody_answers() -> None:
    async with UpdatesClient(f"ws://127.0.0.1:{free_port()}/ws") as client, asyncio.timeout(PATIENCE_S):
        event = await anext(client)
    assert (event.kind, event.code, event.message) == ("closed", None, "connection refused")
