"""``python -m tests.support.swallowing`` is ``diem`` with servers that swallow all updates from a SIGUSR1 on.

They stay live and keep their clients: nothing but a missing update shows it. It starts the processes of ``diem up``
with itself. Not for composites, which start their servers themselves.
"""

import signal
import sys

from deploy.cli import app
from deploy.system import launch
from diem.fanout.feed_hub import FeedHub
from diem.protocol.feed import Batch
from services.websocket import main

NAME = "tests.support.swallowing"


def command() -> tuple[str, ...]:
    """Return the command line of this program, for the children."""
    return (sys.executable, "-m", NAME)


class SwallowingHub(FeedHub):
    """A hub that drops every batch once :attr:`swallows`."""

    swallows = False

    def batch(self, *batches: Batch) -> None:
        """Apply batches, or drop them."""
        if not self.swallows:
            super().batch(*batches)


def swallow(*_: object) -> None:
    """Swallow from now on."""
    SwallowingHub.swallows = True


if __name__ == "__main__":
    launch.command = command
    # Servers are forked from this process, or started as this program.
    vars(main)["FeedHub"] = SwallowingHub
    signal.signal(signal.SIGUSR1, swallow)
    app()
