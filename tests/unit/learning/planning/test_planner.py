import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from deploy.terminal import Terminal, plain_console
from deploy.topology import Mode
from diem.errors import ConfigurationError, DiemError
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import HOT
from diem.protocol.partitioners import partition_of
from learning.placement.baselines import Infeasible
from learning.placement.blocks import Block
from learning.placement.instance import Instance
from learning.placement.options import PlanOptions
from learning.placement.planner import PlanResult, plan
from learning.planning.context import PlanRequest, RunningSystem
from learning.planning.planner import (
    EvaluatedPlan,
    PlanRun,
    count_partitions,
    current_homes,
    make_plan,
    run_plan,
)
from learning.planning.traffic_input import PlanningInput, read_input
from metadata.plans.plan import decode, encode
from tests.support.brief_search import brief_search
from tests.support.traffic import MINUTE, Life, write
from tests.unit.deploy.scripted_service import running
from tests.unit.learning.planning.recorded_traffic import recorded

SYSTEM = RunningSystem(("http://m",), Mode.Z_CLIENT)


@pytest.fixture(autouse=True)
def _brief() -> Iterator[None]:
    with brief_search():
        yield


def planned(traffic: Path, *, quiet: bool = False, movement: float | None = None) -> PlanRun:
    options = PlanRequest(recorded(traffic), window=600_000, movement=movement)
    return run_plan(options, SYSTEM, running(), Terminal(quiet=quiet), plain_console())


def test_plan_that_pays_is_shown_with_the_next_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path)
    file = tmp_path / "made" / "plan.json"
    planning.write(file)
    plan = decode(file.read_bytes())
    planning.print_summary(file, submitted=True)
    lines = capsys.readouterr().out.splitlines()
    assert "events of 80 clients, " in lines[0]
    assert lines[1].startswith("means over ")
    assert lines[1].endswith(" (UTC); clients in 10 of 10 minutes")
    assert lines[2] == "16 endpoints, 8 subscription sets; 2 servers now, planned for 2"
    assert any(line.startswith("It pays: ") for line in lines)
    assert lines[-2:] == [f"{plan.id} is submitted, and in {file}", f"next: diem apply {plan.id}"]
    planning.print_summary(file, submitted=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"next: diem apply {file}"


def test_plan_that_does_not_pay_is_shown_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path, movement=0.0)
    planning.print_summary(None, submitted=False)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("It does not pay: ") for line in lines)
    (obstacle,) = [line for line in lines if line.startswith("What holds it back: a plan without a budget pays (")]
    assert obstacle.endswith(
        "of the subscriptions; the budget is 0 %. Run `diem plan` without `--movement` and `diem apply` once, "
        "then `diem autoplan`."
    )
    assert lines[-1].startswith("no plan was submitted: the current placement can stay")


def test_json_output_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path, quiet=True)
    assert capsys.readouterr().out == ""
    found = json.loads(json.dumps(planning.as_json(None, submitted=False)))
    assert (found["plan"], found["pays"], found["submitted"], found["file"]) == (None, True, False, None)
    assert (found["clients"], found["servers"], found["report"]["mode"]) == (80, [2], "z-client")
    assert (found["minutes"], found["active_minutes"], found["report"]["obstacle"]) == (10, 10, None)
    assert planning.as_json(tmp_path, submitted=True)["plan"].startswith("p-")


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written: "):
        planned(tmp_path).write(tmp_path)


def test_duplicate_process_names_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = Life("websocket-1", 0xA2, 0, 0)
    now = time.time_ns() // 1_000_000
    write(tmp_path / "in", "twin.jsonl", [twin.counts(now - n * MINUTE, now - (n - 1) * MINUTE) for n in (4, 3, 2)])
    made = planned(tmp_path)
    assert "1 name was had by two processes at once" in capsys.readouterr().err
    assert made.as_json(None, submitted=False)["twins"] == 1


Z_CLIENT = RunningSystem(("http://m",), Mode.Z_CLIENT)
Z_PROXY = RunningSystem(("http://m",), Mode.Z_PROXY, 3)


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    return recorded(tmp_path)


def made(traffic: Path, now: Snapshot, system: RunningSystem = Z_CLIENT, **options: Any) -> EvaluatedPlan:
    wanted = PlanRequest(traffic, window=600_000, **options)
    return make_plan(planning_input(wanted), wanted, system, now)


def planning_input(options: PlanRequest) -> PlanningInput:
    return read_input(options, Terminal(quiet=True))


def test_plan_counts_with_the_updates_that_the_system_writes_together(traffic: Path) -> None:
    of = {
        batch: made(traffic, running(), replace(Z_CLIENT, batch=batch)).plan.report for batch in (None, 1.0, 10.0, 60.0)
    }
    assert [report["batch"] for report in of.values()] == [10.0, 1.0, 10.0, 60.0]
    assert of[None]["servers"] == of[10.0]["servers"]
    frames_us = [report["servers"]["2"]["plan"]["frames_us_per_s"] for report in of.values()]
    assert frames_us[1] > frames_us[2] > frames_us[3], "they share sends"


def test_plan_groups_endpoints_of_the_same_clients(traffic: Path) -> None:
    found = made(traffic, running())
    plan = found.plan
    assert found.pays, found.why
    assert (plan.epoch, plan.servers) == (7, (2,))
    server = {name: home * 2 // plan.partitions for name, home in plan.homes.items()}
    # A hot endpoint, with the home -1, is on both.
    assert all(len({server[f"/{pair}/a"], server[f"/{pair}/b"]} - {-1}) == 1 for pair in range(8))
    assert decode(encode(plan)) == plan
    figures = plan.report["servers"]["2"]
    assert figures["plan"]["connections"] < figures["current"]["connections"]
    now, then = figures["current"], figures["plan"]
    assert now["fan_out"] > then["fan_out"]
    saved = 1.7 * (now["connections"] - then["connections"]) + now["frames_us_per_s"] - then["frames_us_per_s"]
    assert plan.report["saves_us_per_s"] == pytest.approx(saved, rel=1e-3)
    assert plan.report["moves"]["of"] == 16


def test_equal_traffic_and_seed_make_the_same_homes(traffic: Path) -> None:
    assert made(traffic, running(), seed=3).plan.homes == made(traffic, running(), seed=3).plan.homes


def test_applied_plan_does_not_pay_again(traffic: Path) -> None:
    homes = made(traffic, running()).plan.homes
    now = running(**{name.removeprefix("/"): home for name, home in homes.items()})
    found = made(traffic, now)
    assert not found.pays
    assert found.plan.report["moves"]["endpoints"] == 0


def test_plan_stays_within_the_movement_budget(traffic: Path) -> None:
    assert made(traffic, running(), movement=0.1).plan.report["moves"]["subscriptions"] <= 0.1


def test_a_budget_that_keeps_a_plan_from_paying_is_compared_with_the_plan_without_it(traffic: Path) -> None:
    bounded, free = made(traffic, running(), movement=0.001), made(traffic, running())
    assert (bounded.pays, free.pays) == (False, True)
    obstacle = bounded.plan.report["obstacle"]
    assert (obstacle["kind"], obstacle["budget"]) == ("movement", 0.001)
    assert obstacle["moves"] == free.plan.report["moves"]["subscriptions"]
    assert obstacle["why"] == free.why
    assert free.plan.report["obstacle"] is None
    alone = made(traffic, running(), movement=0.001, compare=False)
    assert (alone.plan.report["compared"], alone.plan.report["obstacle"]) == (False, None)


def test_a_plan_that_only_balances_within_its_budget_is_compared_with_the_plan_without_it(
    traffic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan_within(instance: Instance, options: PlanOptions, *others: Any, **more: Any) -> PlanResult:
        found = plan(instance, options, *others, **more)
        return found if options.movement_budget is None else replace(found, pays=True, balances=True, saves=False)

    monkeypatch.setattr("learning.planning.planner.plan", plan_within)
    request = PlanRequest(traffic, window=600_000, movement=0.001)
    planning = run_plan(request, Z_CLIENT, running(), Terminal(), plain_console())
    obstacle = planning.made.plan.report["obstacle"]
    assert planning.made.pays
    assert (obstacle["kind"], obstacle["budget"]) == ("movement", 0.001)
    assert obstacle["why"].startswith("saves ")
    planning.print_summary(None, submitted=False)
    assert "What holds more back: a plan without a budget pays (saves " in capsys.readouterr().out


def test_a_budget_is_not_what_holds_back_where_nothing_better_is_known(traffic: Path) -> None:
    homes = made(traffic, running()).plan.homes
    now = running(**{name.removeprefix("/"): home for name, home in homes.items()})
    assert made(traffic, now, movement=0.01).plan.report["obstacle"] is None


def test_connections_with_shared_proxies_are_those_of_the_proxies(traffic: Path) -> None:
    found = made(traffic, running(), Z_PROXY)
    figures = found.plan.report["servers"]["2"]
    assert {own["connections"] for name, own in figures.items() if name not in {"bounds", "gaps", "mode_x"}} == {6.0}


def test_with_shared_proxies_a_plan_pays_by_the_sends_that_it_saves(traffic: Path) -> None:
    found = made(traffic, running(), Z_PROXY)
    figures = found.plan.report["servers"]["2"]
    now, then = figures["current"], figures["plan"]
    assert now["fan_out"] > then["fan_out"]
    assert found.pays
    assert found.why.startswith("saves ")
    assert (now["frames_us_per_s"], now["connections_us_per_s"]) == (
        then["frames_us_per_s"],
        then["connections_us_per_s"],
    )
    assert now["proxies_us_per_s"] > then["proxies_us_per_s"]


def test_partitions_are_those_of_owners_and_of_the_map() -> None:
    assert count_partitions(running(partitions=8)) == 8
    assert count_partitions(running(partitions=12)) == 12
    assert count_partitions(running(partitions=8, a=19, hot=HOT)) == 20


def test_homes_are_those_of_the_map_else_of_the_hash(traffic: Path) -> None:
    instance = planning_input(PlanRequest(traffic)).instance
    now = running(**{"0/a": 5, "1/b": HOT})
    homes = dict(zip(instance.endpoints, current_homes(now, instance).tolist(), strict=True))
    assert (homes["/0/a"], homes["/1/b"], homes["/2/a"]) == (5, HOT, partition_of(b"/2/a", 8))


def test_infeasible_requests_are_errors(traffic: Path) -> None:
    with pytest.raises(DiemError, match="name --servers"):
        made(traffic, replaced_clones(running()))
    assert made(traffic, replaced_clones(running()), servers=(2,)).plan.servers == (2,)
    with pytest.raises(typer.BadParameter, match="has 8 partitions already"):
        made(traffic, running(), partitions=4)
    with pytest.raises(typer.BadParameter, match="for up to 8 servers here"):
        made(traffic, running(), movement=0.1, servers=(16,))
    with pytest.raises(Infeasible, match="servers"):
        # 16 equal endpoints over 7 servers are uneven, and none may be hot.
        made(traffic, running(), servers=(7,), hot_budget=0.0)


def replaced_clones(now: Snapshot) -> Snapshot:
    return now._replace(clones={})


def test_measured_costs_are_in_the_plan(traffic: Path, tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    file.write_text('{"figures": {"update_us": 4.5, "delivery_us": 9, "connection_us_per_s": 2}}')
    plan = made(traffic, running(), costs=file).plan
    assert (plan.costs["update_us"], plan.costs["source"]) == (4.5, str(file))
    assert replace(plan, report={}).report == {}


@pytest.mark.parametrize(("system", "frame"), [(Z_CLIENT, 9), (Z_PROXY, 3.5)])
def test_frames_have_the_cost_of_proxy_links_behind_proxies(
    traffic: Path, tmp_path: Path, system: RunningSystem, frame: float
) -> None:
    file = tmp_path / "cost.json"
    measured = {"update_us": 4.5, "delivery_us": 9, "connection_us_per_s": 2, "link_delivery_us": 3.5}
    file.write_text(json.dumps({"figures": measured}))
    assert made(traffic, running(), system, costs=file).plan.costs["delivery_us"] == frame


def test_a_plan_names_a_mode_that_costs_much_less(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path)
    cheaper = planning.made.plan.report["cheaper_mode"]
    # Eighty clients need no Kafka; of two servers one may fail, so that another remains.
    assert cheaper.startswith("diem up --mode x-broadcast --servers 2 would take ")
    assert cheaper.endswith(" less CPU than the z-client that runs")
    capsys.readouterr()
    planning.print_summary(None, submitted=False)
    assert f"{cheaper}; to compare all modes: diem recommend" in capsys.readouterr().out.splitlines()


# Clients of servers


def common_interest() -> PlanningInput:
    """12,000 clients have one quiet endpoint in common, and five each of 300 others have two busy ones."""
    pairs = 60
    names = ["/common", *(f"/{pair}/{which}" for pair in range(pairs) for which in "ab")]
    clients = np.array([12_000, *([5] * pairs)], np.int64)
    sizes = np.array([1, *([2] * pairs)], np.int32)
    sets = Block(np.arange(len(names), dtype=np.int32), sizes, 3600 * clients, clients)
    rates, subscribers = np.linspace(0.5, 1.5, len(names)), np.repeat(clients, sizes).astype(float)
    rates[0] = 0.001
    made = Instance.of(names, rates, subscribers, sets, 3600.0)
    return PlanningInput(made, "2026-01-02T03:00Z", "2026-01-02T04:00Z", 12_300, 12_300, pairs + 1, "the test")


def made_for_all(system: RunningSystem = Z_CLIENT, clones: int = 1, **options: Any) -> EvaluatedPlan:
    now = running(4)
    now = now._replace(clones=dict.fromkeys(range(1, clones + 1), now.clones[1]))
    return make_plan(common_interest(), PlanRequest(Path(), **options), system, now)


@pytest.mark.parametrize("options", [{"movement": 0.01}, {"hot_budget": 0.0}], ids=["few-moves", "nothing-hot"])
def test_a_plan_with_more_clients_than_a_server_accepts_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DiemError, match=r"^server \d of 4 would have 12,\d\d\d clients of 10,000: plan without"):
        made_for_all(**options)
    with pytest.raises(DiemError, match="clients of 11,999: "):
        made_for_all(replace(Z_CLIENT, capacity=11_999), **options)
    with pytest.raises(DiemError, match="clients of 11,998: "):
        made_for_all(RunningSystem(("http://m",), capacity=20_000), capacity={"clients": 11_998.0}, **options)


@pytest.mark.parametrize(
    ("options", "fullest"),
    [({"capacity": {"clients": 12_300.0}}, 12_000), ({"clones": 2}, 6_000)],
    ids=["capacity", "clones"],
)
def test_a_plan_within_the_capacity_of_servers_passes(options: dict[str, Any], fullest: float) -> None:
    capacity = made_for_all(movement=0.01, **options).plan.report["capacity"]
    assert capacity["limits"]["clients"] == options.get("capacity", {}).get("clients", 10_000)
    assert max(capacity["servers"]["4"]["clients"]) == pytest.approx(fullest, rel=0.02)


@pytest.mark.parametrize("system", [Z_PROXY, RunningSystem(("http://m",), Mode.XZ)], ids=["z-proxy", "xz"])
def test_where_clients_connect_to_proxies_the_capacity_of_servers_does_not_count(system: RunningSystem) -> None:
    assert made_for_all(system, movement=0.01).plan.report["capacity"] is None


def test_an_endpoint_with_more_clients_than_a_server_accepts_becomes_hot() -> None:
    found = made_for_all()
    clients = found.plan.report["capacity"]["servers"]["4"]["clients"]
    assert (found.pays, found.why) == (True, "relieves a server of more than it can take")
    assert found.plan.homes["/common"] == HOT
    assert clients == pytest.approx([12_300 / 4] * 4, rel=0.001)


@pytest.mark.parametrize(
    "system", [RunningSystem(("http://m",)), RunningSystem(("http://m",), Mode.XZ)], ids=["unknown", "xz"]
)
def test_a_plan_compares_modes_only_where_the_size_of_the_present_one_is_known(
    tmp_path: Path, system: RunningSystem
) -> None:
    options = PlanRequest(recorded(tmp_path), window=600_000)
    made = run_plan(options, system, running(), Terminal(quiet=True), plain_console()).made
    assert made.plan.report["cheaper_mode"] is None
