"""The one form of all reports."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.load import bench
from tests.load.bench import Goal
from tests.support.size import SIZE

GOALS = [Goal("CPU", "us", 2, np.float64(1.5)), Goal("clients", "", 10, 9, at_least=True), Goal("knee", "%", 30, None)]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "bench")


def rewritten(path: Path, **changed: Any) -> Path:
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), **changed}))
    return path


def test_report_has_name_size_figures_and_goals() -> None:
    path = bench.write("made", {"figures": {"x": np.int64(1)}}, GOALS)
    assert orjson.loads(path.read_bytes()) == {
        "name": "made",
        "size": SIZE,
        "figures": {"x": 1},
        "goals": [
            {"name": "CPU (at most)", "unit": "us", "goal": 2.0, "measured": 1.5, "reached": True},
            {"name": "clients (at least)", "unit": "", "goal": 10.0, "measured": 9.0, "reached": False},
            {"name": "knee (at most)", "unit": "%", "goal": 30.0, "measured": None, "reached": False},
        ],
    }
    assert [row.goal_of() for row in bench.read(path).goals] == GOALS


@pytest.mark.parametrize(
    "changed",
    [
        {"goals": {"CPU": {"name": "CPU", "unit": "us", "goal": 1.0, "measured": 1.0, "reached": True}}},
        {"goals": [{"name": "CPU", "unit": "us", "goal": 1.0, "measured": 1.0}]},
        {"goals": [{"name": "CPU", "unit": "us", "goal": 1.0, "measured": 1.0, "reached": True, "interval": None}]},
        {"goals": [{"name": "CPU", "unit": "us", "goal": 1.0, "measured": "1.0", "reached": True}]},
        {"size": "small"},
        {"name": "other"},
    ],
    ids=["goals in a map", "a field missing", "a field too many", "a text", "no size", "another name"],
)
def test_report_of_another_form_is_refused(changed: dict[str, Any]) -> None:
    path = bench.write("made", {}, GOALS)
    assert bench.read(path).name == "made"
    with pytest.raises(ValueError, match=r"made|size|goals"):
        bench.read(rewritten(path, **changed))


def test_figures_cannot_take_the_place_of_a_field() -> None:
    with pytest.raises(TypeError, match="size"):
        bench.write("made", {"size": {}}, GOALS)
