from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.data_budget import DataBudget
from diem.protocol.update import MAX_BYTES


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4 * MAX_BYTES), st.booleans()), max_size=80))
def test_the_budget_keeps_the_endpoints_updated_last_within_the_bound(
    changes: list[tuple[int, int, bool]],
) -> None:
    budget = DataBudget(6 * MAX_BYTES)
    kept: dict[bytes, int] = {}
    evictions = 0
    for number, size, released in changes:
        endpoint = b"/%d" % number
        kept.pop(endpoint, None)
        if released:
            budget.release(endpoint)
        else:
            budget.retain(endpoint, size)
            evicted = budget.evict()
            if size > MAX_BYTES:
                kept[endpoint] = size
            expected = []
            while sum(kept.values()) > budget.max_bytes:
                oldest = next(iter(kept))
                del kept[oldest]
                expected.append(oldest)
            assert evicted == expected
            evictions += len(expected)
        assert (budget.bytes, len(budget), budget.evicted) == (sum(kept.values()), len(kept), evictions)


def test_an_update_larger_than_the_bound_loses_its_own_data() -> None:
    budget = DataBudget(1000)
    budget.retain(b"/a", 1001)
    assert budget.evict() == [b"/a"]
    assert (budget.bytes, len(budget)) == (0, 0)


def test_an_update_without_data_frees_the_place_of_its_predecessor() -> None:
    budget = DataBudget(1000)
    budget.retain(b"/a", 900)
    budget.retain(b"/a", 100)
    assert (budget.bytes, budget.evict()) == (0, [])
