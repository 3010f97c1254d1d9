"""The client of mode z-client: servers that move endpoints, refuse them and die."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from diem.client import PartitionedClient, Timing
from diem.errors import ConfigurationError
from tests.support.patience import PATIENCE_S, until
from tests.unit.diem.client.fakes import LIMIT, QUICK, Deployment, deployed, seeing

DOUBTING = replace(QUICK, suspect_after_s=0.1)
LONG_OUT = replace(QUICK, held_after_s=1000.0)
"""No connection ends the outage that began with the client: it is longer than any window once the cap has passed."""


@pytest.fixture
async def system() -> AsyncIterator[Deployment]:
    async with deployed() as deployment:
        deployment.own(a=deployment.a, b=deployment.b, c=deployment.c)
        yield deployment


def client_of(system: Deployment, timing: Timing = QUICK, urls: list[str] | None = None) -> PartitionedClient:
    return PartitionedClient(urls or system.urls, origin="http://127.0.0.1:8080", timing=timing)


@pytest.mark.parametrize("first", range(3))
async def test_any_server_names_the_owners_and_each_gets_a_connection(system: Deployment, first: int) -> None:
    client = client_of(system, urls=[system.servers[first].url])
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": 7, "/c": None})
        await seen.until_live("/a", "/b", "/c")
        assert [server.held for server in system.servers] == [{"/a"}, {"/b"}, {"/c"}]
        assert [server.dials for server in system.servers] == [1, 1, 1]
        assert set(system.b.subscribed_with("/b")) == {7}
        await system.b.update("/b", 8)
        await system.c.update("/c", 9)
        await until(lambda: seen.versions("/b") == [8])
        assert sorted(event.message for event in seen.of("open")) == sorted(system.urls)


def test_urls_of_metadata_services_are_refused() -> None:
    for urls in (["http://127.0.0.1:8400/v1"], []):
        with pytest.raises(ConfigurationError, match="URLs of servers"):
            PartitionedClient(urls)


async def test_250_endpoints_are_messages_of_100_names(system: Deployment) -> None:
    names = [f"/e/{number}" for number in range(250)]
    system.own(**{name[1:]: system.a if number < 220 else system.b for number, name in enumerate(names)})
    client = client_of(system, urls=[system.a.url])
    async with seeing(client) as seen:
        await client.subscribe(dict.fromkeys(names))
        await seen.until_live(*names)
        assert [len(names) for _, names in system.a.requests] == [100, 100, 50]
        assert [len(names) for _, names in system.b.requests] == [30]


async def test_moved_is_followed_with_the_announced_version_and_the_old_server_is_left_after_the_new_one_answered(
    system: Deployment,
) -> None:
    client = client_of(system, urls=[system.a.url])
    async with seeing(client) as seen:
        await client.subscribe({"/a": 3})
        await seen.until_live("/a")
        await system.a.update("/a", 5)
        await until(lambda: seen.versions("/a") == [5])
        system.own(a=system.b)
        await system.a.moved(["/a", "/unknown"], system.b.url)
        await until(lambda: not system.a.held and system.b.held == {"/a"})
        assert system.b.subscribed_with("/a") == [5]
        await system.b.update("/a", 5)
        await system.b.update("/a", 6)
        await until(lambda: seen.versions("/a") == [5, 6])
        await until(lambda: not system.a.connections)
        assert seen.of("unsubscribed") == []


async def test_while_the_new_owner_does_not_answer_the_old_one_is_kept(system: Deployment) -> None:
    async with seeing(client_of(system), "/a") as seen:
        await system.b.stop()
        system.own(a=system.b)
        await system.a.moved(["/a"], system.b.url)
        await until(lambda: any(event.kind == "closed" for event in seen.events))
        await system.a.update("/a", 5)
        await until(lambda: seen.versions("/a") == [5])
        assert seen.live("/a") is False


async def test_a_new_owner_without_room_is_asked_again_and_the_old_one_kept_while_it_delivers(
    system: Deployment,
) -> None:
    async with seeing(client_of(system), "/a", "/b") as seen:
        system.own(a=system.b)
        system.b.refuse["/a"] = LIMIT
        await system.a.moved(["/a"], system.b.url)
        await until(lambda: len(system.b.subscribed_with("/a")) >= 3)
        assert (system.a.held, seen.live("/a"), seen.live("/b")) == ({"/a"}, False, True)
        await system.a.update("/a", 5)
        await until(lambda: seen.versions("/a") == [5])
        await system.a.kick(4000, "retry=10")
        await until(lambda: not system.a.connections)
        requests = len(system.b.subscribed_with("/a"))
        await until(lambda: len(system.b.subscribed_with("/a")) > requests)
        assert seen.of("rejected") == []
        del system.b.refuse["/a"]
        await seen.until_live("/a")
        assert system.b.subscribed_with("/a")[-1] == 5


async def test_what_was_never_subscribed_is_rejected_where_there_is_no_room(system: Deployment) -> None:
    system.a.refuse["/a"] = LIMIT
    client = client_of(system, urls=[system.a.url])
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await seen.until_live("/b")
        await until(lambda: len(seen.of("rejected")) == 1)
        # Which server has it is not known before one of them takes it.
        assert (len(system.a.subscribed_with("/a")), seen.live("/a")) == (4, None)


async def test_moved_without_an_owner_is_found(system: Deployment) -> None:
    async with seeing(client_of(system), "/a"):
        system.own(a=system.c)
        await system.a.moved(["/a"])
        await until(lambda: system.c.held == {"/a"} and not system.a.held)


async def test_servers_that_send_it_to_each_other_get_three_hops_then_pauses(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[tuple[int, int]] = []
    """Before each question: the number of doublings of the window, and of requests until then."""

    def pause(attempt: int, _base_s: float, _cap_s: float) -> float:
        pauses.append((attempt, sum(len(server.subscribed_with("/a")) for server in system.servers)))
        return 0.01

    monkeypatch.setattr("diem.client.routes.full_jitter", pause)
    system.a.refuse["/a"], system.b.refuse["/a"] = system.b.url, system.a.url
    client = client_of(system, urls=[system.a.url, system.b.url])
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/c": None})
        await seen.until_live("/c")
        await until(lambda: len(pauses) >= 2)
        # The second question follows the first at once.
        assert pauses[:2] == [(0, 8), (1, 12)]
        del system.a.refuse["/a"]
        await seen.until_live("/a")
        assert seen.of("rejected") == []
        assert system.c.dials == 1


async def test_an_owner_that_dies_is_left_for_another_and_the_others_stay_live(system: Deployment) -> None:
    async with seeing(client_of(system), "/a", "/b") as seen:
        system.own(a=system.b)
        await system.a.stop()
        await until(lambda: system.b.held == {"/a", "/b"})
        await seen.until_live("/a")
        assert [event.live for event in seen.of("status") if event.endpoint == "/b"] == [True]
        assert [event.live for event in seen.of("status") if event.endpoint == "/a"] == [True, False, True]


async def test_an_owner_that_is_another_one_later_is_left_whatever_its_own_delay(system: Deployment) -> None:
    async with seeing(client_of(system, DOUBTING), "/a") as seen:
        await system.a.kick(1012, "retry=600000")
        await until(lambda: seen.live("/a") is False)
        system.own(a=system.b)
        await seen.until_live("/a")
        assert system.b.held == {"/a"}


async def test_while_no_other_server_answers_what_is_lost_is_dialled_where_it_was(system: Deployment) -> None:
    async with seeing(client_of(system, urls=[system.a.url]), "/a") as seen:
        for connection in list(system.a.connections):
            connection.transport.abort()
        await until(lambda: system.a.dials == 2 and system.a.held == {"/a"})
        await seen.until_live("/a")


async def test_servers_that_do_not_run_are_passed_over_and_no_server_is_reported(system: Deployment) -> None:
    slow = replace(QUICK, base_s=60.0, cap_s=60.0)
    await asyncio.gather(system.b.stop(), system.c.stop())
    client = client_of(system, slow, urls=[*system.urls, *(f"ws://127.0.0.1:{port}/ws" for port in range(1, 6))])
    async with seeing(client, "/a") as seen:
        assert seen.of("closed") == []
    await system.a.stop()
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: seen.of("closed") != [])


async def test_a_server_that_says_that_it_restarts_is_waited_for(system: Deployment) -> None:
    async with seeing(client_of(system), "/a", "/b") as seen:
        asked = [len(system.b.requests), len(system.c.requests)]
        await system.a.kick(1012)
        await until(lambda: system.a.dials == 2 and system.a.held == {"/a"})
        await seen.until_live("/a")
        assert [len(system.b.requests), len(system.c.requests)] == asked


async def test_a_server_that_is_silent_is_given_up_and_another_is_asked(system: Deployment) -> None:
    async with seeing(client_of(system, replace(QUICK, silence_s=1.0)), "/a") as seen:
        system.own(a=system.b)
        await until(lambda: system.b.held == {"/a"})
        assert seen.of("closed")[0].code is None
        assert [event.live for event in seen.of("status")][:2] == [True, False]


async def test_an_owner_whose_url_cannot_be_dialled_is_tried_and_another_is_asked(system: Deployment) -> None:
    system.own(a="ws://edge.example/ws#nowhere")
    client = PartitionedClient(system.urls, hosts=["edge.example"], timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: any(event.kind == "closed" for event in seen.events))
        system.own(a=system.a)
        await seen.until_live("/a")


async def test_a_server_that_had_enough_of_a_connection_nobody_needed_is_dialled_when_it_is_needed(
    system: Deployment,
) -> None:
    client = client_of(system, replace(QUICK, idle_after_s=60.0))
    async with seeing(client, "/a") as seen:
        await client.unsubscribe(["/a"])
        # Before the connection is closed as idle, which may be before the answer has come.
        await until(lambda: [event.endpoint for event in seen.of("unsubscribed")] == ["/a"])
        await system.a.kick(4509, "too many errors")
        await until(lambda: not system.a.connections)
        await client.subscribe({"/a": None})
        await until(lambda: system.a.held == {"/a"})
        assert system.a.dials == 2


async def test_whoever_is_not_wanted_back_ends_also_when_another_server_closes_meanwhile(system: Deployment) -> None:
    async with seeing(client_of(system), "/a", "/b") as seen:
        await asyncio.gather(system.a.kick(4501), system.b.kick(1012))
        await until(lambda: seen.ended)


async def test_a_server_that_hangs_is_not_waited_for_when_it_was_given_up(system: Deployment) -> None:
    async with seeing(client_of(system, replace(QUICK, silence_s=0.1)), "/a"):
        system.own(a=system.b)
        for connection in system.a.connections:
            connection.transport.pause_reading()
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: system.b.held == {"/a"})


async def test_nothing_is_live_before_its_owner_has_answered(system: Deployment) -> None:
    system.a.mute = True
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await until(lambda: system.a.held == {"/a"})
        await system.a.status(live=True)
        await system.a.update("/a", 5)
        await until(lambda: seen.versions("/a") == [5])
        assert seen.live("/a") is None
        await system.a.send({"type": "subscribed", "id": 1, "endpoints": {"/a": 5}, "rejected": {}})
        await seen.until_live("/a")


LONGEST = replace(QUICK, base_s=60.0, cap_s=60.0)
"""A back-off in which no test would live to see the next attempt."""


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every delay of a line, which is the longest of its window."""
    drawn: list[float] = []

    def longest(attempt: int, base_s: float, cap_s: float, _rng: object) -> float:
        drawn.append(min(cap_s, base_s * 2**attempt))
        return drawn[-1]

    monkeypatch.setattr("diem.client.backoff.full_jitter", longest)
    return drawn


async def test_a_server_that_asked_for_a_pause_gets_it_although_another_names_it(
    system: Deployment, windows: list[float]
) -> None:
    client = client_of(system, LONGEST)
    async with seeing(client, "/a", "/b") as seen:
        await system.a.kick(1013, "overload retry=60000")
        await until(lambda: windows == [60.0])
        system.own(d=system.a, e=system.b)
        await client.subscribe({"/d": None, "/e": None})
        await seen.until_live("/e")
        assert (windows, system.a.dials) == ([60.0], 1)


async def test_a_restart_is_no_failure(system: Deployment, windows: list[float]) -> None:
    async def back(dials: int) -> None:
        await until(lambda: system.a.dials == dials and "/a" in system.a.held)

    client = client_of(system, LONG_OUT, urls=[system.a.url])
    async with seeing(client):
        await client.subscribe({"/a": None})
        await asyncio.sleep(LONG_OUT.cap_s)
        for dials, code in enumerate((1012, 1012, 1011, 1012, 1011), 1):
            await back(dials)
            await system.a.kick(code)
        await back(6)
        assert windows == [0.02, 0.02, 0.02, 0.04, 0.04]


async def test_a_server_that_is_not_live_is_doubted_and_left_for_another_owner(system: Deployment) -> None:
    async with seeing(client_of(system, DOUBTING), "/a", "/b") as seen:
        await system.a.status(live=False)
        await until(lambda: len(system.a.subscribed_with("/a")) >= 3)  # the same owner, twice
        assert "/a" in system.a.held
        assert seen.live("/a") is False
        system.own(a=system.b)
        await until(lambda: system.b.held == {"/a", "/b"} and not system.a.held)
        await seen.until_live("/a")
        assert [event.live for event in seen.of("status") if event.endpoint == "/b"] == [True]


async def test_a_status_of_some_endpoints_is_about_these_alone(system: Deployment) -> None:
    system.own(b=system.a)
    async with seeing(client_of(system), "/a", "/b") as seen:
        await system.a.status(live=False, names=["/a"])
        await until(lambda: seen.live("/a") is False)
        assert seen.live("/b") is True
        await system.a.status(live=True, names=["/a"])
        await seen.until_live("/a")


async def test_an_endpoint_that_all_have_uses_a_connection_that_is_there(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client, "/b") as seen:
        await until(lambda: sum(len(server.connections) for server in system.servers) == 1)
        await client.subscribe({"/hot": None})
        await seen.until_live("/hot")
        assert system.b.held == {"/b", "/hot"}
        await system.b.stop()
        await until(lambda: any("/hot" in server.held for server in (system.a, system.c)))
        await seen.until_live("/hot")


async def test_unsubscribing_closes_the_connection_that_nothing_needs_any_more(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client, "/a", "/b") as seen:
        received = client.received_bytes
        await client.unsubscribe(["/a"])
        await until(lambda: not system.a.connections)
        assert len(system.b.connections) == 1
        assert client.received_bytes >= received > 0, "what a dropped server has sent still counts"
        await system.b.update("/b", 5)
        await until(lambda: seen.versions("/b") == [5])


async def test_an_owner_on_another_host_is_not_dialled_and_named(system: Deployment) -> None:
    system.own(x="wss://evil.example/ws")
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/x": None, "/a": None})
        await seen.until_live("/a")
        await until(lambda: len(seen.of("error")) > 0)
        assert seen.of("error")[0].message == "refused a server that is on another host: wss://evil.example/ws"
        assert {event.message for event in seen.of("open")} <= set(system.urls)


async def test_a_server_that_does_not_want_this_client_back_ends_the_iteration(system: Deployment) -> None:
    async with seeing(client_of(system), "/a", "/b") as seen:
        await system.a.kick(4503, "logged out")
        await until(lambda: seen.ended)
        assert (seen.events[-1].kind, seen.events[-1].code, seen.events[-1].message) == ("closed", 4503, "logged out")
        await until(lambda: not system.b.connections)


async def test_leaving_the_block_leaves_no_connection_and_no_task(system: Deployment) -> None:
    before = asyncio.all_tasks()
    async with seeing(client_of(system), "/a", "/b"):
        assert len(asyncio.all_tasks()) > len(before)
    await until(lambda: not any(server.connections for server in system.servers))
    await until(lambda: asyncio.all_tasks() <= before)


async def test_a_client_that_servers_refuse_says_why_and_keeps_the_pause_that_they_ask_for(system: Deployment) -> None:
    for server in system.servers:
        server.limit = "this address has 50 clients already\n"
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await until(lambda: min(len(system.a.refused_at), len(system.b.refused_at)) >= 2)
        for server in (system.a, system.b):
            assert all(later - at >= 1.0 for at, later in pairwise(server.refused_at))
        refused = {(event.code, event.message) for event in seen.of("closed")}
        assert refused == {(429, "429: this address has 50 clients already")}
        for server in system.servers:
            server.limit = None
        await seen.until_live("/a", "/b")


async def test_a_server_that_is_needed_again_is_not_dialled_within_the_pause_that_it_asked_for(
    system: Deployment,
) -> None:
    system.a.limit = "this address has 50 clients already\n"
    async with seeing(client := client_of(system, urls=[system.a.url])):
        await client.subscribe({"/a": None})
        await until(lambda: len(system.a.refused_at) == 1)
        await client.unsubscribe(["/a"])
        await asyncio.sleep(3 * QUICK.idle_after_s)
        await client.subscribe({"/a": None})
        await until(lambda: len(system.a.refused_at) == 2)
    first, second = system.a.refused_at[:2]
    assert second - first >= 1.0
