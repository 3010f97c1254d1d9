"""The screen of `diem top`, made of the operator page's document."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.admin.counters import SAMPLES, Counters, History
from deploy.admin.overview import overview
from tests.unit.deploy.admin.statuses import composites, data, dead, replace, server, situation, status, z_client
from tools.commands.top import PER_BAR, curve, screen


def shown(of: dict[str, Any], history: History | None = None) -> str:
    console = Console(file=StringIO(), width=160, force_terminal=False)
    document = overview(situation(of), Counters()) | {"history": (history or History()).columns()}
    console.print(screen(document))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("of", [status("single", data(), server("websocket-1", 3)), z_client(), composites(2)])
def test_system_that_is_well_has_its_processes_and_no_remedy(of: dict[str, Any]) -> None:
    text = shown(of)
    assert text.startswith(f"DIEM {of['mode']}  All well")
    assert all(process["name"] in text for process in of["processes"])
    assert "->" not in text


def test_finding_is_shown_with_its_remedy_and_events_with_their_process() -> None:
    of = replace(status("single", data(), server("websocket-1", 3)), dead("websocket-1"))
    of["events"] = [{"time": "2026-01-02T03:04:00.000Z", "process": "websocket-1", "text": "died"}]
    text = shown(of)
    assert "websocket-1 is down. It died (killed by SIGKILL)" in text
    assert "-> Wait a few seconds." in text
    assert "2026-01-02T03:04:00.000Z  websocket-1  died" in text


def test_figures_have_their_value_and_the_curve_of_the_history() -> None:
    history = History()
    for second in range(0, 80, 10):
        history.add(float(second), 1000 * second, {"clients": second})
    lines = shown(status("single", data(), server("websocket-1", 3, delay_seconds=0.25)), history).splitlines()
    assert lines[3].split() == ["clients", "3", "▁▃▆█"]
    assert next(line for line in lines if "delay" in line).split() == ["longest", "delay,", "ms", "250"]


def test_curve_is_relative_to_its_greatest_value_and_fits_a_terminal() -> None:
    assert curve([]) == ""
    assert curve([0.0] * 4) == "  "
    assert curve([9.0, 0.0, 0.0, 1.0, None, 2.0, 0.0]) == " ▄█"
    assert len(curve([1.0] * SAMPLES)) == SAMPLES // PER_BAR == 45
