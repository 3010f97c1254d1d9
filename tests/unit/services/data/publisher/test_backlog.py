"""The backlog against a log that may lose requests: the cursor never claims too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from diem.protocol.update import Change
from services.data.publisher.backlog import Backlog, PartitionQueue
from tests.walks import walk_settings

NAMES = [f"/e/{n}".encode() for n in range(6)]
PARTITIONS = 2
QUEUES = PARTITIONS + 1
ENTRIES = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(Entry, st.integers(HOT, PARTITIONS - 1), st.none() | st.integers(HOT, PARTITIONS - 1)),
)
ONE = PartitionMap(Head(1, 0))


class Publishing(RuleBasedStateMachine):
    """Changes of a store, requests that are acknowledged, fail or succeed unacknowledged, and new maps."""

    @initialize(cursor=st.integers(0, 3))
    def resume_phase(self, cursor: int) -> None:
        self.sequence = 0
        self.latest: dict[bytes, int] = {}
        self.written: list[dict[bytes, int]] = [{} for _ in range(QUEUES)]
        self.sent: dict[int, dict[bytes, int]] = {}
        self.backlog = Backlog(PARTITIONS, cursor, PartitionMap(Head(PARTITIONS, 0)))
        for name in NAMES[:cursor]:
            self.put(name)
            for queue in self.backlog.homes(name):
                self.written[queue][name] = self.sequence

    @rule(name=st.sampled_from(NAMES))
    def put(self, name: bytes) -> None:
        self.sequence += 1
        self.latest[name] = self.sequence

    @rule()
    def ingest(self) -> None:
        new = sorted((s, e) for e, s in self.latest.items() if s > self.backlog.ingested)
        self.backlog.ingest(Change(s, e, s, 0, b"") for s, e in new)

    @rule(number=st.integers(0, QUEUES - 1), limit=st.integers(1, 3))
    def send(self, number: int, limit: int) -> None:
        queue = self.backlog.queues[number]
        if not (queue.in_flight or queue.tombstones_in_flight):
            # In the order of a request: what is current, then tombstones (version 0).
            self.sent[number] = {e: self.latest[e] for e in queue.dequeue(limit)}
            self.sent[number] |= dict.fromkeys(self.backlog.dequeue_tombstones(number, limit), 0)

    @rule(number=st.integers(0, QUEUES - 1), fits=st.integers(0, 3))
    def land(self, number: int, fits: int) -> None:
        queue = self.backlog.queues[number]
        if queue.in_flight or queue.tombstones_in_flight:
            sent = list(self.sent[number].items())
            self.written[number] |= dict(sent[: 1 + fits])
            queue.requeue([endpoint for endpoint, _ in sent[1 + fits :]])
            queue.acknowledged()

    @rule(number=st.integers(0, QUEUES - 1), written=st.booleans())
    def fail(self, number: int, written: bool) -> None:
        queue = self.backlog.queues[number]
        if (queue.in_flight or queue.tombstones_in_flight) and written:
            self.written[number] |= self.sent[number]
        queue.requeue()

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def resend_all(self, names: set[bytes]) -> None:
        self.backlog.resend(name for name in names if name in self.latest)

    @rule(entries=ENTRIES, phase=st.sampled_from(Phase), partitions=st.integers(1, PARTITIONS))
    def switch_map(self, entries: dict[bytes, Entry], phase: Phase, partitions: int) -> None:
        before = {name: self.backlog.homes(name) for name in self.latest}
        head = Head(partitions, self.backlog.map.head.epoch + 1, phase)
        touched = self.backlog.switch_map(PartitionMap(head, entries), list(self.latest))
        gained = {name: set(self.backlog.homes(name)) - set(before[name]) for name in self.latest}
        lost = {name: set(before[name]) - set(self.backlog.homes(name)) for name in self.latest}
        assert touched == set().union(*gained.values(), *lost.values())
        for name, queues in gained.items():
            assert all(name in self.backlog.queues[queue].due for queue in queues)
            for queue in set(before[name]) - set(self.backlog.homes(name)):
                assert name not in self.backlog.queues[queue].due, "what is no home of it gets nothing more"
                assert name in self.backlog.queues[queue].tombstones, "but a tombstone"

    @rule()
    def drain(self) -> None:
        self.ingest()
        for queue in self.backlog.queues:
            queue.requeue()
        while any(queue.due or queue.tombstones for queue in self.backlog.queues):
            for number in range(QUEUES):
                self.send(number, 3)
                self.land(number, 6)
        for name, sequence in self.latest.items():
            homes = self.backlog.homes(name)
            assert {self.written[queue].get(name) for queue in homes} == {sequence}
            assert {self.written[queue].get(name, 0) for queue in range(QUEUES) if queue not in homes} <= {0}
        assert self.backlog.stable
        assert self.backlog.cursor == self.sequence or not self.latest
        assert len(self.backlog) == 0

    @invariant()
    def the_cursor_claims_only_what_is_written(self) -> None:
        if hasattr(self, "backlog"):
            for name, sequence in self.latest.items():
                written = max(queue.get(name, 0) for queue in self.written)
                assert sequence > self.backlog.cursor or written >= sequence

    @invariant()
    def what_is_acknowledged_is_there(self) -> None:
        """Stable: every endpoint was written to each of its partitions since it was routed there."""
        if hasattr(self, "backlog") and self.backlog.stable:
            for name, sequence in self.latest.items():
                for number in self.backlog.homes(name):
                    known = sequence <= self.backlog.ingested
                    assert (
                        not known
                        or self.written[number].get(name)
                        or name in self.backlog.queues[number].due
                        or (name in self.backlog.queues[number].in_flight)
                    )

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if hasattr(self, "backlog"):
            for name, sequence in self.latest.items():
                for number in self.backlog.homes(name):
                    queue = self.backlog.queues[number]
                    held = name in queue.due or name in queue.in_flight
                    assert held or sequence > self.backlog.ingested or self.written[number].get(name, 0) >= sequence


TestPublishing = Publishing.TestCase
TestPublishing.settings = walk_settings(examples=60, steps=40)


def test_the_backlog_is_bounded_by_the_endpoints_during_an_outage() -> None:
    backlog = Backlog(PARTITIONS, 0, PartitionMap(Head(PARTITIONS, 0)))
    backlog.ingest(Change(s, NAMES[s % len(NAMES)], s, 0, b"") for s in range(1, 10_000))
    assert len(backlog) == len(NAMES)
    assert backlog.cursor == 0


@given(st.permutations(NAMES))
def test_the_longest_due_is_sent_first(order: list[bytes]) -> None:
    queue = PartitionQueue()
    for sequence, name in enumerate(order, start=1):
        queue.enqueue(name, sequence)
    assert queue.dequeue(3) + queue.dequeue(3) == order


def test_a_resend_holds_the_cursor_back_only_for_new_changes() -> None:
    backlog = Backlog(1, 5, ONE)
    backlog.resend([b"/a"])
    assert backlog.cursor == 5
    backlog.ingest([Change(6, b"/a", 6, 0, b"")])
    assert backlog.cursor == 5
    backlog.queues[0].dequeue(10)
    backlog.queues[0].acknowledged()
    assert backlog.cursor == 6


def test_an_unwritten_endpoint_that_moves_holds_the_cursor_back_in_its_new_partition() -> None:
    backlog = Backlog(1, 0, ONE)
    backlog.ingest([Change(1, b"/a", 1, 0, b""), Change(2, b"/b", 2, 0, b"")])
    hot = len(backlog.queues) - 1
    assert backlog.switch_map(PartitionMap(Head(1, 1), {b"/a": Entry(HOT)}), [b"/a", b"/b"]) == {0, hot}
    assert [list(queue.due) for queue in backlog.queues] == [[b"/b"], [b"/a"]]
    assert backlog.cursor == 0
    backlog.queues[hot].dequeue(1)
    backlog.queues[hot].acknowledged()
    assert backlog.cursor == 1


@pytest.mark.parametrize("under_way", [False, True])
def test_an_unwritten_endpoint_that_leaves_one_of_two_partitions_holds_the_cursor_back_in_the_other(
    under_way: bool,
) -> None:
    hot = {b"/a": Entry(0, HOT)}
    backlog = Backlog(1, 0, ONE)
    backlog.ingest([Change(1, b"/a", 1, 0, b"")])
    backlog.switch_map(PartitionMap(Head(1, 1, Phase.PREPARE), hot), [b"/a"])
    if under_way:
        backlog.queues[1].dequeue(1)
    backlog.switch_map(PartitionMap(Head(1, 1, Phase.RETIRE), hot), [b"/a"])
    backlog.queues[1].requeue()
    assert backlog.cursor == 0
    backlog.queues[1].dequeue(1)
    backlog.queues[1].acknowledged()
    assert backlog.cursor == 1


def test_endpoints_missing_in_the_store_are_not_enqueued_by_a_new_map() -> None:
    backlog = Backlog(1, 0, ONE)
    assert backlog.switch_map(PartitionMap(Head(1, 1), {b"/unknown": Entry(HOT)}), []) == set()
    assert len(backlog) == 0
    assert backlog.homes(b"/unknown") == (1,)


MOVING = PartitionMap(Head(2, 4, Phase.PREPARE), {b"/a": Entry(0, 1), b"/b": Entry(1, HOT), b"/c": Entry(1)})


def test_a_publisher_started_in_prepare_writes_moving_endpoints_before_it_acknowledges() -> None:
    backlog = Backlog(2, 9, MOVING)
    backlog.resume_phase([b"/a", b"/b", b"/c"])
    assert [list(queue.due) for queue in backlog.queues] == [[], [b"/a"], [b"/b"]]
    for queue in backlog.queues[1:]:
        assert not backlog.stable
        queue.dequeue(10)
        queue.acknowledged()
    assert backlog.stable


def test_a_publisher_started_in_retire_writes_tombstones_for_moved_endpoints() -> None:
    backlog = Backlog(2, 9, PartitionMap(MOVING.head._replace(phase=Phase.RETIRE), MOVING.entries))
    backlog.resume_phase([b"/a", b"/c"])
    assert (backlog.with_tombstones(), backlog.dequeue_tombstones(0, 10)) == ([0], [b"/a"])
    assert not backlog.stable
    backlog.queues[0].requeue()
    assert backlog.dequeue_tombstones(0, 10) == [b"/a"]
    backlog.queues[0].acknowledged()
    assert backlog.stable


def test_a_request_in_flight_before_a_reroute_does_not_count_as_the_first_record() -> None:
    backlog = Backlog(2, 0, PartitionMap(Head(2, 0), {b"/a": Entry(0)}))
    backlog.ingest([Change(1, b"/a", 1, 0, b"")])
    backlog.queues[0].dequeue(1)
    backlog.switch_map(PartitionMap(Head(2, 1), {b"/a": Entry(1)}), [b"/a"])
    backlog.switch_map(PartitionMap(Head(2, 2), {b"/a": Entry(0)}), [b"/a"])
    backlog.queues[0].acknowledged()
    assert backlog.queues[0].first == {b"/a"}


@pytest.mark.parametrize("fits", [True, False])
def test_an_endpoint_that_changes_during_every_request_still_becomes_stable_in_its_new_partition(fits: bool) -> None:
    backlog = Backlog(2, 0, PartitionMap(Head(2, 0), {b"/a": Entry(0)}))
    backlog.switch_map(PartitionMap(Head(2, 1, Phase.PREPARE), {b"/a": Entry(0, 1)}), [b"/a"])
    queue = backlog.queues[1]
    queue.dequeue(1)
    backlog.ingest([Change(1, b"/a", 1, 0, b"")])
    queue.requeue([] if fits else [b"/a"])
    queue.acknowledged()
    assert backlog.stable is fits
    assert b"/a" in queue.due, "what changed meanwhile follows"


@pytest.mark.parametrize(("phase", "first"), [(Phase.PREPARE, [b"/m", b"/r"]), (Phase.RETIRE, [b"/r", b"/m"])])
def test_unknown_endpoints_are_ordered_by_relevance_to_the_phase(phase: Phase, first: list[bytes]) -> None:
    entries = {b"/known": Entry(1, 2), b"/m": Entry(1, 2), b"/r": Entry(3)}
    backlog = Backlog(4, 0, PartitionMap(Head(4, 7, phase), entries))
    assert backlog.unknown(lambda name: name == b"/known") == first
    assert backlog.unknown(lambda _name: True) == []
