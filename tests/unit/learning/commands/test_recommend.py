"""The command ``diem recommend``."""

import json
from functools import partial
from pathlib import Path

import pytest

from diem.process import lifecycle
from learning.modes.configuration import Configuration
from tests.unit.learning.commands.conftest import Run
from tests.unit.learning.planning.recorded_traffic import recorded

NUMBERS = ("--clients", "5000", "--endpoints", "200", "--updates", "50", "--cores-per-host", "4")
COMMITTED = Path(__file__).parents[4] / "docs" / "benchmarks" / "2026-11-21" / "cost.json"


@pytest.fixture
def recommend(run: Run) -> Run:
    return partial(run, "recommend", "--state-dir", "none")


def test_three_numbers_are_enough(recommend: Run) -> None:
    code, shown, _ = recommend(*NUMBERS)
    assert code == lifecycle.EXIT_OK
    assert "Run:   diem up --mode single\n" in shown
    assert "Next:  diem up --mode " in shown
    lines = shown.splitlines()
    for configuration in Configuration:
        # In all three tables, and but for the chosen one among the reasons.
        assert sum(line.startswith(f"{configuration} ") for line in lines) == 3
        assert any(line.startswith(f"  {configuration}: ") for line in lines) == (configuration != "single")
    assert "By updates/s: single until " in shown
    assert "Not measured" not in shown


def test_json_is_one_object(recommend: Run) -> None:
    code, shown, _ = recommend(*NUMBERS, "--json")
    assert (code, json.loads(shown)["mode"]) == (lifecycle.EXIT_OK, "single")


def test_requirements_and_costs_change_the_recommendation(recommend: Run) -> None:
    more = ("--survive", "1", "--growth", "3x", "--memory", "16G", "--p99", "1s", "--costs", str(COMMITTED))
    code, shown, _ = recommend(*NUMBERS, *more)
    assert code == lifecycle.EXIT_OK
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
        (("--traffic", "missing"), "there is nothing to learn from in "),
    ],
)
def test_what_is_wrong_is_one_line(recommend: Run, arguments: tuple[str, ...], text: str) -> None:
    code, out, err = recommend(*arguments)
    assert (code != lifecycle.EXIT_OK, out, err.count("\n")) == (True, "", 1)
    assert text in err


def test_recorded_traffic_is_a_load(recommend: Run, tmp_path: Path) -> None:
    traffic = str(recorded(tmp_path))
    found = json.loads(recommend("--traffic", traffic, "--json")[1])
    assert found["load"]["endpoints"] == 16
    assert 0 < found["load"]["clients"] <= 80
    assert found["load"]["frames"] > found["load"]["updates"] > 0
    assert traffic in found["source"]
    # More clients than were recorded; what else there is stays.
    grown = json.loads(recommend("--traffic", traffic, "--clients", "8000", "--json")[1])
    assert grown["load"]["clients"] == 8000
    assert grown["load"]["updates"] == found["load"]["updates"]
