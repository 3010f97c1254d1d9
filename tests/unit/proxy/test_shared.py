"""Shared mode: the messages that clients and servers are sent; among them the cases of model M5."""

import pytest

from diem.fanout.data_budget import DataBudget
from diem.protocol import messages
from diem.protocol.frames import text_frame
from diem.protocol.messages import BAD_NAME
from diem.protocol.update import encode, with_trace
from proxy.pending import MAX_PENDING
from proxy.relocation import MAX_HOPS
from tests.support.spans import SAMPLED
from tests.unit.proxy.world import START, Client, RecordingTrace, Server, World, name_of

A, A2, B = name_of(0), name_of(0, 1), name_of(1)


@pytest.fixture
def world() -> World:
    return World().start()


def run(server: Server) -> None:
    """Answer all requests of a link and deliver all of its frames."""
    while server.requests or server.sent:
        while server.requests:
            server.answer_next()
        server.deliver(5)


def types(client: Client) -> list[str]:
    return [message["type"] for message in client.received]


def test_known_versions_in_requests_are_the_retained_ones_not_those_of_a_client(world: World) -> None:
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


def test_second_subscriber_is_answered_at_once_with_the_retained_frame(world: World) -> None:
    world.put(A)
    first, second = world.client(), world.client()
    first.subscribe(A)
    run(world.server_of(A))
    second.subscribe(A)
    assert types(second) == ["subscribed", "update"]
    assert second.received[0]["endpoints"] == {A: world.latest[A]}
    assert not world.server_of(A).requests


def test_context_of_a_trace_is_passed_on_and_not_sent_to_later_subscribers(world: World) -> None:
    first, second, server = world.client(), world.client(), world.server_of(A)
    first.subscribe(A)
    run(server)
    server.sent.append(text_frame(with_trace(encode(A, START, START), SAMPLED)))
    server.deliver(1)
    second.subscribe(A)
    assert first.received[-1]["traceparent"] == SAMPLED
    assert second.received[-1]["version"] == START
    assert "traceparent" not in second.received[-1]


def test_old_reply_does_not_answer_a_newer_request(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    client.unsubscribe(A)
    client.subscribe(A)
    before = len(client.received)
    server.answer_next()
    server.deliver()
    assert len(client.received) == before
    assert not world.shared.relocator.routes[A].is_registered
    run(server)
    assert client.received[before]["type"] == "subscribed"


def test_answers_of_two_servers_are_coalesced_into_one_frame(world: World) -> None:
    client = world.client()
    client.subscribe(A, B, "bad name")
    run(world.server_of(A))
    assert not client.received
    world.timers.advance(0.05)
    run(world.server_of(B))
    (answer,) = client.received
    assert answer["endpoints"] == {A: None, B: None}
    assert answer["rejected"] == {"bad name": {"code": BAD_NAME.code, "message": BAD_NAME.message}}


def test_slow_server_delays_the_answers_of_others_by_a_tenth_of_a_second_at_most(world: World) -> None:
    client = world.client()
    client.subscribe(A, B)
    run(world.server_of(A))
    world.timers.advance(0.11)
    assert [message.get("endpoints") for message in client.received] == [{A: None}]
    run(world.server_of(B))
    assert client.received[-1]["endpoints"] == {B: None}


def test_unanswered_endpoint_is_answered_with_null_and_stale_after_three_seconds(world: World) -> None:
    world.put(A)
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    world.timers.advance(2.9)
    assert not client.received
    world.timers.advance(0.2)
    assert types(client) == ["status", "subscribed"], "or the client takes the version for the current one"
    assert (client.received[0]["live"], client.received[0]["endpoints"]) == (False, [A])
    assert client.received[1]["endpoints"] == {A: None}
    run(server)
    assert client.held[A] == world.latest[A]
    assert client.received[-1] == {**client.received[-1], "type": "update"}
    assert [message["live"] for message in client.of_type("status")] == [False, True]


def test_loss_of_a_server_is_sent_to_its_subscribers_only(world: World) -> None:
    one, both, other = (world.client() for _ in range(3))
    one.subscribe(A)
    both.subscribe(A, B)
    other.subscribe(B)
    for server in world.servers.values():
        run(server)
    world.lose(world.server_of(A).url)
    assert [client.of_type("status")[0]["endpoints"] for client in (one, both)] == [[A], [A]]
    assert not other.of_type("status")
    world.open(world.server_of(A).url)
    run(world.server_of(A))
    assert [client.of_type("status")[1]["live"] for client in (one, both)] == [True, True]


def test_partial_status_is_split_at_a_hundred_names() -> None:
    world = World(limit=300).start()
    client = world.client()
    names = [name for n in range(1000) if world.server_of(name := f"/many/{n}") is world.server_of(A)][:250]
    for start in range(0, 250, 100):
        client.subscribe(*names[start : start + 100])
    run(world.server_of(A))
    world.lose(world.server_of(A).url)
    assert [len(message["endpoints"]) for message in client.of_type("status")] == [100, 100, 50]


def test_endpoints_of_a_server_that_is_not_live_are_stale_until_it_is_live(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    run(server)
    for live in (False, True):
        server.sent.append(text_frame(messages.status(live=live, since="-")))
        server.deliver()
    assert [message["live"] for message in client.of_type("status")] == [False, True]


def test_stale_endpoints_are_sent_again_after_a_global_status(world: World) -> None:
    client = world.client()
    client.subscribe(A, B)
    for server in world.servers.values():
        run(server)
    world.lose(world.server_of(A).url)
    client.affected.clear()
    world.shared.resend_stale_status(client.edge)
    assert client.affected == {A}


def test_old_owner_is_unsubscribed_after_the_new_one_has_answered(world: World) -> None:
    client = world.client()
    client.subscribe(A)
    old = world.server_of(A)
    run(old)
    new = next(server for server in world.servers.values() if server is not old)
    new.partitions |= old.partitions
    world.assigned[0] = new.url
    world.publish_snapshot()
    assert [kind for kind, *_ in new.requests] == ["subscribe"]
    assert not old.requests
    run(new)
    assert [kind for kind, *_ in old.requests] == ["unsubscribe"]
    assert not client.of_type("status")


def test_frame_with_an_old_version_is_not_delivered(world: World) -> None:
    world.put(A)
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    run(server)
    for version in (world.latest[A], world.latest[A] - 1, START):
        server.sent.append(text_frame(encode(A, version, version)))
    server.deliver(3)
    assert len(client.of_type("update")) == 1
    assert world.shared.relay.counts.stale == 3


def test_last_unsubscribe_drops_the_retained_frame_its_version_and_the_subscription(world: World) -> None:
    world.put(A)
    one, two, server = world.client(), world.client(), world.server_of(A)
    for client in (one, two):
        client.subscribe(A)
    run(server)
    one.unsubscribe(A)
    assert not server.requests
    assert world.shared.relay.has_version(A.encode())
    two.leave()
    assert not world.shared.relay.has_version(A.encode())
    assert [(kind, list(names)) for kind, _, names in server.requests] == [("unsubscribe", [A])]
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


def test_pending_requests_of_a_client_are_bounded(world: World) -> None:
    client = world.client()
    for _ in range(MAX_PENDING):
        client.subscribe(A)
    assert not client.received
    client.subscribe(A)
    assert (client.received[0]["type"], client.received[0]["code"]) == ("error", "limit")


def test_hints_are_followed_three_times_in_a_row_and_then_with_back_off(world: World) -> None:
    """Two servers that send each other's endpoints away."""
    one, other = world.servers.values()
    for server, hint in ((one, other), (other, one)):
        server.partitions.clear()
        server.hint = hint.owner.public
    client = world.client()
    client.subscribe(A)
    requests = _exchange(world)
    assert requests == 1 + MAX_HOPS
    for _ in range(120):
        world.timers.advance(0.5)
        requests += _exchange(world)
    assert 15 < requests < 250
    assert client.affected == {A}


def _exchange(world: World) -> int:
    """Answer until there are no requests; return their number."""
    requests = 0
    while any(server.requests for server in world.servers.values()):
        for server in world.servers.values():
            requests += len(server.requests)
            while server.requests:
                server.answer_next()
            server.deliver(10)
    return requests


def test_moved_endpoint_is_found_at_its_new_owner_before_the_next_snapshot(world: World) -> None:
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


def test_late_answer_of_the_old_owner_does_not_drop_the_new_one(world: World) -> None:
    client, old = world.client(), world.server_of(A)
    client.subscribe(A)
    old.answer_next()
    new = next(server for server in world.servers.values() if server is not old)
    new.partitions |= old.partitions
    world.assigned[0] = new.url
    world.publish_snapshot()
    run(old)
    assert client.of_type("subscribed")
    assert [kind for kind, *_ in new.requests] == ["subscribe"]
    run(new)
    run(old)
    assert (old.subscribed, new.subscribed) == (set(), {A})


def other_than(world: World, server: Server) -> Server:
    return next(each for each in world.servers.values() if each is not server)


@pytest.mark.parametrize("hinted", [False, True], ids=["without hints", "with a hint at the home itself"])
def test_refusing_home_is_requested_again_after_the_old_server_has_answered(world: World, *, hinted: bool) -> None:
    """The answer of a former home does not end the retries at the home."""
    world.put(A)
    client, old = world.client(), world.server_of(A)
    new = other_than(world, old)
    client.subscribe(A)
    world.assigned[0] = new.url
    world.publish_snapshot()
    # The new home has not been assigned the partition yet.
    new.hint = new.owner.public if hinted else "ws://192.0.2.1:1/ws"
    new.answer_next()
    new.deliver()
    run(old)
    assert client.of_type("subscribed")
    old.revoke(0)
    run(old)
    new.partitions.add(0)
    world.put(A)
    world.run_until_stable()
    assert new.subscribed == {A}
    assert client.held[A] == world.latest[A]
    assert A not in client.affected


def test_refusing_home_is_requested_again_while_the_old_server_keeps_serving(world: World) -> None:
    client, old = world.client(), world.server_of(A)
    new = other_than(world, old)
    client.subscribe(A)
    run(old)
    world.assigned[0] = new.url
    world.publish_snapshot()
    new.hint = "ws://192.0.2.1:1/ws"
    run(new)
    new.partitions.add(0)
    world.run_until_stable()
    assert new.subscribed == {A}
    assert old.subscribed == set()
    assert not client.of_type("status")


def test_later_answers_do_not_wait_for_a_server_that_hangs(world: World) -> None:
    world.put(A)
    client = world.client()
    client.subscribe(A, B)
    world.timers.advance(0.2)
    assert not client.received
    run(world.server_of(A))
    assert types(client) == ["subscribed", "update"]
    world.put(A)
    run(world.server_of(A))
    assert client.held[A] == world.latest[A]


def test_resync_reaches_a_client_whose_answer_is_coalescing(world: World) -> None:
    """The server has registered the proxy: from then on its messages concern the clients that wait for an answer."""
    world.put(A)
    client, registered, server = world.client(), world.client(), world.server_of(A)
    registered.subscribe(A)
    run(server)
    client.subscribe(A, B)
    server.sent.append(text_frame(messages.resync([A])))
    server.deliver()
    assert types(registered)[-1] == "resync"
    assert not client.received
    run(world.server_of(B))
    assert types(client) == ["subscribed", "update", "resync"]
    assert client.received[-1]["endpoints"] == [A]


def test_resync_before_the_answer_of_the_server_reaches_the_client(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    server.sent.append(text_frame(messages.resync([A])))
    server.deliver()
    run(server)
    assert types(client) == ["subscribed", "resync"]


def test_nothing_follows_for_an_endpoint_that_is_unsubscribed_before_its_answer(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    server.answer_next()
    server.sent.appendleft(text_frame(messages.resync([A])))
    server.deliver()
    client.unsubscribe(A)
    run(server)
    assert types(client)[-1] == "unsubscribed"


def test_update_and_resync_of_one_endpoint_are_both_delivered(world: World) -> None:
    """Subscribers are sent both; the update is retained for later subscribers, who must fetch as well."""
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
    assert late.received[0]["endpoints"] == {A: world.latest[A]}
    assert types(late) == ["subscribed", "update", "resync"]


def test_new_subscribers_are_sent_resync_until_a_newer_update_arrives(world: World) -> None:
    world.put(A)
    early, late, last, server = world.client(), world.client(), world.client(), world.server_of(A)
    early.subscribe(A)
    run(server)
    server.sent.append(text_frame(messages.resync([A, A2])))
    run(server)
    world.shared.updates(server.url, text_frame(encode(A, world.latest[A], START)), 1)
    late.subscribe(A)
    assert types(late) == ["subscribed", "update", "resync"]
    world.put(A)
    run(server)
    last.subscribe(A)
    assert types(last) == ["subscribed", "update"]
    for client in (early, late, last):
        client.leave()
    assert not world.shared.relay.suspect, "and what no client wants is forgotten"


@pytest.mark.parametrize("has", [None, START])
def test_server_that_returns_without_what_is_retained_makes_clients_fetch(world: World, has: int | None) -> None:
    world.put(A)
    early, late, server = world.client(), world.client(), world.server_of(A)
    early.subscribe(A)
    run(server)
    world.lose(server.url)
    server.retained = {} if has is None else {A: has}
    world.open(server.url)
    run(server)
    assert early.of_type("resync") == [{"type": "resync", "endpoints": [A]}]
    late.subscribe(A)
    assert types(late) == ["subscribed", "update", "resync"], "its version alone would be called current"


def test_server_that_returns_with_what_is_retained_makes_nobody_fetch(world: World) -> None:
    world.put(A)
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    run(server)
    world.lose(server.url)
    world.open(server.url)
    run(server)
    assert not client.of_type("resync")


def test_resync_of_an_endpoint_is_forgotten_with_its_last_subscriber(world: World) -> None:
    client, server = world.client(), world.server_of(A)
    client.subscribe(A)
    run(server)
    server.sent.append(text_frame(messages.resync([A, A2])))
    run(server)
    assert world.shared.relay.suspect == {A.encode()}, "of what a client wants"
    client.unsubscribe(A)
    assert not world.shared.relay.suspect


def test_endpoint_of_a_server_that_is_not_live_is_stale_before_its_answer(world: World) -> None:
    early, late, server = world.client(), world.client(), world.server_of(A)
    world.put(A)
    early.subscribe(A2)
    run(server)
    server.sent.append(text_frame(messages.status(live=False, since="-")))
    run(server)
    late.subscribe(A)
    run(server)
    assert types(late) == ["status", "subscribed", "update"]
    assert late.affected == {A}
    server.sent.append(text_frame(messages.status(live=True, since="-")))
    run(server)
    assert not late.affected


def test_whoever_subscribes_again_to_a_stale_endpoint_is_sent_that_again_before_the_answer(world: World) -> None:
    early, late, server = world.client(), world.client(), world.server_of(A)
    early.subscribe(A)
    run(server)
    server.sent.append(text_frame(messages.status(live=False, since="-")))
    run(server)
    for _ in range(2):
        late.subscribe(A)
        assert types(late)[-2:] == ["status", "subscribed"]
        assert late.affected == {A}
        late.unsubscribe(A)
    server.sent.append(text_frame(messages.status(live=True, since="-")))
    run(server)
    late.subscribe(A)
    assert types(late)[-2:] == ["unsubscribed", "subscribed"]
    assert not late.affected, "what was said of it ended with unsubscribed"


def test_blocked_client_knows_that_an_endpoint_is_stale_when_it_is_answered(world: World) -> None:
    client = world.client()
    client.subscribe(A)
    client.session.block()
    world.timers.advance(3.1)
    assert types(client) == ["status", "subscribed"]


def test_trace_has_the_versions_that_a_server_has_announced_before_their_updates(world: World) -> None:
    world.put(A)
    client, server, trace = world.client(), world.server_of(A), RecordingTrace()
    client.session.trace = trace
    client.subscribe(A, A2)
    server.answer_next()
    server.deliver()
    assert A.encode() not in world.shared.relay.retained
    assert trace.requests == [([A.encode(), A2.encode()], [A2.encode()])]
    run(server)
    second, trace = world.client(), RecordingTrace()
    second.session.trace = trace
    second.subscribe(A)
    assert trace.requests == [([A.encode()], [])]


def test_ended_rights_unsubscribe_and_refuse_what_is_pending(world: World) -> None:
    world.put(A)
    client, other = world.client(), world.client()
    client.subscribe(A)
    other.subscribe(A)
    run(world.server_of(A))
    client.subscribe(A2, B)
    received = len(client.received)
    assert set(world.shared.restrict(client.edge, lambda name: name == B)) == {A, A2}
    (refused,) = client.received[received:]
    assert (refused["endpoints"], set(refused["rejected"])) == ({}, {A2})
    client.confirmed -= {A}
    world.put(A)
    world.put(A2)
    run(world.server_of(A))
    run(world.server_of(B))
    assert other.held[A] == world.latest[A]
    assert client.received[-1]["endpoints"] == {B: None}
    assert world.shared.relay.wanted == {A.encode(), B.encode()}


def test_names_refused_at_the_edge_are_in_the_answer(world: World) -> None:
    client = world.client()
    client.unanswered[7] = {A, "/secret"}
    world.shared.subscribe(client.edge, messages.Subscribe(7, {A: 0}, {"/secret": messages.FORBIDDEN}))
    run(world.server_of(A))
    (answer,) = client.received
    assert (answer["endpoints"], set(answer["rejected"])) == ({A: None}, {"/secret"})


def updates_of(client: Client) -> list[tuple[int, bool]]:
    """The version of each update that a client was sent, and whether it had data."""
    return [(message["version"], "data" in message) for message in client.of_type("update")]


def test_clients_are_sent_data_as_they_asked_over_one_subscription_with_data() -> None:
    world = World(budget=DataBudget()).start()
    world.put(A)
    plain, wanting = world.client(), world.client()
    plain.subscribe(A)
    run(world.server_of(A))
    wanting.subscribe(A, data=True)
    first = world.latest[A]
    assert (updates_of(plain), updates_of(wanting)) == ([(first, False)], [(first, True)])
    world.put(A)
    run(world.server_of(A))
    assert updates_of(plain)[1:] == [(world.latest[A], False)]
    assert updates_of(wanting)[1:] == [(world.latest[A], True)]
    assert wanting.of_type("update")[-1]["data"]["version"] == world.latest[A]


def test_data_beyond_the_budget_is_passed_on_but_not_retained() -> None:
    world = World(budget=DataBudget(0)).start()
    first, second = world.client(), world.client()
    first.subscribe(A, data=True)
    run(world.server_of(A))
    server = world.server_of(A)
    world.put(A)
    version = world.latest[A]
    long = encode(A, version, version, data=b'{"version":%d,"rest":"%b"}' % (version, b"x" * 1000))
    server.sent.clear()
    server.sent.append(text_frame(long))
    run(server)
    second.subscribe(A, data=True)
    assert (updates_of(first), updates_of(second)) == ([(version, True)], [(version, False)])


def test_without_a_budget_servers_are_asked_for_no_data() -> None:
    world = World().start()
    world.client().subscribe(A, data=True)
    run(world.server_of(A))
    link = world.server_of(A).link
    assert link is not None
    assert not link.data


def test_an_endpoint_that_nobody_wants_frees_its_place_in_the_budget() -> None:
    budget = DataBudget()
    world = World(budget=budget).start()
    client, server = world.client(), world.server_of(A)
    client.subscribe(A, data=True)
    run(server)
    world.version += 1
    world.latest[A] = version = world.version
    server.sent.append(text_frame(encode(A, version, version, data=b'"%b"' % (b"x" * 1000))))
    run(server)
    assert budget.bytes
    client.unsubscribe(A)
    run(server)
    assert not budget.bytes


def test_data_before_a_resync_is_not_sent_to_later_subscribers() -> None:
    world = World(budget=DataBudget()).start()
    world.put(A)
    first, second = world.client(), world.client()
    server = world.server_of(A)
    first.subscribe(A, data=True)
    run(server)
    server.sent.append(text_frame(messages.resync([A])))
    run(server)
    second.subscribe(A, data=True)
    assert updates_of(first) == [(world.latest[A], True)]
    assert updates_of(second) == [(world.latest[A], False)], "it fetches"
