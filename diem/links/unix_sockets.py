"""Unix sockets beside the ports of internal listeners: cheaper than TCP for links within one machine.

A socket is named after its port: the process that has bound ``127.0.0.1:9400`` may replace ``9400.sock``. Published
addresses remain those of the ports, as other machines need them; only the listener and the dialer use the sockets.
"""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from diem.process.listeners import BACKLOG

MAX_PATH: Final = 107
"""Longest path of a socket on Linux in bytes, without the terminating zero."""
BOUND: Final = frozenset({"127.0.0.1", "0.0.0.0"})
"""Bind addresses that imply ownership of the port on 127.0.0.1; listeners on others may share the number."""
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})


def fits(directory: Path) -> bool:
    """Return whether the directory's path is short enough for the socket of any port."""
    return len(os.fsencode(directory / "65535.sock")) <= MAX_PATH


def socket_path(directory: Path, port: int) -> Path:
    """Return the path of the socket beside a port."""
    return directory / f"{port}.sock"


def find_socket(directory: Path | None, host: str, port: int) -> Path | None:
    """Return the socket to try before ``host:port``; None if missing, or if another user could have made it."""
    if directory is None or host not in LOOPBACK_HOSTS or not fits(directory):
        return None
    path = socket_path(directory, port)
    return path if is_private(directory) and path.exists() else None


def is_private(directory: Path) -> bool:
    """Return whether only this user can create sockets there, to rule out impostors."""
    try:
        found = directory.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def bind(directory: Path, port: int) -> socket.socket:
    """Return a listening, non-blocking socket (mode 0600) in ``directory``, which is made (mode 0700) if missing.

    The caller must have bound the port: a file at the path is removed.

    Raises:
        OSError: the socket cannot be made there; the text gives the reason.
    """
    if not fits(directory):
        raise OSError(f"the path is longer than {MAX_PATH} bytes")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(directory):
        raise PermissionError("the directory is open to other users (needs mode 0700)")
    path = socket_path(directory, port)
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(os.fspath(path))
        path.chmod(0o600)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def remove(sock: socket.socket) -> None:
    """Remove the path of a socket from :func:`bind`, so that it is no longer dialled."""
    with contextlib.suppress(OSError):
        Path(os.fsdecode(sock.getsockname())).unlink()
