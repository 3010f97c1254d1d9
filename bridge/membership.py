"""Keeps a bridge in its group while it has a reader, whatever becomes of Kafka, and knows what the group gave it."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer

from bridge.consumer import FAULTS
from bridge.member import Member, MemberLost, joining
from diem.kafka.config import KafkaOptions
from diem.process.backoff import full_jitter
from diem.protocol.assignment import Owner

LOOK_EVERY: Final = 1.0
GRACE: Final = 5.0
"""Seconds after its reader is gone in which a bridge stays in the group: a reader that is there again moves nobody."""
STOP_WITHIN: Final = 8.0
RETRY_BASE: Final = 0.2
RETRY_CAP: Final = 3.0
STABLE_AFTER: Final = 10.0
"""Seconds in the group after which the next failure is the first one again."""


class Membership:
    """A place in the group: joined by :meth:`hold`, left some time after :meth:`release`.

    ``on_changed()`` is called when the group has given out partitions, also when they are the same as before.
    """

    def __init__(
        self, options: KafkaOptions, group: str, owner: Owner, on_changed: Callable[[], None] = lambda: None
    ) -> None:
        self.group = group
        self.owner = owner
        self.assigned: frozenset[int] | None = None
        """The partitions given last; None before the first time, and after leaving. Kept while they are shared out."""
        self.assignments = 0
        """How often the group has given out partitions."""
        self.fault: str | None = None
        """Why this bridge is not in the group though it is to be, if so."""
        self.on_changed = on_changed
        self._options = options
        self._member: Member | None = None
        self._until = -math.inf
        self._again = False
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._log = structlog.get_logger("bridge")

    @property
    def generation(self) -> int:
        """The group's generation that was joined last; -1 when in none."""
        return -1 if self._member is None else self._member.generation

    @property
    def joined(self) -> bool:
        """Whether this bridge is in the group now, as far as it knows."""
        return self.generation >= 0

    @property
    def consumer(self) -> AIOKafkaConsumer | None:
        """What can commit for the group; None while not in it, or while it is being joined."""
        member = self._member
        return member.consumer if member is not None and self.joined and member.at_rest else None

    def hold(self) -> None:
        """There is a reader: join, or stay."""
        self._until = math.inf
        self._woken.set()

    def release(self) -> None:
        """The reader is gone: leave, unless there is one again soon."""
        if self._until == math.inf:
            self._until = time.monotonic() + GRACE
            self._woken.set()

    def begin_again(self) -> None:
        """The topic is another one: leave, and join for that one."""
        self._again = True
        self._woken.set()

    async def share_out(self) -> None:
        """The topic has more partitions: have the group give them out, rather than when it finds out by itself."""
        if self._member is not None:
            with contextlib.suppress(*FAULTS):
                await self._member.rejoin()

    def stop(self) -> None:
        """Leave at once, and for good."""
        self._until = -math.inf
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Be in the group whenever that is wanted, until stopped; then it takes 8 s at most."""
        staying = asyncio.create_task(self._stay())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({staying, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._member is None:
                # It is waiting for a cluster that is away, or for a reader.
                staying.cancel()
            await asyncio.wait({staying}, timeout=STOP_WITHIN)
        finally:
            staying.cancel()
            stop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await staying

    async def _stay(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            if not self._wanted:
                self._left()
                await self._sleep(math.inf)
                continue
            began = time.monotonic()
            try:
                await self._be_member()
                attempt = 0
                continue
            except FAULTS as error:
                self._failed(f"{type(error).__name__} {error}".strip())
            except Exception as error:  # noqa: BLE001  # the client library fails in more ways than its own errors
                self._log.exception("membership failed")
                self._failed(type(error).__name__)
            attempt = 0 if time.monotonic() - began > STABLE_AFTER else attempt + 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(full_jitter(attempt, RETRY_BASE, RETRY_CAP)):
                    await self._stopping.wait()
        self._left()

    @property
    def _wanted(self) -> bool:
        return time.monotonic() < self._until

    async def _be_member(self) -> None:
        """Join, stay while it is wanted, and leave.

        Raises:
            KafkaError: and all else that the client library raises.
        """
        self._again = False
        async with joining(self._options, self.group, self.owner, self._assigned) as member:
            self._member = member
            rejoined, forgotten = 0, -math.inf
            try:
                while self._wanted and not self._again:
                    await self._sleep(min(LOOK_EVERY, self._until - time.monotonic()))
                    member.check()
                    if member.rejoined > rejoined:
                        self._log.warning("the group had forgotten this bridge, joined again", group=self.group)
                        rejoined, before, forgotten = member.rejoined, forgotten, time.monotonic()
                        if forgotten - before < STABLE_AFTER:
                            raise MemberLost("forgotten again and again: does another bridge have this number?")
                await self._leave(member)
                self._left()
            finally:
                self._member = None

    async def _leave(self, member: Member) -> None:
        began = time.monotonic()
        try:
            await member.leave()
        except FAULTS as error:
            said = f"{type(error).__name__} {error}".strip()
            self._log.warning("the group was not told that this bridge leaves", group=self.group, error=said)
        else:
            self._log.info("left the group", group=self.group, seconds=round(time.monotonic() - began, 3))

    async def _sleep(self, seconds: float) -> None:
        """Until something is asked of the membership, at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == math.inf else max(0.0, seconds)):
                await self._woken.wait()
        self._woken.clear()

    def _assigned(self, partitions: frozenset[int]) -> None:
        self.assigned, self.fault = partitions, None
        self.assignments += 1
        self._log.info("partitions assigned", group=self.group, generation=self.generation, owned=sorted(partitions))
        self.on_changed()

    def _failed(self, fault: str) -> None:
        if self.fault is None:
            self._log.warning("not in the group, trying on", group=self.group, error=fault)
        self.fault = fault

    def _left(self) -> None:
        self.assigned = self.fault = None
