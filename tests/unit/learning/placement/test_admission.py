"""Servers that would have more clients than they accept."""

import numpy as np

from learning.costs import Costs
from learning.placement.admission import relieve
from learning.placement.objective import clients_of_servers
from learning.placement.options import PlanOptions, Problem, search_views
from tests.unit.learning.placement.instances import backend, instance

MADE = instance(
    [0.001] * 4 + [10.0] * 4, *(([each], 10_000) for each in range(4)), *(([4, each], 200) for each in (5, 6, 7))
)
"""Four quiet endpoints with a hundred clients each, and four busy ones with a few."""
ON_ONE = np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int32)


def problem(capacity: float) -> Problem:
    options = PlanOptions(servers=(2,), partitions=2, epsilon=0.2, capacity=capacity)
    return Problem(MADE, backend(MADE), Costs(1.0, 1.0, 1.0), options)


def test_endpoints_with_many_clients_move_to_servers_that_accept_them() -> None:
    limited = problem(250)
    views = search_views(limited, limited.load(ON_ONE < 0), ON_ONE < 0, 2, ON_ONE)
    found = relieve(limited, ON_ONE, 2, views, [2])
    assert found is not None
    assert clients_of_servers(MADE, limited.backend, ON_ONE, 2).max() > 400
    assert clients_of_servers(MADE, limited.backend, found, 2).max() <= 250
    assert limited.balance(found, 2) <= 1.2 + 1e-6


def test_there_is_no_such_placement_for_more_clients_than_all_servers_accept() -> None:
    limited = problem(150)
    views = search_views(limited, limited.load(ON_ONE < 0), ON_ONE < 0, 2, ON_ONE)
    assert relieve(limited, ON_ONE, 2, views, [2]) is None
