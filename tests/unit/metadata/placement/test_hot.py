"""Hot endpoints; the choice itself is tested with plans."""

import numpy as np
import pytest

from metadata.placement import hot
from tests.unit.metadata.placement.instances import backend, random_instance


@pytest.mark.parametrize("at_a_time", [1, 5, 12])
def test_endpoints_that_cool_go_where_most_of_their_sets_are(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    monkeypatch.setattr(hot, "LEAVES", at_a_time)
    made, generator = random_instance(4, 60, 400), np.random.default_rng(1)
    placement = generator.integers(-1, 12, 60).astype(np.int32)
    which = (placement < 0) & (generator.random(60) < 0.7)
    cooled = hot.cool(backend(made), placement, 12, which)
    expected = backend(made).affinity(placement, 12, 1).argmin(1)
    assert which.any()
    assert cooled.tolist() == np.where(which, expected, placement).tolist()
