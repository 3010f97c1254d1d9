from pathlib import Path

from deploy.system.description import describe, with_children
from deploy.topology import KafkaTopology, Mode, Ports, Programs, compose, sizes, sizes_of, slots
from diem.process.supervisor import ChildState, ChildStatus
from tests.unit.deploy.topology.topologies import options_of


def test_brokers_and_nginx_are_listed_with_their_ports_and_without_an_internal_listener() -> None:
    kafka = KafkaTopology(brokers=1)
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(Mode.X, sizes(Mode.X, 1, None, 1))}
    x = compose(options_of(Mode.X, Path("/state"), kafka=kafka), ports, Programs(("diem",)))
    statuses = [ChildStatus(process.name, ChildState.RUNNING, 7, 1.26, 0, None) for process in x.active(1)]
    described = describe(
        x, statuses, up=True, uptime_seconds=2.34, servers=1, operator_url="http://localhost:8090/admin"
    )
    processes = {process["name"]: process for process in described["processes"]}
    assert list(processes) == ["kafka-1", "data", "bridge-1", "nginx", "websocket-1"]
    assert processes["kafka-1"]["process"] == "kafka"
    assert processes["kafka-1"]["ports"] == {"public": 9092, "internal": 9096}
    assert processes["kafka-1"]["urls"] == {"public": None, "internal": None}
    assert processes["nginx"]["urls"] == {"public": "http://127.0.0.1:8000/", "internal": None}
    assert processes["bridge-1"]["urls"] == {"public": None, "internal": "http://127.0.0.1:9201"}
    assert described["urls"] == {
        "page": "http://127.0.0.1:8000/",
        "rest": "http://127.0.0.1:8000/v1",
        "websocket": ["ws://127.0.0.1:8000/ws"],
        "operator": "http://localhost:8090/admin",
    }
    # The user depends on the command.
    assert described["kafka"] == {
        "bootstrap_servers": "127.0.0.1:9092",
        "replication": "1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
    }
    assert (described["mode"], described["servers"], described["max_servers"]) == ("x", 1, 8)
    assert processes["data"]["uptime_seconds"] == 1.3


def test_z_client_description_has_running_servers_and_the_metadata_service() -> None:
    options = options_of(Mode.Z_CLIENT, Path("/state"), 1, clones=2, kafka=KafkaTopology(bootstrap_servers="h:1"))
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(Mode.Z_CLIENT, sizes_of(options))}
    z = compose(options, ports, Programs(("diem",)))
    described = describe(z, [], up=True, uptime_seconds=1, servers=2)
    assert described["urls"] == {
        "page": "http://127.0.0.1:8080/",
        "rest": "http://127.0.0.1:8080/v1",
        "websocket": [f"ws://127.0.0.1:{port}/ws" for port in (8101, 8102, 8109, 8110)],
        "metadata": ["http://127.0.0.1:8400/v1"],
    }
    assert (described["servers"], described["max_servers"], described["clones"]) == (2, 8, 2)


def test_children_of_composites_have_full_names() -> None:
    composite = {"name": "composite-1", "report": {"children": [{"name": "proxy", "pid": 7}]}}
    listed = dict(with_children([{"name": "data", "report": None}, composite]))
    assert list(listed) == ["data", "composite-1", "composite-1/proxy"]
    assert listed["composite-1/proxy"]["pid"] == 7
