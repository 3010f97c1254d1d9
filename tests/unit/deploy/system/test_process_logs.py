import json
from pathlib import Path

import pytest

from deploy.system.process_logs import LINES_BURST, MAX_POLL_BYTES, ChildLog, ProcessLogs
from deploy.system.state_dir import StateDir
from deploy.terminal import Terminal
from diem.process.clock import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.log"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def event(level: str, text: str, **fields: object) -> str:
    return json.dumps({"event": text, "level": level, "timestamp": "t", "process": "data", **fields}) + "\n"


def test_only_important_lines_are_shown(path: Path) -> None:
    log = ChildLog(path)
    append(path, event("info", "a") + event("warning", "b", source="x", tries=2) + event("error", "c") + "plain\n")
    assert log.poll() == ["b source=x tries=2", "c"]
    assert log.poll() == []


def test_lines_before_the_start_are_not_shown(path: Path) -> None:
    append(path, event("error", "old"))
    assert ChildLog(path).poll() == []


def test_incomplete_line_is_not_shown(path: Path) -> None:
    log = ChildLog(path)
    line = event("error", "whole")
    append(path, line[:10])
    assert log.poll() == []
    append(path, line[10:])
    assert log.poll() == ["whole"]


def test_reason_of_a_death_is_the_last_meaningful_line(path: Path) -> None:
    log = ChildLog(path)
    append(path, event("error", "odd") + "diem: port 8080 is taken\n" + event("info", "stopping"))
    log.poll()
    assert log.last == "port 8080 is taken"
    log.reset()
    assert log.last == ""


def test_exception_is_shown_by_its_last_line(path: Path) -> None:
    log = ChildLog(path)
    append(path, event("critical", "process failed", exception="Traceback\n  x\nKeyError: 1"))
    assert log.poll() == ["process failed KeyError: 1"]


def test_long_and_unprintable_lines_are_sanitised(path: Path) -> None:
    log = ChildLog(path)
    append(path, "\x1b[2J" + "x" * 1000 + "\n")
    log.poll()
    assert len(log.last) == 300
    assert log.last.startswith(" [2Jxxx")


def test_large_log_is_rotated_once(path: Path) -> None:
    log = ChildLog(path, max_bytes=100)
    append(path, event("info", "x" * 100))
    log.poll()
    assert path.stat().st_size == 0
    older = path.with_name("data.log.1")
    assert older.stat().st_size > 100
    append(path, event("error", "after") + event("info", "y" * 100))
    assert log.poll() == ["after"]
    assert "after" in older.read_text()
    assert sorted(file.name for file in path.parent.iterdir()) == ["data.log", "data.log.1"]


def test_flood_is_skipped_except_for_its_end(path: Path) -> None:
    log = ChildLog(path)
    append(path, event("error", "early") + event("info", "z" * MAX_POLL_BYTES) + event("error", "late"))
    assert log.poll() == ["late"]


def test_truncated_log_is_followed(path: Path) -> None:
    log = ChildLog(path)
    append(path, event("error", "a") * 3)
    log.poll()
    path.write_text("")
    log.poll()
    append(path, event("error", "b"))
    assert log.poll() == ["b"]


def test_child_of_a_composite_is_named_in_the_log_of_the_composite(path: Path) -> None:
    own = path.with_name("composite-1.log")
    log = ChildLog(own)
    append(own, json.dumps({"event": "a", "level": "warning", "process": "composite-1"}) + "\n")
    append(own, json.dumps({"event": "b", "level": "warning", "process": "websocket-2"}) + "\n")
    assert log.poll() == ["a", "websocket-2: b"]


class World:
    def __init__(self, folder: Path) -> None:
        self.state, self.clock = StateDir(folder), ManualClock()
        self.clock.advance(1)
        self.log = self.state.log_of("data")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.logs = ProcessLogs(["data"], self.state, Terminal(), self.clock)

    def info(self, event: str, level: str = "warning") -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"event": event, "level": level}) + "\n")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_lines_of_one_process_on_the_terminal_are_limited(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(20):
        world.info(f"trouble {number}")
    world.logs.poll(show=True)
    assert capsys.readouterr().err.count("data: ") == LINES_BURST
    assert "trouble 19" in world.logs.last("data")


def test_muted_and_starting_processes_are_not_shown(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.info("it waits")
    world.logs.poll(show=False)
    world.logs.mute(["data"], 5.0)
    world.info("it still waits")
    world.logs.poll(show=True)
    assert capsys.readouterr().err == ""
    world.clock.advance(6)
    world.info("it cannot")
    world.logs.poll(show=True)
    assert "data: it cannot" in capsys.readouterr().err


def test_last_error_of_a_process_is_forgotten_at_its_restart(world: World) -> None:
    world.info("the port is taken", "error")
    assert "the port is taken" in world.logs.last_error("data")
    world.logs.reset("data")
    assert world.logs.last_error("data") == ""
