"""The order of the tests: what waits is spread among what computes."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.scheduling import spread


def test_what_waits_is_spread_evenly_over_the_time_of_the_rest() -> None:
    assert spread("ab", "1234", [1, 1, 1, 9]) == list("1234ab")
    assert spread("ab", "1234", [3, 3, 3, 3]) == list("12a3b4")
    assert spread("abc", "1234", [9, 1, 1, 1]) == list("1abc234")
    assert spread("", "12", [1, 1]) == list("12")
    assert spread("ab", "", []) == list("ab")


@given(few=st.lists(st.integers()), seconds=st.lists(st.floats(0.0, 1e6)))
def test_nothing_is_lost_and_both_keep_their_order(few: list[int], seconds: list[float]) -> None:
    marked = [("few", each) for each in few]
    work = [("work", number) for number in range(len(seconds))]
    result = spread(marked, work, seconds)
    assert [each for each in result if each[0] == "few"] == marked
    assert [each for each in result if each[0] == "work"] == work
