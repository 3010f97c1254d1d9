"""Limit of open files of this process; a connection is one of them."""

import contextlib
import resource
from typing import Final

import structlog

OTHER_FILES: Final = 256
"""What a process has open besides its connections: listeners, logs, links to other processes."""


def raise_open_files(wanted: int) -> int:
    """Raise the process's own limit to ``wanted`` where the system allows it; returns the limit that holds now.

    The usual limit of 1,024 is for programs that call ``select``, which event loops of ours do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return soft


def allow_connections(clients: int, links: int = 0) -> None:
    """Raise the limit for so many clients, and links of theirs; warn if it is too low for the clients alone."""
    allowed = raise_open_files(clients + links + OTHER_FILES)
    if allowed < clients + OTHER_FILES:
        structlog.get_logger("process").warning(
            "the limit of open files is too low for the clients", open_files=allowed, clients=clients
        )
