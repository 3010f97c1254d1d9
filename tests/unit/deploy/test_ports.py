import random

from deploy.ports import OWN_RANGE, documented, is_free, scattered
from diem.process.listeners import bind


def test_port_is_free_until_somebody_listens() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_search_starts_at_the_documented_port_or_at_random_in_our_range() -> None:
    assert documented(8080) == 8080
    first = scattered(random.Random(1))
    starts = {first(8080) for _ in range(20)}
    assert len(starts) > 10
    assert all(start in OWN_RANGE for start in starts)
