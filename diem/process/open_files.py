"""How many files this process may have open; a connection is one of them."""

import contextlib
import resource


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
