"""What each round of `diem autoplan` learns from."""

import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from deploy.cli import autoplan, commands
from deploy.cli.autoplan import learning_of
from deploy.planning.autoplan import Decision
from deploy.system.state_dir import StateDir


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


@pytest.mark.parametrize(
    ("what", "arguments", "left"),
    [
        ("nothing", ["--no-spark"], ["8"]),
        ("nothing", ["--no-spark", "--window", "1d"], ["8", "10"]),
        ("nothing", ["--no-spark", "--keep-days", "11"], ["8", "10"]),
        ("failed", ["--no-spark"], ["8", "10", "12"]),
        ("nothing", ["--no-spark", "--traffic", "other"], ["8", "10", "12"]),
        ("nothing", ["--spark"], ["8", "10", "12"]),
    ],
)
def test_without_spark_files_that_were_read_are_removed_when_no_window_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, arguments: list[str], left: list[str]
) -> None:
    async def decide(*_: object) -> Decision:
        return Decision(what, "as the test says")

    folder = tmp_path / "traffic" / "in"
    folder.mkdir(parents=True)
    for days in (8, 10, 12):
        file = folder / f"{days}.jsonl"
        file.touch()
        at = time.time() - days * 86_400 + 43_200
        os.utime(file, (at, at))
    monkeypatch.setattr(autoplan, "run_round", decide)
    monkeypatch.setattr(sys, "argv", ["diem", "autoplan", "--once", "--state-dir", str(tmp_path), *arguments])
    assert commands.main() == (1 if what == "failed" else 0)
    assert sorted((file.stem for file in folder.iterdir()), key=int) == left
