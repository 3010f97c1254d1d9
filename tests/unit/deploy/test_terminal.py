import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.terminal import Terminal, plain_console, status_tables
from deploy.topology import Mode, Options, Ports, Programs, Topology, compose, sizes, slots


def single() -> Topology:
    return topology(Mode.SINGLE)


def topology(mode: Mode) -> Topology:
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(mode, sizes(mode))}
    return compose(Options(mode, Path("/state")), ports, Programs(("diem",)))


def process(name: str, **differences: Any) -> dict[str, Any]:
    known = {"state": "running", "pid": 7, "uptime_seconds": 3725.4, "restarts": 1, "report": None}
    return {"name": name, **known, **differences}


def shown(capsys: pytest.CaptureFixture[str], *processes: dict[str, Any]) -> list[list[str]]:
    console = plain_console()
    for table in status_tables({"processes": processes}):
        console.print(table)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_announcement_says_where_things_are_and_how_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(single(), Path("/a state"), 1.26)
    out = capsys.readouterr().out
    assert "DIEM is up (single) after 1.3 s" in out
    for part in ("http://localhost:8080/", "http://127.0.0.1:8080/v1", "ws://127.0.0.1:8101/ws", "Ctrl-C"):
        assert part in out
    assert "diem status --state-dir '/a state'" in out


def test_announcement_names_nginx_and_not_what_is_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(topology(Mode.X_BROADCAST), Path("/state"), 1.0)
    out = capsys.readouterr().out
    for part in ("http://localhost:8000/", "http://127.0.0.1:8000/v1", "ws://127.0.0.1:8000/ws"):
        assert part in out
    assert "81" not in out


def test_download_is_announced_once_and_only_when_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal().downloads():
        pass
    assert capsys.readouterr().out == ""
    with Terminal().downloads() as progress:
        progress(0, 44)
        progress(1, 44)
    assert capsys.readouterr().out == "downloading the local Kafka, once: 44 of 44 files\n"


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
def test_status_shows_how_far_behind_kafka_a_process_is(
    capsys: pytest.CaptureFixture[str], report: dict[str, Any], lag: str
) -> None:
    _, row = shown(capsys, process("bridge-1", report={"ready": True, **report}))
    assert row[-1] == lag


def test_default_state_directory_needs_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().announce(single(), Path(".diem").absolute(), 1.0)
    assert "--state-dir" not in capsys.readouterr().out


def test_progress_without_a_terminal_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal().progress(1) as ready:
        ready("data")
    assert capsys.readouterr().out == "data is ready\n"


def test_quiet_leaves_only_what_needs_attention(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(quiet=True)
    terminal.say("fine")
    terminal.announce(single(), Path("/state"), 1.0)
    with terminal.progress(1) as ready:
        ready("data")
    terminal.warn("websocket-1 died")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "websocket-1 died\n")


def test_texts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().warn("[red]x[/] :smile: " + "y" * 300)
    assert capsys.readouterr().err == "[red]x[/] :smile: " + "y" * 300 + "\n"


def test_status_shows_what_each_process_says(capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize(
    ("differences", "state"),
    [
        ({"report": {"ready": False}}, ["not", "ready"]),
        ({"report": None}, ["no", "answer"]),
        ({"state": "waiting", "pid": None}, ["waiting"]),
        ({"state": "failed", "pid": None}, ["failed"]),
    ],
)
def test_status_says_how_a_process_is(
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


def test_a_reader_that_goes_away_ends_nothing() -> None:
    script = (
        "import sys; from deploy.terminal import plain_console\n"
        "console = plain_console()\n"
        "for _ in range(2000): console.print('x' * 200)\n"
        "sys.exit(7)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr is not None
    said = child.stderr.read()
    child.stderr.close()
    assert (child.wait(20), said) == (7, b"")
