"""When there is a snapshot, and who hears of it."""

from diem.protocol.assignment import REBALANCING, UNKNOWN
from diem.protocol.partition_map import HOT, Entry, PartitionMap, Phase
from metadata.directory import Directory
from tests.unit.metadata.made import a_map, clone


def directory(*clones: int) -> tuple[Directory, list[int]]:
    made, heard = Directory(clones), list[int]()
    made.on_changed.append(lambda: heard.append(1))
    return made, heard


def test_it_is_ready_with_a_map_and_one_assignment() -> None:
    made, heard = directory(1, 2)
    assert made.why_not_ready() == "the partition map has not been read yet"
    made.take_map(a_map())
    assert made.why_not_ready() == "no group has had an assignment yet"
    assert (made.snapshot, heard) == (None, [])
    made.take_group(2, clone(1), 0, 1.0)
    assert made.why_not_ready() is None
    assert made.snapshot is not None
    assert made.snapshot.clones[2] == clone(1)
    assert len(heard) == 1


def test_an_assignment_may_come_before_the_map() -> None:
    made, _ = directory(1)
    made.take_group(1, clone(1), 0, 1.0)
    assert made.why_not_ready() == "the partition map has not been read yet"
    made.take_map(a_map())
    assert made.why_not_ready() is None


def test_only_what_is_new_is_told() -> None:
    made, heard = directory(1)
    made.take_map(a_map())
    made.take_group(1, clone(1), 0, 1.0)
    made.take_group(1, clone(1), 0, 2.0)
    made.take_map(a_map())
    made.take_map(None)
    assert len(heard) == 1
    made.take_map(a_map(epoch=1))
    made.take_group(1, clone(1, state=REBALANCING), 0, 3.0)
    assert len(heard) == 3


def test_silence_is_that_of_the_group_that_was_longest_silent() -> None:
    made, _ = directory(1, 2)
    made.take_group(1, clone(1), 0, 1.0)
    assert made.silence(5.0) is None
    made.take_group(2, clone(2), 0, 4.0)
    assert made.silence(5.0) == 4.0


def preparing(epoch: int = 0, **entries: Entry) -> PartitionMap:
    map_ = a_map(epoch, entries={f"/{name}".encode(): entry for name, entry in entries.items()})
    return PartitionMap(map_.head._replace(phase=Phase.PREPARE), map_.entries)


def test_a_move_waits_for_the_new_partitions_of_every_clone_that_has_members() -> None:
    """A composite answers for its own clone, and any instance drives a move for all of them."""
    made, _ = directory(1)
    moving = preparing(4, a=Entry(0, 6))
    made.take_group(1, clone(1, partitions=7), 0, 1.0)
    made.take_map(moving)
    assert made.preparing == 4
    assert made.unowned(moving) == "Kafka to say which clones there are"
    made.take_others({2: (clone(2, partitions=4), 0), 3: (clone(state=UNKNOWN), 0)}, 4, 2.0)
    assert made.unowned(moving) == "the servers of clone 2 to take partitions 6"
    made.take_others({2: (clone(2, partitions=7), 0), 3: (clone(state=UNKNOWN), 0)}, 4, 3.0)
    assert made.unowned(moving) is None
    assert made.snapshot is not None
    assert set(made.snapshot.clones) == {1}, "others answer for them"
    assert made.unowned(preparing(8, a=Entry(0, 6))) == "Kafka to say which clones there are", "anew for each move"


def test_nobody_is_sent_to_a_partition_of_which_it_is_not_known_yet_who_has_it() -> None:
    made, _ = directory(1, 2)
    moving = a_map(entries={b"/a": Entry(0, 6), b"/b": Entry(1, HOT)})
    made.take_others({}, 0, 1.0)
    made.take_group(1, clone(1, partitions=7), 0, 1.0)
    assert made.unowned(moving) == "Kafka to say who is in clone 2"
    assert made.unowned(a_map(entries={b"/b": Entry(1, HOT)})) is None, "every server has it"
    made.take_group(2, clone(2, partitions=4), 0, 1.0)
    assert made.unowned(moving) == "the servers of clone 2 to take partitions 6"
    made.take_group(2, clone(2, partitions=7), 0, 2.0)
    assert made.unowned(moving) is None


def test_a_clone_without_servers_holds_nobody_up() -> None:
    made, _ = directory(1)
    made.take_group(1, clone(), 0, 1.0)
    made.take_others({}, 0, 1.0)
    assert made.unowned(a_map(entries={b"/a": Entry(0, 6)})) is None


def test_a_clone_that_was_found_in_the_middle_of_a_rebalance_holds_a_move_up() -> None:
    """As after a restart: the topic has just grown, and who has the new partitions is being decided."""
    made, _ = directory(1)
    moving = a_map(entries={b"/a": Entry(0, 6)})
    made.take_others({}, 0, 1.0)
    made.take_group(1, clone(state=REBALANCING), 0, 1.0)
    assert made.unowned(moving) == "Kafka to say who is in clone 1"
    made.take_group(1, clone(1, partitions=7), 0, 2.0)
    made.take_group(1, clone(state=REBALANCING), 0, 3.0)
    assert made.unowned(moving) is None, "they are back where they were, or soon elsewhere"
