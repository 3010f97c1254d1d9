"""Which edges are late, by what was written and delivered."""

import pytest

from diem.client import Event
from tools.load.lateness import MAX_WRITES, Late, WatchedEdge, Writes

NAMES = {"/p0": 0, "/p1": 1}
LATE_AFTER_S = 10.0


class World(Writes):
    """Writes, and an edge that has connected and subscribed at second 0, unless it is partial."""

    def __init__(self, partitions: int = 2, *, partial: bool = False) -> None:
        super().__init__()
        self.edge = WatchedEdge({f"/p{number}": number for number in range(partitions)}, 0, partial)
        self.apply(Event("open"))
        for name in () if partial else self.edge.names:
            self.confirm(name)

    def apply(self, event: Event, at: float = 0, delay_s: float = 0.1) -> None:
        self.edge.apply(event, at, (event.version or 0) / 1000 + delay_s)

    def confirm(self, name: str, version: int = 0, at: float = 0) -> None:
        self.apply(Event("subscribed", name, version), at)

    def deliver(self, name: str, version: int, delay_s: float = 0.1) -> None:
        self.apply(Event("update", name, version), delay_s=delay_s)

    def reject(self, name: str, reason: str) -> None:
        self.apply(Event("rejected", name, message=reason))

    def late(self, at: float) -> Late | None:
        return self.edge.late(self, at, LATE_AFTER_S)


def test_edge_that_delivers_one_partition_only_is_late_with_the_others() -> None:
    world = World()
    world.add({"/p0": 1, "/p1": 1}, 5)
    world.deliver("/p0", 1)
    assert world.late(14.9) is None
    assert world.late(15) == Late((1,), 5, connected=True)
    world.deliver("/p1", 1)
    assert world.late(99) is None


def test_later_version_stands_for_those_before_it() -> None:
    world = World(1)
    for version in range(1, 4):
        world.add({"/p0": version}, version)
    world.deliver("/p0", 2)
    # What is due since second 3 is the third.
    assert (world.late(12.9), world.late(14)) == (None, Late((0,), 3, connected=True))
    # An update may arrive before the answer to its write.
    world.deliver("/p0", 7)
    world.add({"/p0": 7}, 20)
    assert world.late(99) is None


def test_writes_before_an_edge_was_added_are_due_from_then_on() -> None:
    writes, edge = Writes(), WatchedEdge(NAMES, 100)
    writes.add(dict.fromkeys(NAMES, 1), 0)
    edge.apply(Event("open"), 100, 0)
    assert edge.late(writes, 109, LATE_AFTER_S) is None
    assert edge.late(writes, 110, LATE_AFTER_S) == Late((0, 1), 100, connected=True)


def test_edge_without_a_connection_is_late_with_the_reason_even_if_nothing_is_due() -> None:
    world = World()
    world.apply(Event("closed", message="429: too many"), 3)
    world.apply(Event("closed"), 5)
    assert world.late(13) == Late((), 3, connected=False, reason="429: too many")
    world.apply(Event("open"), 14)
    assert world.late(99) is None
    never_there = WatchedEdge(NAMES, 0, partial=True)
    assert never_there.late(Writes(), 10, LATE_AFTER_S) == Late((), 0, connected=False)
    # The loss of one connection of several is none of the edge.
    world.edge.several = True
    world.apply(Event("closed"), 15)
    assert world.late(99) is None


def test_member_of_a_group_has_to_deliver_what_it_confirms_and_nothing_else() -> None:
    first, second = World(partial=True), World(partial=True)
    first.confirm("/p0", at=1)
    second.reject("/p0", "not_owner")
    for world in (first, second):
        world.add({"/p0": 1, "/p1": 1}, 2)
    assert (first.late(12), second.late(12)) == (Late((0,), 2, connected=True), None)
    # It moves to the other one, and back.
    first.reject("/p0", "moved")
    second.confirm("/p0", 1, at=13)
    assert (first.late(99), second.late(99)) == (None, None)
    first.confirm("/p0", 0, at=100)
    assert (first.late(109), first.late(110)) == (None, Late((0,), 100, connected=True))


def test_refused_subscription_of_an_edge_that_has_everything_makes_it_late_with_the_reason() -> None:
    world = World(1)
    world.reject("/p0", "forbidden")
    world.add({"/p0": 1}, 0)
    assert world.late(10) == Late((0,), 0, connected=True, reason="forbidden")


def test_edge_is_measured_once_it_has_answered_and_delivered_each_of_its_partitions() -> None:
    world = World()
    for name in NAMES:
        assert not world.edge.is_measured()
        world.deliver(name, 1)
    assert world.edge.is_measured()
    world.apply(Event("closed"))
    assert not world.edge.is_measured()
    member = World(partial=True)
    assert not member.edge.is_measured()
    member.reject("/p0", "not_owner")
    assert member.edge.is_measured()


def test_versions_that_an_edge_has_when_it_subscribes_show_no_delay() -> None:
    world = World(1)
    world.edge.deliveries["/p0"].confirmed = False
    world.deliver("/p0", 1, 55.0)
    world.confirm("/p0", 2)
    world.deliver("/p0", 2, 55.0)
    assert world.edge.delay_s(world, 0) is None
    # Clocks that differ.
    for version, delay_s, expected in ((3000, 0.5, 0.5), (4000, -3, 0)):
        world.deliver("/p0", version, delay_s)
        assert world.edge.delay_s(world, 0) == expected


def test_delay_of_an_edge_is_that_of_its_slowest_partition_and_grows_while_one_is_due() -> None:
    world = World()
    world.add({"/p0": 1, "/p1": 1}, 0)
    world.deliver("/p0", 1, 0.125)
    world.deliver("/p1", 1, 0.5)
    assert world.edge.delay_s(world, 1) == pytest.approx(0.5)
    world.add({"/p0": 2, "/p1": 1}, 1)
    assert world.edge.delay_s(world, 8) == 7


def test_remembered_writes_are_bounded() -> None:
    world = World(1)
    for version in range(1, MAX_WRITES + 11):
        world.add({"/p0": version}, version)
    assert world.late(MAX_WRITES + 10) == Late((0,), 11, connected=True)


@pytest.mark.parametrize(
    ("late", "line"),
    [
        (
            Late(tuple(range(20)), -0.3, connected=True),
            "a is late: nothing for 12 s of partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...",
        ),
        (Late((), 0, connected=False), "a is late: not connected for 12 s"),
        (
            Late((3,), 0, connected=False, reason="403: a token is needed"),
            "a is late: not connected for 12 s (1 partition: 3): 403: a token is needed",
        ),
    ],
)
def test_line_of_an_edge_has_what_is_known_of_the_reason(late: Late, line: str) -> None:
    assert late.line("a", 12) == line
