import pytest

from deploy.topology import KafkaTopology, Mode
from tests.unit.deploy.topology.topologies import CLUSTER, topology


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        (Mode.ALL_TO_ALL, ["data", "nginx", "websocket-1", "websocket-2"]),
        (Mode.X_BROADCAST, ["data", "broadcast", "nginx", "websocket-1", "websocket-2"]),
        (Mode.X, ["kafka-1", "data", "bridge-1", "bridge-2", "nginx", "websocket-1", "websocket-2"]),
    ],
)
def test_active_processes_are_those_of_the_requested_servers(mode: Mode, names: list[str]) -> None:
    two = topology(mode, 2)
    assert [process.name for process in two.active(2)] == names
    assert two.max_servers == 8
    assert [process.name for process in two.active(3) if process not in two.active(2)] == (
        ["bridge-3", "websocket-3"] if mode is Mode.X else ["websocket-3"]
    )
    assert two.active(8) == two.processes


def test_stop_stages_let_clients_leave_through_running_processes() -> None:
    x = {process.process: process.stage for process in topology(Mode.X, 2).processes}
    assert sorted(x, key=x.__getitem__, reverse=True) == ["websocket", "nginx", "bridge", "data", "kafka"]
    node = {process.process: process.stage for process in topology(Mode.X_BROADCAST, 2).processes}
    assert sorted(node, key=node.__getitem__, reverse=True) == ["websocket", "nginx", "broadcast", "data"]


@pytest.mark.parametrize(
    ("mode", "names", "more"),
    [
        (
            Mode.Z_CLIENT,
            ["data", "metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2"],
            ["bridge-3", "websocket-3"],
        ),
        (
            Mode.Z_PROXY,
            ["data", "metadata", "bridge-1", "bridge-2", "websocket-1", "websocket-2", "proxy-1"],
            ["bridge-3", "websocket-3"],
        ),
        (Mode.Z_COMPOSITE, ["data", "composite-1"], []),
        (Mode.XZ, ["data", "nginx", "composite-1", "composite-2"], ["composite-3"]),
    ],
)
def test_processes_of_the_partitioned_modes(mode: Mode, names: list[str], more: list[str]) -> None:
    two = topology(mode, 2, kafka=CLUSTER)
    assert (two.servers, two.max_servers) == (2, 8)
    assert [process.name for process in two.active(2)] == names
    assert [process.name for process in two.active(3) if process not in two.active(2)] == more
    with_brokers = topology(mode, 2, kafka=KafkaTopology(brokers=3))
    assert [process.name for process in with_brokers.active(2)] == ["kafka-1", "kafka-2", "kafka-3", *names]


def test_names_of_running_processes_include_children_of_composites() -> None:
    inside = ("metadata", "bridge-1", "websocket-1", "proxy")
    composite = topology(Mode.Z_COMPOSITE, 1, kafka=CLUSTER)
    assert composite.names(1) == ("data", "composite-1", *(f"composite-1/{name}" for name in inside))
    assert set(composite.names(2)) - set(composite.names(1)) == {"composite-1/bridge-2", "composite-1/websocket-2"}
    xz = topology(Mode.XZ, 1, kafka=CLUSTER)
    assert set(xz.names(3)) - set(xz.names(2)) == {"composite-3", *(f"composite-3/{name}" for name in inside)}
    assert topology(Mode.X).names(1) == ("kafka-1", "data", "bridge-1", "nginx", "websocket-1")


def test_edges_stop_first_and_the_metadata_service_after_the_servers() -> None:
    proxied = {process.process: process.stage for process in topology(Mode.Z_PROXY, 2).processes}
    order = ["proxy", "websocket", "bridge", "metadata", "data", "kafka"]
    assert sorted(proxied, key=proxied.__getitem__, reverse=True) == order
    xz = {process.process: process.stage for process in topology(Mode.XZ, 2).processes}
    assert sorted(xz, key=xz.__getitem__, reverse=True) == ["composite", "nginx", "data", "kafka"]
