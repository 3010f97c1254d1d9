"""Cores within the CPU limits of control groups."""

import os
from pathlib import Path

import pytest

from diem.process import cores

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
