"""What a proxy in shared mode tells whom, and when: the cases that model M5 and its neighbours turn on."""

import pytest

from diem.protocol import messages
from diem.protocol.frames import text_frame
from diem.protocol.messages import BAD_NAME
from diem.protocol.update import encode
from proxy.pending import MAX_PENDING
from proxy.relocation import MAX_HOPS
from tests.unit.proxy.world import START, Client, Server, World, name_of

A, A2, B = name_of(0), name_of(0, 1), name_of(1)


@pytest.fixture
def world() -> World:
    return World().start()


def run(server: Server) -> None:
    """Everything on its way arrives."""
    while server.asked or server.sent:
        while server.asked:
            server.serve()
        server.deliver(5)


def types(client: Client) -> list[str]:
    return [message["type"] for message in client.heard]


def test_servers_are_asked_with_what_the_proxy_retains_never_with_what_a_client_knows(world: World) -> None:
    world.put(A)
    client = world.client()
    client.held[A] = world.latest[A]
    client.subscribe(A)
    server = world.server_of(A)
    run(server)
    assert server.known == [{A: None}]
    world.lose(server.url)
    world.open(server.url)
    run(server)
    assert server.known[1:] == [{A: world.latest[A]}]


def test_who_joins_an_answered_endpoint_is_answered_at_once_with_the_retained_frame(world: World) -> None:
    world.put(A)
    first, second = world.client(), world.client()
    first.subscribe(A)
    run(world.server_of(A))
    second.subscribe(A)
    assert types(second) == ["subscribed", "update"]
    assert second.heard[0]["endpoints"] == {A: world.latest[A]}
    assert not world.server_of(A).asked


def test_an_old_reply_answers_no_newer_request(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    client.unsubscribe(A)
    client.subscribe(A)
    heard = len(client.heard)
    server.serve()
    server.deliver()
    assert len(client.heard) == heard
    assert not world.shared.relocator.routes[A].is_registered
    run(server)
    assert client.heard[heard]["type"] == "subscribed"


def test_endpoints_of_two_servers_are_answered_in_one_frame_when_both_answer_soon(world: World) -> None:
    client = world.client()
    client.subscribe(A, B, "bad name")
    run(world.server_of(A))
    assert not client.heard
    world.timers.advance(0.05)
    run(world.server_of(B))
    (answer,) = client.heard
    assert answer["endpoints"] == {A: None, B: None}
    assert answer["rejected"] == {"bad name": {"code": BAD_NAME.code, "message": BAD_NAME.message}}


def test_a_slow_server_holds_up_the_others_for_a_tenth_of_a_second_only(world: World) -> None:
    client = world.client()
    client.subscribe(A, B)
    run(world.server_of(A))
    world.timers.advance(0.11)
    assert [message.get("endpoints") for message in client.heard] == [{A: None}]
    run(world.server_of(B))
    assert client.heard[-1]["endpoints"] == {B: None}


def test_after_three_seconds_without_a_server_the_answer_is_null_and_stale(world: World) -> None:
    world.put(A)
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    world.timers.advance(2.9)
    assert not client.heard
    world.timers.advance(0.2)
    assert types(client) == ["subscribed", "status"]
    assert client.heard[0]["endpoints"] == {A: None}
    assert (client.heard[1]["live"], client.heard[1]["endpoints"]) == (False, [A])
    run(server)
    assert client.held[A] == world.latest[A]
    assert client.heard[-1] == {**client.heard[-1], "type": "update"}
    assert [message["live"] for message in client.said("status")] == [False, True]


def test_a_lost_server_is_told_to_exactly_the_clients_concerned(world: World) -> None:
    one, both, other = (world.client() for _ in range(3))
    one.subscribe(A)
    both.subscribe(A, B)
    other.subscribe(B)
    for server in world.servers.values():
        run(server)
    world.lose(world.server_of(A).url)
    assert [client.said("status")[0]["endpoints"] for client in (one, both)] == [[A], [A]]
    assert not other.said("status")
    world.open(world.server_of(A).url)
    run(world.server_of(A))
    assert [client.said("status")[1]["live"] for client in (one, both)] == [True, True]


def test_a_status_has_at_most_a_hundred_names() -> None:
    world = World(limit=300).start()
    client = world.client()
    names = [name for n in range(1000) if world.server_of(name := f"/many/{n}") is world.server_of(A)][:250]
    for start in range(0, 250, 100):
        client.subscribe(*names[start : start + 100])
    run(world.server_of(A))
    world.lose(world.server_of(A).url)
    assert [len(message["endpoints"]) for message in client.said("status")] == [100, 100, 50]


def test_a_server_that_is_not_live_makes_its_endpoints_stale_until_it_is(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    run(server)
    for live in (False, True):
        server.sent.append(text_frame(messages.status(live=live, since="-")))
        server.deliver()
    assert [message["live"] for message in client.said("status")] == [False, True]


def test_a_reminder_after_a_global_status_names_what_is_stale(world: World) -> None:
    client = world.client()
    client.subscribe(A, B)
    for server in world.servers.values():
        run(server)
    world.lose(world.server_of(A).url)
    client.affected.clear()
    world.shared.resend_stale_status(client.edge)
    assert client.affected == {A}


def test_the_new_owner_has_answered_before_the_old_one_is_dropped(world: World) -> None:
    client = world.client()
    client.subscribe(A)
    old = world.server_of(A)
    run(old)
    new = next(server for server in world.servers.values() if server is not old)
    new.partitions |= old.partitions
    world.assigned[0] = new.url
    world.tell()
    assert [kind for kind, *_ in new.asked] == ["subscribe"]
    assert not old.asked
    run(new)
    assert [kind for kind, *_ in old.asked] == ["unsubscribe"]
    assert not client.said("status")


def test_a_frame_that_is_not_newer_is_not_handed_on(world: World) -> None:
    world.put(A)
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    run(server)
    for version in (world.latest[A], world.latest[A] - 1, START):
        server.sent.append(text_frame(encode(A, version, version)))
    server.deliver(3)
    assert len(client.said("update")) == 1
    assert world.shared.relay.counts.stale == 3


def test_the_last_unsubscribe_drops_the_frame_and_the_subscription(world: World) -> None:
    world.put(A)
    one, two, server = world.client(), world.client(), world.server_of(A)
    for client in (one, two):
        client.subscribe(A)
    run(server)
    one.unsubscribe(A)
    assert not server.asked
    two.leave()
    assert [(kind, list(names)) for kind, _, names in server.asked] == [("unsubscribe", [A])]
    assert not world.shared.relay.retained
    run(server)
    world.timers.advance(20)
    assert world.timers.waiting == 0


def test_one_chunk_of_a_server_is_one_write_to_each_client(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A, A2)
    run(server)
    calls = []
    client.session.send_many = lambda frames: calls.append(list(frames))
    world.put(A)
    world.put(A2)
    server.deliver(2)
    assert [len(frames) for frames in calls] == [2]


def test_requests_that_wait_are_bounded(world: World) -> None:
    client = world.client()
    for _ in range(MAX_PENDING):
        client.subscribe(A)
    assert not client.heard
    client.subscribe(A)
    assert (client.heard[0]["type"], client.heard[0]["code"]) == ("error", "limit")


def test_hints_are_followed_three_times_and_then_with_back_off(world: World) -> None:
    """Two servers that send each other's endpoints away."""
    one, other = world.servers.values()
    for server, hint in ((one, other), (other, one)):
        server.partitions.clear()
        server.hint = hint.owner.public
    client = world.client()
    client.subscribe(A)
    asked = _exchange(world)
    assert asked == 1 + MAX_HOPS
    for _ in range(120):
        world.timers.advance(0.5)
        asked += _exchange(world)
    assert 15 < asked < 250
    assert client.affected == {A}


def _exchange(world: World) -> int:
    """Serve until nobody asks; returns how often somebody did."""
    asked = 0
    while any(server.asked for server in world.servers.values()):
        for server in world.servers.values():
            asked += len(server.asked)
            while server.asked:
                server.serve()
            server.deliver(10)
    return asked


def test_what_a_server_sends_away_is_found_again_before_the_metadata_service_knows(world: World) -> None:
    client, old = world.client(), world.server_of(A)
    client.subscribe(A)
    run(old)
    new = next(server for server in world.servers.values() if server is not old)
    world.assign(0, new.url)
    for _ in range(8):
        for server in world.servers.values():
            run(server)
        world.timers.advance(0.5)
    assert new.subscribed == {A}
    assert A not in client.affected
    world.put(A)
    run(new)
    assert client.held[A] == world.latest[A]


def test_a_late_answer_of_the_old_owner_does_not_drop_the_new_one(world: World) -> None:
    client, old = world.client(), world.server_of(A)
    client.subscribe(A)
    old.serve()
    new = next(server for server in world.servers.values() if server is not old)
    new.partitions |= old.partitions
    world.assigned[0] = new.url
    world.tell()
    run(old)
    assert client.said("subscribed")
    assert [kind for kind, *_ in new.asked] == ["subscribe"]
    run(new)
    run(old)
    assert (old.subscribed, new.subscribed) == (set(), {A})


def other_than(world: World, server: Server) -> Server:
    return next(each for each in world.servers.values() if each is not server)


@pytest.mark.parametrize("hinted", [False, True], ids=["without hints", "with a hint at the home itself"])
def test_a_home_that_refuses_is_asked_again_after_the_old_server_has_answered(world: World, *, hinted: bool) -> None:
    """The answer of a server that is not the home any more says nothing about the home."""
    world.put(A)
    client, old = world.client(), world.server_of(A)
    new = other_than(world, old)
    client.subscribe(A)
    world.assigned[0] = new.url
    world.tell()
    # The new home has not been told yet that the partition is its own.
    new.hint = new.owner.public if hinted else "ws://192.0.2.1:1/ws"
    new.serve()
    new.deliver()
    run(old)
    assert client.said("subscribed")
    old.lose(0)
    run(old)
    new.partitions.add(0)
    world.put(A)
    world.settle()
    assert new.subscribed == {A}
    assert client.held[A] == world.latest[A]
    assert A not in client.affected


def test_a_home_that_refuses_is_asked_again_while_the_old_server_goes_on_serving(world: World) -> None:
    client, old = world.client(), world.server_of(A)
    new = other_than(world, old)
    client.subscribe(A)
    run(old)
    world.assigned[0] = new.url
    world.tell()
    new.hint = "ws://192.0.2.1:1/ws"
    run(new)
    new.partitions.add(0)
    world.settle()
    assert new.subscribed == {A}
    assert old.subscribed == set()
    assert not client.said("status")


def test_what_is_answered_after_the_first_part_does_not_wait_for_servers_that_hang(world: World) -> None:
    world.put(A)
    client = world.client()
    client.subscribe(A, B)
    world.timers.advance(0.2)
    assert not client.heard
    run(world.server_of(A))
    assert types(client) == ["subscribed", "update"]
    world.put(A)
    run(world.server_of(A))
    assert client.held[A] == world.latest[A]


def test_a_resync_reaches_a_client_that_was_not_answered_yet(world: World) -> None:
    """The server has registered the proxy: what it announces from then on concerns whoever waits for an answer."""
    world.put(A)
    client, registered, server = world.client(), world.client(), world.server_of(A)
    registered.subscribe(A)
    run(server)
    client.subscribe(A, B)
    server.sent.append(text_frame(messages.resync([A])))
    server.deliver()
    assert types(registered)[-1] == "resync"
    assert not client.heard
    run(world.server_of(B))
    assert types(client) == ["subscribed", "update", "resync"]
    assert client.heard[-1]["endpoints"] == [A]


def test_a_resync_reaches_a_client_whose_server_has_not_answered_yet(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    server.sent.append(text_frame(messages.resync([A])))
    server.deliver()
    run(server)
    assert types(client) == ["subscribed", "resync"]


def test_a_resync_is_not_sent_for_what_the_client_has_left_before_its_answer(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    server.serve()
    server.sent.appendleft(text_frame(messages.resync([A])))
    server.deliver()
    client.unsubscribe(A)
    run(server)
    assert not client.said("resync")


def test_an_update_and_a_resync_of_one_endpoint_both_count(world: World) -> None:
    """Whoever is subscribed hears of both; the version is retained for who comes later."""
    world.put(A)
    early, late, server = world.client(), world.client(), world.server_of(A)
    early.subscribe(A)
    run(server)
    late.held[A] = world.latest[A]
    world.put(A)
    server.sent.append(text_frame(messages.resync([A])))
    server.deliver(2)
    assert types(early)[-2:] == ["update", "resync"]
    late.subscribe(A)
    assert late.heard[0]["endpoints"] == {A: world.latest[A]}
    assert types(late) == ["subscribed", "update"]
