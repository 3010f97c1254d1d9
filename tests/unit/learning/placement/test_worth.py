"""What placements take by role, against mode x."""

from dataclasses import replace

import numpy as np
import pytest

from learning.costs import Costs
from learning.placement.objective import merged_frames, merged_saving, total_cost
from learning.placement.worth import mode_x_worth, placement_worth
from tests.unit.learning.placement.instances import instance

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
    everywhere = placement_worth(MADE, COSTS, 3.0, np.ones(3, np.bool_), 4, mean=1.0)
    assert everywhere == mode_x_worth(MADE, COSTS, 4)


def test_frames_of_a_write_share_a_send_where_a_client_has_them_on_one_server() -> None:
    # A write has ten of forty updates; a client has eight endpoints, apart on as many servers.
    made = instance([1.0] * 40, *((list(range(first, first + 8)), 100) for first in (0, 8, 16, 24, 32)))
    apart, half, together = (merged_frames(made, mean) for mean in (8.0, 4.0, 1.0))
    assert apart == pytest.approx(0.0, abs=1e-9)
    assert apart < half < together < 40.0
    # On one server, a client has one send of each of four writes a second, unless it has none of its ten updates.
    assert together == pytest.approx(40.0 - 4 * 5 * (1 - 0.75**8))
    costs = replace(COSTS, merged_saving_us=9.0, proxy_merged_saving_us=4.0)
    hot = np.zeros(40, np.bool_)
    worth = placement_worth(made, costs, 5.0, hot, 4, mean=1.0)
    assert worth.merged == pytest.approx(together)
    assert worth.frames_us == pytest.approx(40.0 * 10.0 - 9.0 * together)
    assert merged_saving(made, costs, 1.0) == pytest.approx(13.0 * together)


def test_no_frames_share_a_send_where_the_fan_out_is_unknown_or_nobody_is_subscribed() -> None:
    costs = replace(COSTS, merged_saving_us=9.0)
    assert placement_worth(MADE, costs, 3.0, np.zeros(3, np.bool_), 4).frames_us == 180.0
    assert merged_frames(instance([1.0, 2.0]), 1.0) == 0.0
