"""``GET /v1/watch``: a client asks once, and hears of every other answer (docs/protocol.md section 4): all of them."""

import asyncio
from collections import Counter

from diem.links.gate import Gate
from diem.links.timer_wheel import TimerWheel
from diem.protocol.codes import Close
from metadata.locate import Answers
from metadata.watch import Watcher


class Watching:
    """What all watches share. ``most`` bounds the names of a question, ``held`` the bytes of all questions together.

    :meth:`changed` has every watcher told, in :meth:`run`, one after the other: requests are answered in between.
    """

    def __init__(self, answers: Answers, gate: Gate, *, most: int, held: int) -> None:
        self.answers = answers
        self.gate = gate
        self.most = most
        self.wheel: TimerWheel[Watcher] = TimerWheel(_turn)
        self.watches: set[Watcher] = set()
        self.refused: Counter[int] = Counter()
        self.free = held
        """Bytes that more questions may have."""
        self.draining = False
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Answers may be other ones now."""
        self._changed.set()

    async def run(self) -> None:
        """Tell watchers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.wheel.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                for watch in list(self.watches):
                    watch.tell()
                    await asyncio.sleep(0)

    def close(self, reason: str) -> None:
        """Take no more watches, and let those that are open go."""
        self.draining = True
        for watch in list(self.watches):
            watch.close(Close.RESTART, reason)


def _turn(watch: Watcher, *, due: bool) -> None:
    watch.turn(due=due)
