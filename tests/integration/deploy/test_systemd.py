"""The unit file: its rating by systemd, and that DIEM starts under the restrictions it makes.

The local Kafka runs under them in ``tests/integration/security/test_kafka.py``.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.topology import KafkaTopology, Mode
from tests.integration.deploy.running import up
from tests.support import sandbox
from tests.support.nginx import needs_nginx
from tests.support.patience import until
from tests.support.required import unavailable
from tests.support.sandbox import run
from tests.unit.deploy.topology.topologies import options_of
from tests.unit.tools.hosts.systems import PUBLIC, THREE, system
from tools.hosts.assignment import USUAL, assign
from tools.hosts.inventory import with_roles
from tools.hosts.units import render_drop_in, render_unit, unit_name

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "systemd" / "diem.service"
MAX_EXPOSURE = 2.0


def launcher(unit: Path) -> tuple[str, ...]:
    """Return what starts a command under the restrictions of a unit; skip the test where that is impossible."""
    try:
        return sandbox.launcher(unit)
    except sandbox.Unsupported as error:
        unavailable("what a systemd unit restricts", error)


def written_and_executed_memory_refused(directory: Path) -> Path:
    """Return a copy of the unit as the modes without Java may have it."""
    text = UNIT.read_text()
    assert text.count("MemoryDenyWriteExecute=no\n") == 1
    copy = directory / "diem.service"
    copy.write_text(text.replace("MemoryDenyWriteExecute=no", "MemoryDenyWriteExecute=yes"))
    return copy


def rated(unit: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        unavailable("systemd-analyze", FileNotFoundError("systemd-analyze is not installed"))
    limit = f"--threshold={int(MAX_EXPOSURE * 10)}"
    return run((), "systemd-analyze", "security", "--offline=true", "--no-pager", limit, str(unit))


@pytest.mark.parametrize("process", ["data", "nginx"])
def test_systemd_rates_the_exposure_of_units_of_several_hosts_below_two(tmp_path: Path, process: str) -> None:
    of = system(Mode.X)
    (planned,) = [each for each in of.topology.processes if each.name == process]
    unit = tmp_path / unit_name(process)
    changes = render_drop_in(planned, [], USUAL).partition("[Service]\n")[2]
    unit.write_text(render_unit(USUAL, 10.0).replace("[Install]", f"{changes}\n[Install]"))
    assert (found := rated(unit)).returncode == 0, found.stdout + found.stderr


def test_systemd_rates_its_exposure_below_two() -> None:
    assert (found := rated(UNIT)).returncode == 0, found.stdout + found.stderr
    loose = run((), "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=1", str(UNIT))
    assert loose.returncode != 0, "the threshold is not looked at"


def test_a_port_below_1024_takes_one_capability_and_no_right_of_other_users(tmp_path: Path) -> None:
    dropped = (UNIT.parent / "privileged-port.conf").read_text().partition("[Service]\n")[2]
    unit = tmp_path / "diem.service"
    unit.write_text(UNIT.read_text().replace("[Install]", f"{dropped}\n[Install]"))
    assert sandbox.settings(unit)["AmbientCapabilities"] == ["", "CAP_NET_BIND_SERVICE"]
    assert (found := rated(unit)).returncode == 0, found.stdout + found.stderr
    placed = with_roles(THREE, Mode.X, None)
    options = options_of(Mode.X, USUAL.state_dir, public=PUBLIC, kafka=KafkaTopology(bootstrap_servers="k:9092"))
    of = assign(options, placed, USUAL, 443)
    units = {each.name: render_drop_in(each, [], USUAL) for each in of.topology.processes}
    assert [name for name, text in units.items() if "CAP_NET_BIND_SERVICE" in text] == ["nginx"]
    assert dropped.strip() in units["nginx"]


@needs_nginx
@pytest.mark.takes(6)
async def test_without_java_diem_starts_where_no_memory_is_written_and_executed(tmp_path: Path) -> None:
    unit = written_and_executed_memory_refused(tmp_path)
    async with up(tmp_path, "--mode", "all-to-all", "--nginx", "--servers", "1", launcher=launcher(unit)) as running:
        await until(lambda: "DIEM is up" in "\n".join(running.output))
        assert "running as root" not in "\n".join(running.output)
        assert "nginx" in running.pids()


def test_the_restrictions_hold(tmp_path: Path) -> None:
    """Else what starts under them would show nothing."""
    priority = "import os; os.nice(1)"
    memory = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)"
    assert run((), sys.executable, "-c", f"{priority}; {memory}").returncode == 0
    for unit, code in ((UNIT, priority), (written_and_executed_memory_refused(tmp_path), memory)):
        refused = run(launcher(unit), sys.executable, "-c", code)
        assert refused.returncode == 1
        assert "PermissionError" in refused.stderr, refused.stderr
