"""``deploy/compose.yaml``: read by Docker's own loader, and its services started as processes in one network."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from diem.process.modes import Mode
from tests.integration.deploy.running import ROOT
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster, unavailable

FILE = ROOT / "deploy" / "compose.yaml"
LOADER = ROOT / "tests" / "compose"

pytestmark = in_cluster("Docker's loader is compiled, and it starts PostgreSQL, Kafka, DIEM and Prometheus")


def resolved(folder: Path, mode: Mode) -> Path:
    """Return a file with the services of a mode, and its metrics, as Docker starts them."""
    if shutil.which("go") is None:
        unavailable("Go", FileNotFoundError("go is not installed: run deploy/install/go.sh"))
    ran = subprocess.run(
        ("go", "run", ".", str(FILE), mode, "metrics"), cwd=LOADER, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    file = folder / "project.json"
    file.write_text(ran.stdout)
    return file


@pytest.mark.parametrize("mode", Mode)
def test_services_of_a_mode_find_each_other_and_an_update_reaches_a_watcher(mode: Mode, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    project = resolved(tmp_path, mode)
    services = json.loads(project.read_text())["services"]
    assert services.keys() - {"kafka"} == {mode, "network", "postgres", "prometheus", "grafana"}
    # Not below pytest's own directory, which it closes to PostgreSQL's user.
    with tempfile.TemporaryDirectory(prefix="diem-compose-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        argv = [sys.executable, "-m", "tests.integration.deploy.composed", str(project), str(folder), mode]
        ran = subprocess.run(
            ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *argv),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=12 * PATIENCE_S,
            check=False,
        )
        logs = "".join(f"{file.name}:\n{file.read_text()[-2000:]}\n" for file in folder.glob("*.log"))
        assert ran.returncode == 0, ran.stderr + logs
        found = json.loads(ran.stdout)
        assert "/compose/one" in found["update"]
        assert {"data", "websocket"} <= set(found["scraped"])
