"""What is remembered of a group while it changes."""

from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone
from metadata.directory import EMPTY_FOR, CloneGroup
from tests.unit.metadata.made import clone

EMPTY = Clone(UNKNOWN, {}, {})


def test_a_stable_assignment_takes_the_place_of_the_one_before() -> None:
    group = CloneGroup()
    assert group.take(clone(1), 0, 1.0)
    assert group.take(clone(1, 2), 0, 2.0)
    assert group.clone == clone(1, 2)


def test_what_is_the_same_changes_nothing() -> None:
    group = CloneGroup()
    group.take(clone(1), 0, 1.0)
    assert not group.take(clone(1), 0, 2.0)


def test_the_last_stable_assignment_is_kept_while_the_group_rebalances() -> None:
    group = CloneGroup()
    group.take(clone(1, 2), 0, 1.0)
    assert group.take(clone(3, state=REBALANCING), 0, 2.0)
    assert group.clone == clone(1, 2, state=REBALANCING)
    assert not group.settled


def test_a_group_that_has_never_been_stable_has_no_owners() -> None:
    group = CloneGroup()
    group.take(clone(1, state=REBALANCING)._replace(owners={}), 0, 1.0)
    assert group.clone == Clone(REBALANCING, {}, {})


def test_a_group_without_members_is_forgotten_after_a_while() -> None:
    group = CloneGroup()
    group.take(clone(1), 0, 1.0)
    for second in range(int(EMPTY_FOR)):
        group.take(EMPTY, 0, float(second))
    assert group.clone == clone(1, state=UNKNOWN)
    assert group.take(EMPTY, 0, EMPTY_FOR)
    assert group.clone == EMPTY


def test_members_that_come_back_begin_the_time_anew() -> None:
    group = CloneGroup()
    group.take(clone(1), 0, 0.0)
    group.take(EMPTY, 0, 1.0)
    group.take(clone(2, state=REBALANCING), 0, 5.0)
    group.take(EMPTY, 0, 6.0)
    group.take(EMPTY, 0, 6.0 + EMPTY_FOR - 0.1)
    assert group.clone.owners == clone(1).owners


@given(st.lists(st.sampled_from([clone(1), clone(1, 2), clone(3, state=REBALANCING), EMPTY]), max_size=30))
def test_owners_are_always_those_of_the_last_stable_assignment(said: list[Clone]) -> None:
    group, last = CloneGroup(), EMPTY
    for second, each in enumerate(said):
        last = each if each.state == STABLE else last
        group.take(each, 0, second * EMPTY_FOR / 40)
        assert (group.clone.owners, group.clone.members) == (last.owners, last.members)
        assert group.clone.state == each.state


def test_time_in_which_kafka_said_nothing_does_not_count_as_emptiness() -> None:
    group = CloneGroup()
    group.take(clone(1), 0, 0.0)
    group.take(EMPTY, 0, 1.0)
    group.take(EMPTY, 0, 1.0 + 2 * EMPTY_FOR)
    assert group.clone == clone(1, state=UNKNOWN)
