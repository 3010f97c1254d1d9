"""The model of the modes: its structure, and its predictions for committed runs."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from learning.costs import MEANINGS, ROLES
from learning.modes import terms
from learning.modes.configuration import Configuration, Size
from learning.modes.load import Data, Load, touched
from learning.modes.model import Prediction, merged_saving, predict

REPORT = Path(__file__).parents[4] / "docs" / "benchmarks" / "2026-11-29" / "modes.json"
LOAD = Load(clients=600, endpoints=200, updates=300, subscriptions=10, batch=30, data=Data.NONE)
SIZE = Size(4)
Z = [each for each in Configuration if each.partitioned]


def amount(found: Prediction, name: str) -> float:
    return terms.added(role.work for role in found.roles).get(name, 0.0)


@pytest.mark.parametrize("data", Data)
@pytest.mark.parametrize("configuration", Configuration)
def test_every_amount_has_a_constant_with_a_meaning(configuration: Configuration, data: Data) -> None:
    found = predict(configuration, Size(3, 2), Load(500, 100, 50, data=data))
    assert {name for role in found.roles for name in (*role.work, *role.busiest)} <= MEANINGS.keys()
    assert found.cpu(ROLES).value > 0
    assert all(amount >= 0 for role in found.roles for amount in (*role.work.values(), *role.busiest.values()))


def test_built_in_constants_are_those_that_have_a_meaning() -> None:
    assert ROLES.constants.keys() == MEANINGS.keys()


@pytest.mark.parametrize("configuration", Configuration)
def test_the_busiest_process_does_at_least_the_mean(configuration: Configuration) -> None:
    for role in predict(configuration, Size(5, 2), LOAD).roles:
        assert ROLES.value(role.busiest) * role.count >= ROLES.value(role.work) * (1 - 1e-9)


def test_every_server_of_mode_x_consumes_every_update_and_servers_of_a_z_share_them() -> None:
    assert amount(predict(Configuration.X, SIZE, LOAD), "server_update_us") == pytest.approx(4 * LOAD.updates)
    assert amount(predict(Configuration.X, SIZE, LOAD), "bridge_part_us") == pytest.approx(
        4 * LOAD.writes * touched(12, LOAD.batch)
    )
    for configuration in set(Z) - {Configuration.XZ}:
        assert amount(predict(configuration, SIZE, LOAD), "bridge_update_us") == pytest.approx(LOAD.updates)
    assert amount(predict(Configuration.XZ, Size(4, 3), LOAD), "bridge_update_us") == pytest.approx(3 * LOAD.updates)


def test_clients_have_a_send_for_each_bridge_that_a_write_reaches() -> None:
    direct = amount(predict(Configuration.X, SIZE, LOAD), "delivery_us")
    assert direct == pytest.approx(LOAD.sends())
    assert direct == amount(predict(Configuration.X_BROADCAST, SIZE, LOAD), "delivery_us")
    divided = amount(predict(Configuration.Z_CLIENT, SIZE, LOAD), "delivery_us")
    assert divided == pytest.approx(LOAD.sends(touched(4, LOAD.batch)))
    for configuration in (Configuration.Z_PROXY, Configuration.Z_COMPOSITE, Configuration.XZ):
        sends = amount(predict(configuration, Size(4, 1), LOAD), "proxy_frame_us")
        # A proxy sends together what arrives while it sends.
        assert LOAD.sends() < sends < divided


def test_each_broker_answers_a_bridge_by_itself_and_nginx_passes_every_send_on() -> None:
    three = predict(Configuration.X, SIZE, LOAD, brokers=3)
    assert amount(three, "delivery_us") == pytest.approx(LOAD.sends(touched(3, LOAD.batch)))
    assert amount(three, "nginx_frame_us") == amount(three, "delivery_us")


def test_bridges_that_share_partitions_take_parts_of_writes_and_are_members_of_a_group() -> None:
    shared, own = predict(Configuration.Z_CLIENT, SIZE, LOAD), predict(Configuration.X, SIZE, LOAD)
    assert amount(own, "bridge_part_us") == pytest.approx(4 * amount(shared, "bridge_part_us"))
    assert (amount(own, "bridge_group_us_per_s"), amount(shared, "bridge_group_us_per_s")) == (0, 4)


def test_a_client_has_a_connection_to_each_server_that_it_needs() -> None:
    few = Load(1000, 200, 300, subscriptions=1)
    assert predict(Configuration.Z_CLIENT, SIZE, few).connections == pytest.approx(1000)
    assert predict(Configuration.Z_CLIENT, SIZE, LOAD).connections == pytest.approx(600 * 4 * (1 - 0.75**10))
    assert predict(Configuration.Z_PROXY, SIZE, LOAD).connections == 604
    assert predict(Configuration.X, SIZE, LOAD).connections == 600


def test_partitions_give_servers_about_equal_shares() -> None:
    assert (Size(4).partitions, Size(4).largest_share) == (12, 0.25)
    assert (Size(5).partitions, Size(5).largest_share) == (24, 5 / 24)
    assert (Size(16).partitions, Size(16).largest_share) == (30, 2 / 30)


def test_kafka_writes_once_for_each_broker_and_every_bridge_of_mode_x_reads_all() -> None:
    found = predict(Configuration.X, SIZE, LOAD, brokers=3)
    assert (found.kafka_in_bytes, found.kafka_out_bytes) == (3 * 300 * 140.0, 4 * 300 * 140.0)
    assert predict(Configuration.Z_CLIENT, SIZE, LOAD).kafka_out_bytes == 300 * 140.0
    assert predict(Configuration.X_BROADCAST, SIZE, LOAD).kafka_in_bytes == 0


def test_behind_nginx_one_get_of_a_version_reaches_the_data_service() -> None:
    load = Load(600, 200, 300, data=Data.GET)
    assert amount(predict(Configuration.X, SIZE, load), "data_get_us") == pytest.approx(300, rel=0.01)
    assert amount(predict(Configuration.Z_CLIENT, SIZE, load), "data_get_us") == pytest.approx(load.frames)


def test_data_is_on_the_wire_as_often_as_frames() -> None:
    alone, inline, fetched = (
        predict(Configuration.SINGLE, Size(), Load(600, 200, 300, data=data)).egress_bytes / 9000 for data in Data
    )
    # docs/performance.md: 110 bytes, 704 compressed, 3.8 KB.
    assert (alone, inline, fetched) == pytest.approx((110, 810, 3840), rel=0.01)


RUNS = {run["group"]: run for run in json.loads(REPORT.read_text())["runs"] if run["regime"] == "R1"}


def ratios(run: dict[str, Any]) -> dict[str, float]:
    load = Load(300, 200, 300, 10, batch=50, data=Data.NONE)
    size = Size(run["servers"], run["clones"])
    found = predict(Configuration(run["configuration"]), size, load, workers=0).cpu_by_role(ROLES)
    # Datasets of those runs had 4 points, those of the constants 24 and more.
    return {role: found[role] / (1000 * ms) for role, ms in run["cpu_ms"].items() if role != "data"}


@pytest.mark.parametrize("name", RUNS)
def test_predictions_for_committed_runs_are_as_far_off_as_the_speed_of_machines(name: str) -> None:
    found = ratios(RUNS[name])
    assert found
    assert all(0.6 < ratio < 1.6 for ratio in found.values()), found


def test_between_modes_and_sizes_predictions_differ_as_measurements_do() -> None:
    by_role: dict[str, list[float]] = defaultdict(list)
    for run in RUNS.values():
        for role, ratio in ratios(run).items():
            by_role[role].append(ratio)
    assert len(by_role["websocket"]) == 10
    for role in ("websocket", "bridge", "proxy"):
        typical = median(by_role[role])
        assert all(abs(ratio / typical - 1) < 0.3 for ratio in by_role[role]), (role, by_role[role])


def test_a_merged_frame_saves_a_send_wherever_clients_or_their_links_are_sent_it() -> None:
    send, merged = ROLES.value({"delivery_us": 1.0}), ROLES.value({"merged_frame_us": 1.0})
    assert merged_saving(Configuration.Z_CLIENT, SIZE, LOAD, ROLES) == (send - merged, 0.0)
    proxy, composites = (merged_saving(each, SIZE, LOAD, ROLES) for each in (Configuration.Z_PROXY, Configuration.XZ))
    # It is one frame of a server for all clients of the proxy, which merges some itself; nginx is before composites.
    assert proxy.servers == composites.servers == 0
    assert 0 < proxy.between < send
    assert proxy.between < composites.between


def test_a_client_is_sent_what_it_is_written_by_each_server_that_it_needs() -> None:
    few, many = (
        amount(predict(Configuration.Z_CLIENT, SIZE, LOAD, fan_out=each), "delivery_us") for each in (1.0, 3.0)
    )
    assert (few, many) == pytest.approx((LOAD.sends_of(1.0), LOAD.sends_of(3.0)))
    assert few < many


def test_the_first_reader_of_the_brokers_is_in_their_other_costs() -> None:
    assert [terms.brokers(10, 4, readers, 0)["broker_reader_part_us"] for readers in (0, 1, 3)] == [0, 0, 8]
