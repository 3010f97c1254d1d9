"""Figures of a running system: from replies of ``status`` and a description of Kafka."""

from typing import Any

from diem.kafka.metadata import Cluster, Partition, Topic
from tools.size.measure import of_status, with_cluster
from tools.size.sizing import Figures


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
    assert found.subscribers.value == 4
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
    found = with_cluster(Figures(), cluster, [{}, {"broker.session.timeout.ms": "2000"}], "diem.updates")
    assert found.session_timeout_s == (2, "Kafka, now")
    assert with_cluster(Figures(), cluster, [{}], "diem.updates").session_timeout_s == (9, "Kafka's default")
    assert found.brokers is not None
    assert found.partitions is not None
    assert (found.brokers.value, found.partitions.value, found.other_partitions.value) == (2, 12, 5)
    missing = with_cluster(Figures(), cluster, [], "other.updates")
    assert (missing.partitions, missing.other_partitions.value) == (None, 17)
