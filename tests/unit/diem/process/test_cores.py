"""Cores within the CPU limits of control groups."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diem.process import cores
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif("sys.platform != 'linux'")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "350000 100000"}, 3),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "1600000 100000"}, 8),
        ("0::/", {"cpu.max": "nonsense"}, 8),
        # The least of all above it counts; the path outside of a container is not there.
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "400000 100000"}, 2),
        ("0::/outside/b", {"cpu.max": "400000 100000"}, 4),
        ("3:cpuset:/\n1:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, 3),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_limit_of_a_container_bounds_the_cores_of_its_affinity(
    groups: str, files: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(8))
    (tmp_path / "cgroup").write_text(f"{groups}\n")
    for name, text in files.items():
        file = tmp_path / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert cores.usable_cores(tmp_path / "cgroup", tmp_path / "mount") == expected


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert cores.usable_cores(tmp_path / "none", tmp_path) == len(os.sched_getaffinity(0))


def test_process_waits_for_a_core_that_another_has_and_not_while_it_is_stopped() -> None:
    core = min(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:

        def spinning() -> int:
            process = stack.enter_context(subprocess.Popen((sys.executable, "-c", "while True: pass")))
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {core})
            return process.pid

        pid = spinning()
        spinning()
        deadline = time.monotonic() + PATIENCE_S
        while cores.waited_for_core_s(pid) < 0.1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.01)
        before = cores.waited_for_core_s(pid)
        time.sleep(0.1)
        assert cores.waited_for_core_s(pid) == before
    assert cores.waited_for_core_s(pid) == 0.0
