"""A process that takes CPU on request: what a load costs its neighbours is compared with that.

For each line of its input, a number of seconds, it takes so much CPU, and prints a line.
"""

import os
import sys
import time


def main() -> None:
    """Answer requests until the end of the input."""
    for line in sys.stdin:
        until = time.process_time() + float(line)
        # System calls, as a fan-out has: at their ends another process may get the core.
        while time.process_time() < until:
            os.getppid()
        print(flush=True)


if __name__ == "__main__":
    main()
