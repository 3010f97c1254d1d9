"""Cores: those that this process and its children may use, and the time that a process has waited for one."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


def usable_cores(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """Return the number of whole cores, at least 1.

    Args:
        groups: the control groups of the process (cgroups(7)).
        mount: where their files are, of either version.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, int(min([cores, *_limits(groups, mount)])))


def waited_for_core_s(pid: int) -> float:
    """Return the seconds for which the main thread of a process could run and had no core; 0 where Linux does not tell.

    From ``/proc/PID/schedstat`` (proc_pid_schedstat(5)).
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _limits(groups: Path, mount: Path) -> Iterator[float]:
    """Yield the CPU limit of each control group of the process, in cores."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = mount / "cpu" if controllers else mount
        # A container may see only the directory of its own group, as the mount, whatever its path outside.
        own = top / path.lstrip("/")
        for directory in (own, *own.parents):
            yield from _limit(directory)
            if directory == top:
                break


def _limit(directory: Path) -> Iterator[float]:
    """Yield the limit of one group: of ``cpu.max`` in version 2, of the CFS quota in version 1."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = (word for file in files for word in (directory / file).read_text().split())
            if quota not in {"max", "-1"}:
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
