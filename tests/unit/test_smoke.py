"""``make smoke`` knows every benchmark and every fault mode, and what is wrong with a report."""

import re
from pathlib import Path

import pytest

from tests import smoke
from tests.load import bench
from tests.load.faults import FAULT_MODES
from tests.smoke import ROOT, fault_of, runs
from tests.support.size import RunSize


def test_every_benchmark_and_every_fault_mode_is_run() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name.removeprefix("bench-") for name in re.findall(r"^(bench-\w+):", makefile, re.MULTILINE)}
    names = [run.name for run in runs()]
    assert len(targets) >= 19
    assert sorted(names) == sorted(targets | {f"faults-{mode}" for mode in FAULT_MODES})
    assert {*smoke.LONGEST, *smoke.EXECUTED} <= {*names}


def test_run_without_a_report_of_the_form_of_all_and_of_its_size_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "SIZE", RunSize.SMOKE)
    log = tmp_path / "log"
    log.write_text("written\n")
    assert fault_of(tmp_path / "made.json", log) == "it wrote no made.json"
    assert not fault_of(bench.write("made", {}, []), log)
    (tmp_path / "made.json").write_text('{"name": "made", "size": "smoke", "goals": {}}')
    assert "made.json has not the form of all" in fault_of(tmp_path / "made.json", log)
    monkeypatch.setattr(bench, "SIZE", RunSize.QUICK)
    assert fault_of(bench.write("made", {}, []), log) == "made.json is of a quick run"


def test_run_that_says_that_it_was_skipped_needs_no_report(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("skipped: the history does not have the release\n")
    assert not fault_of(tmp_path / "made.json", log)
