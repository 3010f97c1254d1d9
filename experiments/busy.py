"""A process that takes CPU on request: what a load costs its neighbours is compared with that.

For each line of its input, a number of seconds, it takes so much CPU, and prints a line.
"""

import os
import sys
import time
from collections.abc import Sequence

from tests.support.commandline import parser


def main(argv: Sequence[str] | None = None) -> int:
    """Answer requests until the end of the input; return the exit code."""
    parser(__spec__, __doc__).parse_args(argv)
    for line in sys.stdin:
        until = time.process_time() + float(line)
        # System calls, as a fan-out has: at their ends another process may get the core.
        while time.process_time() < until:
            os.getppid()
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
