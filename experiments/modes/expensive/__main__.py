"""``diem`` with servers to which every update costs more CPU: ``UPDATE_WORK_US`` microseconds each.

It starts the processes of ``diem up`` with itself, so the product needs no such setting. Not for composites, which
start their servers themselves.
"""

import os
import sys
from time import thread_time_ns

from deploy.cli import app
from deploy.system import launch
from diem.fanout.feed_hub import FeedHub
from diem.protocol.feed import Batch
from services.websocket import main

NAME = "experiments.modes.expensive"
WORK_NS = int(os.environ["UPDATE_WORK_US"]) * 1000


def command() -> tuple[str, ...]:
    """Return the command line of this program, for the children."""
    return (sys.executable, "-m", NAME)


class ExpensiveHub(FeedHub):
    """A hub that works on every update when it has delivered it."""

    def batch(self, *batches: Batch) -> None:
        """Apply batches."""
        consumed = self.state.counts.consumed
        super().batch(*batches)
        end = thread_time_ns() + WORK_NS * (self.state.counts.consumed - consumed)
        while thread_time_ns() < end:
            pass


launch.command = command
# Servers are forked from this process, or started as this program.
vars(main)["FeedHub"] = ExpensiveHub
app()
