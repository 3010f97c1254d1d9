"""The Broadcast node: positions, a store with a new id, and heartbeats."""

from diem.protocol import feed
from diem.protocol.feed import STORE, Batch
from diem.protocol.update import UPDATE, Change, encode
from services.broadcast.node import Node

VERSION = 1_700_000_000_000


class Harness:
    """A node, and the events that it passes to its feed server."""

    def __init__(self) -> None:
        self.node = Node()
        self.events: list[str] = []
        self.node.on_changed = lambda: self.events.append("changed")
        self.node.on_heartbeat = lambda: self.events.append("heartbeat")
        self.node.on_new_source = lambda _code, _reason: self.events.append("new source")

    def open(self, source: str) -> feed.Resume:
        resume = self.node.resume()
        self.node.hello(feed.Hello(source, [STORE]))
        return resume

    def update(self, name: str, sequence: int) -> None:
        value = encode(name, VERSION + sequence, VERSION)
        change = Change(sequence, name.encode(), VERSION + sequence, UPDATE, value)
        self.node.batch(Batch(STORE, sequence + 1, iter([change])))


def test_node_resumes_after_the_last_applied_change() -> None:
    harness = Harness()
    assert harness.open("store") == feed.Resume(None, {}, data=True)
    harness.update("/a", 4)
    assert harness.open("store") == feed.Resume("store", {STORE: 5}, data=True)
    assert len(harness.node.changes) == 1


def test_node_resumes_after_changes_that_the_store_has_removed() -> None:
    harness = Harness()
    harness.open("store")
    harness.update("/a", 4)
    harness.node.batch(Batch(STORE, 10, iter([])))
    assert harness.open("store") == feed.Resume("store", {STORE: 10}, data=True)


def test_changes_up_to_the_position_are_stale() -> None:
    harness = Harness()
    harness.open("store")
    for sequence in (4, 4, 3):
        harness.update("/a", sequence)
    assert (harness.node.received, harness.node.stale, harness.node.changes.sequence) == (3, 2, 4)


def test_readers_are_accepted_once_the_node_has_caught_up() -> None:
    harness = Harness()
    harness.open("store")
    assert harness.node.source is None
    harness.node.caught_up(STORE)
    assert harness.node.source == "store"


def test_new_id_of_the_store_drops_readers_and_changes_until_the_node_has_caught_up() -> None:
    harness = Harness()
    harness.open("store")
    harness.update("/a", 4)
    harness.node.caught_up(STORE)
    harness.events.clear()
    harness.open("store")
    assert harness.events == []
    harness.open("other")
    assert harness.events == ["new source"]
    assert harness.node.source is None
    assert not harness.node.changes
    harness.node.caught_up(STORE)
    assert harness.node.source == "other"


def test_heartbeats_are_forwarded_once_the_node_has_caught_up_on_its_link() -> None:
    harness = Harness()
    for _ in range(2):
        harness.open("store")
        harness.events.clear()
        harness.node.heartbeat()
        assert harness.events == []
        harness.node.caught_up(STORE)
        harness.node.heartbeat()
        assert harness.events == ["heartbeat"]
