"""Figures of a running system: from replies of ``status``, a description of Kafka, and recorded traffic."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diem.kafka.metadata import Cluster, Partition, Topic
from learning.costs import DEFAULT
from tools.size.measure import of_status, read_recorded, with_cluster, with_recorded
from tools.size.workload import without_system


def status(mode: str, sequence: int, servers: int, clones: int = 0) -> dict[str, Any]:
    data = {"name": "data", "process": "data", "report": {"sequence": sequence, "endpoints": 50}}
    report = {"subscriptions": 100, "endpoints": 50}
    others = [{"name": f"websocket-{n}", "process": "websocket", "report": report} for n in range(1, servers + 1)]
    return {
        "mode": mode,
        "clones": clones,
        "processes": [data, *others, {"name": "nginx", "process": "nginx", "report": None}],
    }


def test_rates_are_measured_between_two_replies() -> None:
    found = of_status(status("x", 100, 2), status("x", 150, 2), 2.0)
    assert (found.updates.value, found.updates.origin) == (25, "measured for 2.0 s")
    assert (found.endpoints.value, found.subscribers.value) == (50, 4)
    # Each server of mode x has a group of its own.
    assert (found.servers.value, found.groups.value, found.partitioned) == (2, 2, False)


def test_clones_of_a_partitioned_mode_are_the_groups() -> None:
    found = of_status(status("z-client", 0, 6, clones=2), status("z-client", 0, 6, clones=2), 1.0)
    assert (found.servers.value, found.groups.value, found.partitioned) == (3, 2, True)


def test_servers_within_composites_count() -> None:
    child = {"name": "websocket-1", "process": "websocket", "report": {"subscriptions": 7}}
    composite = {"name": "composite-1", "process": "composite", "report": {"children": [child], "subscriptions": 7}}
    reply = {"mode": "z-composite", "clones": 0, "processes": [composite]}
    assert of_status(reply, reply, 1.0).servers.value == 1


def test_a_store_that_was_replaced_meanwhile_has_no_negative_rate() -> None:
    assert of_status(status("single", 100, 1), status("single", 3, 1), 1.0).updates.value == 0


def test_kafka_has_brokers_and_partitions() -> None:
    topics = {
        name: Topic(name, "id", {n: Partition(1, (1,), (1,)) for n in range(count)})
        for name, count in (("diem.updates", 12), ("diem.hot", 1), ("__consumer_offsets", 4))
    }
    cluster = Cluster("c", 1, {1: ("a", 1), 2: ("b", 1)}, topics)
    found = with_cluster(without_system(), cluster, [{}, {"broker.session.timeout.ms": "2000"}], "diem.updates")
    assert found.session_timeout_s == (2, "Kafka, now")
    assert with_cluster(without_system(), cluster, [{}], "diem.updates").session_timeout_s == (9, "Kafka's default")
    assert found.brokers is not None
    assert found.partitions is not None
    assert (found.brokers.value, found.partitions.value, found.other_partitions.value) == (2, 12, 5)
    missing = with_cluster(without_system(), cluster, [], "other.updates")
    assert (missing.partitions, missing.other_partitions.value) == (None, 17)


def test_recorded_traffic_counts_if_it_is_busier_than_now() -> None:
    rows = [("/a", 30.0, 2.0, 700.0), ("/b", 10.0, 6.0, 650.0)]
    quiet = with_recorded(without_system(), "statistics", rows)
    assert (quiet.updates.value, quiet.updates.origin) == (40, "busy minutes of statistics")
    # Weighted by updates: (30 x 2 + 10 x 6) / 40.
    assert quiet.subscribers.value == 3
    assert quiet.loads == (("/a", 700.0), ("/b", 650.0))
    busy = of_status(status("single", 0, 1), status("single", 100, 1), 1.0)
    assert with_recorded(busy, "statistics", rows).updates.value == 100


@pytest.mark.parametrize("exists", [False, True])
def test_without_statistics_nothing_is_recorded(tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "warehouse").mkdir()
    assert read_recorded(tmp_path / "warehouse", DEFAULT) is None


def test_the_latest_statistics_are_read(tmp_path: Path) -> None:
    for name, rate in (("first", 1.0), ("second", 3.0)):
        folder = tmp_path / "statistics" / name
        folder.mkdir(parents=True)
        window = {"from": f"2026-01-0{rate:.0f}T00:00:00Z", "to": f"2026-01-0{rate:.0f}T01:00:00Z"}
        (folder / "window.json").write_text(json.dumps(window))
        rows = {"endpoint": ["/a", "/b"], "rate": [rate, 2.0], "subscribers": [3.0, 3.0], "busy_rate": [rate, 2.0]}
        pq.write_table(pa.table(rows), folder / "endpoints.parquet")
    found = read_recorded(tmp_path, DEFAULT)
    assert found is not None
    window_name, rows_read = found
    assert window_name == "statistics until 2026-01-03T01:00:00Z"
    assert [(endpoint, round(rate, 1)) for endpoint, rate, _, _ in rows_read] == [("/a", 3.0), ("/b", 2.0)]
    # Load: updates/s of 5 us, with 10 us for each subscriber.
    assert [load for *_, load in rows_read] == pytest.approx([3 * 35, 2 * 35], rel=0.05)
    (tmp_path / "statistics" / "second" / "endpoints.parquet").write_bytes(b"broken")
    assert read_recorded(tmp_path, DEFAULT) is None
