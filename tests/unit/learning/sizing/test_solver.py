"""The solver: what binds, and by how much an infeasible workload misses."""

from dataclasses import replace

import pytest

from learning.sizing.kafka import THESIS_ELECTION_S, THESIS_REPLICATION_S
from learning.sizing.solver import DETECTION, Workload, fewest_servers, solve

MB = 10**6
WORKLOAD = Workload(
    throughput=100 * MB,
    consumer=20 * MB,
    consumers=4,
    groups=2,
    unavailability_s=10.0,
    election_s=THESIS_ELECTION_S,
    session_timeout_s=0,
    replication_s=THESIS_REPLICATION_S,
    idle_replication_s=THESIS_REPLICATION_S,
)
"""With the constants of the thesis."""


def names(workload: Workload, servers: int) -> tuple[str, str]:
    found = solve(workload, servers)
    return found.lower[0].name, found.upper[0].name


def test_the_strictest_bound_of_each_side_is_named() -> None:
    assert names(WORKLOAD, 3) == ("consumer throughput", "unavailability")
    assert names(WORKLOAD, 12) == ("servers", "unavailability")
    assert names(replace(WORKLOAD, consumers=7), 3) == ("planned consumers", "unavailability")
    # Equation 10 binds before equation 11 only below L = 40 ms, with U = 10 s and n = r = 3.
    assert names(replace(WORKLOAD, latency_s=0.039), 3) == ("consumer throughput", "replication latency")
    assert names(replace(WORKLOAD, latency_s=0.041), 3) == ("consumer throughput", "unavailability")
    assert names(replace(WORKLOAD, open_files=1000), 3) == ("consumer throughput", "open files")


def test_solution_has_the_range_of_partitions() -> None:
    found = solve(WORKLOAD, 3)
    assert (found.feasible, found.fewest, found.most) == (True, 5, 6000)
    assert [float(need.limit or 0) / MB for need in found.needs] == pytest.approx([100, 500 / 3])
    free = solve(replace(WORKLOAD, latency_s=None, unavailability_s=None), 3)
    assert (free.upper, free.most) == ((), None)


def test_other_topics_use_up_the_bounds() -> None:
    assert solve(replace(WORKLOAD, other_partitions=5000), 3).most == 1000
    crowded = solve(replace(WORKLOAD, other_partitions=7000), 3)
    assert (crowded.feasible, crowded.most, crowded.excesses[0].factor) == (False, 0, float("inf"))


def test_an_infeasible_workload_misses_by_a_factor() -> None:
    slow = solve(replace(WORKLOAD, storage=50 * MB, network=100 * MB, consumer=MB, unavailability_s=0.01), 3)
    found = {each.name: (each.factor, each.source) for each in slow.excesses}
    assert found == {
        "consumer throughput against unavailability": (pytest.approx(100 / 6), "thesis eq. 9 against eq. 11"),
        "storage": (2, "thesis eq. 4"),
        "network": (pytest.approx(5 / 3), "thesis eq. 5"),
    }
    assert [each.factor for each in slow.excesses] == sorted((each.factor for each in slow.excesses), reverse=True)
    assert solve(WORKLOAD, 2).excesses[0].name == "replicas"


def test_fewest_servers_are_the_first_that_fit() -> None:
    assert fewest_servers(WORKLOAD).servers == 3
    assert fewest_servers(replace(WORKLOAD, storage=50 * MB)).servers == 6
    assert fewest_servers(replace(WORKLOAD, network=100 * MB)).servers == 5
    # 300 partitions for the consumers: elections allow 20 n.
    strict = replace(WORKLOAD, consumers=300, unavailability_s=0.1)
    found = fewest_servers(strict)
    assert (found.servers, found.feasible) == (15, True)
    assert not solve(strict, 14).feasible
    impossible = fewest_servers(replace(WORKLOAD, consumers=300, unavailability_s=0.1), most=10)
    assert (impossible.servers, impossible.feasible) == (10, False)
    assert impossible.excesses[0].factor == pytest.approx(1.5)


def test_a_loss_that_is_detected_too_late_is_so_on_any_number_of_servers() -> None:
    slow = replace(WORKLOAD, session_timeout_s=9, unavailability_s=2)
    found = fewest_servers(slow)
    assert (found.servers, found.feasible, found.most) == (3, False, 15_000)
    (late,) = found.excesses
    assert (late.name, late.required, late.allowed) == (DETECTION, 9.63, 2)
    assert late.factor == pytest.approx(9.63 / 2)
    # What else does not fit is still found, and needs more servers.
    assert fewest_servers(replace(slow, storage=50 * MB)).servers == 6
    assert fewest_servers(replace(slow, session_timeout_s=1.5)).feasible
