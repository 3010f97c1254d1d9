"""What placements take by role, against mode x."""

import numpy as np
import pytest

from metadata.costs import Costs
from metadata.placement.objective import total_cost
from metadata.placement.worth import mode_x_worth, placement_worth
from tests.unit.metadata.placement.instances import instance

COSTS = Costs(update_us=5.0, delivery_us=10.0, connection_us_per_s=2.0, connection_bytes=1000.0)
MADE = instance([1.0, 3.0, 4.0], ([0, 1], 100), ([1, 2], 200))
"""8 updates a second; 1, 3 and 2 subscribers; 3 clients."""


def test_mode_x_consumes_every_update_on_every_server_and_has_one_connection_for_a_client() -> None:
    found = mode_x_worth(MADE, COSTS, 4)
    assert found.updates_us == pytest.approx(4 * 8 * 5.0)
    assert (found.frames_us, found.connections_us) == ((1 + 9 + 8) * 10.0, 3 * 2.0)
    assert (found.links, found.memory_bytes) == (3.0, 3000.0)
    assert found.cpu_us == pytest.approx(160.0 + 180.0 + 6.0)


def test_a_placement_consumes_updates_once_but_for_hot_endpoints() -> None:
    hot = np.array([False, False, True])
    found = placement_worth(MADE, COSTS, 4.5, hot, 4)
    # Rates are drawn towards their mean; the sum of all stays.
    assert found.updates_us == pytest.approx((8 + 3 * 4) * 5.0, rel=0.02)
    assert found.connections_us == 9.0
    assert found.cpu_us - found.frames_us == pytest.approx(total_cost(MADE, COSTS, 4.5, hot, 4))
    everywhere = placement_worth(MADE, COSTS, 3.0, np.ones(3, np.bool_), 4)
    assert everywhere == mode_x_worth(MADE, COSTS, 4)
