import pytest

from deploy.topology import KafkaTopology, Mode
from tests.unit.deploy.topology.topologies import CLUSTER, topology

PAIRS = "bridge-1 bridge-2", "websocket-1 websocket-2"


@pytest.mark.parametrize(
    ("mode", "names", "more", "stops"),
    [
        (Mode.ALL_TO_ALL, f"data nginx {PAIRS[1]}", "websocket-3", "websocket nginx data"),
        (Mode.X_BROADCAST, f"data broadcast nginx {PAIRS[1]}", "websocket-3", "websocket nginx broadcast data"),
        (Mode.X, f"data {PAIRS[0]} nginx {PAIRS[1]}", "bridge-3 websocket-3", "websocket nginx bridge data"),
        (Mode.Z_CLIENT, f"data metadata {' '.join(PAIRS)}", "bridge-3 websocket-3", "websocket bridge metadata data"),
        (
            *(Mode.Z_PROXY, f"data metadata {' '.join(PAIRS)} proxy-1", "bridge-3 websocket-3"),
            "proxy websocket bridge metadata data",
        ),
        (Mode.Z_COMPOSITE, "data composite-1", "", "composite data"),
        (Mode.XZ, "data nginx composite-1 composite-2", "composite-3", "composite nginx data"),
    ],
)
def test_processes_of_a_mode_and_the_order_in_which_they_stop(mode: Mode, names: str, more: str, stops: str) -> None:
    """Clients leave through running processes, edges first."""
    two = topology(mode, 2, kafka=KafkaTopology(brokers=3))
    brokers = ["kafka-1", "kafka-2", "kafka-3"] if mode.uses_kafka else []
    assert (two.servers, two.max_servers) == (2, 8)
    assert [process.name for process in two.active(2)] == [*brokers, *names.split()]
    assert [process.name for process in two.active(3) if process not in two.active(2)] == more.split()
    assert two.active(8) == two.processes
    stages = {process.process: process.stage for process in two.processes}
    assert sorted(stages, key=stages.__getitem__, reverse=True) == [*stops.split(), *(["kafka"] if brokers else [])]


def test_names_of_running_processes_include_children_of_composites() -> None:
    inside = ("metadata", "bridge-1", "websocket-1", "proxy")
    composite = topology(Mode.Z_COMPOSITE, 1, kafka=CLUSTER)
    assert composite.names(1) == ("data", "composite-1", *(f"composite-1/{name}" for name in inside))
    assert set(composite.names(2)) - set(composite.names(1)) == {"composite-1/bridge-2", "composite-1/websocket-2"}
    xz = topology(Mode.XZ, 1, kafka=CLUSTER)
    assert set(xz.names(3)) - set(xz.names(2)) == {"composite-3", *(f"composite-3/{name}" for name in inside)}
    assert topology(Mode.X).names(1) == ("kafka-1", "data", "bridge-1", "nginx", "websocket-1")
