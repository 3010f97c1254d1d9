from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deploy.terminal import plain_console
from tools.commands.status import ago, fault_lines, page_lines, status_tables


def process(name: str, **differences: Any) -> dict[str, Any]:
    known = {"state": "running", "pid": 7, "uptime_seconds": 3725.4, "restarts": 1, "report": None}
    return {"name": name, **known, **differences}


def shown(capsys: pytest.CaptureFixture[str], *processes: dict[str, Any]) -> list[list[str]]:
    console = plain_console()
    for table in status_tables({"processes": processes}):
        console.print(table)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("report", "lag"),
    [
        ({"lag": 17}, "17"),
        ({"lag": None}, "-"),
        ({"publisher": {"state": "publishing", "lag": 3}}, "3"),
        ({"publisher": None}, "-"),
        ({"lag_seconds": 0.0, "lag": 9}, "0.0s"),
    ],
)
def test_status_shows_the_lag_of_a_process(
    capsys: pytest.CaptureFixture[str], report: dict[str, Any], lag: str
) -> None:
    _, row = shown(capsys, process("bridge-1", report={"ready": True, **report}))
    assert row[-1] == lag


def test_status_has_a_line_for_each_fault_that_a_process_reports() -> None:
    publisher = {"failure": "topic diem.updates refuses records", "warnings": ["max.message.bytes is 1000"]}
    processes = [process("data", report={"failure": None, "publisher": publisher}), process("bridge-1")]
    assert [str(line) for line in fault_lines({"processes": processes})] == [
        "data: topic diem.updates refuses records",
        "data: max.message.bytes is 1000",
    ]


def test_status_has_the_reason_of_a_process_that_is_not_ready_once() -> None:
    reasons: dict[str, dict[str, Any]] = {
        "bridge-1": {"ready": False, "why_not_ready": "there is no topic nosuch"},
        "data": {"ready": False, "why_not_ready": "the disk is full", "failure": "the disk is full"},
        "websocket-1": {"ready": True, "why_not_ready": None},
    }
    processes = [process(name, report=report) for name, report in reasons.items()]
    assert [str(line) for line in fault_lines({"processes": processes})] == [
        "bridge-1: there is no topic nosuch",
        "data: the disk is full",
    ]


def test_status_names_a_clock_that_is_off() -> None:
    differences = {"data": 5400.2, "websocket-1": -95.0, "websocket-2": 0.4, "nginx": None}
    processes = [process(name, report={"clock_difference": off}) for name, off in differences.items()]
    lines = [str(line) for line in fault_lines({"processes": processes})]
    assert [line.partition(":")[0] for line in lines] == ["data", "websocket-1"]
    assert "its clock is 5,400 s ahead of this machine's" in lines[0]
    assert "its clock is 95 s behind this machine's" in lines[1]


def test_status_shows_the_report_of_each_process(capsys: pytest.CaptureFixture[str]) -> None:
    report = {
        "ready": True,
        "live": False,
        "clients": 3,
        "subscriptions": 30,
        "position": 42,
        "lag_seconds": 0.04,
    }
    heading, row = shown(capsys, process("websocket-1", report=report))
    assert heading[:4] == ["process", "state", "pid", "uptime"]
    assert row == ["websocket-1", "ready", "7", "1h02m", "1", "3", "30", "no", "42", "0.0s"]


def test_status_has_a_column_for_refused_clients_once_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"origin": 3, "limit": 40}
    reports = [{"ready": True, "clients": 7, "refused": refused} for refused in (counts, {})]
    servers = [process(f"websocket-{number}", report=report) for number, report in enumerate(reports, start=1)]
    heading, first, second, data = shown(capsys, *servers, process("data", report={"ready": True}))
    column = heading.index("refused")
    assert [row[column] for row in (first, second)] == ["43", "0"]
    assert data[column] == "-"
    assert "refused" not in shown(capsys, servers[1])[0]


@pytest.mark.parametrize(
    ("differences", "state"),
    [
        ({"report": {"ready": False}}, ["not", "ready"]),
        ({"report": None}, ["no", "answer"]),
        ({"state": "waiting", "pid": None}, ["waiting"]),
        ({"state": "failed", "pid": None}, ["failed"]),
    ],
)
def test_status_shows_the_state_of_a_process(
    capsys: pytest.CaptureFixture[str], differences: dict[str, Any], state: list[str]
) -> None:
    _, row = shown(capsys, process("data", **differences))
    assert row[1 : 1 + len(state)] == state


def test_status_shows_the_health_of_sources(capsys: pytest.CaptureFixture[str]) -> None:
    sources = [
        {"name": "market", "ok": True, "error": None, "last_success": "12:00", "failures": 0},
        {"name": "[x]", "ok": False, "error": "no route", "last_success": None, "failures": 4},
    ]
    *_, market, other = shown(capsys, process("data", report={"ready": True, "sequence": 9, "sources": sources}))
    assert market == ["market", "ok", "12:00", "0"]
    assert other == ["[x]", "failing", "-", "4", "no", "route"]


def test_status_shows_when_a_failing_source_tries_again(capsys: pytest.CaptureFixture[str]) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    failing = {"name": "load", "type": "directory", "ok": False, "error": "no such directory: /l", "failures": 4}
    sources = [{**failing, "last_success": None, "endpoints": 0, "next_attempt": later.isoformat()}]
    *_, row = shown(capsys, process("data", report={"ready": True, "sources": sources}))
    assert " ".join(row).endswith(" no such directory: /l; next try in 60 min")


def test_status_shows_the_progress_of_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    source = {"name": "a", "ok": True, "error": None, "last_success": None, "failures": 0, "progress": "3 of 9 days"}
    *_, row = shown(capsys, process("data", report={"ready": True, "sources": [source]}))
    assert " ".join(row).endswith(" 3 of 9 days")


def test_status_shows_what_a_source_has_refused(capsys: pytest.CaptureFixture[str]) -> None:
    working = {"name": "shop", "type": "webhook", "ok": True, "error": None, "last_success": None, "failures": 0}
    refusal = {"refused": 2, "last_refusal": "delivery 17: {data/id} is missing"}
    *_, row = shown(capsys, process("data", report={"ready": True, "sources": [working | refusal]}))
    assert " ".join(row) == "shop webhook ok - 0 2 refused, the last: delivery 17: {data/id} is missing"


def test_status_shows_what_a_source_of_records_has_read(capsys: pytest.CaptureFixture[str]) -> None:
    read = {"records": 1, "lag": 0, "refused": 2, "lost": 0, "last_refusal": "a/0, offset 7: x"}
    source = {"name": "orders", "ok": True, "error": None, "last_success": None, "failures": 0, **read}
    out = " ".join(word for row in shown(capsys, process("data", report={"sources": [source]})) for word in row)
    assert "1 record; lag 0; 2 refused, the last: a/0, offset 7: x" in out


@pytest.mark.parametrize(("minutes", "is_shown"), [(0, True), (59, True), (61, False)])
def test_status_shows_unverified_deliveries_for_an_hour(
    capsys: pytest.CaptureFixture[str], minutes: int, is_shown: bool
) -> None:
    at = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    working = {"name": "shop", "type": "webhook", "ok": True, "error": None, "last_success": None, "failures": 0}
    found = {"unverified": 3, "last_unverified": "of another secret", "last_unverified_at": at}
    *_, row = shown(capsys, process("data", report={"ready": True, "sources": [working | found]}))
    note = " ".join(row).removeprefix("shop webhook ok - 0")
    assert note.startswith(" 3 unverified deliveries, the last ") == is_shown
    assert note.endswith("s ago: of another secret") == is_shown


def test_status_shows_type_last_success_and_endpoints_of_a_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sources = [
        {"name": "a", "type": "http", "ok": True, "error": None, "last_success": None, "failures": 0, "endpoints": 12},
        {
            "name": "b",
            "type": "directory",
            "ok": False,
            "error": None,
            "last_success": None,
            "failures": 0,
            "endpoints": 0,
        },
    ]
    *_, first, second = shown(capsys, process("data", report={"ready": True, "sources": sources}))
    assert first == ["a", "http", "ok", "-", "12", "0"]
    assert second == ["b", "directory", "starting", "-", "0", "0"]


def test_the_age_of_the_last_success_is_shown() -> None:
    assert ago("2026-01-01T00:00:00.000Z", 1_767_225_600 + 65.4) == "1m05s ago"
    assert ago("2026-01-01T00:00:00.000Z", 1_767_225_600 - 2) == "0s ago"
    assert ago(None, 0) == "-"


def test_status_of_a_busy_system_fits_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    report = {
        "ready": False,
        "live": True,
        "clients": 10_000,
        "subscriptions": 100_000,
        "position": 12_345_678,
        "lag_seconds": 12.34,
    }
    console = plain_console()
    console.width = 80
    console.print(*status_tables({"processes": [process("websocket-12", pid=123_456, report=report)]}, 80))
    out = capsys.readouterr().out
    assert "…" not in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "12345678" in out


@pytest.mark.parametrize(("seconds", "shown_as"), [(5.9, "5s"), (65, "1m05s"), (3725, "1h02m"), (86_400 * 30, "30d")])
def test_uptime_is_short(capsys: pytest.CaptureFixture[str], seconds: float, shown_as: str) -> None:
    _, row = shown(capsys, process("data", uptime_seconds=seconds, report={"ready": True}))
    assert row[3] == shown_as


def test_status_of_a_partitioned_mode_shows_owned_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    clones = {
        "1": {"state": "stable", "members": ["b001", "b002"]},
        "2": {"state": "rebalancing", "members": ["b001"]},
    }
    member = {"clone": 1, "group": "diem.z-1", "generation": 4}
    processes = [
        process("metadata", report={"ready": True, "epoch": 3, "partitions": 12, "clones": clones}),
        process("websocket-1", report={"ready": True, "epoch": 3, "partitions": [-1, 0, 1, 2, 5]}),
        process("bridge-1", report={"ready": True, "partitions": 12, "assigned": [0, 1], **member, "joined": True}),
        process("bridge-2", report={"ready": True, "partitions": 12, "assigned": None, **member, "joined": False}),
        process("websocket-2", report={"ready": True, "epoch": None, "partitions": []}),
        process("proxy-1", report={"ready": True, "upstreams": 2}),
        process("data", report={"ready": True}),
        process("websocket-3", pid=None),
    ]
    console = plain_console()
    _, parts = status_tables({"mode": "z-proxy", "processes": processes})
    console.print(parts)
    heading, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["process", "partitions", "epoch", "upstreams", "groups"]
    assert rows == [
        ["metadata", "12", "3", "-", "1:", "stable,", "2", "servers,", "2:", "rebalancing,", "1", "server"],
        ["websocket-1", "0-2,5,hot", "3", "-", "-"],
        ["bridge-1", "0-1", "-", "-", "diem.z-1,", "generation", "4"],
        ["bridge-2", "-", "-", "-", "diem.z-1,", "left"],
        ["websocket-2", "none", "-", "-", "-"],
        ["proxy-1", "-", "-", "2", "-"],
    ]
    assert len(status_tables({"mode": "x", "processes": processes})) == 1


def test_status_shows_the_children_of_a_composite_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    inside = [process("websocket-1", pid=8, report={"ready": True, "partitions": [0]}), process("proxy", report=None)]
    composite = process("composite-1", report={"ready": True, "clients": 3, "upstreams": 1, "children": inside})
    console = plain_console()
    tables = status_tables({"mode": "z-composite", "processes": [composite, process("data", report={"ready": True})]})
    for table in tables:
        console.print(table)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:14].rstrip() for line in lines] == [
        *("process", "composite-1", "  websocket-1", "  proxy", "data"),
        *("process", "  websocket-1"),
    ]
    assert lines[2].split()[:3] == ["websocket-1", "ready", "8"]
    assert lines[3].split()[:3] == ["proxy", "no", "answer"]


def test_status_ends_with_the_addresses_of_the_page() -> None:
    lines = page_lines({"urls": {"page": "http://127.0.0.1:8080/"}, "processes": []})
    assert [line.plain for line in lines] == [
        "page  http://127.0.0.1:8080/",
        "data  http://127.0.0.1:8080/?view=data",
    ]
    assert page_lines({"processes": []}) == []


def test_status_shows_releases_and_versions_of_the_protocol_where_they_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    new = {"ready": True, "version": "0.2.0", "protocol": {"oldest": 1, "newest": 2}}
    old = {"ready": True, "version": "0.1.0"}
    heading, first, second, silent = shown(
        capsys, process("data", report=new), process("websocket-1", report=old), process("websocket-2", report=None)
    )
    release, protocol = heading.index("release"), heading.index("protocol")
    assert (first[release], first[protocol]) == ("0.2.0", "2")
    assert (second[release], second[protocol]) == ("0.1.0", "1")
    assert silent.count("-") > 2
    same = shown(capsys, process("data", report=new), process("websocket-1", report=new))[0]
    assert not {"release", "protocol"} & set(same)
