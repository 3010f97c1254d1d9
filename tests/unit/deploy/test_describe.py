from pathlib import Path

from deploy.describe import describe
from deploy.topology import KafkaOptions, Mode, Options, Ports, Programs, compose, sizes, slots
from diem.process.supervisor import State, Status


def test_brokers_and_nginx_are_listed_with_their_ports_and_without_an_internal_listener() -> None:
    kafka = KafkaOptions(brokers=1)
    ports = {slot.name: Ports(slot.public, slot.internal) for slot in slots(Mode.X, sizes(Mode.X, 1, None, 1))}
    x = compose(Options(Mode.X, Path("/state"), kafka=kafka), ports, Programs(("diem",)))
    statuses = [Status(process.name, State.RUNNING, 7, 1.26, 0, None) for process in x.active(1)]
    described = describe(x, statuses, up=True, uptime_seconds=2.34, servers=1)
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
    }
    assert described["kafka"] == {"bootstrap_servers": "127.0.0.1:9092", "replication": "1"}
    assert (described["mode"], described["servers"], described["max_servers"]) == ("x", 1, 8)
    assert processes["data"]["uptime_seconds"] == 1.3
