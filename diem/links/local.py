"""Unix sockets beside the ports of internal listeners: links within one machine cost less than over TCP.

The name is the port's: who has bound ``127.0.0.1:9400`` may replace ``9400.sock``, whatever was there before.
"""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from diem.process.listeners import BACKLOG

MAX_PATH: Final = 107
"""Bytes of a socket's path on Linux, without the terminating zero."""
BOUND: Final = frozenset({"127.0.0.1", "0.0.0.0"})
"""Where a listener is the one that answers at its port of 127.0.0.1; other addresses could share the number."""
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})


def fits(directory: Path) -> bool:
    """Whether sockets of all ports can be named there."""
    return len(os.fsencode(directory / "65535.sock")) <= MAX_PATH


def socket_of(directory: Path, port: int) -> Path:
    """Where the listener of a port listens besides."""
    return directory / f"{port}.sock"


def unix_socket(directory: Path | None, host: str, port: int) -> Path | None:
    """The socket to try before ``host:port``; None when there is none, or others could have put it there."""
    if directory is None or host not in LOOPBACK_HOSTS or not fits(directory):
        return None
    path = socket_of(directory, port)
    return path if is_private(directory) and path.exists() else None


def is_private(directory: Path) -> bool:
    """Whether nobody else can put a socket there, to which the shared key would be sent."""
    try:
        found = directory.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def bind(directory: Path, port: int) -> socket.socket:
    """Return a listening, non-blocking socket (mode 0600) in ``directory``, which is made (mode 0700) if missing.

    Only for who has bound the port: what is at the path is removed.

    Raises:
        OSError: it cannot be made there; the text says why.
    """
    if not fits(directory):
        raise OSError(f"the path is longer than {MAX_PATH} bytes")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(directory):
        raise PermissionError("the directory is open to other users (needs mode 0700)")
    path = socket_of(directory, port)
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
    """Take the path of a socket that :func:`bind` has made away, so that nobody dials it any more."""
    with contextlib.suppress(OSError):
        Path(os.fsdecode(sock.getsockname())).unlink()
