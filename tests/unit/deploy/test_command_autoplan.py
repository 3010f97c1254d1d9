"""What each round of `diem autoplan` learns from."""

import importlib.util
from pathlib import Path

import pytest

from deploy.command_autoplan import learning_of
from deploy.statedir import StateDir


@pytest.fixture
def spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())


@pytest.mark.usefixtures("spark_is_there")
def test_plans_are_made_from_the_statistics_that_the_round_computes(tmp_path: Path) -> None:
    statistics = tmp_path / "traffic" / "warehouse" / "statistics" / "autoplan"
    pipeline, plan = learning_of(StateDir(tmp_path), "2h", None, spark=None)
    assert pipeline == ["--state-dir", str(tmp_path), "--window", "2h", "--name", "autoplan"]
    assert plan == ["--traffic", str(statistics)]


@pytest.mark.usefixtures("spark_is_there")
@pytest.mark.parametrize(("spark", "how"), [(None, []), (True, ["--spark"]), (False, ["--no-spark"])])
def test_window_is_that_of_traffic_that_is_named(tmp_path: Path, spark: bool | None, how: list[str]) -> None:
    found = learning_of(StateDir(tmp_path), "2h", Path("other"), spark=spark)
    assert found == (None, ["--traffic", "other", "--window", "2h", *how])


def test_without_spark_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert learning_of(StateDir(tmp_path), "2h", None, spark=None) == (None, ["--window", "2h", "--no-spark"])
