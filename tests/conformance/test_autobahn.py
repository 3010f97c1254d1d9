"""The Autobahn test suite against the production connection (``make conformance``); the judge is tested without it."""

import os
from dataclasses import replace

import pytest

from tests.conformance import autobahn
from tests.conformance.autobahn import CASES, WSTEST, Outcome, allowed, faults
from tests.conformance.echo import echo_server

GOOD = {"1.1.1": Outcome("OK", "OK"), "3.2": Outcome("NON-STRICT", "OK"), "7.13.1": Outcome(*["INFORMATIONAL"] * 2)}
BAD = Outcome("FAILED", "WRONG CODE")


@pytest.mark.skipif(
    "DIEM_CONFORMANCE" not in os.environ, reason="to install it and run it takes minutes: make conformance"
)
def test_every_case_conforms_or_is_a_known_exception() -> None:
    assert WSTEST.exists(), "the Autobahn test suite is not installed (deploy/install/autobahn.sh)"
    with echo_server() as url:
        found = autobahn.run(url)
    assert len(found) == CASES
    assert faults(found, allowed()) == []


def test_accepted_outcomes_are_no_faults() -> None:
    assert faults(GOOD, {}) == []


@pytest.mark.parametrize("outcome", [BAD, Outcome("OK", "FAILED BY CLIENT"), Outcome("UNIMPLEMENTED", "OK")])
def test_any_other_outcome_is_a_fault_unless_it_is_the_allowed_one(outcome: Outcome) -> None:
    found = {**GOOD, "5.1": outcome}
    assert len(faults(found, {})) == 1
    assert len(faults(found, {"5.2": outcome})) == 2
    assert len(faults(found, {"5.1": replace(outcome, behavior="UNCLEAN")})) == 1
    assert faults(found, {"5.1": outcome}) == []


def test_an_exception_that_is_no_longer_needed_is_a_fault() -> None:
    assert len(faults(GOOD, {"1.1.1": BAD})) == 1


def test_an_exception_without_a_reason_does_not_count() -> None:
    assert set(allowed()) == {"7.1.5"}
