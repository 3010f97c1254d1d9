"""The result of a load test claims what was checked, and no more."""

import errno
import json
import os
from dataclasses import replace

import pytest

from diem.client import Event
from diem.protocol.page_config import Edges
from tools.load import report
from tools.load.client import LoadClient, Received
from tools.load.completeness import Completeness, Difference
from tools.load.run import LoadOptions, LoadRun

EDGES = Edges(["ws://127.0.0.1:1/ws"], [])


def outcome(subscribed: int = 2, completeness: Completeness | None = None, base: str = "http://127.0.0.1:1") -> LoadRun:
    """Return the outcome of two clients, of which some are subscribed, and of two delayed updates."""
    received = Received()
    clients = [LoadClient(number, ["/a"], {}, received) for number in (1, 2)]
    for client in clients[:subscribed]:
        client.apply(Event("subscribed", "/a", 1), 1.0)
    received.measure()
    for client in clients[:subscribed]:
        client.apply(Event("update", "/a", 1000), 1.004)
    return LoadRun(
        base,
        LoadOptions(clients=2),
        EDGES,
        1,
        received,
        clients,
        measured_s=2.0,
        received_bytes=2_000_000,
        completeness=completeness,
    )


def text(made: LoadRun) -> str:
    return "\n".join(report.lines(made.result()))


def test_a_test_that_passed_says_what_was_checked() -> None:
    made = outcome(completeness=Completeness(checked=2))
    assert made.result().passed
    shown = text(made)
    assert "2 clients with 1 of 1 endpoint each, at http://127.0.0.1:1, through 1 URL" in shown
    assert "all connected and subscribed" in shown
    assert "2 received in 2.0 s, 1.0/s; 2 MB of messages, 1 MB/s" in shown
    assert "p50 4.0 ms, p90 4.0 ms, p99 4.0 ms, max 4.0 ms" in shown
    assert "nothing: 2 subscriptions checked" in shown
    assert "clocks of both machines" not in shown
    assert list(report.warnings(made.result())) == []


def test_what_was_missed_is_counted_with_examples() -> None:
    found = Completeness(checked=2, missed=1, unconnected=1, removed=3, examples=[Difference(1, "/a", None, 7)])
    made = outcome(completeness=found)
    assert not made.result().passed
    shown = text(made)
    assert (
        "1 of 2 subscriptions are behind the catalogue after 30 s, 1 of them of clients without a connection" in shown
    )
    assert "3 not checked, no longer in the catalogue" in shown
    assert "client 1: /a is at version 7, it has nothing" in shown


def test_clients_that_never_subscribed_are_no_success() -> None:
    made = outcome(subscribed=1, completeness=Completeness(checked=1, unsubscribed=1))
    assert not made.result().passed
    shown = text(made)
    assert "1 connected and subscribed, 1 never" in shown
    assert "1 not checked, never subscribed" in shown


@pytest.mark.parametrize(
    ("interrupted", "problems", "why"),
    [(True, [], "interrupted"), (False, [], "no client subscribed"), (False, ["it is gone"], "it is gone")],
)
def test_without_a_comparison_nothing_is_claimed(interrupted: bool, problems: list[str], why: str) -> None:
    made = replace(outcome(), interrupted=interrupted, problems=problems)
    assert not made.result().passed
    assert f"not checked: {why}" in text(made)
    assert made.result().as_json()["missed"] is None


def test_endpoints_that_remain_are_no_reason_why_nothing_was_checked() -> None:
    made = replace(outcome(subscribed=0), problems=["2 of 3 endpoints were not deleted"])
    assert "not checked: no client subscribed" in text(made)
    assert "problem       2 of 3 endpoints were not deleted" in text(made)


def test_nothing_checked_is_no_success() -> None:
    assert not outcome(completeness=Completeness(removed=2)).result().passed


def test_the_limit_of_clients_of_an_address_is_explained() -> None:
    made = outcome(subscribed=1)
    made.clients[1].apply(Event("closed", message="HTTP 429: too many clients"), 1.0)
    shown = text(made)
    assert "refused       1 times: HTTP 429: too many clients (1)" in shown
    assert "--clients-per-address" in shown


def test_the_tool_warns_when_it_is_the_bottleneck_itself() -> None:
    for busy in (replace(outcome(), cpu_share=0.93), replace(outcome(), loop_lag_s=0.4)):
        (warning,) = report.warnings(busy.result())
        assert "this tool was the bottleneck" in warning


def test_clocks_that_differ_make_delays_doubtful() -> None:
    ahead, behind = (replace(outcome(), clock_difference_s=difference_s) for difference_s in (2.5, -2.5))
    assert "at least 2.5 s ahead of this one" in next(report.warnings(ahead.result()))
    assert "at least 2.5 s behind this one" in next(report.warnings(behind.result()))
    early = outcome()
    early.received.delays.add(-3.0)
    assert "1 update arrived before" in next(report.warnings(early.result()))
    assert "the clocks of both machines must agree" in text(outcome(base="https://there.example"))


def test_json_is_json_and_has_the_same_figures() -> None:
    made = outcome(completeness=Completeness(checked=2))
    found = json.loads(json.dumps(made.result().as_json(), allow_nan=False))
    assert found["passed"] is True
    assert (found["clients"], found["subscribed"]) == (2, 2)
    assert (found["delay_ms"]["count"], found["delay_ms"]["p99"]) == (2, 4.0)
    assert found["missed"]["checked"] == 2
    assert found["bottleneck"] is False


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("limit: over 4 subscriptions", "limit: fewer --subscriptions, or more for each client (DIEM_WEBSOCKET_SUB"),
        ("forbidden: not covered by the token", "forbidden: name endpoints that the key or token covers (--endpoints)"),
        ("bad_name: not an endpoint name", ""),
    ],
)
def test_rejected_subscriptions_are_a_fault_with_reason_and_remedy(reason: str, remedy: str) -> None:
    made = outcome(completeness=Completeness(checked=2))
    made.clients[0].apply(Event("rejected", "/b", message=reason), 1.0)
    assert not made.result().passed
    shown = text(made)
    assert f"rejected      1 times: {reason} (1)" in shown
    assert remedy in shown


def test_versions_that_the_catalogue_does_not_have_are_a_fault_with_examples() -> None:
    made = outcome(completeness=Completeness(checked=2, ahead=[Difference(1, "/a", 9, 7)]))
    assert not made.result().passed
    assert "1 have a version that the catalogue does not have" in text(made)
    assert "client 1: /a is at version 7, it has version 9" in text(made)
    assert made.result().as_json()["missed"]["ahead"] == [{"client": 1, "endpoint": "/a", "version": 9, "current": 7}]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EADDRNOTAVAIL, "connect --from several addresses"), (errno.EMFILE, "ulimit -n"), (None, "--rate")],
)
def test_causes_on_this_machine_are_named_with_their_remedies(number: int | None, remedy: str) -> None:
    made = outcome(subscribed=1)
    message = "timed out" if number is None else os.strerror(number).lower()
    made.clients[1].apply(Event("closed", message=message), 1.0)
    shown = text(made)
    assert f"refused       1 times: {message} (1)" in shown
    assert remedy in shown
