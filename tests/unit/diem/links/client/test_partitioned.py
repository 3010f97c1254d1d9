"""The client of mode z-client: servers that move, refuse and die, and a metadata service that goes away."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from diem.links.client import PartitionedClient, Timing
from tests.support.patience import PATIENCE_S
from tests.unit.diem.links.client.fakes import LIMIT, QUICK, Deployment, Seen, deployed, eventually, seeing

DOUBTING = replace(QUICK, suspect_after_s=0.1)
LONG_OUT = replace(QUICK, held_after_s=1000.0)
"""No connection ends the outage that began with the client: it is longer than any window once the cap has passed."""


@pytest.fixture
async def system() -> AsyncIterator[Deployment]:
    async with deployed() as deployment:
        deployment.own(a=deployment.a, b=deployment.b, c=deployment.c)
        yield deployment


def client_of(system: Deployment, timing: Timing = QUICK) -> PartitionedClient:
    return PartitionedClient([system.metadata.base], origin="http://127.0.0.1:8080", timing=timing)


async def live(seen: Seen, *names: str) -> None:
    await eventually(lambda: all(seen.live(name) for name in names))


async def test_three_owners_one_request_and_a_connection_each(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": 7, "/c": None})
        await live(seen, "/a", "/b", "/c")
        assert [set(request["endpoints"]) for request in system.metadata.requests] == [{"/a", "/b", "/c"}]
        assert [server.held for server in system.servers] == [{"/a"}, {"/b"}, {"/c"}]
        assert system.b.subscribed_with("/b") == [7]
        assert "origin: http://127.0.0.1:8080" in system.metadata.headers[0].lower()
        await system.b.update("/b", 8)
        await system.b.update("/c", 9)
        await eventually(lambda: seen.versions("/b") == [8])
        assert sorted(event.message for event in seen.of("open")) == sorted(server.url for server in system.servers)


async def test_the_clone_that_the_first_answer_chose_is_kept(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        await client.subscribe({"/b": None})
        await live(seen, "/b")
    assert [request.get("clone") for request in system.metadata.requests] == [None, 2]


async def test_250_endpoints_are_one_request_and_messages_of_100_names(system: Deployment) -> None:
    names = [f"/e/{number}" for number in range(250)]
    system.metadata.owners |= {name: (system.a if number < 220 else system.b).url for number, name in enumerate(names)}
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe(dict.fromkeys(names))
        await live(seen, *names)
        assert [len(request["endpoints"]) for request in system.metadata.requests] == [250]
        assert [len(names) for _, names in system.a.requests] == [100, 100, 20]
        assert [len(names) for _, names in system.b.requests] == [30]


async def test_moved_is_followed_with_the_announced_version_and_the_old_server_is_left_after_the_new_one_answered(
    system: Deployment,
) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": 3})
        await live(seen, "/a")
        await system.a.update("/a", 5)
        await eventually(lambda: seen.versions("/a") == [5])
        await system.a.moved(["/a", "/unknown"], system.b.url)
        await eventually(lambda: not system.a.held and system.b.held == {"/a"})
        assert system.b.subscribed_with("/a") == [5]
        assert len(system.metadata.requests) == 1
        await system.b.update("/a", 5)
        await system.b.update("/a", 6)
        await eventually(lambda: seen.versions("/a") == [5, 6])
        await eventually(lambda: not system.a.connections)
        assert seen.of("unsubscribed") == []


async def test_while_the_new_owner_does_not_answer_the_old_one_is_kept(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        await system.b.stop()
        system.own(a=system.b)
        await system.a.moved(["/a"], system.b.url)
        await eventually(lambda: any(event.kind == "closed" for event in seen.events))
        await system.a.update("/a", 5)
        await eventually(lambda: seen.versions("/a") == [5])
        assert seen.live("/a") is False


async def test_a_new_owner_without_room_is_asked_again_and_the_old_one_kept_while_it_delivers(
    system: Deployment,
) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        system.own(a=system.b)
        system.b.refuse["/a"] = LIMIT
        await system.a.moved(["/a"], system.b.url)
        await eventually(lambda: len(system.b.subscribed_with("/a")) >= 3)
        assert (system.a.held, seen.live("/a"), seen.live("/b")) == ({"/a"}, False, True)
        await system.a.update("/a", 5)
        await eventually(lambda: seen.versions("/a") == [5])
        await system.a.kick(4000, "retry=10")
        await eventually(lambda: not system.a.connections)
        requests = len(system.b.subscribed_with("/a"))
        await eventually(lambda: len(system.b.subscribed_with("/a")) > requests)
        assert seen.of("rejected") == []
        del system.b.refuse["/a"]
        await live(seen, "/a")
        assert system.b.subscribed_with("/a")[-1] == 5


async def test_what_was_never_subscribed_is_rejected_where_there_is_no_room(system: Deployment) -> None:
    system.a.refuse["/a"] = LIMIT
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/b")
        await eventually(lambda: len(seen.of("rejected")) == 1)
        assert (len(system.a.subscribed_with("/a")), seen.live("/a")) == (1, None)


async def test_moved_without_an_owner_is_located(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        system.own(a=system.c)
        await system.a.moved(["/a"])
        await eventually(lambda: system.c.held == {"/a"} and not system.a.held)
        assert len(system.metadata.requests) == 2


async def test_servers_that_send_it_to_each_other_get_three_hops_then_pauses(system: Deployment) -> None:
    def joins() -> int:
        return len(system.a.subscribed_with("/a")) + len(system.b.subscribed_with("/a"))

    system.a.refuse["/a"], system.b.refuse["/a"] = system.b.url, system.a.url
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/c": None})
        await live(seen, "/c")
        requests = system.metadata.requests
        await eventually(lambda: len(requests) >= 4)
        # Four attempts for the first request, and after a pause one for each further one. A busy machine may delay an
        # attempt until after the next request.
        await eventually(lambda: joins() >= len(requests) + 2)
        assert joins() <= len(requests) + 3
        del system.a.refuse["/a"]
        await live(seen, "/a")
        assert seen.of("rejected") == []
        assert system.c.dials == 1


async def test_an_owner_that_dies_is_left_for_who_is_located_and_the_others_stay_live(system: Deployment) -> None:
    client = client_of(system)  # it is asked before the next dial, not by doubt
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        system.own(a=system.b)
        await system.a.stop()
        await eventually(lambda: system.b.held == {"/a", "/b"})
        await live(seen, "/a")
        assert [event.live for event in seen.of("status") if event.endpoint == "/b"] == [True]
        assert [event.live for event in seen.of("status") if event.endpoint == "/a"] == [True, False, True]


async def test_an_owner_that_is_located_elsewhere_later_is_left_whatever_its_own_delay(system: Deployment) -> None:
    client = client_of(system, DOUBTING)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        await system.a.kick(1012, "retry=600000")
        await eventually(lambda: seen.live("/a") is False)
        system.own(a=system.b)
        await live(seen, "/a")
        assert system.b.held == {"/a"}


async def test_an_answer_with_an_older_epoch_than_known_moves_nobody_back(system: Deployment) -> None:
    system.metadata.epoch = 7
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        system.metadata.epoch = 3
        system.own(a=system.b)
        requests = len(system.metadata.requests)
        await system.a.kick()
        await eventually(lambda: len(system.metadata.requests) > requests and system.a.held == {"/a"})
        system.own(new=system.c)
        await client.subscribe({"/new": None})
        await live(seen, "/a", "/new")
        assert (system.b.dials, system.c.held) == (0, {"/new"})
        system.metadata.epoch = 8
        await system.a.kick()
        await eventually(lambda: system.b.held == {"/a"})


async def test_a_metadata_service_that_is_down_at_the_start_is_asked_until_it_answers(system: Deployment) -> None:
    system.metadata.up = False
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await eventually(lambda: len(system.metadata.headers) >= 3)
        assert seen.of("error")[0].message == "the metadata service does not answer: HTTP 503"
        system.metadata.up = True
        await live(seen, "/a")


async def test_while_no_metadata_service_answers_what_is_lost_is_dialled_where_it_was(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        await system.metadata.stop()
        await system.a.kick()
        await eventually(lambda: system.a.dials == 2 and system.a.held == {"/a"})
        await live(seen, "/a")
        assert system.b.dials == 1


async def test_another_metadata_service_is_asked_after_one_that_is_gone(system: Deployment) -> None:
    gone = system.metadata.base.replace(str(system.metadata.port), str(system.a.port))
    client = PartitionedClient([gone, system.metadata.base], timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")


async def test_a_server_that_is_silent_is_given_up_and_what_it_had_is_located_anew(system: Deployment) -> None:
    client = client_of(system, replace(QUICK, silence_s=1.0))
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        system.own(a=system.b)
        await eventually(lambda: system.b.held == {"/a"})
        assert seen.of("closed")[0].code is None
        assert [event.live for event in seen.of("status")][:2] == [True, False]
        assert system.a.dials == 1


async def test_an_owner_whose_url_cannot_be_dialled_is_tried_on_and_located_anew(system: Deployment) -> None:
    system.own(a="ws://edge.example/ws#nowhere")
    client = PartitionedClient([system.metadata.base], hosts=["edge.example"], timing=QUICK)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await eventually(lambda: any(event.kind == "closed" for event in seen.events))
        system.own(a=system.a)
        await live(seen, "/a")


async def test_a_server_that_had_enough_of_a_connection_nobody_needed_is_dialled_when_it_is_needed(
    system: Deployment,
) -> None:
    client = client_of(system, replace(QUICK, idle_after_s=60.0))
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        await client.unsubscribe(["/a"])
        # Before the connection is closed as idle, which may be before the answer has come.
        await eventually(lambda: [event.endpoint for event in seen.of("unsubscribed")] == ["/a"])
        await system.a.kick(4509, "too many errors")
        await eventually(lambda: not system.a.connections)
        await client.subscribe({"/a": None})
        await eventually(lambda: system.a.held == {"/a"})
        assert system.a.dials == 2


async def test_whoever_is_not_wanted_back_ends_also_when_another_server_closes_meanwhile(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        system.metadata.answering.clear()
        await client.subscribe({"/c": None})
        await eventually(lambda: len(system.metadata.headers) == 2)
        await system.a.kick(4501)
        await system.b.kick(1012)
        await eventually(lambda: len(seen.of("closed")) == 2)
        system.metadata.answering.set()
        await eventually(lambda: seen.ended)


async def test_a_server_that_hangs_is_not_waited_for_when_it_was_given_up(system: Deployment) -> None:
    client = client_of(system, replace(QUICK, silence_s=0.1))
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        system.own(a=system.b)
        for connection in system.a.connections:
            connection.transport.pause_reading()
        async with asyncio.timeout(PATIENCE_S):
            await eventually(lambda: system.b.held == {"/a"})


async def test_nothing_is_live_before_its_owner_has_answered(system: Deployment) -> None:
    system.a.mute = True
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await eventually(lambda: system.a.held == {"/a"})
        await system.a.status(live=True)
        await system.a.update("/a", 5)
        await eventually(lambda: seen.versions("/a") == [5])
        assert seen.live("/a") is None
        await system.a.send({"type": "subscribed", "id": 1, "endpoints": {"/a": 5}, "rejected": {}})
        await live(seen, "/a")


LONGEST = replace(QUICK, base_s=60.0, cap_s=60.0, listed_cap_s=60.0, expedite_s=0.01)
"""A back-off in which no test would live to see the next attempt."""


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every delay of a line, which is the longest of its window."""
    drawn: list[float] = []

    def longest(attempt: int, base_s: float, cap_s: float, _rng: object) -> float:
        drawn.append(min(cap_s, base_s * 2**attempt))
        return drawn[-1]

    monkeypatch.setattr("diem.links.client.backoff.full_jitter", longest)
    return drawn


async def test_a_server_that_is_named_while_it_waits_is_dialled_soon_its_failures_forgotten(
    system: Deployment, windows: list[float]
) -> None:
    client = client_of(system, LONGEST)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        await system.a.kick(1011)
        await eventually(lambda: windows == [60.0])
        system.own(d=system.a, e=system.a)
        requests = len(system.metadata.requests)
        await client.subscribe({"/d": None, "/e": None})
        await live(seen, "/a", "/d", "/e")
        assert windows == [60.0, 0.01]
        assert (system.a.dials, len(system.metadata.requests) - requests) == (2, 1)
        await system.a.kick(1011)
        await eventually(lambda: len(windows) == 3)
        assert windows[2] == 60.0


async def test_a_server_that_asked_for_a_pause_gets_it_although_it_is_named(
    system: Deployment, windows: list[float]
) -> None:
    client = client_of(system, LONGEST)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        await system.a.kick(1013, "overload retry=60000")
        await eventually(lambda: windows == [60.0])
        system.own(d=system.a, e=system.b)
        await client.subscribe({"/d": None, "/e": None})
        await live(seen, "/e")
        assert (windows, system.a.dials) == ([60.0], 1)


async def test_a_restart_is_no_failure(system: Deployment, windows: list[float]) -> None:
    async def back(dials: int) -> None:
        await eventually(lambda: system.a.dials == dials and "/a" in system.a.held)

    client = client_of(system, LONG_OUT)
    async with seeing(client):
        await client.subscribe({"/a": None})
        await asyncio.sleep(LONG_OUT.cap_s)
        for dials, code in enumerate((1012, 1012, 1011, 1012, 1011), 1):
            await back(dials)
            await system.a.kick(code)
        await back(6)
        assert windows == [0.02, 0.02, 0.02, 0.04, 0.04]


@pytest.mark.parametrize(("up", "longest"), [(True, 0.04), (False, 0.08)])
async def test_delays_are_shorter_while_the_server_is_named(
    system: Deployment, windows: list[float], *, up: bool, longest: float
) -> None:
    client = client_of(system, replace(LONG_OUT, base_s=0.01, cap_s=0.08, listed_cap_s=0.04))
    async with seeing(client) as seen:
        await client.subscribe({"/a": None})
        await live(seen, "/a")
        await asyncio.sleep(LONG_OUT.cap_s)
        system.metadata.up = up
        await system.a.stop()
        await eventually(lambda: len(windows) >= 6)
        assert windows[:3] == [0.01, 0.02, 0.04]
        assert max(windows) == longest


async def test_a_server_that_is_not_live_is_doubted_and_left_for_another_owner(system: Deployment) -> None:
    client = client_of(system, DOUBTING)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        await system.a.status(live=False)
        await eventually(lambda: len(system.metadata.requests) >= 3)  # the same owner, twice
        assert system.a.held == {"/a"}
        assert seen.live("/a") is False
        system.own(a=system.b)
        await eventually(lambda: system.b.held == {"/a", "/b"} and not system.a.held)
        await live(seen, "/a")
        assert [event.live for event in seen.of("status") if event.endpoint == "/b"] == [True]


async def test_a_status_of_some_endpoints_is_about_these_alone(system: Deployment) -> None:
    system.own(b=system.a)
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        await system.a.status(live=False, names=["/a"])
        await eventually(lambda: seen.live("/a") is False)
        assert seen.live("/b") is True
        await system.a.status(live=True, names=["/a"])
        await live(seen, "/a")


async def test_hot_endpoints_use_a_connection_that_is_there_else_the_first_of_the_servers(system: Deployment) -> None:
    system.own(hot="hot")
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/b": None, "/hot": None})
        await live(seen, "/b", "/hot")
        assert system.b.held == {"/b", "/hot"}
    system.metadata.servers = [system.c.url, system.a.url]
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/hot": None})
        await live(seen, "/hot")
        assert system.c.held == {"/hot"}
        await system.c.stop()
        await eventually(lambda: system.a.held == {"/hot"})


async def test_unsubscribing_closes_the_connection_that_nothing_needs_any_more(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        received = client.received_bytes
        await client.unsubscribe(["/a"])
        await eventually(lambda: not system.a.connections)
        assert len(system.b.connections) == 1
        assert client.received_bytes >= received > 0, "what a dropped server has sent still counts"
        await system.b.update("/b", 5)
        await eventually(lambda: seen.versions("/b") == [5])


async def test_an_owner_on_another_host_is_not_dialled_and_named(system: Deployment) -> None:
    system.own(x="wss://evil.example/ws")
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/x": None, "/a": None})
        await live(seen, "/a")
        await eventually(lambda: len(seen.of("error")) > 0)
        assert seen.of("error")[0].message == "refused a server that is on another host: wss://evil.example/ws"
        assert [event.message for event in seen.of("open")] == [system.a.url]


async def test_a_server_that_does_not_want_this_client_back_ends_the_iteration(system: Deployment) -> None:
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
        await system.a.kick(4503, "logged out")
        await eventually(lambda: seen.ended)
        assert (seen.events[-1].kind, seen.events[-1].code, seen.events[-1].message) == ("closed", 4503, "logged out")
        await eventually(lambda: not system.b.connections)


async def test_leaving_the_block_leaves_no_connection_and_no_task(system: Deployment) -> None:
    before = asyncio.all_tasks()
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await live(seen, "/a", "/b")
    await eventually(lambda: not any(server.connections for server in system.servers))
    await eventually(lambda: asyncio.all_tasks() <= before)


async def test_a_client_that_servers_refuse_says_why_and_keeps_the_pause_that_they_ask_for(system: Deployment) -> None:
    for server in system.servers:
        server.limit = "this address has 50 clients already\n"
    client = client_of(system)
    async with seeing(client) as seen:
        await client.subscribe({"/a": None, "/b": None})
        await eventually(lambda: min(len(system.a.refused_at), len(system.b.refused_at)) >= 3)
        for server in (system.a, system.b):
            assert all(later - at >= 1.0 for at, later in pairwise(server.refused_at))
        refused = {(event.code, event.message) for event in seen.of("closed")}
        assert refused == {(429, "429: this address has 50 clients already")}
        for server in system.servers:
            server.limit = None
        await live(seen, "/a", "/b")
