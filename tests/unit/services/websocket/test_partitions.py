"""A server of a group: what it refuses, whom it sends away when it loses partitions, and what it keeps delivering."""

from collections.abc import Iterable

import orjson

from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.fanout.session import Session
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.process.clock import SystemClock
from diem.protocol import feed
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from diem.protocol.update import Change, encode
from services.websocket.server import WebSocketServer
from tests.support.maps import changes_of

V1, V2 = 1_700_000_000_001, 1_700_000_000_002
MAP = "diem.partition-map/0"
HOT_NAME = "diem.updates.hot/0"
ENTRIES = {b"/a": Entry(0), b"/b": Entry(1), b"/c": Entry(1), b"/h": Entry(HOT)}


class Client:
    def __init__(self, hub: FeedHub) -> None:
        self.hub = hub
        self.said: list[dict[str, object]] = []
        self.session = Session(self.take, self.take_many, hub.fanout.stats)
        hub.fanout.join(self.session)

    def take(self, frame: bytes) -> None:
        self.said.append(orjson.loads(frame[2:] if frame[1] < 126 else frame[4:]))

    def take_many(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.take(frame)

    def subscribe(self, *names: str) -> dict[str, tuple[object, ...]]:
        answer = self.hub.subscribe(self.session, dict.fromkeys(names, 0))
        self.take_many(answer.replay)
        return {name: (str(refusal.code), refusal.owner) for name, refusal in answer.rejected.items()}

    def of(self, kind: str) -> list[dict[str, object]]:
        return [message for message in self.said if message["type"] == kind]


class Group:
    """One server of a group, fed by hand."""

    def __init__(self) -> None:
        self.ownership = Ownership()
        self.hub = FeedHub(ownership=self.ownership)
        self.edge = Edge(
            self.hub.fanout, Admission(AdmissionRules()), EdgeRules("websocket-1", "z-client"), HubService(self.hub)
        )
        self.server = WebSocketServer(self.hub, self.edge, SystemClock(), self.ownership)
        self._offset = 0

    def assigned(self, *partitions: int) -> None:
        names = [*(f"diem.updates/{number}" for number in partitions), HOT_NAME, MAP]
        self.server.hello(feed.Hello("cluster/topic", names))

    def mapped(
        self, epoch: int = 0, phase: Phase = Phase.STABLE, entries: dict[bytes, Entry] = ENTRIES, *, told: bool = True
    ) -> None:
        changes = changes_of(PartitionMap(Head(2, epoch, phase), entries))
        self.server.batch(feed.decode_batch(feed.encode_batch(MAP, len(changes), changes)))
        if told:
            self.server.caught_up(MAP)

    def caught_up(self, *partitions: int) -> None:
        for number in partitions:
            self.server.caught_up(f"diem.updates/{number}")
        self.server.caught_up(HOT_NAME)

    def update(self, partition: int, name: str, version: int) -> None:
        self._offset += 1
        change = Change(self._offset, name.encode(), version, 0, encode(name, version, version))
        feed_name = HOT_NAME if partition == HOT else f"diem.updates/{partition}"
        self.server.batch(feed.decode_batch(feed.encode_batch(feed_name, self._offset + 1, [change])))


def running(*partitions: int) -> Group:
    group = Group()
    group.assigned(*partitions)
    group.mapped()
    group.caught_up(*partitions)
    return group


def test_clients_are_taken_when_the_map_and_all_partitions_have_been_read() -> None:
    group = Group()
    group.assigned(0)
    group.caught_up(0)
    assert not group.edge.ready
    group.mapped()
    assert group.edge.ready


def test_without_a_map_nobody_is_taken_even_when_its_topic_has_been_read() -> None:
    group = Group()
    group.assigned(0)
    group.caught_up(0)
    group.server.caught_up(MAP)
    assert not group.edge.ready
    group.mapped(told=False)
    assert group.edge.ready, "the first map may be written long after its topic"


def test_an_endpoint_of_another_server_is_refused_with_its_owner() -> None:
    group = running(0)
    group.server.owners(feed.Owners({"diem.updates/0": "ws://me/ws", "diem.updates/1": "ws://other/ws"}))
    client = Client(group.hub)
    assert client.subscribe("/a", "/b", "/h") == {"/b": ("not_owner", "ws://other/ws")}
    assert set(client.session.endpoints) == {b"/a", b"/h"}


def test_the_owner_is_left_out_while_it_is_not_known() -> None:
    assert Client(running(0).hub).subscribe("/b") == {"/b": ("not_owner", None)}


def test_hot_endpoints_are_served_by_everybody() -> None:
    for group in (running(0), running(1), running()):
        client = Client(group.hub)
        assert client.subscribe("/h") == {}
        group.update(HOT, "/h", V1)
        assert [message["version"] for message in client.of("update")] == [V1]


def test_only_what_was_really_lost_is_moved() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a", "/b", "/c", "/h")
    group.assigned(0)
    assert [set(map(str, message["endpoints"])) for message in client.of("moved")] == [{"/b", "/c"}]  # type: ignore[call-overload]
    group.update(0, "/a", V1)
    assert [message["endpoint"] for message in client.of("update")] == ["/a"]
    assert set(client.session.endpoints) == {b"/a", b"/h"}
    assert group.hub.fanout.registry.entries == 2


def test_a_rebalance_that_changes_nothing_moves_nobody() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a", "/b", "/h")
    group.assigned(0, 1)
    assert client.said == []


def test_an_own_address_from_before_is_no_hint() -> None:
    group = running(0, 1)
    group.server.owners(feed.Owners({"diem.updates/0": "ws://me/ws", "diem.updates/1": "ws://me/ws"}))
    client = Client(group.hub)
    client.subscribe("/b")
    group.assigned(0)
    assert "owner" not in client.of("moved")[0]


def test_state_of_a_lost_partition_is_forgotten_and_rebuilt_from_the_start_when_it_comes_back() -> None:
    group = running(0, 1)
    group.update(1, "/b", V1)
    group.assigned(0)
    assert b"/b" not in group.hub.state.retained
    group.assigned(0, 1)
    assert group.hub.state.positions["diem.updates/1"] == 0
    client = Client(group.hub)
    assert client.subscribe("/b") == {}
    group.update(1, "/b", V2)
    assert client.of("update") == [], "records of a rebuild are not fanned out"
    group.server.caught_up("diem.updates/1")
    assert [message["version"] for message in client.of("update")] == [V2]


def test_a_session_that_is_held_back_learns_of_each_endpoint_by_itself() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/b", "/c")
    group.update(1, "/b", V1)
    client.said.clear()
    client.session.block()
    group.update(1, "/b", V2)
    group.assigned(0)
    client.session.unblock()
    assert sorted(str(message["endpoints"]) for message in client.of("moved")) == ["['/b']", "['/c']"]
    assert client.of("update") == []


def test_a_moving_endpoint_is_announced_once_goes_on_being_delivered_and_takes_no_new_subscriber() -> None:
    group = running(0)
    client = Client(group.hub)
    client.subscribe("/a")
    moving = {**ENTRIES, b"/a": Entry(0, 1)}
    group.mapped(1, Phase.PREPARE, moving)
    assert client.said == []
    group.mapped(1, Phase.MOVE, moving)
    group.mapped(1, Phase.MOVE, moving)
    group.assigned(0)
    assert len(client.of("moved")) == 1
    group.update(0, "/a", V1)
    assert [message["version"] for message in client.of("update")] == [V1]
    assert Client(group.hub).subscribe("/a") == {"/a": ("not_owner", None)}
    group.mapped(1, Phase.RETIRE, moving)
    assert len(client.of("moved")) == 2
    group.update(0, "/a", V2)
    assert len(client.of("update")) == 1
    assert group.hub.fanout.registry.entries == 0


class Connection:
    """What an edge knows of a client's connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.closed: list[int] = []

    def close(self, code: int, _reason: str) -> None:
        self.closed.append(code)


def test_a_client_that_was_told_to_leave_and_has_not_is_closed_when_the_move_is_over() -> None:
    group = running(0)
    deaf, gone, other, late = (Client(group.hub) for _ in range(4))
    connections = {client: Connection(client.session) for client in (deaf, gone, other, late)}
    group.edge.connections |= set(connections.values())  # type: ignore[arg-type]
    deaf.subscribe("/a")
    gone.subscribe("/a", "/d")
    other.subscribe("/d")
    moving = {**ENTRIES, b"/a": Entry(0, 1), b"/d": Entry(0), b"/e": Entry(0)}
    group.mapped(1, Phase.MOVE, moving)
    gone.hub.fanout.unsubscribe(gone.session, ["/a"])
    late.subscribe("/e")
    group.mapped(2, Phase.RETIRE, {**moving, b"/e": Entry(0, 1)})
    closed = {client: connection.closed for client, connection in connections.items()}
    assert closed == {deaf: [4000], gone: [], other: [], late: []}
    assert len(late.of("moved")) == 1, "who is told for the first time goes by itself"


def test_the_accounts_balance_after_a_move() -> None:
    group = running(0, 1)
    client = Client(group.hub)
    client.subscribe("/a", "/b")
    group.update(0, "/a", V1)
    group.assigned(0)
    assert group.hub.fanout.stats.sent == len(client.said)


def test_a_map_that_forgets_an_entry_falls_back_to_the_hash() -> None:
    group = running(0, 1)
    group.mapped(1, entries={})
    assert group.ownership.map == PartitionMap(Head(2, 1))


def test_status_names_the_partitions_and_the_epoch() -> None:
    said = running(0, 1).server.status()
    assert said["partitions"] == [HOT, 0, 1]
    assert said["epoch"] == 0


def test_a_session_that_is_held_back_gets_its_last_update_and_where_to_ask_in_any_order() -> None:
    for update_first in (True, False):
        group = running(0)
        client = Client(group.hub)
        client.subscribe("/a")
        client.session.block()
        moving = {**ENTRIES, b"/a": Entry(0, 1)}
        if update_first:
            group.update(0, "/a", V1)
        group.mapped(1, Phase.MOVE, moving)
        if not update_first:
            group.update(0, "/a", V1)
        client.session.unblock()
        assert [message["version"] for message in client.of("update")] == [V1]
        assert len(client.of("moved")) == 1
