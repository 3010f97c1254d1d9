"""Resources of servers: what a placement takes of each, and limits that one would exceed."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from learning.costs import DEFAULT, ROLES, SERVER_LIMITS, Costs
from learning.modes.configuration import Configuration
from learning.modes.measured import RUNS
from learning.placement.capacity import overfull, place_within, relieve, report, storm_s, usage
from learning.placement.instance import Instance
from learning.placement.objective import clients_of_servers, migration_cost, server_of_endpoint, server_of_leaf
from learning.placement.options import PlanOptions, Problem
from learning.placement.refine import Movement
from tests.unit.learning.placement.instances import SECONDS, backend, instance, random_instance, random_parts, sets_of

MADE = instance(
    [0.001] * 4 + [10.0] * 4, *(([each], 10_000) for each in range(4)), *(([4, each], 200) for each in (5, 6, 7))
)
"""Four quiet endpoints with a hundred clients each, and four busy ones with a few."""
ON_ONE = np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int32)


def problem(**limits: float) -> Problem:
    options = PlanOptions((2,), epsilon=0.2, partitions=2, limits=SERVER_LIMITS._replace(**limits))
    return Problem(MADE, backend(MADE), Costs(1.0, 1.0, 1.0), options)


@pytest.mark.parametrize("resource", ["clients", "memory_bytes"])
def test_endpoints_move_off_servers_that_exceed_a_limit(resource: str) -> None:
    row = SERVER_LIMITS._fields.index(resource)
    before = float(usage(problem(), ON_ONE, 2, 2)[row].max())
    most = before - 0.4 * float(np.ptp(usage(problem(), ON_ONE, 2, 2)[row]))
    limited = problem(**{resource: most})
    found = relieve(limited, ON_ONE, 2, [2])
    assert found is not None
    assert usage(limited, found, 2, 2)[row].max() <= most < before
    assert limited.balance(found, 2) <= 1.2 + 1e-6
    assert (overfull(limited, ON_ONE, 2)[0], overfull(limited, found, 2)[0]) == (1, 0)


def test_there_is_no_such_placement_for_more_clients_than_all_servers_accept() -> None:
    limited = problem(clients=150)
    assert relieve(limited, ON_ONE, 2, [2]) is None


PAIRS = instance([1.0] * 4, *(([each], clients * 100) for each, clients in enumerate((60, 60, 40, 40))))
"""Endpoints with 60, 60, 40 and 40 clients: a server with the first two is relieved by an exchange only."""
TOGETHER = np.array([0, 0, 1, 1], np.int32)


def limited_to(made: Instance, clients: float, epsilon: float = 0.3, servers: int = 2) -> Problem:
    options = PlanOptions(
        (servers,), epsilon=epsilon, partitions=servers, limits=SERVER_LIMITS._replace(clients=clients)
    )
    return Problem(made, backend(made), Costs(1.0, 1.0, 1.0), options)


def test_endpoints_are_exchanged_where_no_single_move_relieves_a_server() -> None:
    found = relieve(limited_to(PAIRS, 110), TOGETHER, 2, [2])
    assert found is not None
    assert usage(limited_to(PAIRS, 110), found, 2, 2)[0].tolist() == pytest.approx([100, 100])


def test_an_exchange_within_limits_of_clients_keeps_the_load_even() -> None:
    rated = instance([1.0, 1.0, 3.0, 3.0], *(([each], clients * 100) for each, clients in enumerate((60, 60, 40, 40))))
    heavy = instance([1.0, 9.0, 1.0, 1.0], *(([each], clients * 100) for each, clients in enumerate((60, 60, 40, 40))))
    problem = limited_to(rated, 110)
    found = relieve(problem, TOGETHER, 2, [2])
    assert found is not None
    assert problem.balance(found, 2) <= 1.3
    # Any exchange leaves the heavy endpoint and one more on a server.
    assert relieve(limited_to(heavy, 110), TOGETHER, 2, [2]) is None


def test_clients_with_another_endpoint_on_a_server_do_not_leave_it() -> None:
    made = instance([1.0] * 5, ([0, 1], 5000), ([2], 2000), ([3], 1500), ([4], 1500))
    problem = limited_to(made, 55, epsilon=2.0)
    start = np.array([0, 0, 0, 1, 1], np.int32)
    found = relieve(problem, start, 2, [2])
    # One move is enough, and that of an endpoint of the pair relieves nobody.
    assert found is not None
    assert np.flatnonzero(found != start).tolist() == [2]


def test_moves_are_within_the_budget() -> None:
    cost = migration_cost(PAIRS)
    for budget, moved in ((100, 0), (102, 2)):
        found = relieve(limited_to(PAIRS, 110), TOGETHER, 2, [2], Movement(TOGETHER, cost, budget))
        assert (found is not None) == (moved > 0)
        assert found is None or int((found != TOGETHER).sum()) == moved


@pytest.mark.parametrize("hot", [False, True])
def test_a_placement_within_limits_is_found_if_there_is_one(hot: bool) -> None:
    outcomes = set()
    for seed in range(6):
        made = random_instance(seed, 7, 12)
        near = np.where(np.arange(7) == 0, -1 if hot else 0, 0).astype(np.int32)
        tried = [np.where(near < 0, -1, np.array(each)).astype(np.int32) for each in product(range(2), repeat=7)]
        free = limited_to(made, 1e9)
        even = [each for each in tried if free.balance(each, 2) <= 1.3]
        least = min((float(usage(free, each, 2, 2)[0].max()) for each in even), default=0.0)
        for clients in (0.97 * least, 1.03 * least):
            problem = limited_to(made, clients)
            found = place_within(problem, near, 2)
            outcomes.add(found is not None)
            within = found is not None and overfull(problem, found, 2)[0] == 0 and problem.balance(found, 2) <= 1.3
            assert within == (clients > least)
            assert found is None or ((found < 0) == (near < 0)).all()
    assert outcomes == {False, True}


def test_no_placement_within_limits_is_searched_for_several_numbers_of_servers() -> None:
    several = limited_to(PAIRS, 110)
    several = replace(several, options=replace(several.options, servers=(2, 3), partitions=3))
    assert place_within(several, TOGETHER, 3) is None


def test_each_resource_of_a_server_is_that_of_its_clients_and_endpoints() -> None:
    used = usage(replace(problem(), costs=DEFAULT), ON_ONE, 2, 2)
    subscribers, rates = MADE.expected_subscribers, MADE.expected
    for server, clients in enumerate((406.0, 4.0)):
        mine = np.equal(ON_ONE, server)
        frames = float((rates * subscribers)[mine].sum())
        memory = ROLES.memory["websocket"] + mine.sum() * MADE.load.data_bytes
        assert used[:, server] == pytest.approx(
            [
                clients,
                memory + 3900 * clients + 170 * subscribers[mine].sum(),
                frames * (110 + 0.2 * 3500),
                6500 + 5 * rates[mine].sum() + 10 * frames + 1.7 * clients,
            ]
        )


def test_frames_that_share_a_send_take_less_cpu_and_clones_share_the_clients() -> None:
    costs = [replace(DEFAULT, merged_saving_us=us) for us in (0.0, 9.8)]
    alone, shared = (usage(replace(problem(), costs=each), ON_ONE, 2, 2)[3] for each in costs)
    assert (shared < alone).all()
    one = problem()
    two = replace(one, options=replace(one.options, clones=2))
    assert usage(two, ON_ONE, 2, 2)[0].tolist() == (usage(one, ON_ONE, 2, 2)[0] / 2).tolist()


@pytest.mark.parametrize(("clients", "expected"), [(410, (0, 0)), (300, (0, 1)), (200, (1, 1))])
def test_a_server_may_exceed_a_limit_only_after_the_loss_of_another(clients: float, expected: tuple[int, int]) -> None:
    split = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int32)
    assert overfull(problem(clients=clients), split, 2) == expected
    assert overfull(replace(problem(), options=replace(problem().options, limits=None)), ON_ONE, 2) == (0, 0)


def test_a_report_names_the_servers_on_which_a_placement_is_within_the_limits() -> None:
    quiet = np.array([0, 1, 2, 3, 4, 4, 5, 5], np.int32)

    def enough(clients: float, leaves: int = 6) -> Any:
        limited = replace(
            problem(clients=clients), options=replace(problem(clients=clients).options, partitions=leaves)
        )
        return (report(limited, quiet, leaves) or {})["enough"]

    # On two servers 300, on three 200; after a loss those of one fewer.
    assert (enough(410), enough(300), enough(200), enough(104), enough(50)) == (None, 3, 4, None, None)
    found = report(problem(clients=300), ON_ONE, 2) or {}
    assert found["limits"]["clients"] == 300
    assert (found["servers"]["2"]["clients"], found["after_loss"]["2"]["clients"]) == ([406.0, 4.0], 406.0)


@pytest.mark.parametrize(("seed", "leaves", "servers"), [(1, 12, 4), (2, 12, 5), (3, 7, 4), (4, 24, 7), (5, 2, 2)])
def test_clients_come_back_to_servers_that_they_had_no_connection_to(seed: int, leaves: int, servers: int) -> None:
    made = random_instance(seed, 30, 60)
    asked = Problem(made, backend(made), DEFAULT, PlanOptions((servers,)))
    placement = random_parts(made, seed, leaves)
    before, after = server_of_leaf(leaves, servers), server_of_leaf(leaves, servers - 1)
    lost = int(
        clients_of_servers(made, asked.backend, server_of_endpoint(placement, leaves, servers), servers).argmax()
    )
    coming = np.zeros(servers - 1)
    for pins, weight in sets_of(made):
        cold = [placement[pin] for pin in pins if placement[pin] >= 0]
        for each in {int(after[leaf]) for leaf in cold}:
            old = each if each < lost else each + 1
            coming[each] += (old not in before[cold]) * weight / SECONDS
    took = storm_s(asked, placement, leaves, servers) - (RUNS[Configuration.Z_CLIENT].loss_s or 0.0)
    only_hot = sum(weight for pins, weight in sets_of(made) if all(placement[pin] < 0 for pin in pins)) / SECONDS
    assert -1e-9 <= took * 1e6 / DEFAULT.connect_us - coming.max() <= only_hot + 1e-9
