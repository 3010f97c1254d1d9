"""Resources that a process has used, from Linux's accounting."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_COMPILER: Final = " CompilerThre"
"""In the names of a JVM's compiler threads, which Linux cuts off."""


class Cost(NamedTuple):
    """Cost of one process, all threads."""

    cpu: float
    """Seconds of CPU (user and system), to the nanosecond: the scheduler's own account, not the 10 ms ticks."""
    waited: float
    """Seconds for which threads were ready to run, and had no core."""
    writes: int
    """Write system calls."""

    def __sub__(self, earlier: "Cost") -> "Cost":
        return Cost(self.cpu - earlier.cpu, self.waited - earlier.waited, self.writes - earlier.writes)


def cost(pid: int) -> Cost:
    """Return the cost of a process so far; it should be asleep, or the last milliseconds are missing."""
    tasks = Path(f"/proc/{pid}/task")
    threads = [[int(number) for number in (task / "schedstat").read_text().split()] for task in tasks.iterdir()]
    cpu, waited = (sum(thread[at] for thread in threads) / 1e9 for at in (0, 1))
    return Cost(cpu, waited, _field(Path(f"/proc/{pid}/io"), "syscw"))


def rss_kib(pid: int) -> int:
    """Return the resident memory in KiB."""
    return _field(Path(f"/proc/{pid}/status"), "VmRSS")


def pss_kib(pid: int) -> int:
    """Return the proportional memory in KiB: of a page that n processes share, an nth; of several, the sum is true.

    Not for differences: a page that a process writes to is no longer shared.
    """
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far, also those of threads that have ended, as some of a JVM's do."""
    # The clock of a process on Linux, as clock_getcpuclockid(3) makes its number.
    return time.clock_gettime(~pid << 3 | 2)


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds so far of a process and of the processes below it."""
    total = 0.0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            total += spent.user + spent.system
    return total


def serving_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far, without those of a JVM's compiler, whose threads come and go."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # ended meanwhile
            if _COMPILER not in (task / "comm").read_text():
                seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def open_files(pid: int, containing: str) -> int:
    """Return the open files of a process whose paths contain a text."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += containing in str(each.readlink())
    return found


def mappings(pid: int, containing: str) -> int:
    """Return the memory mappings of files whose paths contain a text; ``vm.max_map_count`` limits them."""
    return Path(f"/proc/{pid}/maps").read_bytes().count(containing.encode())


def written_bytes(pid: int) -> int:
    """Return the bytes that a process has caused to be written to a disk, also those that are still in memory."""
    return _field(Path(f"/proc/{pid}/io"), "write_bytes")


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise LookupError(f"{path} has no {name}")
