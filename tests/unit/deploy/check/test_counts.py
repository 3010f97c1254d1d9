"""The arithmetic of partition counts, against the numbers of the thesis (section 5)."""

import pytest

from deploy.check.counts import better_counts, graded, imbalance, replication_delay_s, unavailable_s

TWELVE = range(1, 13)


@pytest.mark.parametrize(
    ("count", "even"),
    [
        (24, {1, 2, 3, 4, 6, 8, 12}),
        (36, {1, 2, 3, 4, 6, 9, 12}),
        (60, {1, 2, 3, 4, 5, 6, 10, 12}),
        (72, {1, 2, 3, 4, 6, 8, 9, 12}),
        (120, {1, 2, 3, 4, 5, 6, 8, 10, 12}),
    ],
)
def test_the_even_sizes_are_those_of_the_thesis(count: int, even: set[int]) -> None:
    assert {size for size in TWELVE if imbalance(count, size) == 1} == even


@pytest.mark.parametrize(
    ("count", "mean", "worst"),
    [(12, 1.229, 1.833), (24, 1.080, 1.375), (36, 1.060, 1.222), (60, 1.022, 1.100), (128, 1.019, 1.055)],
)
def test_imbalance_is_graded_over_all_sizes(count: int, mean: float, worst: float) -> None:
    assert graded(count, TWELVE) == pytest.approx(mean, abs=0.0006)
    assert max(imbalance(count, size) for size in TWELVE) == pytest.approx(worst, abs=0.0006)


def test_better_counts_share_more_evenly_and_none_is_larger_than_it_needs_to_be() -> None:
    assert better_counts(5, (1, 2, 3, 4, 6, 12)) == [12]
    assert better_counts(12, (1, 2, 3, 4, 6, 12)) == []
    for_all = better_counts(12, TWELVE)
    assert for_all[-1] == 120
    grades = [graded(count, TWELVE) for count in (12, *for_all)]
    assert grades == sorted(grades, reverse=True)
    assert better_counts(12, (200,)) == [200]


def test_the_bounds_are_the_equations_of_the_thesis() -> None:
    # 50 topics of 50 partitions on 5 brokers, t_elect 5 ms: the thesis' 2.5 s.
    assert unavailable_s(50 * 50 // 5) == pytest.approx(2.5)
    # Its table: 1000 topics of 50 partitions, r = 3, n = 5, are at the limit of 0.1 s.
    assert replication_delay_s(1000 * 50, 3, 5) == pytest.approx(0.1)
    assert replication_delay_s(50, 1, 1) == 0
