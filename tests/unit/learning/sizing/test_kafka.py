"""Equations 1 to 11 against what the thesis prints, and their limits."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from learning.sizing import kafka
from learning.sizing.kafka import METADATA_S, Side, exact
from tests.unit.learning.sizing import printed


def test_every_printed_entry_of_the_thesis_is_reproduced() -> None:
    assert len(printed.ENTRIES) == 22
    assert [(entry, printed.compute(entry)) for entry in printed.ENTRIES] == [
        (entry, entry.printed) for entry in printed.ENTRIES
    ]


def test_windows_in_the_text_of_the_thesis_are_reproduced() -> None:
    # 50 topics of 50 partitions on 5 servers; 15 s needs r = 3, which the text does not list.
    assert kafka.unavailability_s(2500, 5, 3, kafka.THESIS_ELECTION_S, 0) == Fraction("2.5")
    assert kafka.unavailability_s(2500, 5, 3, 0, METADATA_S) == 15


def test_a_server_needs_its_share_of_storage_and_network() -> None:
    assert kafka.storage_per_server(200, 6, 3).limit == 100
    assert kafka.network_per_server(180, 6, 3, 2).limit == 150


def test_partitions_have_lower_bounds_by_servers_and_consumers() -> None:
    assert kafka.partitions_by_servers(5).whole == 5
    bound = kafka.partitions_by_consumers(100, 30)
    assert (bound.side, bound.whole, bound.limit) == (Side.AT_LEAST, 4, Fraction(10, 3))
    assert (bound.holds(4), bound.holds(3)) == (True, False)


def test_multiples_of_the_servers_share_replicas_too_and_not_the_reverse() -> None:
    assert all(kafka.shares_replicas(p, r, n) for p in (12, 24) for r in (1, 3) for n in (1, 2, 3, 4, 6, 12))
    # Equation 8 is not necessary: with r = 3, 9 servers hold equally many replicas of 24 partitions.
    assert kafka.shares_replicas(24, 3, 9)
    assert not kafka.shares_partitions(24, 9)


@pytest.mark.parametrize(("servers", "replicas"), [(1, 1), (5, 1), (1, 3)])
def test_what_is_not_replicated_has_no_bound_by_latency(servers: int, replicas: int) -> None:
    bound = kafka.partitions_by_latency(0.001, servers, replicas)
    assert (bound.limit, bound.whole, bound.holds(10**9)) == (None, None, True)
    assert kafka.replication_delay_s(1000, servers, replicas, kafka.REPLICATION_S) == 0


def test_controllers_differ_by_the_factor_of_their_metadata() -> None:
    thesis = {"election_s": kafka.THESIS_ELECTION_S, "session_timeout_s": 0}
    quorum = kafka.partitions_by_unavailability(10, 5, 3, **thesis)
    traditional = kafka.partitions_by_unavailability(10, 5, 3, metadata_s=METADATA_S, **thesis)
    assert quorum.limit is not None
    assert traditional.limit is not None
    # "Almost an order of magnitude" in the thesis: exactly 7.
    assert quorum.limit / traditional.limit == 7
    assert kafka.partitions_by_unavailability(10, 5, 3, election_s=0).limit is None


def test_every_segment_of_a_replica_has_three_files() -> None:
    assert kafka.open_files(100, 5, 3, 2) == 360
    assert kafka.partitions_by_open_files(360, 5, 3, 2).whole == 100


def test_decimals_are_exact_so_that_a_limit_is_not_rounded_below_itself() -> None:
    # 0.1 + 0.2 in floats would be above 0.3.
    assert exact(0.1) + exact(0.2) == exact(0.3)
    # In floats 2.9 / 0.1 is 28.999...: one partition fewer.
    assert int(2.9 / 0.1) == 28
    assert kafka.partitions_by_unavailability(2.9, 1, 1, election_s=0.1, session_timeout_s=0).whole == 29


def test_detection_of_a_loss_comes_before_its_elections() -> None:
    # 1.07 x 9 s, then 2.5 ms for each partition led: none at all in 2 s or in 9.63 s, 148 of each broker in 10 s.
    assert float(kafka.detection_s(kafka.SESSION_TIMEOUT_S)) == 9.63
    assert [kafka.partitions_by_unavailability(u, 3, 3).whole for u in (2, 9.63, 10)] == [0, 0, 444]
    # With a session timeout of 1.5 s, 1.605 s.
    assert kafka.partitions_by_unavailability(2, 3, 3, session_timeout_s=1.5).whole == 474


def test_constants_are_those_that_were_measured() -> None:
    report = json.loads((Path(__file__).parents[4] / "docs/benchmarks/2026-11-24/sizing.json").read_text())["verdicts"]
    measured = (
        (report["10"], "(r - 1) p / (n (n - 1))", kafka.REPLICATION_S),
        (report["10, idle"], "(r - 1) p / (n (n - 1))", kafka.IDLE_REPLICATION_S),
        (report["11"], "p / n", kafka.ELECTION_S),
        (report["11"], "session timeout", kafka.DETECTION_TIMEOUTS),
    )
    for verdict, term, constant in measured:
        assert verdict["estimates"][term]["value"] == pytest.approx(constant, rel=0.1), term
