"""The backlog of the publisher, held against a log that may lose requests: the cursor never claims too much."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from diem.protocol.update import Change
from services.data.publisher.backlog import Backlog, Lane

NAMES = [f"/e/{n}".encode() for n in range(6)]
PARTITIONS = 2


class Publishing(RuleBasedStateMachine):
    """A store whose changes are taken in, requests that land, fail, or land without us hearing of it."""

    @initialize(cursor=st.integers(0, 3))
    def begin(self, cursor: int) -> None:
        self.sequence = 0
        self.latest: dict[bytes, int] = {}
        self.written: dict[bytes, int] = {}
        for name in NAMES[:cursor]:
            self.put(name)
        self.written = dict(self.latest)
        self.backlog = Backlog(PARTITIONS, cursor)

    @rule(name=st.sampled_from(NAMES))
    def put(self, name: bytes) -> None:
        self.sequence += 1
        self.latest[name] = self.sequence

    @rule()
    def take_in(self) -> None:
        new = sorted((s, e) for e, s in self.latest.items() if s > self.backlog.read)
        self.backlog.take_in(Change(s, e, s, 0, b"") for s, e in new)

    @rule(number=st.integers(0, PARTITIONS - 1), limit=st.integers(1, 3))
    def send(self, number: int, limit: int) -> None:
        lane = self.backlog.lanes[number]
        if not lane.flying:
            self.sent = {**getattr(self, "sent", {}), number: {e: self.latest[e] for e in lane.take(limit)}}

    @rule(number=st.integers(0, PARTITIONS - 1), fits=st.integers(0, 3))
    def land(self, number: int, fits: int) -> None:
        lane = self.backlog.lanes[number]
        if lane.flying:
            sent = list(self.sent[number].items())
            self.written |= dict(sent[: 1 + fits])
            lane.failed([endpoint for endpoint, _ in sent[1 + fits :]])
            lane.landed()

    @rule(number=st.integers(0, PARTITIONS - 1), written=st.booleans())
    def fail(self, number: int, written: bool) -> None:
        lane = self.backlog.lanes[number]
        if lane.flying and written:
            self.written |= self.sent[number]
        lane.failed()

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def repeat(self, names: set[bytes]) -> None:
        self.backlog.again(name for name in names if name in self.latest)

    @rule()
    def drain(self) -> None:
        self.take_in()
        for number, lane in enumerate(self.backlog.lanes):
            lane.failed()
            while lane.due:
                self.send(number, 3)
                self.land(number, 3)
        assert self.written == self.latest
        assert self.backlog.cursor == self.sequence or not self.latest
        assert len(self.backlog) == 0

    @invariant()
    def the_cursor_claims_only_what_is_written(self) -> None:
        if hasattr(self, "backlog"):
            for name, sequence in self.latest.items():
                assert sequence > self.backlog.cursor or self.written.get(name, 0) >= sequence

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if hasattr(self, "backlog"):
            for name, sequence in self.latest.items():
                lane = self.backlog.lanes[self.backlog.home(name)]
                held = name in lane.due or name in lane.flying
                assert held or sequence > self.backlog.read or self.written.get(name, 0) >= sequence


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_is_due_is_bounded_by_the_endpoints_however_long_the_log_is_away() -> None:
    backlog = Backlog(PARTITIONS, 0)
    backlog.take_in(Change(s, NAMES[s % len(NAMES)], s, 0, b"") for s in range(1, 10_000))
    assert len(backlog) == len(NAMES)
    assert backlog.cursor == 0


@given(st.permutations(NAMES))
def test_the_longest_due_is_sent_first(order: list[bytes]) -> None:
    lane = Lane()
    for sequence, name in enumerate(order, start=1):
        lane.owe(name, sequence)
    assert lane.take(3) + lane.take(3) == order


def test_sending_again_holds_the_cursor_back_only_for_what_is_new() -> None:
    backlog = Backlog(1, 5)
    backlog.again([b"/a"])
    assert backlog.cursor == 5
    backlog.take_in([Change(6, b"/a", 6, 0, b"")])
    assert backlog.cursor == 5
    backlog.lanes[0].take(10)
    backlog.lanes[0].landed()
    assert backlog.cursor == 6
