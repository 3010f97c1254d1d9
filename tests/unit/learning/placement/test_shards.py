"""Placement as a library."""

from collections import Counter

import pytest

from learning.placement.baselines import Infeasible
from learning.placement.shards import place
from tests.support.brief_search import brief_search


@brief_search()
def test_items_needed_together_share_a_shard_and_loads_are_even() -> None:
    groups = [[f"{group}{each}" for each in range(4)] for group in "abcdef"]
    sets = [group[place_:] for group in groups for place_ in range(3) for _ in range(5)]
    found = place(sets, 3, loads={"idle": 0.0})
    assert all(len({found[item] for item in group}) == 1 for group in groups)
    assert Counter(found[group[0]] for group in groups) == {0: 2, 1: 2, 2: 2}
    assert found["idle"] in range(3)
    assert place(sets, 3, loads={"idle": 0.0}) == found


def test_an_item_too_heavy_for_a_shard_is_named() -> None:
    with pytest.raises(Infeasible, match="heavy"):
        place([["a", "heavy"], ["b"]], 2, loads={"heavy": 10.0})
