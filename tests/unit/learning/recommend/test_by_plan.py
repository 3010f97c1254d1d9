"""The fan-out that plan files report."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from learning.recommend.by_plan import ModeFanOut, PlannedFanOut, latest_plan


def write(file: Path, fan_out: dict[str, Any], time_s: int = 0) -> None:
    plan = {"id": file.stem, "window": {"from": "A", "to": "B"}, "report": {"servers": fan_out}}
    file.write_text(json.dumps(plan))
    os.utime(file, (time_s, time_s))


def figures(hashed: float, planned: float) -> dict[str, Any]:
    return {"murmur2": {"fan_out": hashed}, "plan": {"fan_out": planned}}


def test_the_latest_plan_counts(tmp_path: Path) -> None:
    write(tmp_path / "p-2.json", {"2": figures(1.9, 1.8)}, time_s=1)
    write(tmp_path / "autoplan.json", {"2": figures(1.9, 1.2), "4": figures(3.0, 1.5)}, time_s=2)
    fan_out = {2: ModeFanOut(1.9, 1.2), 4: ModeFanOut(3.0, 1.5)}
    assert latest_plan(tmp_path) == PlannedFanOut("autoplan", "A", "B", fan_out)


def test_the_fan_out_of_other_clients_is_preferred(tmp_path: Path) -> None:
    own = figures(1.9, 1.2)
    own["plan"]["held_out_fan_out"], own["murmur2"]["held_out_fan_out"] = 1.4, 1.95
    write(tmp_path / "p-1.json", {"2": own})
    found = latest_plan(tmp_path)
    assert found is not None
    assert found.fan_out == {2: ModeFanOut(1.95, 1.4)}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"report":{"servers":{}}}', '{"report":{"servers":{"2":{}}}}'])
def test_without_a_report_there_is_nothing_to_compare(tmp_path: Path, content: str) -> None:
    assert latest_plan(tmp_path / "missing") is None
    (tmp_path / "p-1.json").write_text(content)
    assert latest_plan(tmp_path) is None
