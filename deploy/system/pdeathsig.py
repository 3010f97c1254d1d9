"""``python -m deploy.system.pdeathsig ARGV...`` becomes another program that ends with its supervisor.

For third-party programs; ours detect the end of their standard input. On Linux the kernel sends the program SIGTERM
when the thread that started it ends; on other systems the program is only run.
"""

import ctypes
import os
import select
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
EXIT_NO_PROGRAM: Final = 127


def bind_to_parent() -> None:
    """Request SIGTERM on the parent's death. Raises ``ProcessLookupError`` if it is already dead."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # Both checks: if the parent died before ``getppid``, only the closed pipe of our input shows it.
    if os.getppid() != parent or _hung_up(0):
        raise ProcessLookupError("the supervisor is gone")


def main(argv: list[str]) -> None:
    """Become ``argv``; an error is one line on standard error and an exit code."""
    if not argv:
        sys.exit("diem: usage: python -m deploy.system.pdeathsig PROGRAM [ARGUMENT...]")
    try:
        bind_to_parent()
        # A background process of a shell ignores SIGINT, and so would the program.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606  # without a shell
    except ProcessLookupError as error:
        sys.exit(f"diem: {error}")
    except OSError as error:
        print(f"diem: {argv[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201  # no logger: imports stay few
        sys.exit(EXIT_NO_PROGRAM)


def _hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


if __name__ == "__main__":
    main(sys.argv[1:])
