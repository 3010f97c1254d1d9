from typing import Any

import pytest

from deploy.admin.findings import Finding, findings, verdict
from deploy.admin.health import HealthLevel
from deploy.clients.metadata import PlanStatus
from tests.unit.deploy.admin.statuses import (
    change,
    composites,
    data,
    dead,
    process,
    replace,
    server,
    situation,
    status,
    z_client,
)


def found(of: dict[str, Any], *plans: PlanStatus, **refusals: dict[str, int]) -> list[Finding]:
    return findings(situation(of, *plans, **refusals))


def kinds(of: dict[str, Any]) -> list[str]:
    return [each.kind for each in found(of)]


@pytest.mark.parametrize(
    "of",
    [status("single", data(), server("websocket-1", 3)), z_client(), composites(2)],
    ids=["single", "z-client", "xz"],
)
def test_a_system_without_faults_is_well(of: dict[str, Any]) -> None:
    assert verdict(situation(of)) == ("well", "All well", [])


def test_start_is_no_fault() -> None:
    of = {**status("single", data(), process("websocket-1", None, uptime_seconds=1.0)), "up": False}
    assert verdict(situation(of))[:2] == ("starting", "Starting")
    assert found(of) == []


def test_killed_process_has_cause_time_and_log() -> None:
    (only,) = found(replace(z_client(), dead("websocket-1")))
    assert only[:4] == (HealthLevel.CRITICAL, "down", ("websocket-1",), "websocket-1 is down")
    assert only.detail == "It died (killed by SIGKILL) and is restarted by itself; 1 restart so far."
    assert only.action.endswith("read /state/logs/websocket-1.log.")
    assert only.since == "2026-01-02T03:04:00.000Z"


def test_process_that_comes_back_is_starting_and_says_why() -> None:
    of = change(z_client(), "websocket-1", uptime_seconds=2.0, last_exit=-9, restarts=1, report=None)
    (only,) = found(of)
    assert (only.level, only.kind) == (HealthLevel.WARNING, "starting")
    assert "after it died (killed by SIGKILL)" in only.detail


def test_process_with_a_wrong_configuration_needs_a_person() -> None:
    of = replace(z_client(), process("data", None, state="failed", last_exit=2, last_exit_seconds=9.0))
    first = found(of)[0]
    assert (first.kind, first.title) == ("failed", "data is not restarted")
    assert "exit 2" in first.detail
    assert "data.log" in first.action


def test_silent_process_can_be_restarted_by_hand() -> None:
    (only,) = found(replace(z_client(), process("bridge-1", None, pid=4711)))
    assert only.kind == "no_answer"
    assert "`kill 4711`" in only.action


def test_stale_server_has_its_silence_and_when_it_began() -> None:
    of = change(
        z_client(), "websocket-2", report={"live": False, "lag_seconds": 14.2, "since": "2026-01-02T03:03:51.000Z"}
    )
    (only,) = found(of)
    assert only.title == "websocket-2 is stale"
    assert only.detail.startswith("No heartbeat of its feed for 14 s. Its clients")
    assert only.since == "2026-01-02T03:03:51.000Z"


def test_bridge_without_its_server_is_no_finding_of_its_own() -> None:
    of = change(z_client(), "bridge-1", report={"live": False, "reader": False})
    assert kinds(of) == ["no_reader"]
    assert kinds(replace(of, dead("websocket-1"))) == ["down"]


def test_many_effects_of_one_cause_are_one_finding_after_the_cause() -> None:
    servers = [
        server(f"websocket-{n}", 5, live=False, lag_seconds=20, since=f"2026-01-02T03:00:0{n}Z") for n in range(1, 7)
    ]
    cause, effects = found(status("x-broadcast", *servers, dead("data")))
    assert cause.title == "data is down"
    assert effects.title == "6 servers are stale"
    assert effects.processes == tuple(f"websocket-{n}" for n in range(1, 7))
    assert effects.detail.startswith("websocket-1, websocket-2, websocket-3, websocket-4 and 2 more. ")
    assert effects.since == "2026-01-02T03:00:01Z"
    assert verdict(situation(status("x-broadcast", *servers, dead("data")))).headline == "data is down, and 1 more"


def test_children_of_composites_are_judged_themselves() -> None:
    of = composites(2)
    of["processes"][3]["report"]["children"][3]["report"]["live"] = False
    (only,) = found(of)
    assert only.processes == ("composite-1/websocket-1",)
    # Its lines are in the log of the composite.
    bridge = of["processes"][4]["report"]["children"][1]
    bridge.update(state="failed", last_exit=2, report=None)
    assert "/state/logs/composite-2.log" in found(of)[0].action


@pytest.mark.parametrize(
    ("name", "report", "kind", "text"),
    [
        ("data", {"ready": False, "failure": "no space left"}, "store", "no space left"),
        ("data", {"publisher": {"failure": "no broker", "lag": 1234}}, "publisher", "1,234 so far"),
        ("data", {"publisher": {"failure": None, "lag": 5000}}, "publisher_lag", "late"),
        (
            "data",
            {"publisher": {"failure": None, "warnings": ["without their data"]}},
            "publisher_settings",
            "without their data",
        ),
        ("bridge-1", {"lag": 20_000}, "bridge_lag", "late"),
        ("bridge-1", {"live": False}, "stale_bridge", "stalls"),
        ("metadata", {"live": False, "kafka_silence_seconds": 12.0}, "stale_metadata", "For 12.0 s"),
        ("metadata", {"failure": "no map"}, "metadata", "no map"),
        (
            "metadata",
            {"partitions": 12, "clones": {"1": {"state": "stable", "members": ["b1"], "owned": 9}}},
            "partitions",
            "no client gets updates",
        ),
        ("metadata", {"clones": {"1": {"state": "rebalancing", "members": [], "owned": 0}}}, "rebalance", "assigned"),
        (
            "data",
            {"sources": [{"name": "load", "ok": False, "error": "no such directory", "last_success": None}]},
            "source",
            "no such directory",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_reports_become_findings(name: str, report: dict[str, Any], kind: str, text: str) -> None:
    (only,) = found(change(z_client(), name, report=report))
    assert only.kind == kind
    assert text in only.detail
    assert only.action


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        ({"servers_refused": ["ws://10.0.0.9:9101/ws"]}, "servers_refused"),
        ({"metadata": False}, "no_metadata"),
        ({"stale": 3}, "stale_endpoints"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_proxy_reports(report: dict[str, Any], kind: str) -> None:
    of = status("z-proxy", process("proxy-1", {"clients": 1, "metadata": True, **report}))
    assert kinds(of) == [kind]


def test_last_success_of_a_source_is_not_taken_for_the_begin_of_its_fault() -> None:
    source = {"name": "load", "ok": False, "error": "b.csv: no header", "last_success": "2026-01-02T03:04:04.000Z"}
    (only,) = found(change(z_client(), "data", report={"sources": [source]}))
    assert only.since is None


def test_restarts_are_a_finding_while_they_are_recent() -> None:
    often = {"restarts": 3, "last_exit": 1}
    assert kinds(change(z_client(), "bridge-1", **often, last_exit_seconds=30.0)) == ["restarts"]
    assert kinds(change(z_client(), "bridge-1", **often, last_exit_seconds=3000.0)) == []
    assert kinds(change(z_client(), "bridge-1", restarts=2, last_exit=1, last_exit_seconds=30.0)) == []


def test_refusals_of_the_last_minute_have_their_causes() -> None:
    (only,) = found(z_client(), websocket_1={"origin": 12, "address_limit": 3})
    assert only.kind == "refused"
    assert only.detail == "In the last minute: 12 origin, 3 address limit."


def test_plan_is_a_finding_only_when_it_waits_for_long() -> None:
    moving = PlanStatus("p-1", "moving", moves=3, waiting_for="clients to go over", since="2026-01-02T03:03:00.000Z")
    assert found(z_client(), moving) == []
    (only,) = found(z_client(), moving._replace(since="2026-01-02T02:30:00.000Z"))
    assert only.kind == "plan_waits"
    assert "`diem rollback p-1`" in only.action


def test_worst_findings_come_first_and_upstream_before_downstream() -> None:
    of = change(replace(z_client(), dead("websocket-1"), dead("kafka-1")), "bridge-2", report={"lag": 50_000})
    assert [(each.level, each.processes) for each in found(of)] == [
        (HealthLevel.CRITICAL, ("kafka-1", "websocket-1")),
        (HealthLevel.WARNING, ("bridge-2",)),
    ]
