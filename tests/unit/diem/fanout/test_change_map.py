import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.change_map import ChangeMap
from diem.protocol.update import Change


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


def test_a_sequence_that_does_not_grow_is_refused() -> None:
    changes = ChangeMap()
    changes.apply(change(7, 1))
    with pytest.raises(ValueError, match="sequence 7 after 7"):
        changes.apply(change(7, 2))
