import pytest

from deploy.topology import BadTopology, Mode
from tests.unit.deploy.topology.topologies import options_of
from tests.unit.tools.hosts.systems import PUBLIC, names, system
from tools.hosts.assignment import USUAL, assign
from tools.hosts.inventory import parse_hosts, with_roles


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Mode.X, {"a": "data nginx", "b": "bridge-1 websocket-1", "c": "bridge-2 websocket-2"}),
        (Mode.X_BROADCAST, {"a": "data broadcast nginx", "b": "websocket-1", "c": "websocket-2"}),
        (Mode.Z_PROXY, {"a": "data metadata proxy-1", "b": "bridge-1 websocket-1", "c": "bridge-2 websocket-2"}),
        (Mode.Z_CLIENT, {"a": "data metadata", "b": "bridge-1 websocket-1", "c": "bridge-2 websocket-2"}),
        (Mode.Z_COMPOSITE, {"a": "data", "b": "composite-1", "c": ""}),
        (Mode.XZ, {"a": "data nginx", "b": "composite-1", "c": "composite-2"}),
        (Mode.SINGLE, {"a": "data websocket-1", "b": "", "c": ""}),
    ],
)
def test_each_mode_has_a_place_for_every_process(mode: Mode, expected: dict[str, str]) -> None:
    assert names(system(mode)) == {label: found.split() for label, found in expected.items()}


def test_pairs_are_dealt_out_and_stay_together() -> None:
    of = system(Mode.X, servers=3)
    assert names(of)["b"] == ["bridge-1", "bridge-3", "websocket-1", "websocket-3"]
    assert names(of)["c"] == ["bridge-2", "websocket-2"]


def test_spare_servers_have_a_host_and_do_not_run() -> None:
    of = system(Mode.X, servers=2, max_servers=4)
    b = of.hosts[1]
    assert [each.name for each in of.processes(b)] == ["bridge-1", "bridge-3", "websocket-1", "websocket-3"]
    assert names(of)["b"] == ["bridge-1", "websocket-1"]


def test_stand_by_in_mode_single_has_a_server_beside_it() -> None:
    of = system(Mode.SINGLE, standby="b")
    assert names(of) == {"a": ["data", "websocket-1"], "b": ["data-2", "websocket-2"], "c": []}


def test_port_that_two_processes_of_a_host_would_use_is_refused() -> None:
    hosts = with_roles(parse_hosts("10.0.0.1"), Mode.SINGLE)
    with pytest.raises(BadTopology, match="--port 8101: data and websocket-1 would both"):
        assign(options_of(Mode.SINGLE, USUAL.state_dir, public=PUBLIC), hosts, USUAL, 8101)
