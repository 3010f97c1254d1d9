from dataclasses import replace
from pathlib import Path

import pytest

from deploy.topology import Mode
from tests.unit.tools.hosts.systems import system
from tools.hosts.assignment import USUAL
from tools.hosts.units import SINGLE_MACHINE_UNIT, render_drop_in, render_target, render_unit, restrictions


def changes(of_mode: Mode, host: int, name: str) -> list[str]:
    of = system(of_mode)
    own = of.processes(of.hosts[host])
    (planned,) = [each for each in own if each.name == name]
    return render_drop_in(planned, own, USUAL).splitlines()


def unit(state_dir: Path = USUAL.state_dir) -> list[str]:
    return render_unit(replace(USUAL, state_dir=state_dir), 10.0).splitlines()


def test_every_process_has_its_own_variables_and_time_for_its_clients_to_leave() -> None:
    lines = unit()
    assert "EnvironmentFile=/etc/diem/%i.env" in lines
    assert lines.index("EnvironmentFile=-/etc/diem/local.env") > lines.index("EnvironmentFile=/etc/diem/%i.env")
    assert {"Type=notify", "WatchdogSec=15", "TimeoutAbortSec=2"} <= set(lines)
    # Configuration errors are not repeated.
    assert {"Restart=on-failure", "RestartPreventExitStatus=2", "TimeoutStopSec=20"} <= set(lines)


def test_server_starts_after_its_bridge() -> None:
    lines = changes(Mode.X, 1, "websocket-1")
    assert "After=diem@bridge-1.service" in lines
    assert "ExecStart=/opt/diem/.venv/bin/diem run websocket" in lines
    assert "MemoryMax=1024M" in lines
    assert "MemoryMax=2048M" in changes(Mode.X, 0, "data")


def test_restrictions_are_those_of_the_unit_of_one_machine_and_refuse_written_code() -> None:
    text = SINGLE_MACHINE_UNIT.read_text()
    options = [line for line in restrictions().splitlines() if not line.startswith("#") and line]
    assert "NoNewPrivileges=yes" in options
    assert options[-1] == "MemoryDenyWriteExecute=yes"
    assert all(f"\n{line}\n" in text for line in options[:-1])
    assert len(options) > 20
    assert set(options) <= set(unit())


@pytest.mark.parametrize("lines", [SINGLE_MACHINE_UNIT.read_text().splitlines(), unit()], ids=["diem", "diem@"])
def test_a_process_that_is_killed_for_lack_of_memory_does_not_end_those_beside_it(lines: list[str]) -> None:
    """By systemd's default, ``stop``, the whole unit ends."""
    service = lines[lines.index("[Service]") : lines.index("[Install]")]
    assert [line for line in service if line.startswith("OOMPolicy=")] == ["OOMPolicy=continue"]


def test_nginx_has_a_directory_that_systemd_removes_and_no_variables() -> None:
    lines = changes(Mode.X, 0, "nginx")
    assert "RuntimeDirectory=diem-nginx" in lines
    assert "ExecStart=/usr/sbin/nginx -p /run/diem-nginx -c /etc/diem/nginx.conf -e stderr" in lines
    assert {"Type=exec", "WatchdogSec=0", "EnvironmentFile=", "StateDirectory="} <= set(lines)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("/var/lib/energy/diem", "StateDirectory=energy/diem"), ("/srv/diem", "ReadWritePaths=/srv/diem")],
)
def test_state_directory_is_writable_wherever_it_is(state: str, expected: str) -> None:
    assert expected in unit(Path(state))


def test_target_starts_what_is_not_spare() -> None:
    of = system(Mode.X, servers=2, max_servers=4)
    lines = render_target("b", of.active(of.hosts[1])).splitlines()
    assert "Wants=diem@bridge-1.service diem@websocket-1.service" in lines
