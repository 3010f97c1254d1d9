"""One table of modes: what is added to it reaches every way to run a mode, and nothing else has to change."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.install import chart_modes as chart
from deploy.topology import Mode
from diem.process import modes
from diem.process.addresses import Ports
from diem.process.modes import CLIENTS_OF_KAFKA, KINDS, PROCESSES_OF, RECORDERS, SETTINGS, Kind, StopStage
from diem.process.settings import PROCESSES, known_variables, settings_of
from services.composite.plan import CompositePlan, children
from tests.unit.deploy.topology.topologies import CLUSTER, env, topology
from tools.hosts import env_file

EXAMPLE = "DIEM_WEBSOCKET_CAPACITY"
HOSTS = ("--hosts", "10.0.0.1", "--out", "out", "--bootstrap-servers", "k:9092", "--front-proxy", "10.0.0.9")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting more: every server has it, with a value that follows from its place."""
    rows = {**SETTINGS["websocket"], "CAPACITY": lambda place: f"1{place.own.internal}"}
    monkeypatch.setattr(modes, "SETTINGS", {**SETTINGS, "websocket": rows})


@pytest.mark.usefixtures("added")
def test_a_setting_of_the_table_reaches_every_way_to_run_a_mode(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert env(topology(Mode.X, 2, kafka=CLUSTER), "websocket-2")[EXAMPLE] == "19102"
    plan = CompositePlan(1, "xz", "127.0.0.1", 8601)
    inside = {child.name: child.env for child in children(plan, 2, lambda _name: Ports(20_001, 21_001))}
    assert inside["websocket-2"][EXAMPLE] == "121001"
    assert diem("config", "x") == 0
    assert f"{EXAMPLE}=19101" in capsys.readouterr().out
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("deploy.nginx.PLACES", ())
    assert diem("config", "z-proxy", *HOSTS, "--origin", "https://app.example") == 0
    written = env_file.parse(Path("out/hosts/host1/etc/websocket-1.env").read_text())
    assert written[EXAMPLE] == "19101"
    assert json.loads(chart.render())["settings"]["websocket"][EXAMPLE] == "19101"


def test_a_process_of_the_table_is_started_after_those_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "KINDS", {**KINDS, "broadcast": Kind(StopStage.BRIDGE, None, 9300)})
    monkeypatch.setattr(modes, "PROCESSES_OF", {**PROCESSES_OF, Mode.SINGLE: ("data", "broadcast", "websocket")})
    composed = topology(Mode.SINGLE)
    assert [each.name for each in composed.processes] == ["data", "broadcast", "websocket-1"]
    assert env(composed, "broadcast")["DIEM_BROADCAST_FEED_URL"] == "ws://127.0.0.1:9080/feed"
    assert env(composed, "websocket-1")["DIEM_WEBSOCKET_FEED_URL"] == "ws://127.0.0.1:9300/feed"


@pytest.mark.parametrize("process", PROCESSES)
def test_settings_and_ports_of_the_table_are_those_of_the_processes(process: str) -> None:
    model = settings_of(process)
    groups = {
        "DIEM": "all",
        "DIEM_KAFKA": "kafka" if process in {*CLIENTS_OF_KAFKA, *RECORDERS} else "",
        # A composite has those of recorded traffic for its children.
        "DIEM_TRAFFIC": "traffic" if process in {*RECORDERS} - {"composite"} else "",
        f"DIEM_{process.upper()}": process,
    }
    named = {f"{prefix}_{name}" for prefix, group in groups.items() if group for name in SETTINGS[group]}
    assert named <= known_variables(model)
    fields = model.model_fields
    assert KINDS[process].internal == fields["internal_port"].default
    assert KINDS[process].public == (fields["port"].default if "port" in fields else None)


@pytest.mark.parametrize("mode", Mode)
def test_every_process_of_a_mode_has_a_kind_and_the_last_one_serves_clients(mode: Mode) -> None:
    assert set(mode.processes) <= KINDS.keys()
    assert mode.serves(mode.edge)
    assert sorted(mode.processes, key=list(KINDS).index) == list(mode.processes)


PROTOCOL = Path(__file__).parents[4] / "docs" / "protocol.md"
NAMES = {"data": "Data Service", "websocket": "WebSocket server", "broadcast": "Broadcast node", "kafka": "broker"}
PORT = re.compile(r"(\d{4})( \+ n)?")


def test_documented_ports_are_those_of_the_table() -> None:
    section = PROTOCOL.read_text().partition("\n## 4. Listeners\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    for process, kind in KINDS.items():
        name = NAMES.get(process, process)
        (row,) = (
            [row for row in rows if re.match(rf"{name}\b", row[0])]
            if process != "metadata"
            else [row for row in rows if row[0] == "metadata service"]
        )
        ports = [PORT.match(cell) for cell in row[1:]]
        assert [port and int(port[1]) + bool(port[2]) for port in ports] == [kind.public, kind.internal]


def test_every_stage_of_a_stop_is_one_of_its_own() -> None:
    assert len(StopStage) == len(StopStage.__members__)
