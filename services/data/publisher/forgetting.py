"""Forgets deleted endpoints: the log gets tombstones of them first (docs/adr/0033-forgotten-endpoints-in-kafka.md)."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import structlog
from aiokafka.errors import TopicAuthorizationFailedError

from services.data.publisher.backlog import NO_SEQUENCE, ChosenDeletions, PublisherState
from services.data.publisher.log import Log
from services.data.publisher.senders import PartitionSenders
from services.data.publisher.store_view import PublishedStore

FORGET_EVERY_S: Final = 3600.0
"""Interval of forgetting; readers that were away for less need not start over."""
RETRY_S: Final = 10.0


class Forgetter:
    """Writes tombstones of expired deletions, and lets the store forget these."""

    def __init__(self, store: PublishedStore, state: PublisherState, log: Log, senders: PartitionSenders) -> None:
        self._store = store
        self._state = state
        self._log = log
        self._senders = senders
        self._acknowledged = asyncio.Event()

    def on_acknowledged(self) -> None:
        """Handle an acknowledged request."""
        self._acknowledged.set()

    async def run(self) -> None:
        """Forget once an hour; never without permission to read the log: one put back could not be corrected."""
        may_read: bool | None = None
        while may_read is not False:
            may_read = may_read or await self._may_read()
            await (self._forget() if may_read else asyncio.sleep(RETRY_S))

    async def _forget(self) -> None:
        """Forget what has expired by now, an hour later.

        The logs then have the deletions themselves before the mark of their watermarks: a reader that resumes before it
        may not have read them. A new session goes on with what the last one chose, or it would never end where
        connections do not last an hour.
        """
        state, trackers = self._state, self._state.trackers
        chosen = state.forgetting = state.forgetting or await self._choose()
        await asyncio.sleep(max(0.0, chosen.due - asyncio.get_running_loop().time()))
        names = frozenset(self._store.deleted(chosen.upto))
        if names and [incarnation for incarnation, _ in chosen.ends] == [tracker.incarnation for tracker in trackers]:
            for tracker, (_, offset) in zip(trackers, chosen.ends, strict=True):
                tracker.forgotten = max(tracker.forgotten, offset)
            self._senders.wake(state.backlog.resend(names))
            await self._until(lambda: not state.backlog.is_pending(names))
            self._store.release_deleted(chosen.upto, state.cursor)
            state.backlog.forget(names)
        state.forgetting = None

    async def _choose(self) -> ChosenDeletions:
        """Choose what has expired, to be sent as tombstones from now on, and note where the logs end."""
        now, sent = asyncio.get_running_loop().time(), self._senders.in_flight_since
        upto = self._store.expired
        self._state.tombstones_until = max(self._state.tombstones_until, upto)
        await self._until(lambda: all(since > now for since in sent.values()))
        ends = [(tracker.incarnation, tracker.next or 0) for tracker in self._state.trackers]
        return ChosenDeletions(upto, ends, now + FORGET_EVERY_S)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._acknowledged.clear()
            await self._acknowledged.wait()

    async def _may_read(self) -> bool | None:
        """Return whether the log may be read; None: a broker does not answer."""
        try:
            async for _ in self._log.updates({0: max(0, (self._state.trackers[0].next or 0) - 1)}):
                pass
        except TimeoutError:
            return None
        except TopicAuthorizationFailedError:
            structlog.get_logger("publisher").warning(
                "the log may not be read, so deleted endpoints are not forgotten: grant Read", topic=self._log.topic
            )
            return False
        return True

    async def find_forgotten(self, numbers: Collection[int]) -> set[int]:
        """Enqueue tombstones of endpoints that logs have and the store has forgotten, after faults of these partitions.

        Such a log may have been put back, or have a late record of a dead publisher.

        Returns:
            The partitions that could be read. Those without permission are among them: nothing was forgotten there.
        """
        found = set[int]()
        for number in numbers:
            with suppress(TimeoutError):
                # The floor of a store that was lost is the version of its mark: what the log has is not forgotten then.
                if self._store.forgotten:
                    await self._find_in(number, self._store.version_floor)
                found.add(number)
        self._senders.wake(found)
        return found

    async def _find_in(self, number: int, floor: int) -> None:
        queue, tracker = self._state.backlog.queues[number], self._state.trackers[number]
        with suppress(TopicAuthorizationFailedError):
            async for _, update in self._log.updates({number: 0}):
                if self._store.changes.get(update.endpoint) is None and update.version <= floor:
                    queue.enqueue(update.endpoint, NO_SEQUENCE)
                    tracker.forgotten = tracker.next or 0
