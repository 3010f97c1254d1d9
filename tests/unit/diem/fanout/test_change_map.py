import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.change_map import ChangeMap
from diem.fanout.data_budget import DataBudget
from diem.protocol.update import Change, encode


def change(sequence: int, endpoint: int) -> Change:
    return Change(sequence, b"/%d" % endpoint, sequence, 0, b"")


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 70), st.integers(1, 70))
def test_after_gives_the_latest_of_each_endpoint_in_order(endpoints: list[int], cursor: int, limit: int) -> None:
    changes = ChangeMap()
    latest: dict[int, int] = {}
    for sequence, endpoint in enumerate(endpoints, 1):
        changes.apply(change(sequence, endpoint))
        latest[endpoint] = sequence
    expected = sorted(sequence for sequence in latest.values() if sequence > cursor)[:limit]
    assert [found.sequence for found in changes.after(cursor, limit)] == expected


def test_space_is_bounded_by_the_endpoints() -> None:
    changes = ChangeMap()
    for sequence in range(1, 50_000):
        changes.apply(change(sequence, sequence % 10))
    assert len(changes) == 10
    assert len(changes._order) <= 2 * 10 + 1024
    assert [found.sequence for found in changes.after(0, 100)] == list(range(49_990, 50_000))


def test_what_was_removed_is_not_found_and_takes_no_space() -> None:
    changes = ChangeMap(DataBudget(3000))
    for sequence, name in enumerate(["/a", "/b"], 1):
        changes.apply(with_data(sequence, name))
    changes.remove([b"/b", b"/unknown"])
    assert [found.endpoint for found in changes.after(0, 9)] == [b"/a"]
    assert (len(changes), changes.get(b"/b"), changes.sequence) == (1, None, 2)
    assert changes.budget.bytes == len(with_data(1, "/a").value)
    changes.apply(with_data(3, "/b"))
    assert [found.sequence for found in changes.after(0, 9)] == [1, 3]
    for sequence in range(4, 3000):
        changes.apply(change(sequence, sequence))
    changes.remove(b"/%d" % sequence for sequence in range(4, 3000))
    assert len(changes._order) <= 2 * 2 + 1024


def test_the_next_change_follows_what_the_source_has_removed() -> None:
    changes = ChangeMap()
    changes.advance(7)
    changes.advance(5)
    with pytest.raises(ValueError, match="sequence 7 after 7"):
        changes.apply(change(7, 1))


def test_a_sequence_that_does_not_grow_is_refused() -> None:
    changes = ChangeMap()
    changes.apply(change(7, 1))
    with pytest.raises(ValueError, match="sequence 7 after 7"):
        changes.apply(change(7, 2))


def with_data(sequence: int, name: str) -> Change:
    version = 1_700_000_000_000 + sequence
    data = b'{"version":%d,"x":"%b"}' % (version, b"x" * 1000)
    return Change(sequence, name.encode(), version, 0, encode(name, version, version, data=data))


def test_beyond_the_budget_the_oldest_change_loses_its_data_and_nothing_else() -> None:
    changes = ChangeMap(DataBudget(3000))
    for sequence, name in enumerate(["/a", "/b", "/c"], 1):
        changes.apply(with_data(sequence, name))
    found = changes.after(0, 9)
    plain = encode("/a", 1_700_000_000_001, 1_700_000_000_001)
    assert found == [with_data(1, "/a")._replace(value=plain), with_data(2, "/b"), with_data(3, "/c")]
    assert changes.budget.bytes == len(with_data(2, "/b").value) * 2


def test_superseded_changes_keep_no_data() -> None:
    changes = ChangeMap()
    for sequence in range(1, 2000):
        changes.apply(with_data(sequence, "/a"))
    assert changes.budget.bytes == len(with_data(1, "/a").value)
    assert all(type(entry) is tuple and len(entry) == 2 for entry in changes._order), "positions and names only"


def test_a_cleared_map_has_all_of_its_budget() -> None:
    changes = ChangeMap()
    changes.apply(with_data(1, "/a"))
    changes.clear()
    assert changes.budget.bytes == 0
