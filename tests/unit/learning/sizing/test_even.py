"""Even shares of partitions: the claims of the thesis."""

from learning.sizing import even
from tests.unit.learning.sizing import printed

TWELVE = range(1, 13)


def test_every_claimed_set_of_uniform_sizes_is_reproduced() -> None:
    assert {count: tuple(even.uniform_sizes(count, TWELVE)) for count in printed.UNIFORM} == printed.UNIFORM
    assert len(printed.UNIFORM) == 6
