"""When there is a snapshot, and who hears of it."""

from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone
from diem.protocol.partition_map import HOT, Entry, PartitionMap, Phase
from metadata.directory import EMPTY_S, CloneGroup, Directory
from tests.unit.metadata.made import a_map, clone


def directory(*clones: int) -> tuple[Directory, list[int]]:
    made, heard = Directory(clones), list[int]()
    made.on_changed.append(lambda: heard.append(1))
    return made, heard


def test_it_is_ready_with_a_map_and_one_assignment() -> None:
    made, heard = directory(1, 2)
    assert made.why_not_ready() == "the partition map has not been read yet"
    made.update_map(a_map())
    assert made.why_not_ready() == "no group has had an assignment yet"
    assert (made.snapshot, heard) == (None, [])
    made.update_group(2, clone(1), 0, 1.0)
    assert made.why_not_ready() is None
    assert made.snapshot is not None
    assert made.snapshot.clones[2] == clone(1)
    assert len(heard) == 1


def test_an_assignment_may_come_before_the_map() -> None:
    made, _ = directory(1)
    made.update_group(1, clone(1), 0, 1.0)
    assert made.why_not_ready() == "the partition map has not been read yet"
    made.update_map(a_map())
    assert made.why_not_ready() is None


def test_only_what_is_new_is_told() -> None:
    made, heard = directory(1)
    made.update_map(a_map())
    made.update_group(1, clone(1), 0, 1.0)
    made.update_group(1, clone(1), 0, 2.0)
    made.update_map(a_map())
    made.update_map(None)
    assert len(heard) == 1
    made.update_map(a_map(epoch=1))
    made.update_group(1, clone(1, state=REBALANCING), 0, 3.0)
    assert len(heard) == 3


def test_silence_is_that_of_the_group_that_was_longest_silent() -> None:
    made, _ = directory(1, 2)
    made.update_group(1, clone(1), 0, 1.0)
    assert made.staleness(5.0) is None
    made.update_group(2, clone(2), 0, 4.0)
    assert made.staleness(5.0) == 4.0


def preparing(epoch: int = 0, **entries: Entry) -> PartitionMap:
    map_ = a_map(epoch, entries={f"/{name}".encode(): entry for name, entry in entries.items()})
    return PartitionMap(map_.head._replace(phase=Phase.PREPARE), map_.entries)


def test_a_move_waits_for_the_new_partitions_of_every_clone_that_has_members() -> None:
    """A composite answers for its own clone, and any instance drives a move for all of them."""
    made, _ = directory(1)
    moving = preparing(4, a=Entry(0, 6))
    made.update_group(1, clone(1, partitions=7), 0, 1.0)
    made.update_map(moving)
    assert made.preparing == 4
    assert made.unassigned(moving) == "Kafka to say which clones there are"
    made.update_others({2: (clone(2, partitions=4), 0), 3: (clone(state=UNKNOWN), 0)}, 4, 2.0)
    assert made.unassigned(moving) == "the servers of clone 2 to take partitions 6"
    made.update_others({2: (clone(2, partitions=7), 0), 3: (clone(state=UNKNOWN), 0)}, 4, 3.0)
    assert made.unassigned(moving) is None
    assert made.snapshot is not None
    assert set(made.snapshot.clones) == {1}, "others answer for them"
    assert made.unassigned(preparing(8, a=Entry(0, 6))) == "Kafka to say which clones there are", "anew for each move"


def test_nobody_is_sent_to_a_partition_of_which_it_is_not_known_yet_who_has_it() -> None:
    made, _ = directory(1, 2)
    moving = a_map(entries={b"/a": Entry(0, 6), b"/b": Entry(1, HOT)})
    made.update_others({}, 0, 1.0)
    made.update_group(1, clone(1, partitions=7), 0, 1.0)
    assert made.unassigned(moving) == "Kafka to say who is in clone 2"
    assert made.unassigned(a_map(entries={b"/b": Entry(1, HOT)})) is None, "every server has it"
    made.update_group(2, clone(2, partitions=4), 0, 1.0)
    assert made.unassigned(moving) == "the servers of clone 2 to take partitions 6"
    made.update_group(2, clone(2, partitions=7), 0, 2.0)
    assert made.unassigned(moving) is None


def test_a_clone_without_servers_holds_nobody_up() -> None:
    made, _ = directory(1)
    made.update_group(1, clone(), 0, 1.0)
    made.update_others({}, 0, 1.0)
    assert made.unassigned(a_map(entries={b"/a": Entry(0, 6)})) is None


def test_a_clone_that_was_found_in_the_middle_of_a_rebalance_holds_a_move_up() -> None:
    """As after a restart: the topic has just grown, and who has the new partitions is being decided."""
    made, _ = directory(1)
    moving = a_map(entries={b"/a": Entry(0, 6)})
    made.update_others({}, 0, 1.0)
    made.update_group(1, clone(state=REBALANCING), 0, 1.0)
    assert made.unassigned(moving) == "Kafka to say who is in clone 1"
    made.update_group(1, clone(1, partitions=7), 0, 2.0)
    made.update_group(1, clone(state=REBALANCING), 0, 3.0)
    assert made.unassigned(moving) is None, "they are back where they were, or soon elsewhere"


EMPTY = Clone(UNKNOWN, {}, {})


def test_a_stable_assignment_takes_the_place_of_the_one_before() -> None:
    group = CloneGroup()
    assert group.update(clone(1), 0, 1.0)
    assert group.update(clone(1, 2), 0, 2.0)
    assert group.clone == clone(1, 2)


def test_what_is_the_same_changes_nothing() -> None:
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


def test_a_group_without_members_is_forgotten_after_a_while() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 1.0)
    for second in range(int(EMPTY_S)):
        group.update(EMPTY, 0, float(second))
    assert group.clone == clone(1, state=UNKNOWN)
    assert group.update(EMPTY, 0, EMPTY_S)
    assert group.clone == EMPTY


def test_members_that_come_back_begin_the_time_anew() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 0.0)
    group.update(EMPTY, 0, 1.0)
    group.update(clone(2, state=REBALANCING), 0, 5.0)
    group.update(EMPTY, 0, 6.0)
    group.update(EMPTY, 0, 6.0 + EMPTY_S - 0.1)
    assert group.clone.owners == clone(1).owners


@given(st.lists(st.sampled_from([clone(1), clone(1, 2), clone(3, state=REBALANCING), EMPTY]), max_size=30))
def test_owners_are_always_those_of_the_last_stable_assignment(said: list[Clone]) -> None:
    group, last = CloneGroup(), EMPTY
    for second, each in enumerate(said):
        last = each if each.state == STABLE else last
        group.update(each, 0, second * EMPTY_S / 40)
        assert (group.clone.owners, group.clone.members) == (last.owners, last.members)
        assert group.clone.state == each.state


def test_time_in_which_kafka_said_nothing_does_not_count_as_emptiness() -> None:
    group = CloneGroup()
    group.update(clone(1), 0, 0.0)
    group.update(EMPTY, 0, 1.0)
    group.update(EMPTY, 0, 1.0 + 2 * EMPTY_S)
    assert group.clone == clone(1, state=UNKNOWN)
