"""Resources of servers: what a placement takes of each, and limits that one would exceed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from learning.costs import DEFAULT, ROLES, SERVER_LIMITS, Costs
from learning.modes.configuration import Configuration
from learning.modes.measured import RUNS
from learning.placement.capacity import overfull, relieve, report, storm_s, usage
from learning.placement.objective import clients_of_servers, server_of_endpoint, server_of_leaf
from learning.placement.options import PlanOptions, Problem, search_views
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
    views = search_views(limited, limited.load(ON_ONE < 0), ON_ONE < 0, 2, ON_ONE)
    found = relieve(limited, ON_ONE, 2, views, [2])
    assert found is not None
    assert usage(limited, found, 2, 2)[row].max() <= most < before
    assert limited.balance(found, 2) <= 1.2 + 1e-6
    assert (overfull(limited, ON_ONE, 2)[0], overfull(limited, found, 2)[0]) == (1, 0)


def test_there_is_no_such_placement_for_more_clients_than_all_servers_accept() -> None:
    limited = problem(clients=150)
    views = search_views(limited, limited.load(ON_ONE < 0), ON_ONE < 0, 2, ON_ONE)
    assert relieve(limited, ON_ONE, 2, views, [2]) is None


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
