"""``python -m tests.integration.deploy.systemd LOG FOLDER INSTALLED``: a host whose service manager is systemd.

It runs in a network and a mount namespace of its own, has systemd as the first process of further namespaces, and
takes and prints the lines of :mod:`units`. The host has a copy of this machine's ``/etc``, an empty
``/var/lib``, DIEM at the usual path, and of systemd's own units only the journal. FOLDER has ``copied``, the directory
that is installed; what units print is appended to LOG. INSTALLED has DIEM's packages.
"""

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.patience import PATIENCE_S
from tools.hosts.units import TARGET

SYSTEMD: Final = Path("/usr/lib/systemd/systemd")
CGROUPS: Final = Path("/sys/fs/cgroup")
VERSION_1: Final = {
    "systemd": "-t cgroup -o none,name=systemd cgroup",
    "memory": "-t cgroup -o memory cgroup",
    "pids": "-t cgroup -o pids cgroup",
    "unified": "-t cgroup2 cgroup2",
}
"""Hierarchies of a machine with cgroups of version 1 by directory, and how each is mounted."""
VERSION_2: Final = {"": "-t cgroup2 cgroup2"}
UNITS: Final = Path("/etc/systemd/system")
OWN_UNITS: Final = Path("/usr/lib/systemd/system")
JOURNAL: Final = "systemd-journald.service"
JOURNAL_OPTIONS: Final = "[Journal]\\nStorage=volatile\\nReadKMsg=no\\nAudit=no\\nRateLimitIntervalSec=0\\n"
LONGEST_ENTRY: Final = 4 * 1024 * 1024
"""Of the journal, in bytes."""
STUBS: Final = ("sysinit", "basic", "shutdown", "network-online", "multi-user")
"""Targets of systemd that units name."""
SOFTWARE: Final = Path("/opt/diem")
RELEASE: Final = SOFTWARE / "releases" / "installed"
PYTHON: Final = SOFTWARE / "python"
ENVIRONMENT: Final = SOFTWARE / ".venv"
PROGRAM: Final = f"""#!/bin/sh
LD_LIBRARY_PATH={PYTHON}/lib PYTHONPATH={RELEASE} exec {ENVIRONMENT}/bin/python -m deploy "$@"
"""


def why_not() -> str:
    """Return why no host with systemd can be made here; empty if one can."""
    if not SYSTEMD.exists():
        return "systemd is not installed"
    missing = [str(CGROUPS / name) for name in _hierarchies() if not (CGROUPS / name / "cgroup.procs").exists()]
    return f"these are no cgroups: {', '.join(missing)}" if missing else ""


def _hierarchies() -> Mapping[str, str]:
    return VERSION_2 if (CGROUPS / "cgroup.controllers").exists() else VERSION_1


def _groups(name: str) -> list[Path]:
    return [CGROUPS / hierarchy / f"diem-tests-{name}" for hierarchy in _hierarchies()]


def remove_groups(name: str) -> None:
    """Remove the cgroups of a host of this process that has ended."""
    for group in _groups(f"{os.getpid()}-{name}"):
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _boot(folder: Path, installed: Path, name: str) -> str:
    """Return the script that makes the host, in its namespaces, and becomes systemd."""
    mounts = [
        "mount --make-rprivate /",
        "mount -t proc proc /proc",
        # Settings of the kernel are this machine's.
        "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys",
        # The log of the kernel and the terminal are this machine's, too.
        "mount --bind /dev/null /dev/kmsg && mount --bind /dev/null /dev/console",
        "mkdir -p /run/upper /run/work /run/units",
        f"cp {OWN_UNITS}/systemd-journald.service {OWN_UNITS}/systemd-journald.socket /run/units",
        "mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc",
        *(f"mount -t tmpfs tmpfs {path}" for path in (UNITS, OWN_UNITS, "/var/lib", "/opt", CGROUPS)),
        f"cp /run/units/* {OWN_UNITS}",
        "mount -t tmpfs tmpfs /usr/lib/systemd/system-generators",
        *(f"mkdir -p {CGROUPS / each} && mount {how} {CGROUPS / each}" for each, how in _hierarchies().items()),
        # This Python, which may be in a home directory, and the packages of this environment.
        f"mkdir -p {PYTHON} {ENVIRONMENT}/bin {ENVIRONMENT}/lib {RELEASE.parent}",
        f"mount --bind {sys.base_prefix} {PYTHON}",
        f"mount --bind {sys.prefix}/lib {ENVIRONMENT}/lib",
        f"ln -s {PYTHON}/bin/{Path(sys.executable).resolve().name} {ENVIRONMENT}/bin/python",
        f"echo 'home = {PYTHON}/bin' > {ENVIRONMENT}/pyvenv.cfg",
        f"install -m 755 {folder}/diem {ENVIRONMENT}/bin/diem",
        # A release is exchanged by the name of its directory.
        f"mount --bind {installed.parent} {RELEASE.parent}"
        if installed.name == RELEASE.name
        else f"mkdir {RELEASE} && mount --bind {installed} {RELEASE}",
        *(f"printf '[Unit]\\n' > {OWN_UNITS}/{stub}.target" for stub in STUBS),
        f"printf 'Requires={JOURNAL}\\nAfter={JOURNAL}\\n' >> {OWN_UNITS}/multi-user.target",
        "mkdir -p /etc/systemd/journald.conf.d",
        f"printf '{JOURNAL_OPTIONS}' > /etc/systemd/journald.conf.d/tests.conf",
        f"echo {name} > /etc/hostname",
    ]
    options = "--system --unit=multi-user.target --log-level=info --show-status=no"
    return " && ".join([*mounts, f"exec env -i container=tests {SYSTEMD} {options}"])


def event(entry: Mapping[str, str]) -> str | None:
    """Return the event that an entry of the journal is; None if none."""
    unit = entry.get("UNIT", "")
    match entry.get("MESSAGE_ID"):
        case "39f53479d3a045ac8e11786248231fbf":  # SD_MESSAGE_UNIT_STARTED
            return f"start {unit}"
        case "98e322203f7a4ed290d09fe03c09fe15":  # SD_MESSAGE_UNIT_PROCESS_EXIT
            return f"exit {unit} {'' if entry['EXIT_CODE'] == 'exited' else '-'}{entry['EXIT_STATUS']}"
    return f"watchdog {unit}" if ": Watchdog timeout" in entry["MESSAGE"] else None


class Host:
    """A host with systemd."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._first = 0

    async def follow(self, log: Path) -> None:
        """Print the events that the journal has, and append what units print to a file, until its reader is killed."""
        command = ("journalctl", "--follow", "--lines=all", "--all", "--output=json")
        reader = await asyncio.create_subprocess_exec(
            *self._inside(), *command, stdout=asyncio.subprocess.PIPE, stderr=sys.stderr, limit=LONGEST_ENTRY
        )
        assert reader.stdout is not None
        with log.open("a", buffering=1) as file:
            async for line in reader.stdout:
                entry = json.loads(line)
                if not isinstance(entry.get("MESSAGE"), str):
                    continue
                if entry["_PID"] != "1":
                    file.write(f"{entry['MESSAGE']}\n")
                    continue
                file.write(f"systemd: {entry['MESSAGE']}\n")
                if (found := event(entry)) is not None:
                    print(found, flush=True)
        await reader.wait()

    def _inside(self) -> Sequence[str]:
        return "nsenter", "-t", str(self._first), "-m", "-p", "-n", "-u", "-i", "-C"

    async def booted(self) -> None:
        """Wait until systemd takes orders. Raises ``TimeoutError`` if it does not."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        async with asyncio.timeout(PATIENCE_S):
            while not (below := children.read_text().split()):
                assert self._process.returncode is None, "no systemd here"
                await asyncio.sleep(0.05)
            self._first = int(below[0])
            while await self.run("test", "-S", "/run/systemd/private"):
                await asyncio.sleep(0.05)
            while await self.run("systemctl", "is-active", "--quiet", "multi-user.target"):
                await asyncio.sleep(0.05)

    async def run(self, *command: str) -> int:
        """Run a command on the host, and return its exit code."""
        process = await asyncio.create_subprocess_exec(
            *self._inside(), *command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr
        )
        return await process.wait()

    async def order(self, words: Sequence[str]) -> None:
        """Carry out a line of :mod:`units`."""
        verb, *units = words
        if verb == "signal":
            number, *units = units
            code = await self.run("systemctl", "kill", "--kill-whom=main", f"--signal={number}", *units)
        else:
            code = await self.run("systemctl", verb, *(units or [TARGET]))
        assert code == 0, words

    async def stop(self) -> None:
        """Stop everything."""
        await self.run("systemctl", "stop", TARGET)
        self._process.kill()
        await self._process.wait()


async def main() -> None:
    log, folder, installed = map(Path, sys.argv[1:])
    (folder / "diem").write_text(PROGRAM)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    groups = _groups(f"{os.getppid()}-{log.stem}")
    for group in groups:
        group.mkdir(exist_ok=True)
    enter = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
    unshare = "exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --cgroup --uts --ipc sh -c"
    script = f"{enter}; {unshare} {shlex.quote(_boot(folder, installed, log.stem))}"
    process = await asyncio.create_subprocess_exec("sh", "-c", script, stdin=asyncio.subprocess.DEVNULL)
    host = Host(process)
    await host.booted()
    following = asyncio.create_task(host.follow(log))
    await orders.readline()
    assert await host.run("sh", f"{folder}/copied/install.sh") == 0
    await host.order(["start"])
    print("done", flush=True)
    while line := await orders.readline():
        await host.order(line.decode().split())
        print("done", flush=True)
    await host.stop()
    await following


if __name__ == "__main__":
    asyncio.run(main())
