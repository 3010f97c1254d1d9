"""Group membership of a bridge without fetching (docs/protocol.md section 3, ADR 8).

Records are read by another consumer, so they flow on during a rebalance, and no position ever comes from a committed
offset. :class:`Member` is one membership from join to leave; :class:`Membership` keeps the bridge in its group while it
has a reader. This module looks inside aiokafka (0.14), whose own ``stop()`` never leaves a group for a static member,
and whose tasks end, or wait for ever, without a word.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import for_code
from aiokafka.protocol.group import LeaveGroupRequest

from bridge.consumer import FAULTS, opened
from diem.errors import DiemError
from diem.kafka.config import KafkaOptions
from diem.process.backoff import full_jitter
from diem.protocol.assignment import Owner, client_id

MEMBER: Final[dict[str, Any]] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    # In the order of member ids, which begin with bNNN; the library's default is round robin.
    "partition_assignment_strategy": (RangePartitionAssignor,),
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 1000,
    # Members hear of a rebalance with their next beat: who has not joined by then is held up by something.
    "rebalance_timeout_ms": 5000,
    # More than a join waits for the others, less than a session: a coordinator that hangs is left in time.
    "request_timeout_ms": 7000,
    "metadata_max_age_ms": 10_000,
    # It never polls, and would leave for that after five minutes, to stay away: a hundred years.
    "max_poll_interval_ms": 100 * 365 * 86_400_000,
}
"""Settings of the consumer that is a member."""
LEAVE_WITHIN: Final = 2.0
JOINED_WITHIN: Final = 3.0
"""Seconds that a join under way is waited for when leaving: who does not know its member id cannot leave."""
ENDED_WITHIN: Final = 0.5
BEATS_WITHIN: Final = 20.0
"""Seconds without a heartbeat task, because the group is being joined, after which a member is given up."""


class MemberLost(DiemError):
    """The member's tasks have ended, or wait for somebody to take note of an error."""

    retriable = True


class Member:
    """A consumer in the group. ``on_assigned`` hears the full set of partitions after every assignment."""

    def __init__(self, consumer: AIOKafkaConsumer, on_assigned: Callable[[frozenset[int]], None]) -> None:
        self.consumer = consumer
        self.rejoined = 0
        """How often the group had forgotten this member."""
        self._on_assigned = on_assigned
        self._member_id = ""
        self._quiet_since = time.monotonic()

    @property
    def generation(self) -> int:
        """The group's generation that this member has joined; -1 while in none."""
        return int(self._coordinator.generation)

    @property
    def at_rest(self) -> bool:
        """Whether the group is not being joined now: the library beats only in between.

        What is committed meanwhile may be answered with "rebalancing" when the join is just over, which the library
        takes as a reason to join again; and when the group's leader does so, everybody has to, and so on every second.
        """
        beating = self._coordinator._heartbeat_task  # noqa: SLF001
        return beating is not None and not beating.done()

    @property
    def _coordinator(self) -> Any:  # noqa: ANN401  # aiokafka has no type for it
        return self.consumer._coordinator  # noqa: SLF001

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """The group has given this member its partitions."""
        self.rejoined += self._member_id not in {"", self._coordinator.member_id}
        self._member_id = self._coordinator.member_id
        self._on_assigned(frozenset(each.partition for each in partitions))

    def check(self) -> None:
        """Look whether the member still works.

        Raises:
            MemberLost: it does not.
        """
        coordinator = self._coordinator
        coordinating = coordinator._coordination_task  # noqa: SLF001
        if coordinating.done():
            error = None if coordinating.cancelled() else coordinating.exception()
            raise MemberLost(f"the coordination task has ended{f': {error}' if error else ''}")
        if coordinator._pending_exception is not None:  # noqa: SLF001
            raise MemberLost(repr(coordinator._pending_exception))  # noqa: SLF001
        beating = coordinator._heartbeat_task  # noqa: SLF001
        if beating is not None and not beating.done():
            self._quiet_since = time.monotonic()
        elif time.monotonic() - self._quiet_since > BEATS_WITHIN:
            raise MemberLost("no heartbeats")

    async def rejoin(self) -> None:
        """Have the partitions shared out anew: there are more. Only the group's leader makes that happen."""
        await self.consumer._client.force_metadata_update()  # noqa: SLF001
        self._coordinator.request_rejoin()

    async def leave(self) -> None:
        """Leave the group, so that the others get the partitions at once; afterwards the consumer is of no use.

        Raises:
            KafkaError, TimeoutError: the group was not told; it notices in 10 s.
        """
        coordinator = self._coordinator
        if not coordinator._closing.done():  # noqa: SLF001
            # Nothing joins any more: neither by itself, nor because the group says that it does not know us now.
            coordinator._closing.set_result(None)  # noqa: SLF001
        if coordinator.member_id == "":
            await asyncio.wait([coordinator._coordination_task], timeout=JOINED_WITHIN)  # noqa: SLF001
        try:
            async with asyncio.timeout(LEAVE_WITHIN):
                await self._say_goodbye()
        finally:
            await _end_tasks(coordinator)

    async def _say_goodbye(self) -> None:
        coordinator = self._coordinator
        if coordinator.member_id == "":
            return
        node = coordinator.coordinator_id
        if node is None:
            raise MemberLost("no coordinator is known")
        request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
        # On a connection of its own: a broker answers a join that is under way before it reads what follows.
        answer = await self.consumer._client.send(node, request, group=ConnectionGroup.DEFAULT)  # noqa: SLF001
        if answer.error_code:
            raise for_code(answer.error_code)


class _PausedSubscription(SubscriptionState):  # type: ignore[misc]  # aiokafka has no types for it
    """A subscription whose partitions are paused from the first moment, at a position that is never read from.

    Without a position, the library would look up the committed offset, and fail where there is none.
    """

    def __init__(self, assigned: Callable[[Iterable[TopicPartition]], None]) -> None:
        super().__init__()
        self._assigned = assigned

    def assign_from_subscribed(self, assignment: Iterable[TopicPartition]) -> None:
        """Take what the group has given."""
        super().assign_from_subscribed(assignment)
        for partition in assignment:
            self.pause(partition)
            self.seek(partition, 0)
        self._assigned(assignment)


@contextlib.asynccontextmanager
async def joining(
    options: KafkaOptions, group: str, owner: Owner, on_assigned: Callable[[frozenset[int]], None]
) -> AsyncIterator[Member]:
    """A member that is joining the group under the name of ``owner``, who it tells everybody.

    It stays in the group for 10 s after the end of the block, unless it has left: whoever joins under its name within
    that time takes its place, and nobody else notices.

    Raises:
        KafkaError, TimeoutError: the cluster cannot be reached.
    """
    consumer = AIOKafkaConsumer(
        **options.client_arguments(),
        client_id=client_id(owner),
        group_id=group,
        group_instance_id=owner.server,
        **MEMBER,
    )
    member = Member(consumer, on_assigned)
    consumer._subscription = _PausedSubscription(member.assigned)  # noqa: SLF001
    async with opened(consumer):
        consumer.subscribe([options.names.updates])
        yield member


async def _end_tasks(coordinator: Any) -> None:  # noqa: ANN401
    """What the library's ``close()`` does not do once it is closing."""
    # By itself, if it can in a moment: what is cut short while it connects leaves its connection open.
    await asyncio.wait([coordinator._coordination_task], timeout=ENDED_WITHIN)  # noqa: SLF001
    tasks = [coordinator._coordination_task, coordinator._heartbeat_task, coordinator._commit_refresh_task]  # noqa: SLF001
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=LEAVE_WITHIN)


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
