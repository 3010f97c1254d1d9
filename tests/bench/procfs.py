"""What a process has cost so far, as Linux accounts it."""

from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """Of one process, all threads."""

    cpu: float
    """Seconds of CPU (user and system), to the nanosecond: the scheduler's own account, not the 10 ms ticks."""
    writes: int
    """Write system calls."""

    def __sub__(self, earlier: "Cost") -> "Cost":
        return Cost(self.cpu - earlier.cpu, self.writes - earlier.writes)


def cost(pid: int) -> Cost:
    """What a process has cost until now; it should be asleep, or the last milliseconds are missing."""
    tasks = Path(f"/proc/{pid}/task")
    cpu = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
    return Cost(cpu / 1e9, _field(Path(f"/proc/{pid}/io"), "syscw"))


def rss_kib(pid: int) -> int:
    """Resident memory in KiB."""
    return _field(Path(f"/proc/{pid}/status"), "VmRSS")


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise LookupError(f"{path} has no {name}")
