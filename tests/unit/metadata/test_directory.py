from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone
from diem.protocol.partition_map import HOT, Entry, PartitionMap, Phase
from metadata.directory import EMPTY_S, CloneGroup, Directory
from tests.unit.metadata.snapshots import a_map, clone


def directory(*clones: int) -> tuple[Directory, list[int]]:
    """A directory of these clones, and one entry for each of its notifications."""
    made, notifications = Directory(clones), list[int]()
    made.on_changed.append(lambda: notifications.append(1))
    return made, notifications


def test_ready_with_a_map_and_one_assignment() -> None:
    made, notifications = directory(1, 2)
    assert made.why_not_ready() == "the partition map has not been read yet"
    made.update_map(a_map())
    assert made.why_not_ready() == "no group has had an assignment yet"
    assert (made.snapshot, notifications) == (None, [])
    made.update_group(2, clone(1), 0, 1.0)
    assert made.why_not_ready() is None
    assert made.snapshot is not None
    assert made.snapshot.clones[2] == clone(1)
    assert len(notifications) == 1


def test_ready_if_the_assignment_comes_before_the_map() -> None:
    made, _ = directory(1)
    made.update_group(1, clone(1), 0, 1.0)
    assert made.why_not_ready() == "the partition map has not been read yet"
    made.update_map(a_map())
    assert made.why_not_ready() is None


def test_only_changes_are_notified() -> None:
    made, notifications = directory(1)
    made.update_map(a_map())
    made.update_group(1, clone(1), 0, 1.0)
    made.update_group(1, clone(1), 0, 2.0)
    made.update_map(a_map())
    made.update_map(None)
    assert len(notifications) == 1
    made.update_map(a_map(epoch=1))
    made.update_group(1, clone(1, state=REBALANCING), 0, 3.0)
    assert len(notifications) == 3


def test_staleness_is_that_of_the_group_with_the_oldest_answer() -> None:
    made, _ = directory(1, 2)
    made.update_group(1, clone(1), 0, 1.0)
    assert made.staleness(5.0) is None
    made.update_group(2, clone(2), 0, 4.0)
    assert made.staleness(5.0) == 4.0


def preparing(epoch: int = 0, **entries: Entry) -> PartitionMap:
    map_ = a_map(epoch, entries={f"/{name}".encode(): entry for name, entry in entries.items()})
    return PartitionMap(map_.head._replace(phase=Phase.PREPARE), map_.entries)


def test_a_move_waits_until_every_clone_with_members_owns_the_new_partitions() -> None:
    """A composite answers for its own clone, and any instance drives a move for all of them."""
    made, _ = directory(1)
    moving = preparing(4, a=Entry(0, 6))
    made.update_group(1, clone(1, partitions=7), 0, 1.0)
    made.update_map(moving)
    assert made.preparing == 4
    assert made.unassigned(moving) == "Kafka to report the clones"
    made.update_others({2: (clone(2, partitions=4), 0), 3: (clone(state=UNKNOWN), 0)}, 4, 2.0)
    assert made.unassigned(moving) == "the servers of clone 2 to take partitions 6"
    made.update_others({2: (clone(2, partitions=7), 0), 3: (clone(state=UNKNOWN), 0)}, 4, 3.0)
    assert made.unassigned(moving) is None
    assert made.snapshot is not None
    assert set(made.snapshot.clones) == {1}, "other instances serve these clones"
    assert made.unassigned(preparing(8, a=Entry(0, 6))) == "Kafka to report the clones", (
        "each move reads the groups again"
    )


def test_a_move_waits_until_the_owners_of_its_targets_are_known() -> None:
    made, _ = directory(1, 2)
    moving = a_map(entries={b"/a": Entry(0, 6), b"/b": Entry(1, HOT)})
    made.update_others({}, 0, 1.0)
    made.update_group(1, clone(1, partitions=7), 0, 1.0)
    assert made.unassigned(moving) == "Kafka to report the members of clone 2"
    assert made.unassigned(a_map(entries={b"/b": Entry(1, HOT)})) is None, "every server has it"
    made.update_group(2, clone(2, partitions=4), 0, 1.0)
    assert made.unassigned(moving) == "the servers of clone 2 to take partitions 6"
    made.update_group(2, clone(2, partitions=7), 0, 2.0)
    assert made.unassigned(moving) is None


def test_a_clone_without_servers_does_not_delay_a_move() -> None:
    made, _ = directory(1)
    made.update_group(1, clone(), 0, 1.0)
    made.update_others({}, 0, 1.0)
    assert made.unassigned(a_map(entries={b"/a": Entry(0, 6)})) is None


def test_a_clone_first_read_during_a_rebalance_delays_a_move() -> None:
    """As after a restart just after the topic has grown: the new partitions are still being assigned."""
    made, _ = directory(1)
    moving = a_map(entries={b"/a": Entry(0, 6)})
    made.update_others({}, 0, 1.0)
    made.update_group(1, clone(state=REBALANCING), 0, 1.0)
    assert made.unassigned(moving) == "Kafka to report the members of clone 1"
    made.update_group(1, clone(1, partitions=7), 0, 2.0)
    made.update_group(1, clone(state=REBALANCING), 0, 3.0)
    assert made.unassigned(moving) is None, "the last stable assignment counts"


EMPTY = Clone(UNKNOWN, {}, {})


def test_a_stable_assignment_replaces_the_previous_one() -> None:
    group = CloneGroup()
    assert group.update(clone(1), 0, 1.0)
    assert group.update(clone(1, 2), 0, 2.0)
    assert group.clone == clone(1, 2)


def test_an_equal_description_changes_nothing() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 1.0)
    assert not group.update(clone(1), 0, 2.0)


def test_the_last_stable_assignment_is_kept_while_the_group_rebalances() -> None:
    group = CloneGroup()
    group.update(clone(1, 2), 0, 1.0)
    assert group.update(clone(3, state=REBALANCING), 0, 2.0)
    assert group.clone == clone(1, 2, state=REBALANCING)
    assert not group.is_stable


def test_a_group_that_has_never_been_stable_has_no_owners() -> None:
    group = CloneGroup()
    group.update(clone(1, state=REBALANCING)._replace(owners={}), 0, 1.0)
    assert group.clone == Clone(REBALANCING, {}, {})


def test_a_group_without_members_loses_its_owners_after_a_while() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 1.0)
    for second in range(int(EMPTY_S)):
        group.update(EMPTY, 0, float(second))
    assert group.clone == clone(1, state=UNKNOWN)
    assert group.update(EMPTY, 0, EMPTY_S)
    assert group.clone == EMPTY


def test_returning_members_restart_the_time_without_members() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 0.0)
    group.update(EMPTY, 0, 1.0)
    group.update(clone(2, state=REBALANCING), 0, 5.0)
    group.update(EMPTY, 0, 6.0)
    group.update(EMPTY, 0, 6.0 + EMPTY_S - 0.1)
    assert group.clone.owners == clone(1).owners


@given(st.lists(st.sampled_from([clone(1), clone(1, 2), clone(3, state=REBALANCING), EMPTY]), max_size=30))
def test_owners_are_always_those_of_the_last_stable_assignment(descriptions: list[Clone]) -> None:
    group, last = CloneGroup(), EMPTY
    for second, each in enumerate(descriptions):
        last = each if each.state == STABLE else last
        group.update(each, 0, second * EMPTY_S / 40)
        assert (group.clone.owners, group.clone.members) == (last.owners, last.members)
        assert group.clone.state == each.state


def test_an_outage_of_kafka_does_not_count_as_time_without_members() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 0.0)
    group.update(EMPTY, 0, 1.0)
    group.update(EMPTY, 0, 1.0 + 2 * EMPTY_S)
    assert group.clone == clone(1, state=UNKNOWN)
