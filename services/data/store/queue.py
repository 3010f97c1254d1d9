"""The writes that wait for their commit: bounded in number and bytes, and taken in groups."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from services.data.errors import DataError, StoreUnavailable
from services.data.store.plan import Accepted, Write

MAX_GROUP: Final = 400
"""Endpoints in one transaction: enough to share a commit, few enough that it does not take long."""


@dataclass(slots=True)
class Waiting:
    """A write, and who waits for its answer."""

    write: Write
    size: int
    answer: asyncio.Future[list[Accepted]]

    def settle(self, outcome: list[Accepted] | DataError) -> None:
        """Answer it, unless its client has gone away meanwhile."""
        if self.answer.done():
            return
        if isinstance(outcome, DataError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class WriteQueue:
    """First in, first out."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, write: Write) -> Waiting:
        """Let a write wait; raises StoreUnavailable when too many do."""
        size = sum(len(dataset.content) for dataset in write.datasets)
        full = len(self._waiting) >= self._max_requests
        if full or self._bytes + size > self._max_bytes:
            raise StoreUnavailable("too many writes are waiting", 1)
        waiting = Waiting(write, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._bytes += size
        return waiting

    def group(self) -> list[Waiting]:
        """Take those that share the next transaction."""
        group: list[Waiting] = []
        room = MAX_GROUP
        while self._waiting and (not group or len(self._waiting[0].write.endpoints) <= room):
            waiting = self._waiting.popleft()
            self._bytes -= waiting.size
            if waiting.answer.done():
                continue  # its client has gone away before anything was done
            room -= len(waiting.write.endpoints)
            group.append(waiting)
        return group

    def drain(self) -> list[Waiting]:
        """Take all."""
        drained, self._waiting, self._bytes = list(self._waiting), deque(), 0
        return drained
