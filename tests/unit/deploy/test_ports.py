import random

from deploy.ports import OWN_RANGE, documented, scattered


def test_search_starts_at_the_documented_port_or_at_random_in_our_range() -> None:
    assert documented(8080) == 8080
    first = scattered(random.Random(1))
    starts = {first(8080) for _ in range(20)}
    assert len(starts) > 10
    assert all(start in OWN_RANGE for start in starts)
