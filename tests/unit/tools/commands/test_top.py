"""The screen of `diem top`, made of the operator page's document."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deploy.admin.counters import Counters
from deploy.admin.overview import overview
from tests.unit.deploy.admin.statuses import composites, data, dead, replace, server, situation, status, z_client
from tools.commands.top import LENGTH, Curves, curve, screen


def shown(document: dict[str, Any], curves: Curves | None = None) -> str:
    console = Console(file=StringIO(), width=160, force_terminal=False)
    console.print(screen(document, curves or Curves()))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("of", [status("single", data(), server("websocket-1", 3)), z_client(), composites(2)])
def test_system_that_is_well_has_its_processes_and_no_remedy(of: dict[str, Any]) -> None:
    text = shown(overview(situation(of), Counters()))
    assert text.startswith(f"DIEM {of['mode']}  All well")
    assert all(process["name"] in text for process in of["processes"])
    assert "->" not in text


def test_finding_is_shown_with_its_remedy_and_events_with_their_process() -> None:
    of = replace(status("single", data(), server("websocket-1", 3)), dead("websocket-1"))
    of["events"] = [{"time": "2026-01-02T03:04:00.000Z", "process": "websocket-1", "text": "died"}]
    text = shown(overview(situation(of), Counters()))
    assert "websocket-1 is down. It died (killed by SIGKILL)" in text
    assert "-> Wait a few seconds." in text
    assert "2026-01-02T03:04:00.000Z  websocket-1  died" in text


def test_curves_are_bounded_and_relative_to_their_greatest_value() -> None:
    curves = Curves()
    document = overview(situation(status("single", data(), server("websocket-1", 0))), Counters())
    for clients in range(3 * LENGTH):
        document["totals"]["clients"] = clients
        assert curves.add(document) is document
    ((title, latest, bars),) = curves.lines()
    assert (title, latest, len(bars)) == ("clients", f"{3 * LENGTH - 1}", LENGTH)
    assert (bars[-1], curves.lines()[0][2][0] < "█") == ("█", True)
    assert f"{latest}  {bars}" in shown(document, curves)


def test_curve_of_nothing_is_flat() -> None:
    assert curve([0.0, 0.0]) == "  "
    assert curve([0.0, 1.0, 2.0]) == " ▄█"
