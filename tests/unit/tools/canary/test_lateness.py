"""Which edges are late, by what was written and delivered."""

from tools.canary.lateness import MAX_WRITES, Late, LatenessTracker


def tracker(*edges: str, partitions: int = 2, partial: bool = False) -> LatenessTracker:
    """Return a tracker of connected edges that have subscribed at second 0, unless they are partial."""
    made = LatenessTracker(partitions)
    for edge in edges:
        made.add(edge, 0, partial=partial)
        made.opened(edge)
        for partition in () if partial else range(partitions):
            made.confirmed(edge, partition, 0, 0)
    return made


def test_edge_that_delivers_one_partition_only_is_late_with_the_others() -> None:
    found = tracker("a", "b")
    found.written({0: 1, 1: 1}, 5)
    for edge, partition in (("a", 0), ("b", 0), ("b", 1)):
        found.delivered(edge, partition, 1, 0.2)
    assert list(found.late(14.9)) == []
    assert list(found.late(15)) == [Late("a", (1,), 10, connected=True, reason="")]


def test_later_version_stands_for_those_before_it() -> None:
    found = tracker("a", partitions=1)
    for version in range(1, 4):
        found.written({0: version}, version)
    found.delivered("a", 0, 2, 0.1)
    # What is due since second 3 is the third.
    assert list(found.late(12.9)) == []
    assert [late.seconds for late in found.late(14)] == [11]
    found.delivered("a", 0, 3, 0.1)
    assert list(found.late(99)) == []


def test_update_may_arrive_before_the_answer_to_its_write() -> None:
    found = tracker("a", partitions=1)
    found.delivered("a", 0, 7, 0.1)
    found.written({0: 7}, 1)
    assert list(found.late(99)) == []


def test_writes_before_an_edge_was_added_are_due_from_then_on() -> None:
    found = tracker(partitions=1)
    found.written({0: 1}, 0)
    found.add("a", 100, partial=False)
    found.opened("a")
    assert list(found.late(109)) == []
    assert [late.edge for late in found.late(110)] == ["a"]


def test_edge_without_a_connection_is_late_with_the_reason_even_if_nothing_is_due() -> None:
    found = tracker("a", partitions=1)
    found.lost("a", 3, "429: too many")
    found.lost("a", 5, "")
    assert list(found.late(13)) == [Late("a", (), 10, connected=False, reason="429: too many")]
    found.opened("a")
    assert list(found.late(99)) == []
    added = LatenessTracker(1)
    added.add("never there", 0, partial=True)
    assert [late.connected for late in added.late(10)] == [False]


def test_member_of_a_group_has_to_deliver_what_it_confirms_and_nothing_else() -> None:
    found = tracker("a", "b", partial=True)
    found.confirmed("a", 0, 0, 1)
    found.refused("b", 0, "not_owner")
    found.written({0: 1, 1: 1}, 2)
    assert list(found.late(12)) == [Late("a", (0,), 10, connected=True, reason="")]
    # It moves to the other one.
    found.refused("a", 0, "moved")
    found.confirmed("b", 0, 1, 13)
    assert list(found.late(99)) == []


def test_refused_subscription_of_an_edge_that_has_everything_makes_it_late_with_the_reason() -> None:
    found = tracker("a", partitions=1)
    found.refused("a", 0, "forbidden")
    found.written({0: 1}, 0)
    assert list(found.late(10)) == [Late("a", (0,), 10, connected=True, reason="forbidden")]


def test_everything_is_measured_once_each_edge_has_delivered_each_of_its_partitions() -> None:
    assert not LatenessTracker(1).is_measured()
    found = tracker("a")
    found.add("b", 0, partial=True)
    for partition in (0, 1):
        assert not found.is_measured()
        found.delivered("a", partition, 1, 0.1)
    assert not found.is_measured()
    found.opened("b")
    assert not found.is_measured()
    found.refused("b", 0, "not_owner")
    assert found.is_measured()
    assert found.partitions_of("b") == 0


def test_versions_that_an_edge_has_when_it_subscribes_show_no_delay() -> None:
    found = LatenessTracker(1)
    found.add("a", 0, partial=False)
    found.opened("a")
    found.delivered("a", 0, 1, 55.0)
    found.confirmed("a", 0, 2, 0)
    found.delivered("a", 0, 2, 55.0)
    assert list(found.delays(0)) == []
    found.delivered("a", 0, 3, 0.5)
    assert list(found.delays(0)) == [("a", 0.5)]
    # Clocks that differ.
    found.delivered("a", 0, 4, -3)
    assert list(found.delays(0)) == [("a", 0)]


def test_delay_of_an_edge_is_that_of_its_slowest_partition_and_grows_while_one_is_due() -> None:
    found = tracker("a")
    for partition, delay_s in ((0, 0.1), (1, 0.4)):
        found.written({partition: 1}, 0)
        found.delivered("a", partition, 1, delay_s)
    assert dict(found.delays(1)) == {"a": 0.4}
    found.written({0: 2}, 1)
    assert dict(found.delays(8)) == {"a": 7}


def test_remembered_writes_are_bounded_and_an_edge_that_has_left_is_forgotten() -> None:
    found = tracker("a", partitions=1)
    for version in range(1, MAX_WRITES + 11):
        found.written({0: version}, version)
    assert [late.seconds for late in found.late(MAX_WRITES + 10)] == [MAX_WRITES - 1]
    found.remove("a")
    assert (found.edges, list(found.late(9999))) == ([], [])
