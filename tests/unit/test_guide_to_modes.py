"""The table of modes in the guide has the figures of the committed report, each with the run that it is of."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
RUNS: Final[list[dict[str, Any]]] = json.loads((ROOT / "docs/benchmarks/2026-11-26/modes.json").read_text())["runs"]
ROW: Final = re.compile(r"\| `(?P<mode>[a-z-]+)` \| .* \| (?P<ratio>[\d.]+)(?: \((?P<conditions>.*)\))? \|")
FRAMES_PER_S: Final = 4_500


def rows() -> list[re.Match[str]]:
    return [found for line in (ROOT / "docs/guide/modes.md").read_text().splitlines() if (found := ROW.fullmatch(line))]


def runs_of(mode: str) -> list[dict[str, Any]]:
    """Return the runs of R1 of a mode, those of most servers, without those by which others are judged."""
    configuration = {"z-proxy": "z-proxy shared"}.get(mode, mode)
    found = [run for run in RUNS if (run["regime"], run["configuration"]) == ("R1", configuration)]
    found = [run for run in found if not run["control"]]
    most = max(run["servers"] * max(1, run["clones"]) for run in found)
    return [run for run in found if run["servers"] * max(1, run["clones"]) == most]


def cpu_ms(run: dict[str, Any]) -> float:
    return float(sum(run["cpu_ms"].values()))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["mode"])
def test_cpu_of_a_mode_is_that_of_the_run_it_names(row: re.Match[str]) -> None:
    single = cpu_ms(runs_of("single")[0])
    run = min(runs_of(row["mode"]), key=lambda run: abs(cpu_ms(run) / single - float(row["ratio"])))
    assert cpu_ms(run) / single == pytest.approx(float(row["ratio"]), abs=0.06)
    servers, frames = run["servers"] * max(1, run["clones"]), round(run["frames_per_s"], -2)
    usual = (servers, frames) == (1 if row["mode"] == "single" else 4, FRAMES_PER_S)
    assert row["conditions"] == (None if usual else f"one server, {frames:,.0f} frames/s")


def test_every_mode_has_a_row() -> None:
    assert len(rows()) == 8
