"""Passthrough mode: the links of one client, and the messages that it is sent."""

from typing import Any, cast

import orjson
import pytest

from diem.fanout.read_meter import ReadMeter
from diem.fanout.session import DeliveryStats, Session
from diem.links.edge_connection import EdgeConnection
from diem.process.clock import ManualClock
from diem.protocol import messages
from diem.protocol.frames import text_frame
from diem.protocol.messages import Subscribe, Unsubscribe
from diem.protocol.update import encode
from proxy.passthrough import UNUSED_LINK_S, PassthroughClient, PassthroughProxy, trace_subscribed
from proxy.pending import MAX_PENDING
from tests.unit.proxy.world import START, FakeDialer, FakeUpstream, RecordingTrace, Timers, World, name_of

A, A2, B = name_of(0), name_of(0, 1), name_of(1)


class Harness:
    """One client of a proxy in passthrough mode, with fake links."""

    def __init__(self, upstreams: int = 10) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.stats = DeliveryStats()
        self.written: list[bytes] = []
        self.session = Session(self.written.append, self.written.extend, self.stats)
        self.dialer = FakeDialer()
        self.links = self.dialer.links
        world = self.world = World().start()
        self.urls = {name: world.server_of(name).url for name in (A, A2, B)}
        self.proxy = PassthroughProxy(
            self.stats, world.router, self.dialer.itself, self.clock, self.timers.later, upstreams=upstreams
        )

    @property
    def edge(self) -> EdgeConnection:
        return cast("EdgeConnection", self)

    @property
    def client(self) -> PassthroughClient:
        return self.proxy.clients[self.edge]

    def respond(self, reply: bytes) -> None:
        self.written.append(text_frame(reply))

    def subscribe(self, request_id: int, **known: int) -> None:
        names = {"A": A, "A2": A2, "B": B}
        self.proxy.subscribe(self.edge, Subscribe(request_id, {names[n]: v for n, v in known.items()}))

    def unsubscribe(self, request_id: int, *names: str) -> None:
        self.proxy.unsubscribe(self.edge, Unsubscribe(request_id, list(names)))

    def open(self, name: str) -> FakeUpstream:
        return self.links[self.urls[name]].open()

    def lose(self, name: str) -> None:
        self.links[self.urls[name]].lose()

    def receive(self, name: str, payload: bytes) -> None:
        """Receive a message of a server; the id of an answer is the number of its request on the link, from 1."""
        message, upstream = orjson.loads(payload), self.links[self.urls[name]].upstream
        if "id" in message and upstream is not None:
            message["id"] = upstream.requests[message["id"] - 1][1]
        self.client.message(self.urls[name], messages.parse_server(orjson.dumps(message)))

    def open_subscribed(self, version: int | None, request_id: int = 7) -> FakeUpstream:
        """Subscribe to ``A``, whose server answers with a version."""
        self.subscribe(request_id, A=0)
        upstream = self.open(A)
        self.receive(A, messages.subscribed(1, {A: version}, {}))
        return upstream

    def assign_to_b(self) -> None:
        """Move the partition of ``A`` to the server of ``B``."""
        self.world.assigned[0] = self.urls[B]
        self.world.publish_snapshot()
        self.proxy.rerouted()

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [orjson.loads(frame[frame.index(b"{") :]) for frame in self.written]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_links_are_opened_at_the_first_subscription_and_known_versions_are_forwarded(harness: Harness) -> None:
    assert not harness.links
    harness.subscribe(7, A=START, B=0)
    assert set(harness.links) == {harness.urls[A], harness.urls[B]}
    assert harness.open(A).requested == [("subscribe", {A: START})]
    assert harness.open(B).requested == [("subscribe", {B: None})]


def test_only_a_request_that_needs_more_links_is_refused() -> None:
    harness = Harness(upstreams=1)
    harness.subscribe(7, A=0)
    harness.subscribe(8, B=0)
    assert [(m["type"], m["id"]) for m in harness.sent] == [("error", 8)]
    # Another link, as if the endpoint had moved: a limit does not stop that.
    harness.proxy.connect(harness.urls[B], harness.client, harness.session)
    link = harness.open(A)
    harness.subscribe(9, A2=0)
    assert link.requested == [("subscribe", {A: None}), ("subscribe", {A2: None})]


def test_each_server_answers_its_part_with_the_clients_id(harness: Harness) -> None:
    harness.subscribe(7, A=0, B=0)
    harness.open(A)
    harness.open(B)
    harness.receive(A, messages.subscribed(1, {A: START}, {}))
    harness.receive(B, messages.subscribed(1, {B: None}, {}))
    assert [(m["type"], m["id"], m["endpoints"]) for m in harness.sent] == [
        ("subscribed", 7, {A: START}),
        ("subscribed", 7, {B: None}),
    ]


def test_messages_of_servers_to_the_proxy_itself_are_not_forwarded(harness: Harness) -> None:
    harness.subscribe(7, A=START)
    harness.open(A)
    harness.receive(A, messages.welcome(session="-", server="-", mode="-", authenticated=True, subscriptions=0))
    harness.receive(A, messages.subscribed(1, {A: START}, {}))
    harness.written.clear()
    harness.lose(A)
    link = harness.open(A)
    assert link.requested == [("subscribe", {A: START})]
    harness.receive(A, messages.subscribed(1, {A: START + 1}, {}))
    assert [(m["type"], m["live"]) for m in harness.sent] == [("status", False), ("status", True)]


def test_run_of_updates_is_one_write_of_the_same_bytes(harness: Harness) -> None:
    harness.subscribe(7, A=0)
    harness.open(A)
    chunk = b"".join(text_frame(encode(A, START + n, START)) for n in range(3))
    harness.client.updates(harness.urls[A], chunk, 3)
    assert len(harness.written) == 1
    assert harness.written[0] is chunk
    assert harness.stats.sent == 3


def test_blocked_client_conflates_and_pauses_reading_from_its_servers(harness: Harness) -> None:
    harness.subscribe(7, A=0)
    link = harness.open(A)
    harness.session.block()
    harness.proxy.blocked(harness.edge)
    assert not link.transport.reading
    frames = [text_frame(encode(A, START + n, START)) for n in range(3)]
    harness.client.updates(harness.urls[A], b"".join(frames), 3)
    assert not harness.written
    assert (harness.stats.held, harness.stats.conflated) == (1, 2)
    harness.session.unblock()
    harness.proxy.unblocked(harness.edge)
    assert link.transport.reading
    assert harness.written == frames[-1:]


def test_unsubscribe_is_confirmed_once_when_every_server_has_confirmed(harness: Harness) -> None:
    harness.subscribe(7, A=0, B=0)
    harness.open(A)
    harness.open(B)
    harness.receive(A, messages.subscribed(1, {A: None}, {}))
    harness.receive(B, messages.subscribed(1, {B: None}, {}))
    harness.written.clear()
    harness.unsubscribe(8, A, B, "/never/subscribed")
    harness.receive(A, messages.unsubscribed(2, [A]))
    assert not harness.written
    harness.receive(B, messages.unsubscribed(2, [B]))
    assert harness.sent == [{"type": "unsubscribed", "id": 8, "endpoints": [A, B, "/never/subscribed"]}]


def test_repeated_unsubscribe_is_confirmed_together_with_the_first(harness: Harness) -> None:
    harness.open_subscribed(None)
    harness.written.clear()
    harness.unsubscribe(8, A)
    harness.unsubscribe(9, A)
    assert not harness.written
    harness.receive(A, messages.unsubscribed(2, [A]))
    assert [(message["type"], message["id"]) for message in harness.sent] == [("unsubscribed", 8), ("unsubscribed", 9)]


def test_unsubscribe_waits_for_a_former_server_of_the_endpoint(harness: Harness) -> None:
    """Its answer may still be in transit, followed by an update."""
    harness.subscribe(7, A=0)
    old = harness.open(A)
    harness.assign_to_b()
    new = harness.open(B)
    harness.receive(B, messages.subscribed(1, {A: START}, {}))
    assert old.requested[-1] == ("unsubscribe", {A: None})
    harness.unsubscribe(8, A)
    assert new.requested[-1] == ("unsubscribe", {A: None})
    harness.receive(B, messages.unsubscribed(2, [A]))
    assert [m["type"] for m in harness.sent] == ["subscribed"]
    harness.receive(A, messages.subscribed(1, {A: START}, {}))
    harness.receive(A, messages.unsubscribed(2, [A]))
    assert [m["type"] for m in harness.sent] == ["subscribed", "unsubscribed"]


def test_unsubscribe_does_not_wait_for_a_link_that_was_closed_as_unused(harness: Harness) -> None:
    """A former server of the endpoint does not confirm; its unused link is closed after 10 s."""
    harness.subscribe(7, A=0)
    harness.open(A)
    harness.assign_to_b()
    harness.open(B)
    harness.receive(B, messages.subscribed(1, {A: START}, {}))
    harness.timers.advance(UNUSED_LINK_S + 1)
    assert harness.links[harness.urls[A]].stopped
    harness.unsubscribe(8, A)
    harness.receive(B, messages.unsubscribed(2, [A]))
    assert [m["type"] for m in harness.sent] == ["subscribed", "unsubscribed"]


def test_endpoint_that_no_server_has_answered_for_is_stale_before_its_answer(harness: Harness) -> None:
    harness.subscribe(7, A=0)
    harness.timers.advance(3.1)
    assert [(m["type"], m.get("live")) for m in harness.sent] == [("status", False), ("subscribed", None)]


def test_endpoint_of_a_server_that_is_not_live_is_stale_before_its_answer(harness: Harness) -> None:
    harness.open_subscribed(None)
    harness.receive(A, messages.status(live=False, since="-"))
    harness.written.clear()
    harness.subscribe(8, A2=0)
    harness.receive(A, messages.subscribed(2, {A2: START}, {}))
    assert [(m["type"], m.get("endpoints")) for m in harness.sent] == [
        ("status", [A2]),
        ("subscribed", {A2: START}),
    ]


def test_whoever_subscribes_again_to_a_stale_endpoint_is_sent_that_again_before_the_answer(harness: Harness) -> None:
    harness.open_subscribed(None)
    harness.receive(A, messages.status(live=False, since="-"))
    harness.unsubscribe(8, A)
    harness.receive(A, messages.unsubscribed(2, [A]))
    harness.written.clear()
    harness.subscribe(9, A=0)
    harness.receive(A, messages.subscribed(3, {A: START}, {}))
    assert [(m["type"], m.get("live")) for m in harness.sent] == [("status", False), ("subscribed", None)]


def test_recovery_is_sent_while_a_repeated_subscribe_is_pending(harness: Harness) -> None:
    harness.open_subscribed(None)
    harness.assign_to_b()
    harness.receive(A, messages.status(live=False, since="-"))
    harness.subscribe(8, A=0)
    # The new home has not answered when the old server is live again.
    harness.receive(A, messages.status(live=True, since="-"))
    harness.open(B)
    harness.receive(B, messages.subscribed(1, {A: None}, {}))
    assert [(m["type"], m.get("live")) for m in harness.sent] == [
        ("subscribed", None),
        ("status", False),
        ("status", True),
        ("subscribed", None),
    ]


def test_unused_link_is_closed_after_a_grace_period_although_its_server_was_slow_to_confirm(harness: Harness) -> None:
    harness.open_subscribed(None)
    harness.unsubscribe(8, A)
    harness.timers.advance(UNUSED_LINK_S + 1)
    assert not harness.links[harness.urls[A]].stopped
    harness.receive(A, messages.unsubscribed(2, [A]))
    harness.timers.advance(UNUSED_LINK_S - 0.1)
    assert not harness.links[harness.urls[A]].stopped
    harness.timers.advance(0.2)
    assert harness.links[harness.urls[A]].stopped
    assert not harness.client.links


def test_loss_of_a_link_confirms_its_unsubscribes(harness: Harness) -> None:
    harness.subscribe(7, A=0)
    harness.open(A)
    harness.unsubscribe(8, A)
    assert [m["type"] for m in harness.sent] == ["subscribed"]
    harness.lose(A)
    assert [m["type"] for m in harness.sent] == ["subscribed", "unsubscribed"]


def test_link_that_is_needed_again_stays_open(harness: Harness) -> None:
    harness.subscribe(7, A=0)
    harness.open(A)
    harness.unsubscribe(8, A)
    harness.subscribe(9, A2=0)
    harness.timers.advance(2 * UNUSED_LINK_S)
    assert not harness.links[harness.urls[A]].stopped


def test_link_to_a_dead_server_is_closed_once_another_server_has_answered(harness: Harness) -> None:
    harness.subscribe(7, A=0, B=0)
    harness.open(A)
    other = harness.open(B)
    harness.receive(A, messages.subscribed(1, {A: None}, {}))
    harness.receive(B, messages.subscribed(1, {B: None}, {}))
    harness.lose(A)
    harness.assign_to_b()
    assert other.requested[-1] == ("subscribe", {A: None})
    harness.receive(B, messages.subscribed(2, {A: None}, {}))
    harness.timers.advance(2 * UNUSED_LINK_S)
    assert harness.links[harness.urls[A]].stopped
    assert set(harness.client.links) == {harness.urls[B]}


def test_resync_is_forwarded_for_subscribed_endpoints_only(harness: Harness) -> None:
    harness.subscribe(7, A=0)
    harness.open(A)
    harness.receive(A, messages.resync([A, A2]))
    assert harness.sent == [{"type": "resync", "endpoints": [A]}]


def test_links_and_timers_of_a_client_end_with_it(harness: Harness) -> None:
    harness.subscribe(7, A=0, B=0)
    harness.open(A)
    harness.proxy.left(harness.edge)
    assert all(link.stopped for link in harness.links.values())
    harness.timers.advance(60)
    assert not harness.written
    assert harness.timers.waiting == 0


def test_trace_has_the_new_endpoints_of_an_answer_and_those_without_a_version(harness: Harness) -> None:
    harness.session.trace = trace = RecordingTrace()
    trace_subscribed(harness.session, {A: 7, B: None})
    trace_subscribed(harness.session, {A: None, A2: 0})
    assert trace.requests == [(sorted([A.encode(), B.encode()]), [B.encode()]), ([A2.encode()], [])]


def of_type(harness: Harness, kind: str) -> list[dict[str, Any]]:
    return [message for message in harness.sent if message["type"] == kind]


def test_ended_rights_withhold_updates_until_the_server_has_confirmed(harness: Harness) -> None:
    harness.subscribe(1, A=0, A2=0)
    upstream = harness.open(A)
    harness.receive(A, messages.subscribed(1, {A: START, A2: START}, {}))
    assert harness.proxy.restrict(harness.edge, lambda name: name != A) == [A]
    assert upstream.requested[-1] == ("unsubscribe", {A: None})
    assert upstream.inspected, "no update may take the short way past the check"
    frames = [text_frame(encode(name, START + 1, START + 1)) for name in (A, A2)]
    harness.client.updates(harness.urls[A], b"".join(frames), 2)
    harness.client.updates(harness.urls[A], frames[0], 1)
    harness.receive(A, messages.resync([A, A2]))
    assert [message["endpoint"] for message in of_type(harness, "update")] == [A2]
    assert [message["endpoints"] for message in of_type(harness, "resync")] == [[A2]]
    assert harness.stats.offered == 2
    harness.receive(A, messages.unsubscribed(2, [A]))
    assert not upstream.inspected
    assert not of_type(harness, "unsubscribed"), "the client has not unsubscribed"


def test_ended_rights_withhold_updates_of_what_was_unsubscribed_before(harness: Harness) -> None:
    harness.subscribe(1, A=0, A2=0)
    upstream = harness.open(A)
    harness.receive(A, messages.subscribed(1, {A: START, A2: START}, {}))
    harness.proxy.unsubscribe(harness.edge, messages.Unsubscribe(2, [A, A2]))
    assert harness.proxy.restrict(harness.edge, lambda name: name != A) == [], "it is subscribed to nothing"
    frames = [text_frame(encode(name, START + 1, START + 1)) for name in (A, A2)]
    harness.client.updates(harness.urls[A], b"".join(frames), 2)
    assert [message["endpoint"] for message in of_type(harness, "update")] == [A2]
    assert [kind for kind, _ in upstream.requested] == ["subscribe", "unsubscribe"]
    harness.receive(A, messages.unsubscribed(2, [A, A2]))
    assert not upstream.inspected
    assert [message["id"] for message in of_type(harness, "unsubscribed")] == [2]


def test_ended_rights_refuse_the_request_that_waits_for_them(harness: Harness) -> None:
    harness.subscribe(1, A=0, B=0)
    harness.open(A)
    assert set(harness.proxy.restrict(harness.edge, lambda name: name == B)) == {A}
    harness.receive(A, messages.subscribed(1, {A: START}, {}))
    (refused,) = harness.sent
    assert (refused["id"], refused["endpoints"], set(refused["rejected"])) == (1, {}, {A})
    assert refused["rejected"][A]["code"] == "forbidden"
    harness.open(B)
    harness.receive(B, messages.subscribed(1, {B: START}, {}))
    assert harness.sent[-1] == {"type": "subscribed", "id": 1, "endpoints": {B: START}}


def test_subscription_after_regained_rights_is_not_withheld(harness: Harness) -> None:
    upstream = harness.open_subscribed(START, 1)
    harness.proxy.restrict(harness.edge, lambda _: False)
    harness.subscribe(2, A=0)
    harness.receive(A, messages.subscribed(3, {A: START}, {}))
    harness.proxy.restrict(harness.edge, lambda _: False)
    harness.receive(A, messages.unsubscribed(2, [A]))
    frame = text_frame(encode(A, START + 1, START + 1))
    harness.client.updates(harness.urls[A], frame, 1)
    assert not of_type(harness, "update"), "the second unsubscribe is not confirmed yet"
    harness.subscribe(3, A=0)
    harness.client.updates(harness.urls[A], frame, 1)
    assert len(of_type(harness, "update")) == 1
    assert [kind for kind, _ in upstream.requested] == ["subscribe", "unsubscribe"] * 2 + ["subscribe"]


def test_ended_rights_of_a_client_without_subscriptions_need_nothing(harness: Harness) -> None:
    assert harness.proxy.restrict(harness.edge, lambda _: False) == []
    harness.subscribe(1, A=0)
    assert harness.proxy.restrict(harness.edge, lambda _: True) == []


def test_data_is_counted_and_dropped_where_the_quota_is_used_up(harness: Harness) -> None:
    meter = harness.session.meter = ReadMeter("a")
    harness.proxy.subscribe(harness.edge, Subscribe(7, {A: 0}, data=True))
    harness.open(A)
    frames = [text_frame(encode(A, START + n, START, data=b'{"points":[]}' if n else None)) for n in range(3)]
    chunk = b"".join(frames)
    harness.client.updates(harness.urls[A], chunk, 3)
    assert (harness.written.pop(), meter.reads) == (chunk, 2)
    meter.renew(3)
    harness.client.updates(harness.urls[A], chunk, 3)
    assert (harness.written, meter.reads) == ([b"".join(text_frame(encode(A, START + n, START)) for n in range(3))], 2)


def data_of(name: str, number: int) -> bytes:
    return text_frame(encode(name, START + number, START, data=b'{"points":[%b]}' % (b"1," * 100)))


def plain(name: str, number: int) -> bytes:
    return text_frame(encode(name, START + number, START))


def test_retained_updates_in_passthrough_have_no_data_beyond_what_the_client_may_be_sent(harness: Harness) -> None:
    sizes: list[int] = []

    def admit(size: int) -> bool:
        sizes.append(size)
        return len(sizes) == 1

    harness.session.admit_data = admit
    harness.proxy.subscribe(harness.edge, Subscribe(7, {A: 0, A2: START}, data=True))
    upstream = harness.open(A)
    harness.receive(A, messages.subscribed(1, {A: START + 1, A2: START + 1}, {}))
    assert upstream.inspected, "a plain update would be handed on unseen"
    harness.written.clear()
    harness.client.updates(harness.urls[A], data_of(A, 1) + data_of(A2, 1), 2)
    assert harness.written.pop() == data_of(A, 1) + plain(A2, 1)
    assert (sizes, harness.stats.replies_without_data) == ([len(data_of(A, 1)), len(data_of(A2, 1))], 1)
    assert not upstream.inspected
    for number in (2, 3):
        harness.client.updates(harness.urls[A], data_of(A, number) + data_of(A2, number), 2)
        assert harness.written.pop() == data_of(A, number) + data_of(A2, number), "later updates are no replies"
    assert (len(sizes), harness.stats.replies_without_data) == (2, 1)


def test_every_reply_counts_however_requests_follow_one_another(harness: Harness) -> None:
    harness.session.admit_data = lambda _: False
    for known in (0, START + 9, 0):
        # Unsubscribed meanwhile: the retained update is on its way all the same.
        harness.proxy.subscribe(harness.edge, Subscribe(7, {A: known}, data=True))
        if not harness.links[harness.urls[A]].upstream:
            harness.open(A)
        harness.unsubscribe(8, A)
    for request in (1, 3, 5):
        harness.receive(A, messages.subscribed(request, {A: START}, {}))
        harness.client.updates(harness.urls[A], data_of(A, 0), 1)
    assert harness.stats.replies_without_data == 2
    assert b"".join(harness.written).count(b'"data"') == 1, "the one that was not newer than the known version"


def test_retained_update_that_does_not_come_is_not_waited_for(harness: Harness) -> None:
    harness.session.admit_data = lambda _: False
    harness.proxy.subscribe(harness.edge, Subscribe(7, {A: 0, A2: START}, data=True))
    upstream = harness.open(A)
    harness.receive(A, messages.subscribed(1, {A: START, A2: START}, {}))
    assert upstream.inspected, "that of A is due"
    harness.client.updates(harness.urls[A], plain(A2, 1) + data_of(A, -1), 2)
    assert upstream.inspected, "of an older version, from before"
    harness.unsubscribe(8, A)
    harness.receive(A, messages.unsubscribed(2, [A]))
    assert not upstream.inspected
    harness.proxy.subscribe(harness.edge, Subscribe(9, {A: 0}, data=True))
    harness.receive(A, messages.subscribed(3, {A: START}, {}))
    harness.lose(A)
    assert not harness.open(A).inspected
    harness.client.updates(harness.urls[A], data_of(A, 0), 1)
    assert harness.written[-1] == data_of(A, 0)
    assert harness.stats.replies_without_data == 0


def test_32_requests_of_a_client_wait_for_servers_and_no_more(harness: Harness) -> None:
    harness.open_subscribed(START)
    harness.subscribe(8, A2=0)
    harness.receive(A, messages.subscribed(2, {A2: START}, {}))
    harness.written.clear()
    for number in range(MAX_PENDING - 1):
        harness.subscribe(100 + number, A=START)
    harness.unsubscribe(9, A2)
    assert harness.sent == []
    harness.unsubscribe(10, A2)
    harness.subscribe(11, A=START)
    assert [(message["type"], message["id"]) for message in harness.sent] == [("error", 10), ("error", 11)]
