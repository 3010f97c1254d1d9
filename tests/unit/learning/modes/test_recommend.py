"""Sizes under requirements, the choice of a mode, and thresholds."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from learning.costs import ROLES, SERVER_LIMITS, Constant, RoleCosts
from learning.modes.configuration import MAX_SERVERS, Configuration, Size
from learning.modes.load import Data, Load
from learning.modes.recommend import (
    Requirements,
    cheaper_mode,
    cheapest,
    choose,
    compare,
    fit,
    outside_calibration,
    reason,
    thresholds,
)

NEEDS = Requirements()
SMALL = Load(500, 200, 50)
MANY = Load(8000, 200, 300, batch=20)
LOADS = [
    SMALL,
    MANY,
    Load(5000, 200, 300, batch=20),
    Load(50_000, 10_000, 1000, batch=50),
    Load(100_000, 1000, 1000, batch=50),
    Load(500, 20_000, 1000, batch=50, data=Data.GET),
    Load(30, 5, 0.1, 2, 1, data=Data.NONE),
]


@pytest.mark.parametrize("survive", [0, 1])
@pytest.mark.parametrize("number", range(len(LOADS)))
def test_the_choice_is_the_simplest_of_the_cheapest_modes_that_hold(number: int, survive: int) -> None:
    needs, load = Requirements(survive=survive), LOADS[number]
    found = choose(load, ROLES, needs)
    holding = [each for each in compare(load, ROLES, needs) if each.fault is None]
    assert (found is None) == (not holding)
    if found is not None:
        assert found == holding[0]
        best = min(holding, key=lambda each: each.cpu.value)
        order = list(Configuration)
        for each in holding:
            is_as_cheap = each.cpu.value <= best.cpu.value + 1.96 * best.cpu.error
            assert is_as_cheap or each != found
            assert not is_as_cheap or order.index(each.configuration) >= order.index(found.configuration)


@pytest.mark.parametrize("configuration", [Configuration.X, Configuration.X_BROADCAST])
def test_a_mode_has_the_fewest_servers_that_hold(configuration: Configuration) -> None:
    needs = Requirements(cores_per_host=16)
    found = fit(configuration, MANY, ROLES, needs)
    assert found.fault is None
    assert 2 <= found.size.servers < MAX_SERVERS
    assert found.binds == "websocket"
    enough = replace(needs, utilisation=found.utilisation * 1.001)
    assert fit(configuration, MANY, ROLES, enough).size == found.size
    tighter = replace(needs, utilisation=found.utilisation * 0.999)
    assert fit(configuration, MANY, ROLES, tighter).size.servers == found.size.servers + 1


def test_others_carry_the_load_of_servers_that_fail() -> None:
    needs = Requirements(cores_per_host=16)
    for configuration in (Configuration.X, Configuration.X_BROADCAST):
        alone = fit(configuration, MANY, ROLES, needs).size.servers
        assert fit(configuration, MANY, ROLES, replace(needs, survive=2)).size.servers == alone + 2
    assert fit(Configuration.XZ, SMALL, ROLES, Requirements(survive=2)).size.clones == 4


@pytest.mark.parametrize(
    "configuration",
    [Configuration.SINGLE, Configuration.Z_PROXY, Configuration.Z_COMPOSITE],
)
def test_a_mode_with_one_process_for_all_clients_survives_nothing(configuration: Configuration) -> None:
    assert fit(configuration, SMALL, ROLES, NEEDS).fault is None
    fault = fit(configuration, SMALL, ROLES, Requirements(survive=1)).fault
    assert fault is not None
    assert fault.endswith("serves all clients: none is left when it fails")


def test_clients_with_one_address_do_not_connect_to_several_servers() -> None:
    needs = Requirements(survive=1, cores_per_host=1)
    found = choose(MANY, ROLES, needs)
    assert found is not None
    assert found.configuration is Configuration.Z_CLIENT, "nginx costs more on several hosts"
    found = choose(MANY, ROLES, Requirements(survive=1, one_address=True))
    assert found is not None
    assert found.configuration.behind_nginx


def test_servers_of_one_host_share_a_port_and_those_of_several_are_behind_nginx() -> None:
    one, several = (fit(Configuration.X_BROADCAST, MANY, ROLES, Requirements(cores_per_host=cores)) for cores in (4, 1))
    assert [each.hosts > 1 for each in (one, several)] == [False, True]
    assert ["nginx" in each.prediction.cpu_by_role(ROLES) for each in (one, several)] == [False, True]


def test_a_server_admits_as_many_clients_as_it_is_set_to() -> None:
    idle = Load(25_000, 1000, 1)
    assert fit(Configuration.SINGLE, idle, ROLES, NEEDS).fault == (
        "a server would have 25,000 clients of 10,000 (DIEM_WEBSOCKET_CAPACITY)"
    )
    assert fit(Configuration.X_BROADCAST, idle, ROLES, NEEDS).size.servers == 3
    assert (
        fit(Configuration.SINGLE, idle, ROLES, Requirements(limits=SERVER_LIMITS._replace(clients=30_000))).fault
        is None
    )
    assert fit(Configuration.XZ, idle, ROLES, NEEDS).size == Size(1, 3)


def test_memory_and_bytes_of_a_server_are_limits_beside_its_clients() -> None:
    many = Load(9_000, 1000, 1, subscriptions=1000)
    assert fit(Configuration.SINGLE, many, ROLES, NEEDS).fault == "a server would have 1,540 MiB of memory of 1,024"
    large = Load(9_000, 1000, 1, subscriptions=1, data_bytes=1e8)
    assert fit(Configuration.SINGLE, large, ROLES, NEEDS).fault == "a server would have 180 MB/s to clients of 125"


def test_a_shared_data_service_limits_every_mode() -> None:
    found = compare(Load(100, 100_000, 20_000, batch=50), ROLES, NEEDS)
    assert {each.binds for each in found if each.configuration is not Configuration.ALL_TO_ALL} == {"data"}
    assert all(each.fault is not None for each in found)
    assert choose(Load(100, 100_000, 20_000, batch=50), ROLES, NEEDS) is None


def test_the_time_to_send_a_write_counts_to_the_delay() -> None:
    hot = Load(5000, 1, 1, subscriptions=1, batch=1)
    assert fit(Configuration.SINGLE, hot, ROLES, Requirements(p99_s=0.1)).fault is None
    assert fit(Configuration.SINGLE, hot, ROLES, Requirements(p99_s=0.06)).fault == "p99 is at least 72 ms"
    divided = fit(Configuration.X_BROADCAST, hot, ROLES, Requirements(p99_s=0.06))
    assert divided.fault is None
    assert divided.size.servers > 1


def test_hosts_are_as_many_as_cores_and_memory_require() -> None:
    few = Requirements(cores_per_host=4)
    one = fit(Configuration.X_BROADCAST, MANY, ROLES, few)
    assert one.hosts == math.ceil(one.cpu.value / 1e6 / (4 * 0.7))
    small = Requirements(cores_per_host=64, memory_bytes=one.memory.value / 2.5)
    assert fit(Configuration.X_BROADCAST, MANY, ROLES, small).hosts >= 3


def test_thresholds_are_where_the_choice_changes() -> None:
    def at(updates: float) -> Load:
        return MANY.scaled(5000, updates)

    found = thresholds(at, 1, 10_000, ROLES, NEEDS)
    assert len(found) > 2
    assert math.isinf(found[-1].until)
    for each, following in pairwise(found):
        above = choose(at(each.until * 1.04), ROLES, NEEDS)
        assert each.configuration in {found.configuration for found in cheapest(at(each.until), ROLES, NEEDS)}
        assert (above and above.configuration) == following.configuration
    assert [each.until for each in found] == sorted(each.until for each in found)


def test_modes_within_the_error_of_each_other_do_not_alternate() -> None:
    found = thresholds(lambda clients: Load(clients, 1000, 500, batch=50), 1, 1e6, ROLES, Requirements())
    modes = [each.configuration for each in found]
    assert len(modes) == len(set(modes)) > 2
    exact = {name: constant and Constant(constant.value, 0.0) for name, constant in ROLES.constants.items()}
    unsure = {name: constant and Constant(constant.value, constant.value) for name, constant in ROLES.constants.items()}
    few = Load(5000, 200, 300, batch=20)
    first, second = (RoleCosts(constants, "a test", memory=ROLES.memory) for constants in (exact, unsure))
    assert len(cheapest(few, first, NEEDS)) < len(cheapest(few, second, NEEDS))


def test_a_reason_names_what_else_a_mode_needs() -> None:
    found = {each.configuration: each for each in compare(SMALL, ROLES, NEEDS)}
    assert found[Configuration.SINGLE].requires == ()
    why = reason(found[Configuration.Z_CLIENT], found[Configuration.SINGLE], ROLES)
    assert why.startswith("needs Kafka, SDK, ports; +")
    assert reason(found[Configuration.Z_CLIENT], found[Configuration.X], ROLES).startswith("needs SDK, ports; ")


def test_a_reason_names_the_processes_that_cost_more() -> None:
    found = {each.configuration: each for each in compare(SMALL, ROLES, NEEDS)}
    why = reason(found[Configuration.X_BROADCAST], found[Configuration.SINGLE], ROLES)
    assert why.startswith("+")
    assert "broadcast +" in why
    unfit = fit(Configuration.SINGLE, SMALL, ROLES, Requirements(survive=1))
    assert reason(unfit, found[Configuration.X], ROLES) == unfit.fault


def test_a_present_mode_is_compared_at_the_size_that_it_has() -> None:
    assert cheaper_mode(Configuration.SINGLE, Size(), SMALL, ROLES, NEEDS) is None
    found = cheaper_mode(Configuration.X, Size(8), SMALL, ROLES, NEEDS)
    assert found is not None
    assert found[0].configuration is Configuration.SINGLE
    assert found[1] > 0.5
    more_brokers = cheaper_mode(Configuration.X, Size(8), SMALL, ROLES, NEEDS, brokers=3)
    assert more_brokers is not None
    assert more_brokers[1] > found[1]


def test_the_baseline_is_never_chosen() -> None:
    few = Load(2, 200, 1)
    found = choose(few, ROLES, Requirements(survive=1))
    assert found is not None
    assert found.configuration is not Configuration.ALL_TO_ALL
    assert fit(Configuration.ALL_TO_ALL, few, ROLES, NEEDS).fault == "a baseline: every client is sent every update"


def test_loads_beyond_the_measured_ones_are_named() -> None:
    assert outside_calibration(SMALL, 2) == []
    found = outside_calibration(Load(20_000, 200, 50), 8)
    assert [each.partition(" (")[0] for each in found] == ["20,000 clients", "50,000 frames/s", "8 servers"]


def test_errors_of_constants_are_in_the_cost_and_missing_ones_are_named() -> None:
    exact = {name: constant and Constant(constant.value, 0.0) for name, constant in ROLES.constants.items()}
    assert fit(Configuration.SINGLE, SMALL, RoleCosts(exact, "exact"), NEEDS).cpu.error == 0
    unsure = {**exact, "delivery_us": Constant(10.0, 1.0)}
    found = fit(Configuration.SINGLE, SMALL, RoleCosts(unsure, "unsure"), NEEDS)
    assert found.cpu.error == pytest.approx(SMALL.sends())
    without = {**exact, "delivery_us": None}
    assert fit(Configuration.SINGLE, SMALL, RoleCosts(without, "lacking"), NEEDS).cpu.unmeasured == ("delivery_us",)
