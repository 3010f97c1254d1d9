"""Start a program under the restrictions of a systemd unit that a process can give itself, without systemd running it.

``python -m tests.support.sandbox UNIT COMMAND...`` applies ``NoNewPrivileges``, ``SystemCallFilter`` (by libseccomp, as
systemd does), ``MemoryDenyWriteExecute`` and ``LimitCORE``, and becomes the command.
"""

import ctypes
import ctypes.util
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PR_SET_NO_NEW_PRIVS: Final = 38
PR_SET_MDWE: Final = 65
"""Refuse memory that is written and executed (Linux 6.3)."""
SCMP_ACT_ALLOW: Final = 0x7FFF0000
SCMP_ACT_ERRNO_EPERM: Final = 0x00050000 | errno.EPERM
OWN_USER: Final = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Root becomes the owner of its files under another number, and has no capabilities: nginx would else change owners."""
ROOT: Final = Path(__file__).parents[2]


class Unsupported(Exception):
    """This machine has no libseccomp, no systemd-analyze, or a kernel that is too old."""


def launcher(unit: Path) -> tuple[str, ...]:
    """Return what starts a command under the restrictions of a unit. Raises ``Unsupported`` where it is impossible."""
    restrict = (sys.executable, "-m", "tests.support.sandbox", str(unit))
    prefix = (*OWN_USER, *restrict) if os.geteuid() == 0 else restrict
    if (tried := run(prefix, "true")).returncode:
        raise Unsupported(tried.stderr[-300:])
    return prefix


def run(prefix: Sequence[str], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command, started by ``prefix``, to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*prefix, *command], env=environment, capture_output=True, text=True, check=False)


def settings(unit: Path) -> dict[str, list[str]]:
    """Return the values of each setting of a unit file, in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, assigned, value = line.partition("=")
        if assigned and not name.startswith(("#", ";")):
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def members(group: str) -> set[str]:
    """Return the system calls of a group of systemd, such as ``@system-service``, with those of groups in it."""
    if not group.startswith("@"):
        return {group}
    try:
        shown = subprocess.run(
            ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unsupported(f"systemd-analyze: {error}") from error
    lines = (line.strip() for line in shown.splitlines()[1:])
    return {call for line in lines if line and not line.startswith("#") for call in members(line)}


def allowed_calls(filters: Sequence[str]) -> set[str]:
    """Return what a sequence of ``SystemCallFilter`` settings allows: the first is a list of allowed calls."""
    allowed: set[str] = set()
    for value in filters:
        calls = {call for group in value.lstrip("~").split() for call in members(group)}
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed


def filter_calls(allowed: set[str]) -> None:
    """Let all other system calls of this process and its children fail with EPERM, for ever."""
    name = ctypes.util.find_library("seccomp")
    if name is None:
        raise Unsupported("libseccomp is not installed")
    library = ctypes.CDLL(name)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(SCMP_ACT_ERRNO_EPERM)
    for call in sorted(allowed):
        number = library.seccomp_syscall_resolve_name(call.encode())
        # Negative: a call of other architectures.
        if number >= 0 and library.seccomp_rule_add(context, SCMP_ACT_ALLOW, number, 0):
            raise Unsupported(f"libseccomp refuses {call}")
    if library.seccomp_load(context):
        raise Unsupported("the kernel refuses the filter")


def set_process(option: int) -> None:
    """Set one of the process attributes of ``prctl(2)`` to 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, 1, 0, 0, 0):
        raise Unsupported(f"prctl({option}): {os.strerror(ctypes.get_errno())}")


def main(arguments: Sequence[str]) -> None:
    """Apply the restrictions of the unit, and become the command."""
    unit, *command = arguments
    given = settings(Path(unit))
    allowed = allowed_calls(given["SystemCallFilter"])
    set_process(PR_SET_NO_NEW_PRIVS)
    if given["MemoryDenyWriteExecute"] == ["yes"]:
        set_process(PR_SET_MDWE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Last: it may forbid what the others need.
    filter_calls(allowed)
    os.execvp(command[0], command)  # noqa: S606  # to become it is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
