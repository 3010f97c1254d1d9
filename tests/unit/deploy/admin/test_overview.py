import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from deploy.admin.counters import Counters
from deploy.admin.overview import Move, counter_values, overview
from deploy.clients.metadata import PlanStatus
from tests.unit.deploy.admin.statuses import (
    change,
    composites,
    data,
    dead,
    replace,
    server,
    situation,
    status,
    z_client,
)


def shown(of: dict[str, Any], *plans: PlanStatus, counters: Counters | None = None) -> dict[str, Any]:
    document = overview(situation(of, *plans), counters or Counters(), [Move("/load/GR", "3", "hot")])
    result: dict[str, Any] = orjson.loads(orjson.dumps(document))
    return result


def test_document_has_the_whole_on_top_and_is_json() -> None:
    document = shown(z_client(2, clients=10))
    assert (document["state"], document["headline"]) == ("well", "All well")
    assert document["impact"] == "All 20 clients are sent updates."
    assert (document["time"], document["since"]) == ("2026-01-02T03:04:05.000Z", "2026-01-02T01:04:05.000Z")
    assert [row["name"] for row in document["processes"]][:3] == ["kafka-1", "data", "metadata"]
    assert document["sources"][0]["name"] == "market"
    assert document["moves"] == [{"endpoint": "/load/GR", "home": "3", "target": "hot"}]


def test_clients_behind_proxies_are_counted_once() -> None:
    totals = shown(composites(2))["totals"]
    assert (totals["clients"], totals["subscriptions"]) == (10, 18)
    assert (totals["servers"], totals["live_servers"]) == (4, 4)


def test_impact_counts_the_clients_of_stale_servers() -> None:
    of = change(z_client(2, clients=10), "websocket-1", report={"live": False})
    assert shown(of)["impact"] == "10 of 20 clients are sent updates."
    of = change(of, "websocket-2", report={"live": False})
    assert shown(of)["impact"] == "None of the 20 clients gets updates."
    assert shown(z_client(2, clients=0))["impact"] == "No clients are connected."
    of = replace(z_client(2, clients=10), {**server("websocket-2"), "report": None})
    assert shown(of)["impact"] == "All 10 clients are sent updates. Nothing is known of clients at websocket-2."
    one = status("single", data(), server("websocket-1", 1))
    assert shown(one)["impact"] == "The client is sent updates."


def test_rates_are_those_of_the_counters() -> None:
    counters = Counters()
    for second in (0, 2):
        of = change(z_client(), "websocket-1", report={"deliveries": 100 * second, "refused": {"origin": second}})
        of = change(of, "data", report={"sequence": 10 + 6 * second})
        counters.update(float(second), counter_values(of))
    document = shown(of, counters=counters)
    assert document["totals"]["updates_per_second"] == 6.0
    assert document["totals"]["deliveries_per_second"] == 100.0
    assert document["totals"]["refused"] == 2
    row = next(row for row in document["processes"] if row["name"] == "websocket-1")
    assert (row["deliveries_per_second"], row["refused"]) == (100.0, 2)


def test_delay_is_the_longest_of_all_servers_and_cpu_that_of_all_processes() -> None:
    counters = Counters()
    for second in (0, 2):
        of = change(z_client(), "websocket-1", report={"delay_seconds": 0.5, "cpu_ms": 500 * second})
        of = change(of, "websocket-2", report={"delay_seconds": None, "cpu_ms": 7})
        counters.update(float(second), counter_values(of))
    document = shown(of, counters=counters)
    assert (document["totals"]["delay_seconds"], document["totals"]["cores"]) == (0.5, 0.5)
    row = next(row for row in document["processes"] if row["name"] == "data")
    assert (row["delay_seconds"], row["cores"]) == (None, None)


def test_cpu_of_a_composite_is_its_own_and_its_deliveries_are_its_childrens() -> None:
    of = change(composites(1), "composite-1", report={"cpu_ms": 3, "deliveries": 4})
    assert counter_values(of).items() >= {("composite-1", "cpu_ms"): 3, ("composite-1/proxy", "deliveries"): 0}.items()
    assert ("composite-1", "deliveries") not in counter_values(of)


def test_rows_say_since_when() -> None:
    of = replace(z_client(), dead("websocket-1", seconds=5.0))
    of = change(of, "websocket-2", report={"live": False, "since": "2026-01-02T03:00:00.000Z"})
    rows = {row["name"]: row for row in shown(of)["processes"]}
    assert rows["websocket-1"]["since"] == "2026-01-02T03:04:00.000Z"
    assert rows["websocket-1"]["last_exit"] == "killed by SIGKILL"
    assert rows["websocket-2"]["since"] == "2026-01-02T03:00:00.000Z"
    assert rows["data"]["since"] == "2026-01-02T02:04:05.000Z"


def test_commands_of_findings_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (first,) = shown(change(z_client(), "bridge-1", report={"lag": 20_000}))["findings"]
    assert f"add servers with `{tmp_path}/python -m deploy scale`" in first["action"]
    (first,) = shown(change(z_client(), "data", report={"publisher": {"failure": "run `diem init`"}}))["findings"]
    assert f"run `{tmp_path}/python -m deploy init`" in first["detail"]


def test_plan_in_progress_comes_first() -> None:
    plans = (PlanStatus("p-1", "applied"), PlanStatus("p-2", "moving", "move", 4, 3), PlanStatus("p-3", "ready"))
    listed = shown(z_client(), *plans)["plans"]
    assert [(plan["id"], plan["in_progress"]) for plan in listed] == [("p-2", True), ("p-3", False), ("p-1", False)]
    many = [PlanStatus(f"p-{number}", "ready") for number in range(50)]
    assert [plan["id"] for plan in shown(z_client(), *many)["plans"]] == ["p-49", "p-48", "p-47", "p-46", "p-45"]
