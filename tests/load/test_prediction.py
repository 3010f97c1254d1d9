from typing import Any

from metadata.plans.plan import Plan
from tests.load.injection.measurement import Measured
from tests.load.injection.prediction import STAY, Comparison, compare, goals_of, table

SERVERS = ("websocket-1", "websocket-2")
CLIENTS = 100


def plan_of(mode: str, now: float, then: float) -> Plan:
    figures = {"max_over_mean_load": 1.02, "updates_us_per_s": 1500.0, "connections_us_per_s": 2500.0}
    of_two = {
        "current": {**figures, "fan_out": now / CLIENTS, "connections": now},
        "plan": {**figures, "fan_out": then / CLIENTS, "connections": then},
    }
    costs = {
        "update_us": 5.0,
        "delivery_us": 10.0,
        "connection_us_per_s": 1.7,
        "write_us": 100.0,
        "idle_us_per_s": 1000.0,
    }
    return Plan(1, 16, {}, servers=(2,), costs=costs, report={"mode": mode, "servers": {"2": of_two}})


def counted_of(connections: float, cpu: float = 7.5) -> Measured:
    per_server = dict.fromkeys(SERVERS, connections / 2)
    delivered = {"websocket-1": 90.0, "websocket-2": 30.0}
    return Measured(
        seconds=20.0,
        connections=connections,
        connections_per_server=per_server,
        taken=dict.fromkeys(SERVERS, 60.0),
        delivered=delivered,
        writes=3.0,
        cpu={"websocket-1": 5.5, "bridge-1": cpu - 5.5},
    )


def both(plan: Plan, before: float, after: float) -> tuple[Comparison, Comparison]:
    first = counted_of(before)
    return (
        compare(plan, "current", first, first, CLIENTS),
        compare(plan, "plan", first, counted_of(after), CLIENTS),
    )


def missed(plan: Plan, before: float, after: float, said: str = "") -> list[str]:
    first, second = both(plan, before, after)
    return [goal.name for goal in goals_of(plan, 1, first, second, said) if not goal.reached]


def test_connections_are_to_be_as_predicted_and_fewer_than_before() -> None:
    plan = plan_of("z-client", 190, 120)
    assert missed(plan, 190, 124) == []
    assert missed(plan, 175, 120) == ["connections before, off the prediction"]
    assert missed(plan, 190, 127) == ["connections after, off the prediction"]
    assert missed(plan_of("z-client", 190, 185), 190, 185) == ["connections after, share of those before"]


def test_proxies_have_one_connection_to_each_server_before_and_after() -> None:
    plan = plan_of("z-proxy", 2, 2)
    assert missed(plan, 2, 2, f"What changes: with proxies {STAY}; more") == []
    assert len(missed(plan, 2, 2)) == 1
    assert len(missed(plan, 2, 1, STAY)) == 1


def test_what_no_placement_changes_is_part_of_the_predicted_cpu_time() -> None:
    first, second = both(plan_of("z-client", 190, 120), 190, 120)
    frames, woken, idle = 10 * 120, 2 * 3 * 100, 2 * 1000
    assert first.predicted.cpu_ms_per_s == second.predicted.cpu_ms_per_s == (4000 + frames + woken + idle) / 1000
    assert first.counted.cpu_ms_per_s == 7.5


def test_cpu_time_counts_as_the_effect_of_the_plan_whatever_the_speed_of_the_machine() -> None:
    plan = plan_of("z-client", 190, 120)
    for speed in (1.0, 1.6):
        first = counted_of(190, cpu=7.5 * speed)
        before = compare(plan, "current", first, first, CLIENTS)

        def missed_after(cpu: float, first: Measured = first, before: Comparison = before) -> list[str]:
            after = compare(plan, "plan", first, counted_of(120, cpu=cpu), CLIENTS)
            return [goal.name for goal in goals_of(plan, 1, before, after, "") if not goal.reached]

        assert missed_after(7.5 * speed) == []
        assert missed_after(7.5 * speed * 1.3) == ["CPU time after, as a share of that before, off the prediction"]


def test_work_is_of_updates_and_frames_by_the_costs_of_the_plan() -> None:
    first, _ = both(plan_of("z-client", 190, 120), 190, 120)
    assert first.counted.max_over_mean_work == 1.333  # (300 + 900) / ((1200 + 600) / 2)


def test_table_has_the_predicted_beside_the_counted_and_a_dash_for_what_was_not_counted() -> None:
    first, second = both(plan_of("z-proxy", 2, 2), 2, 2)
    rows: list[dict[str, Any]] = [
        {side: getattr(each, side)._asdict() for side in ("predicted", "counted")} for each in (first, second)
    ]
    lines = table("z-proxy", *rows).splitlines()
    assert lines[2].split() == ["connections", "to", "servers", "2.0", "2.0", "2.0", "2.0"]
    assert lines[3].split()[-4:] == ["0.02", "-", "0.02", "-"]
