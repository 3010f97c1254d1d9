"""Resources that a process has used, from Linux's accounting."""

from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """Cost of one process, all threads."""

    cpu: float
    """Seconds of CPU (user and system), to the nanosecond: the scheduler's own account, not the 10 ms ticks."""
    writes: int
    """Write system calls."""

    def __sub__(self, earlier: "Cost") -> "Cost":
        return Cost(self.cpu - earlier.cpu, self.writes - earlier.writes)


def cost(pid: int) -> Cost:
    """Return the cost of a process so far; it should be asleep, or the last milliseconds are missing."""
    tasks = Path(f"/proc/{pid}/task")
    cpu = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
    return Cost(cpu / 1e9, _field(Path(f"/proc/{pid}/io"), "syscw"))


def rss_kib(pid: int) -> int:
    """Return the resident memory in KiB."""
    return _field(Path(f"/proc/{pid}/status"), "VmRSS")


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise LookupError(f"{path} has no {name}")
