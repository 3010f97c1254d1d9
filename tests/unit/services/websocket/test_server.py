"""A server of a group: refusals, redirects when it loses partitions, and deliveries during moves."""

from collections.abc import Iterable

import orjson

from diem.fanout.feed_hub import FeedHub
from diem.fanout.feed_state import SILENT_AFTER_S
from diem.fanout.ownership import Ownership
from diem.fanout.session import Session
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.process.clock import Clock, ManualClock, SystemClock
from diem.protocol import feed
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from diem.protocol.update import Change, encode
from services.websocket.server import DELAY_S, WebSocketServer
from tests.support.maps import changes_of
from tests.support.spans import SAMPLED, TRACE, traced

V1, V2 = 1_700_000_000_001, 1_700_000_000_002
MAP = "diem.partition-map/0"
HOT_NAME = "diem.updates.hot/0"
ENTRIES = {b"/a": Entry(0), b"/b": Entry(1), b"/c": Entry(1), b"/h": Entry(HOT)}


class Client:
    def __init__(self, hub: FeedHub) -> None:
        self.hub = hub
        self.received: list[dict[str, object]] = []
        self.session = Session(self.write, self.write_many, hub.fanout.stats)
        hub.fanout.join(self.session)

    def write(self, frame: bytes) -> None:
        self.received.append(orjson.loads(frame[2:] if frame[1] < 126 else frame[4:]))

    def write_many(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.write(frame)

    def subscribe(self, *names: str) -> dict[str, tuple[object, ...]]:
        answer = self.hub.subscribe(self.session, dict.fromkeys(names, 0))
        self.write_many(answer.replay)
        return {name: (str(refusal.code), refusal.owner) for name, refusal in answer.rejected.items()}

    def of_type(self, kind: str) -> list[dict[str, object]]:
        return [message for message in self.received if message["type"] == kind]


class Group:
    """One server of a group, with a feed that the test controls."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.ownership = Ownership()
        self.hub = FeedHub(ownership=self.ownership)
        self.edge = Edge(
            self.hub.fanout, Admission(AdmissionRules()), EdgeRules("websocket-1", "z-client"), HubService(self.hub)
        )
        self.server = WebSocketServer(self.hub, self.edge, clock or SystemClock(), self.ownership)
        self._offset = 0

    def assign(self, *partitions: int) -> None:
        names = [*(f"diem.updates/{number}" for number in partitions), HOT_NAME, MAP]
        self.server.hello(feed.Hello("cluster/topic", names))

    def apply_map(
        self,
        epoch: int = 0,
        phase: Phase = Phase.STABLE,
        entries: dict[bytes, Entry] = ENTRIES,
        *,
        caught_up: bool = True,
    ) -> None:
        changes = changes_of(PartitionMap(Head(2, epoch, phase), entries))
        self.server.batch(feed.decode_batch(feed.encode_batch(MAP, len(changes), changes)))
        if caught_up:
            self.server.caught_up(MAP)

    def catch_up(self, *partitions: int) -> None:
        for number in partitions:
            self.server.caught_up(f"diem.updates/{number}")
        self.server.caught_up(HOT_NAME)

    def update(self, partition: int, name: str, version: int) -> None:
        self._offset += 1
        change = Change(self._offset, name.encode(), version, 0, encode(name, version, version))
        feed_name = HOT_NAME if partition == HOT else f"diem.updates/{partition}"
        self.server.batch(feed.decode_batch(feed.encode_batch(feed_name, self._offset + 1, [change])))


def running(*partitions: int, clock: Clock | None = None) -> Group:
    group = Group(clock)
    group.assign(*partitions)
    group.apply_map()
    group.catch_up(*partitions)
    return group


def test_server_is_ready_when_the_map_and_all_partitions_have_been_read() -> None:
    group = Group()
    group.assign(0)
    group.catch_up(0)
    assert not group.edge.ready
    group.apply_map()
    assert group.edge.ready


def test_server_is_not_ready_without_a_map_although_the_topic_of_the_map_has_been_read() -> None:
    group = Group()
    group.assign(0)
    group.catch_up(0)
    group.server.caught_up(MAP)
    assert not group.edge.ready
    group.apply_map(caught_up=False)
    assert group.edge.ready, "the first map may be written long after its topic"


def test_endpoint_of_another_server_is_refused_with_the_url_of_its_owner() -> None:
    group = running(0)
    group.server.owners(feed.Owners({"diem.updates/0": "ws://me/ws", "diem.updates/1": "ws://other/ws"}))
    client = Client(group.hub)
    assert client.subscribe("/a", "/b", "/h") == {"/b": ("not_owner", "ws://other/ws")}
    assert set(client.session.endpoints) == {b"/a", b"/h"}


LEFT = feed.Owners({"diem.updates/0": "ws://other/ws", "diem.updates/1": "ws://third/ws"}, left=True)


def test_server_that_others_have_replaced_sends_clients_there_and_delivers_until_they_are() -> None:
    group = running(0, 1)
    client, late = Client(group.hub), Client(group.hub)
    client.subscribe("/a", "/b", "/h")
    group.server.owners(LEFT)
    assert group.server.handed_over.is_set()
    moved = {str(message["owner"]): message["endpoints"] for message in client.of_type("moved")}
    assert moved == {"ws://other/ws": ["/a"], "ws://third/ws": ["/b"]}
    group.update(0, "/a", V1)
    assert [message["endpoint"] for message in client.of_type("update")] == ["/a"]
    assert late.subscribe("/a", "/h") == {"/a": ("not_owner", "ws://other/ws")}
    assert not group.server.is_left()
    group.hub.fanout.unsubscribe(client.session, ["/a"])
    assert not group.server.is_left()
    group.hub.fanout.unsubscribe(client.session, ["/b"])
    assert group.server.is_left(), "hot endpoints are at every server"
    group.server.owners(LEFT)
    assert len(client.of_type("moved")) == 2


def test_server_without_others_has_nowhere_to_send_clients() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a")
    group.server.owners(feed.Owners({}, left=True))
    assert group.server.handed_over.is_set()
    assert group.server.is_left()
    assert client.of_type("moved") == []


def test_refusal_has_no_url_while_the_owner_is_unknown() -> None:
    assert Client(running(0).hub).subscribe("/b") == {"/b": ("not_owner", None)}


def test_hot_endpoints_are_served_by_every_server() -> None:
    for group in (running(0), running(1), running()):
        client = Client(group.hub)
        assert client.subscribe("/h") == {}
        group.update(HOT, "/h", V1)
        assert [message["version"] for message in client.of_type("update")] == [V1]


def test_only_endpoints_of_lost_partitions_are_moved() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a", "/b", "/c", "/h")
    group.assign(0)
    assert [set(map(str, message["endpoints"])) for message in client.of_type("moved")] == [{"/b", "/c"}]  # type: ignore[call-overload]
    group.update(0, "/a", V1)
    assert [message["endpoint"] for message in client.of_type("update")] == ["/a"]
    assert set(client.session.endpoints) == {b"/a", b"/h"}
    assert group.hub.fanout.registry.entries == 2


def test_rebalance_without_changes_moves_no_endpoint() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a", "/b", "/h")
    group.assign(0, 1)
    assert client.received == []


def test_own_url_is_not_sent_as_owner_of_a_lost_partition() -> None:
    group = running(0, 1)
    group.server.owners(feed.Owners({"diem.updates/0": "ws://me/ws", "diem.updates/1": "ws://me/ws"}))
    client = Client(group.hub)
    client.subscribe("/b")
    group.assign(0)
    assert "owner" not in client.of_type("moved")[0]


def test_state_of_a_lost_partition_is_dropped_and_rebuilt_from_the_start_on_its_return() -> None:
    group = running(0, 1)
    group.update(1, "/b", V1)
    group.assign(0)
    assert b"/b" not in group.hub.state.retained
    group.assign(0, 1)
    assert group.hub.state.positions["diem.updates/1"] == 0
    client = Client(group.hub)
    assert client.subscribe("/b") == {}
    group.update(1, "/b", V2)
    assert client.of_type("update") == [], "records of a rebuild are not fanned out"
    group.server.caught_up("diem.updates/1")
    assert [message["version"] for message in client.of_type("update")] == [V2]


def test_blocked_session_is_sent_moved_for_each_endpoint_when_it_unblocks() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/b", "/c")
    group.update(1, "/b", V1)
    client.received.clear()
    client.session.block()
    group.update(1, "/b", V2)
    group.assign(0)
    client.session.unblock()
    assert sorted(str(message["endpoints"]) for message in client.of_type("moved")) == ["['/b']", "['/c']"]
    assert client.of_type("update") == []


def test_moving_endpoint_is_announced_once_still_delivered_and_refused_to_new_subscribers() -> None:
    group = running(0)
    client = Client(group.hub)
    client.subscribe("/a")
    moving = {**ENTRIES, b"/a": Entry(0, 1)}
    group.apply_map(1, Phase.PREPARE, moving)
    assert client.received == []
    group.apply_map(1, Phase.MOVE, moving)
    group.apply_map(1, Phase.MOVE, moving)
    group.assign(0)
    assert len(client.of_type("moved")) == 1
    group.update(0, "/a", V1)
    assert [message["version"] for message in client.of_type("update")] == [V1]
    assert Client(group.hub).subscribe("/a") == {"/a": ("not_owner", None)}
    group.apply_map(1, Phase.RETIRE, moving)
    assert len(client.of_type("moved")) == 2
    group.update(0, "/a", V2)
    assert len(client.of_type("update")) == 1
    assert group.hub.fanout.registry.entries == 0


class Connection:
    """A fake ``EdgeConnection`` that records close codes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.closed: list[int] = []

    def close(self, code: int, _reason: str) -> None:
        self.closed.append(code)


def test_client_that_ignores_moved_is_closed_at_the_end_of_the_move() -> None:
    group = running(0)
    deaf, gone, other, late = (Client(group.hub) for _ in range(4))
    connections = {client: Connection(client.session) for client in (deaf, gone, other, late)}
    group.edge.connections |= set(connections.values())  # type: ignore[arg-type]
    deaf.subscribe("/a")
    gone.subscribe("/a", "/d")
    other.subscribe("/d")
    moving = {**ENTRIES, b"/a": Entry(0, 1), b"/d": Entry(0), b"/e": Entry(0)}
    group.apply_map(1, Phase.MOVE, moving)
    gone.hub.fanout.unsubscribe(gone.session, ["/a"])
    late.subscribe("/e")
    group.apply_map(2, Phase.RETIRE, {**moving, b"/e": Entry(0, 1)})
    closed = {client: connection.closed for client, connection in connections.items()}
    assert closed == {deaf: [4000], gone: [], other: [], late: []}
    assert len(late.of_type("moved")) == 1, "it was sent moved just now"


def test_delivery_counters_include_moved_messages() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a", "/b")
    group.update(0, "/a", V1)
    group.assign(0)
    assert group.hub.fanout.stats.sent == len(client.received)


def test_endpoint_without_an_entry_in_a_new_map_is_placed_by_its_hash() -> None:
    group = running(0, 1)
    group.apply_map(1, entries={})
    assert group.ownership.map == PartitionMap(Head(2, 1))


def test_status_has_the_time_since_which_the_server_is_live_or_not() -> None:
    clock = ManualClock()
    hub = FeedHub()
    edge = Edge(hub.fanout, Admission(AdmissionRules()), EdgeRules("websocket-1", "single"), HubService(hub))
    server = WebSocketServer(hub, edge, clock)
    assert (server.status()["live"], server.status()["since"]) == (False, "2023-11-14T22:13:20.000Z")
    clock.advance(5)
    server.hello(feed.Hello("store", ["store"]))
    server.caught_up("store")
    server.heartbeat()
    assert (server.status()["live"], server.status()["since"]) == (True, "2023-11-14T22:13:25.000Z")
    clock.advance(SILENT_AFTER_S)
    server.check_liveness()
    assert (server.status()["live"], server.status()["since"]) == (False, "2023-11-14T22:13:35.000Z")


def test_status_has_the_partitions_and_the_epoch() -> None:
    status = running(0, 1).server.status()
    assert status["partitions"] == [HOT, 0, 1]
    assert status["epoch"] == 0


def test_blocked_session_gets_its_last_update_and_moved_in_either_order() -> None:
    for update_first in (True, False):
        group = running(0)
        client = Client(group.hub)
        client.subscribe("/a")
        client.session.block()
        moving = {**ENTRIES, b"/a": Entry(0, 1)}
        if update_first:
            group.update(0, "/a", V1)
        group.apply_map(1, Phase.MOVE, moving)
        if not update_first:
            group.update(0, "/a", V1)
        client.session.unblock()
        assert [message["version"] for message in client.of_type("update")] == [V1]
        assert len(client.of_type("moved")) == 1


def test_delay_is_that_of_the_first_batch_after_it_was_requested() -> None:
    clock = ManualClock(wall_ms=V1)
    group = running(0, clock=clock)
    assert group.server.delay_s() is None
    group.server.measure_next_delay()
    clock.advance(0.25)
    group.update(0, "/a", V1)
    clock.advance(3)
    group.update(0, "/a", V2)
    assert group.server.delay_s() == group.server.status()["delay_seconds"] == 0.25


def test_delay_is_the_longest_of_the_last_seconds() -> None:
    clock = ManualClock(wall_ms=V1)
    group = running(0, clock=clock)
    for waited_s in (0.5, 2, 1):
        clock.advance(DELAY_S / 3)
        group.server.measure_next_delay()
        group.update(0, "/a", clock.wall_ms() - round(waited_s * 1000))
    assert group.server.delay_s() == 2
    clock.advance(2 * DELAY_S / 3)
    assert group.server.delay_s() == 1
    clock.advance(DELAY_S / 3)
    assert group.server.delay_s() is None


def test_delay_leaves_out_what_is_not_fanned_out() -> None:
    clock = ManualClock(wall_ms=V2)
    group = running(0, clock=clock)
    group.update(0, "/a", V2)
    clock.advance(60)
    group.server.measure_next_delay()
    group.update(0, "/a", V1)
    assert group.server.delay_s() is None, "a repeat"
    group.server.measure_next_delay()
    group.apply_map(epoch=1)
    assert group.server.delay_s() is None, "the map"
    group.server.resume()
    group.server.measure_next_delay()
    group.update(0, "/a", V2 + 1)
    assert group.server.delay_s() is None, "a catch-up"
    group.server.caught_up("diem.updates/0")
    group.catch_up()
    client = Client(group.hub)
    client.subscribe("/a")
    group.server.caught_up(MAP)
    group.server.measure_next_delay()
    group.update(0, "/a", V2 + 59_000)
    assert group.server.delay_s() == 1
    assert [message["version"] for message in client.of_type("update")] == [V2 + 1, V2 + 59_000]


def test_a_clock_behind_that_of_the_data_service_makes_no_negative_delay() -> None:
    group = running(0, clock=ManualClock(wall_ms=V1 - 500))
    group.server.measure_next_delay()
    group.update(0, "/a", V1)
    assert group.server.delay_s() == 0


class TracedServer(Group):
    """A server that traces, of a whole feed."""

    def __init__(self) -> None:
        super().__init__()
        self.tracer, self.exported = traced()
        self.hub = FeedHub()
        self.edge = Edge(
            self.hub.fanout, Admission(AdmissionRules()), EdgeRules("websocket-1", "x"), HubService(self.hub)
        )
        self.server = WebSocketServer(self.hub, self.edge, SystemClock(), tracer=self.tracer)
        self.server.hello(feed.Hello("cluster/topic", ["diem.updates/0"]))
        self.server.caught_up("diem.updates/0")

    @property
    def spans(self) -> list[dict[str, object]]:
        return [{"name": span.name, **(span.attributes or {})} for span in self.exported.get_finished_spans()]


def test_traced_update_has_one_span_for_all_receivers_and_its_context_in_their_frames() -> None:
    server = TracedServer()
    clients = [Client(server.hub) for _ in range(3)]
    for client in clients[:2]:
        client.subscribe("/a")
    server.server.traced(feed.Traced("/a", V1, SAMPLED))
    server.update(0, "/a", V1)
    server.update(0, "/a", V2)
    assert server.spans == [{"name": "fan out", "diem.endpoint": "/a", "diem.version": V1, "diem.receivers": 2}]
    (span,) = server.exported.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == SAMPLED.split("-")[2]
    context = f"00-{TRACE}-{span.context.span_id:016x}-01"
    for client in clients[:2]:
        assert [update.get("traceparent") for update in client.of_type("update")] == [context, None]
    late = Client(server.hub)
    late.subscribe("/a")
    assert "traceparent" not in late.received[0]
    assert server.hub.publish == server.hub.fanout.publish
    assert server.server.resume().traces
    assert not running(0).server.resume().traces


def test_traced_update_overtaken_by_a_later_one_ends_as_superseded() -> None:
    server = TracedServer()
    server.server.traced(feed.Traced("/a", V1, SAMPLED))
    server.update(0, "/a", V2)
    assert server.spans == [{"name": "superseded", "diem.endpoint": "/a", "diem.version": V2}]


def test_traced_update_that_the_server_has_already_is_not_fanned_out() -> None:
    server = TracedServer()
    server.update(0, "/a", V1)
    server.server.traced(feed.Traced("/a", V1, SAMPLED))
    server.update(0, "/a", V1)
    assert server.spans == []
    assert server.hub.publish == server.hub.fanout.publish
