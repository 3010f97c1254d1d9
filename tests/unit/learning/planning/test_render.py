from typing import Any

import pytest
from rich.table import Table

from deploy.clients.metadata import PlanStatus
from deploy.terminal import plain_console
from deploy.topology import Mode
from learning.planning.render import forecast, obstacle, percent, plans_table, sentences, window_line
from tests.unit.deploy.scripted_service import status


def figures(connections: float) -> dict[str, float]:
    return {
        "fan_out": 1.5,
        "fan_out_p99": 3,
        "connections": connections,
        "max_over_mean_load": 1.04,
        "memory_mib": 2.0,
        "updates_us_per_s": 400.0,
        "frames_us_per_s": 2000.0,
        "connections_us_per_s": 100.0,
        "proxies_us_per_s": 0.0,
        "cpu_us_per_s": 2500.0,
    }


def report(**differences: Any) -> dict[str, Any]:
    placed = {
        name: figures(each) for name, each in (("plan", 140.0), ("current", 231.0), ("lpt", 240.0), ("murmur2", 231.0))
    }
    gaps = {"max_over_mean_load": 0.03}
    return {
        "servers": {"4": {**placed, "bounds": {"max_over_mean_load": 1.0}, "gaps": gaps}},
        "moves": {"endpoints": 1200, "of": 5000, "subscriptions": 0.183},
        "hot": {"endpoints": 2, "added_load": 0.003, "names": ["/x", "/y"]},
        "partitions": 24,
        "saves_us_per_s": 12_300.0,
        "saves": {"us_per_s": 12_300.0, "error": 400.0},
        "costs": {"update_us": 5.0, "delivery_us": 10.0, "connection_us_per_s": 1.7, "source": "cost.json"},
        "mode": Mode.Z_CLIENT,
        **differences,
    }


def shown(capsys: pytest.CaptureFixture[str], found: dict[str, Any]) -> list[str]:
    for each in forecast(found):
        plain_console().print(each)
    return capsys.readouterr().out.splitlines()


def test_table_has_a_column_for_each_placement(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, report())
    assert lines[0].split() == ["4", "servers", "now", "planned", "murmur2", "LPT"]
    assert lines[3].split() == ["connections", "231.0", "140.0", "231.0", "240.0"]
    rows = {line[:20].strip(): line[20:].split() for line in lines}
    assert rows["their memory, MiB"] == ["2.0"] * 4
    assert [rows[name][0] for name in ("CPU, ms/s: updates", "frames", "connections", "all")] == [
        "0.400",
        "2.000",
        "0.100",
        "2.500",
    ]
    assert "proxies" not in rows
    assert "planned is above the lower bound by 3 % (max/mean load)" in lines


def test_mode_x_is_a_column_and_compared_with_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(waste={"consumed": 200, "discarded": 50})
    found["servers"]["4"]["mode_x"] = {**figures(100.0), "cpu_us_per_s": 1500.0}
    lines = shown(capsys, found)
    assert lines[0].split()[:4] == ["4", "servers", "mode", "x"]
    assert "Mode x with 4 servers would take 1.000 ms less of CPU a second than this plan" in lines
    assert "  of 200 updates that servers consumed, 25 % had no subscriber there" in lines


def test_figures_of_clients_held_out_are_beside_those_of_the_window(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(held_out={"clients": 67.0, "parts": 5}, saves_in_window_us_per_s=40_000.0)
    for name in ("plan", "current"):
        found["servers"]["4"][name]["held_out_fan_out"] = 1.8
    lines = shown(capsys, found)
    assert any(line.split() == ["fan-out,", "other", "clients", "1.80", "1.80"] for line in lines)
    assert "  for clients that plans were made without (67, in 5 parts); for those of the window 40.000 ms" in lines


@pytest.mark.parametrize(("saved", "clients"), [(400.0, "2,500 such clients on (100 now)"), (12_300.0, None)])
def test_savings_that_do_not_show_name_the_clients_from_which_they_would(saved: float, clients: str | None) -> None:
    found = report(saves_us_per_s=saved)
    found["servers"]["4"]["mode_x"] = figures(100.0)
    line = next((line for line in sentences(found) if "below 1 % of a core" in line), None)
    assert (line is None) == (clients is None)
    assert clients is None or clients in str(line)


def test_a_plan_from_earlier_windows_says_so() -> None:
    of = "  for the clients of this window; the plan is made from 3 windows before it"
    assert of in sentences(report(windows=3))
    assert of not in sentences(report(windows=0))


def test_moves_and_savings_are_sentences() -> None:
    moved, hot, saved, costs, *_ = sentences(report())
    assert moved == "1,200 of 5,000 endpoints would move, with 18.3 % of the subscriptions; 24 partitions"
    assert hot == "2 hot endpoints, which every server has: /x, /y; that adds 0.3 % of load"
    assert saved == "It saves 12.300 ms of CPU a second (+- 0.800 ms, two standard errors)"
    assert costs == "  by a = 5 us an update, b = 10 us a frame, kappa = 1.7 us/s a connection (cost.json)"


def test_hot_endpoints_are_omitted_if_there_are_none() -> None:
    none = {"endpoints": 0, "added_load": 0.0, "names": []}
    assert not any("hot" in line for line in sentences(report(hot=none)))
    assert "/x, ...; that" in list(sentences(report(hot={"endpoints": 2, "added_load": 0.1, "names": ["/x"]})))[1]


def test_clients_of_each_server_are_beside_what_it_accepts() -> None:
    known = {
        "limits": {"clients": 10_000.0, "MiB of memory": 1024.0},
        "servers": {"2": {"clients": [9_000.0, 3_000.4]}, "20": {"clients": [600.0] * 19 + [601.0]}},
        "after_loss": {
            "2": {"clients": 12_000.0, "MiB of memory": 1100.0},
            "20": {"clients": 700.0, "MiB of memory": 80.0},
        },
        "enough": 3,
    }
    few, many = (text for text in sentences(report(capacity=known)) if text.startswith("Clients of each of "))
    accepted = "of 10,000 (DIEM_WEBSOCKET_CAPACITY)"
    assert few == f"Clients of each of 2 servers: 9,000, 3,000; the fullest has 9,000 {accepted}"
    assert many == f"Clients of each of 20 servers: {'600, ' * 16}...; the fullest has 601 {accepted}"
    lost = [text for text in sentences(report(capacity=known)) if "after the loss of one" in text]
    beyond = "12,000 clients of 10,000 and 1,100 MiB of memory of 1,024"
    assert lost == [f"  after the loss of one, another would have {beyond}: plan for 3 --servers"]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((24, 24, 24), "24 partitions"),
        ((24, 12, 24), "24 partitions, 12 more than the log has"),
        ((48, 48, 12), "48 partitions, as the log has: a new one would get 12"),
    ],
)
def test_partitions_are_beside_those_of_the_log_and_of_a_new_one(numbers: tuple[int, int, int], text: str) -> None:
    count, before, new = numbers
    moved, *_ = sentences(report(partitions=count, partitions_before=before, partitions_of_new_log=new))
    assert moved.endswith(f"of the subscriptions; {text}")


def test_mode_x_is_named_where_every_endpoint_would_be_hot() -> None:
    hot = {"endpoints": 2, "all": True, "added_load": 0.003, "names": ["/x", "/y"]}
    assert any("mode x does the same without a plan" in line for line in sentences(report(hot=hot)))
    assert not any("mode x" in line for line in sentences(report()))


def test_a_sample_of_the_clients_is_stated_with_its_error() -> None:
    sample = {"clients": 0.25, "error_of_all": 200.0}
    stated = [line for line in sentences(report(sample=sample)) if "sample" in line]
    assert stated == ["  from a sample of 25 % of the clients; from all it would be +- 0.400 ms"]
    assert not any("sample" in line for line in sentences(report()))


def test_additional_cost_is_shown() -> None:
    assert any("It costs 1.000 ms more of CPU" in line for line in sentences(report(saves_us_per_s=-1000.0)))


@pytest.mark.parametrize(
    ("mode", "falls", "stays"),
    [
        (Mode.Z_CLIENT, "the connections of clients", False),
        (Mode.Z_COMPOSITE, None, True),
        (None, "connections of clients", True),
    ],
)
def test_effect_depends_on_the_mode(mode: Mode | None, falls: str | None, stays: bool) -> None:
    last = list(sentences(report(mode=mode)))[-1]
    assert ("connections stay one to each server for each proxy" in last) is stays
    assert ("231.0 -> 140.0 with 4 servers" in last) is (falls is not None)
    assert falls is None or falls in last


def test_plan_without_a_report_is_shown_without_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {}) == ["The plan has no report of its gain."]


def test_plans_are_listed_with_their_states(capsys: pytest.CaptureFixture[str]) -> None:
    found = [status("p-1", state="rolled_back"), status("p-2", epoch_of_plan=1), status("p-3", partitions=None)]
    made = plans_table(map(PlanStatus.of, found))
    assert isinstance(made, Table)
    plain_console().print(made)
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [[cell.strip() for cell in row if cell.strip()][:2] for row in rows[1:]] == [
        ["p-1", "rolled back"],
        ["p-2", "outdated"],
        ["p-3", "ready"],
    ]


@pytest.mark.parametrize(("share", "text"), [(0.0, "0 %"), (0.00123, "0.123 %"), (0.5, "50 %"), (1.0, "100 %")])
def test_share_is_shown_with_three_digits(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("start", "end", "active", "expected"),
    [
        (
            "2026-01-01T05:33:07.123Z",
            "2026-01-01T06:33:07.123Z",
            2,
            "means over 05:33-06:33 (UTC); clients in 2 of 60 minutes",
        ),
        ("2026-01-01T05:33:07.123Z", "2026-01-01T06:33:07.123Z", None, "means over 05:33-06:33 (UTC)"),
        (
            "2026-01-01T23:40:00.000Z",
            "2026-01-02T00:40:00.000Z",
            60,
            "means over 2026-01-01 23:40-2026-01-02 00:40 (UTC); clients in 60 of 60 minutes",
        ),
    ],
    ids=["same-day", "not-counted", "over-midnight"],
)
def test_the_window_is_shown_with_the_minutes_that_had_clients(
    start: str, end: str, active: int | None, expected: str
) -> None:
    assert window_line(start, end, 60, active) == expected


@pytest.mark.parametrize("kind", ["chance", "hold_out", "balance"])
def test_each_obstacle_has_a_remedy(kind: str) -> None:
    assert "--" in obstacle({"kind": kind})
