"""The unit file: its rating by systemd, and that DIEM starts under the restrictions it makes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.hosts.assignment import USUAL
from deploy.hosts.units import render_unit, unit_name
from deploy.topology import Mode
from tests.integration.deploy.running import eventually, up
from tests.support import sandbox
from tests.support.nginx import needs_nginx
from tests.support.required import unavailable
from tests.unit.deploy.hosts.systems import system

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy" / "systemd" / "diem.service"
MAX_EXPOSURE = 2.0
OWN_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Root becomes the owner of its files under another number, and has no capabilities: nginx would else change owners."""


def launcher(unit: Path) -> tuple[str, ...]:
    """Return what starts a command under the restrictions of a unit; skip the test where that is impossible."""
    restrict = (sys.executable, "-m", "tests.support.sandbox", str(unit))
    prefix = (*OWN_USER, *restrict) if os.geteuid() == 0 else restrict
    if (tried := run(prefix, "true")).returncode:
        unavailable("what a systemd unit restricts", sandbox.Unsupported(tried.stderr[-300:]))
    return prefix


def run(prefix: Sequence[str], *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*prefix, *command], env=environment, capture_output=True, text=True, check=False)


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
    unit.write_text(render_unit(planned, [], USUAL, 10.0))
    assert (found := rated(unit)).returncode == 0, found.stdout + found.stderr


def test_systemd_rates_its_exposure_below_two() -> None:
    assert (found := rated(UNIT)).returncode == 0, found.stdout + found.stderr
    loose = run((), "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=1", str(UNIT))
    assert loose.returncode != 0, "the threshold is not looked at"


@pytest.mark.takes(4)
async def test_without_java_diem_starts_where_no_memory_is_written_and_executed(tmp_path: Path) -> None:
    unit = written_and_executed_memory_refused(tmp_path)
    async with up(tmp_path, "--mode", "single", launcher=launcher(unit)) as running:
        await eventually(lambda: "DIEM is up" in "\n".join(running.output))
        assert "running as root" not in "\n".join(running.output)


@needs_nginx
@pytest.mark.takes(15)
async def test_the_modes_with_nginx_and_the_local_kafka_start_under_the_unit(
    tmp_path: Path, kafka_program: object
) -> None:
    async with up(tmp_path, "--mode", "x", "--servers", "1", launcher=launcher(UNIT)) as running:
        assert running.described()["up"]


def test_the_restrictions_hold(tmp_path: Path) -> None:
    """Else the two tests above would show nothing."""
    priority = "import os; os.nice(1)"
    memory = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)"
    assert run((), sys.executable, "-c", f"{priority}; {memory}").returncode == 0
    for unit, code in ((UNIT, priority), (written_and_executed_memory_refused(tmp_path), memory)):
        refused = run(launcher(unit), sys.executable, "-c", code)
        assert refused.returncode == 1
        assert "PermissionError" in refused.stderr, refused.stderr
