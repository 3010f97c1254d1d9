"""The command ``diem recommend``."""

import json
import sys
from pathlib import Path

import pytest

from deploy.cli import commands
from diem.process import lifecycle
from learning.modes.configuration import Configuration
from tests.unit.learning.planning.recorded_traffic import recorded

NUMBERS = ("--clients", "5000", "--endpoints", "200", "--updates", "50", "--cores-per-host", "4")
COMMITTED = Path(__file__).parents[4] / "docs" / "benchmarks" / "2026-11-21" / "cost.json"


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["diem", "recommend", "--state-dir", str(folder / "none"), *arguments])
    return commands.main()


def test_three_numbers_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, *NUMBERS) == lifecycle.EXIT_OK
    shown = capsys.readouterr().out
    assert "Run:   diem up --mode single\n" in shown
    assert "Next:  diem up --mode " in shown
    lines = shown.splitlines()
    for configuration in Configuration:
        # In all three tables, and but for the chosen one among the reasons.
        assert sum(line.startswith(f"{configuration} ") for line in lines) == 3
        assert any(line.startswith(f"  {configuration}: ") for line in lines) == (configuration != "single")
    assert "By updates/s: single until " in shown
    assert "Not measured" not in shown


def test_json_is_one_object_and_the_map_is_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "modes.svg"
    assert run(monkeypatch, tmp_path, *NUMBERS, "--json", "--map", str(file)) == lifecycle.EXIT_OK
    assert json.loads(capsys.readouterr().out)["mode"] == "single"
    assert file.read_text().startswith("<svg ")


def test_requirements_and_costs_change_the_recommendation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--survive", "1", "--growth", "3x", "--memory", "16G", "--p99", "1s", "--costs", str(COMMITTED))
    assert run(monkeypatch, tmp_path, *NUMBERS, *more) == lifecycle.EXIT_OK
    shown = capsys.readouterr().out
    assert "15,000 clients" in shown
    assert "grown 3 times" in shown
    assert "single: one server serves all clients: none is left when it fails" in shown
    assert "The file of costs lacks" in shown
    assert "Beyond what was measured: " in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--clients", "5"), "--endpoints and --updates: required"),
        ((*NUMBERS, "--memory", "lots"), "--memory is an amount"),
        ((*NUMBERS, "--growth", "x"), "--growth is a factor"),
        ((*NUMBERS, "--p99", "3"), "--p99 is a time"),
        ((*NUMBERS, "--costs", "missing.json"), "missing.json has no costs"),
        ((*NUMBERS, "--map", "missing/modes.svg"), "missing/modes.svg: No such file"),
        (("--traffic", "missing"), "there is nothing to learn from in "),
    ],
)
def test_what_is_wrong_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, tmp_path, *arguments) != lifecycle.EXIT_OK
    written = capsys.readouterr()
    assert written.out == ""
    assert text in written.err
    assert written.err.count("\n") == 1


def test_recorded_traffic_is_a_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = str(recorded(tmp_path))
    assert run(monkeypatch, tmp_path, "--traffic", traffic, "--json") == lifecycle.EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert found["load"]["endpoints"] == 16
    assert 0 < found["load"]["clients"] <= 80
    assert found["load"]["frames"] > found["load"]["updates"] > 0
    assert traffic in found["source"]
    # More clients than were recorded; what else there is stays.
    assert run(monkeypatch, tmp_path, "--traffic", traffic, "--clients", "8000", "--json") == lifecycle.EXIT_OK
    grown = json.loads(capsys.readouterr().out)
    assert grown["load"]["clients"] == 8000
    assert grown["load"]["updates"] == found["load"]["updates"]
