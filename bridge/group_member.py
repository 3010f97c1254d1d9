"""Group membership of a bridge, without fetching (docs/internals.md section 3, ADR 8).

A separate consumer reads the records, so they keep flowing during a rebalance, and no position ever comes from a
committed offset. :class:`GroupConsumer` is one membership from join to leave; :class:`Membership` keeps the bridge in
its group while it has a reader. This module uses internals of aiokafka (0.14), whose own ``stop()`` never leaves a
group for a static member, and whose tasks may end, or wait forever, without reporting an error.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import BrokerResponseError, for_code, kafka_errors
from aiokafka.protocol.group import LeaveGroupRequest

from bridge.consumer import FAULTS, opened
from diem.errors import ConfigurationError, DiemError
from diem.kafka.assignment import read_assignment
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.process.backoff import Backoff, wait
from diem.protocol.assignment import Owner, client_id

MEMBER: Final[dict[str, Any]] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    # Assigns by order of member ids, which begin with bNNN; the library's default is round robin.
    "partition_assignment_strategy": (RangePartitionAssignor,),
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 1000,
    # Members learn of a rebalance from their next heartbeat; one that fails to rejoin within 5 s is stuck.
    "rebalance_timeout_ms": 5000,
    # Longer than a join waits for the others, shorter than a session: a coordinator that hangs is abandoned in time.
    "request_timeout_ms": 7000,
    "metadata_max_age_ms": 10_000,
    # A hundred years: a member never polls, and would otherwise leave for good after five minutes.
    "max_poll_interval_ms": 100 * 365 * 86_400_000,
}
"""Settings of the member's consumer."""
LEAVE_TIMEOUT_S: Final = 2.0
JOIN_WAIT_S: Final = 3.0
"""Time to wait for a join in flight before leaving: a member cannot leave before it has an id."""
TASK_END_WAIT_S: Final = 0.5
HEARTBEAT_TIMEOUT_S: Final = 20.0
"""Time a join may keep a member without a heartbeat task before it is abandoned."""


class MemberLost(DiemError):
    """The member's tasks have ended, or hold an error that nobody retrieved."""

    retriable = True


class NumberInUse(MemberLost):
    """Another process has joined the group under this bridge's name."""


class _FencedInstanceId(BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types for it
    errno = 82
    message = "FENCED_INSTANCE_ID"
    description = "another member has joined under the same group.instance.id"


# The library does not know the code: its error would be "unknown".
kafka_errors.setdefault(_FencedInstanceId.errno, _FencedInstanceId)


class GroupConsumer:
    """A consumer in the group."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self._last_heartbeat = time.monotonic()

    @property
    def id(self) -> str:
        """Member id assigned by the coordinator; empty before."""
        return str(self._coordinator.member_id)

    @property
    def generation(self) -> int:
        """Generation of the group joined; -1 outside the group."""
        return int(self._coordinator.generation)

    @property
    def is_stable(self) -> bool:
        """True if no join is in progress: the library sends heartbeats only between joins.

        A commit during a join may be answered "rebalancing" just after the join, at which the library rejoins; if it is
        the leader, so must every member, and this would repeat every second.
        """
        heartbeats = self._coordinator._heartbeat_task  # noqa: SLF001
        return heartbeats is not None and not heartbeats.done()

    @property
    def _coordinator(self) -> Any:  # noqa: ANN401  # aiokafka has no type for it
        return self.consumer._coordinator  # noqa: SLF001

    def check(self) -> None:
        """Check that the member's tasks work.

        Raises:
            MemberLost: they do not.
            NumberInUse: another process has joined under the same name.
        """
        coordinator = self._coordinator
        coordinating = coordinator._coordination_task  # noqa: SLF001
        if coordinating.done():
            error = None if coordinating.cancelled() else coordinating.exception()
            raise _lost(f"the coordination task has ended{f': {error}' if error else ''}")
        if coordinator._pending_exception is not None:  # noqa: SLF001
            raise _lost(repr(coordinator._pending_exception))  # noqa: SLF001
        heartbeats = coordinator._heartbeat_task  # noqa: SLF001
        if heartbeats is not None and not heartbeats.done():
            self._last_heartbeat = time.monotonic()
        elif time.monotonic() - self._last_heartbeat > HEARTBEAT_TIMEOUT_S:
            raise MemberLost("no heartbeats")

    async def trigger_rebalance(self) -> None:
        """Rejoin, so that the group assigns the topic's new partitions; it takes effect only on the group's leader."""
        await self.consumer._client.force_metadata_update()  # noqa: SLF001
        self._coordinator.request_rejoin()

    async def leave(self) -> None:
        """Leave the group, so that its partitions are reassigned at once. The consumer is unusable afterwards.

        Raises:
            KafkaError, TimeoutError: the coordinator did not confirm; it will notice within 10 s.
        """
        coordinator = self._coordinator
        if not coordinator._closing.done():  # noqa: SLF001
            # Prevent further joins, also in response to "unknown member".
            coordinator._closing.set_result(None)  # noqa: SLF001
        if coordinator.member_id == "":
            await asyncio.wait([coordinator._coordination_task], timeout=JOIN_WAIT_S)  # noqa: SLF001
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._send_leave()
        finally:
            await _end_tasks(coordinator)

    async def _send_leave(self) -> None:
        coordinator = self._coordinator
        if coordinator.member_id == "":
            return
        node = coordinator.coordinator_id
        if node is None:
            raise MemberLost("no coordinator is known")
        request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
        # On a separate connection: a broker reads no further request on one with a join in flight.
        answer = await self.consumer._client.send(node, request, group=ConnectionGroup.DEFAULT)  # noqa: SLF001
        if answer.error_code:
            raise for_code(answer.error_code)


def _lost(reason: str) -> MemberLost:
    # The library wraps the error, and keeps its text.
    return NumberInUse(reason) if _FencedInstanceId.__name__ in reason else MemberLost(reason)


async def current_holder(options: KafkaOptions, group: str, name: str) -> Owner | None:
    """Return the group's member of the given name, None without one.

    Raises:
        KafkaUnavailable, ConfigurationError: the group cannot be read.
    """
    async with admin_client(options, DESCRIBE_TIMEOUT_S) as admin:
        return (await read_assignment(admin, group, options.names.updates)).members.get(name)


class _PausedSubscription(SubscriptionState):  # type: ignore[misc]  # aiokafka has no types for it
    """A subscription whose partitions are paused from the start, at a dummy position.

    Without a position, the library would look up the committed offset, and fail where there is none.
    """

    def __init__(self, on_assigned: Callable[[frozenset[int]], None]) -> None:
        super().__init__()
        self._on_assigned = on_assigned

    def assign_from_subscribed(self, assignment: Iterable[TopicPartition]) -> None:
        """Accept the assignment of the group."""
        super().assign_from_subscribed(assignment)
        for partition in assignment:
            self.pause(partition)
            self.seek(partition, 0)
        self._on_assigned(frozenset(partition.partition for partition in assignment))


@contextlib.asynccontextmanager
async def joining(
    options: KafkaOptions, group: str, owner: Owner, on_assigned: Callable[[frozenset[int]], None]
) -> AsyncIterator[GroupConsumer]:
    """Join the group as ``owner``; ``on_assigned`` is called with all partitions after every assignment.

    A member that did not leave stays in the group for 10 s after the block: a successor joining under its name within
    that time takes over without a rebalance.

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
    member = GroupConsumer(consumer)
    consumer._subscription = _PausedSubscription(on_assigned)  # noqa: SLF001
    async with opened(consumer):
        consumer.subscribe([options.names.updates])
        yield member


async def _end_tasks(coordinator: Any) -> None:  # noqa: ANN401
    """Cancel the coordinator's tasks: the library's ``close()`` skips this when already closing."""
    # After a grace period: a task cancelled while it connects leaks its connection.
    await asyncio.wait([coordinator._coordination_task], timeout=TASK_END_WAIT_S)  # noqa: SLF001
    tasks = [coordinator._coordination_task, coordinator._heartbeat_task, coordinator._commit_refresh_task]  # noqa: SLF001
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=LEAVE_TIMEOUT_S)


CHECK_S: Final = 1.0
GRACE_S: Final = 5.0
"""Time a bridge stays in the group without a reader: one that reconnects within it causes no rebalance."""
SETTLE_S: Final = 1.0
"""Time for which a reader must stay before a bridge that lost one joins again: a server that restarts in vain would
move its partitions, and their clients, to and fro."""
STOP_TIMEOUT_S: Final = 8.0
RETRY_BASE_S: Final = 0.2
RETRY_CAP_S: Final = 3.0
MAX_REMOVALS: Final = 5
"""Removals from the group, each within 10 s of the one before, after which another bridge must have this number."""
NUMBER_CHECK_S: Final = 6.0
"""Interval at which a bridge checks whether its number is still in use; two of them outlast a session."""
DESCRIBE_TIMEOUT_S: Final = 5.0
STABLE_AFTER_S: Final = 10.0
"""Time in the group after which the backoff starts over."""


class Membership:
    """Membership for the time of a reader: joins at :meth:`acquire`, leaves some time after :meth:`release`."""

    def __init__(self, options: KafkaOptions, group: str, owner: Owner) -> None:
        self.group = group
        self.owner = owner
        self.assigned: frozenset[int] | None = None
        """The last assignment, kept during rebalances; None before the first and after leaving."""
        self.assignments = 0
        """Number of assignments received."""
        self.fault: str | None = None
        """Why this bridge is not in the group although it should be."""
        self._options = options
        self._member: GroupConsumer | None = None
        self._member_id = ""
        self._forgotten = 0
        """How often the group had forgotten the current member, which then got another id."""
        self._on_assignment: Callable[[tuple[str, ...]], None] | None = None
        self._until = -math.inf
        self._rejoining = False
        self._lost_reader = False
        """Whether the last reader was lost, and no later one has stayed for :data:`SETTLE_S`."""
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._log = structlog.get_logger("bridge")

    @property
    def generation(self) -> int:
        """Generation joined last; -1 outside the group."""
        return -1 if self._member is None else self._member.generation

    @property
    def joined(self) -> bool:
        """True if this bridge is in the group, to its knowledge."""
        return self.generation >= 0

    @property
    def names(self) -> tuple[str, ...] | None:
        """Streams to read: the latest assignment and any hot updates; None without an assignment."""
        if self.assigned is None:
            return None
        topics = self._options.names
        own = tuple(f"{topics.updates}/{number}" for number in sorted(self.assigned))
        return own if topics.served else (*own, f"{topics.hot}/0")

    @property
    def consumer(self) -> AIOKafkaConsumer | None:
        """The consumer to commit with; None outside the group and while a join is in progress."""
        member = self._member
        return member.consumer if member is not None and self.joined and member.is_stable else None

    def acquire(self, on_assignment: Callable[[tuple[str, ...]], None]) -> None:
        """Join, or stay, for a reader; every assignment calls ``on_assignment`` with all streams."""
        self._on_assignment = on_assignment
        self._lost_reader &= not self.joined
        self._until = math.inf
        self._wake.set()

    def release(self) -> None:
        """Leave after a grace period, unless a reader connects in the meantime; join no more without one."""
        self._on_assignment = None
        self._lost_reader = True
        if self._until == math.inf:
            self._until = time.monotonic() + GRACE_S if self.joined else -math.inf
            self._wake.set()

    def leave(self) -> None:
        """Leave at once, until the next reader; the present one is still served the last assignment."""
        self._until = -math.inf
        self._wake.set()

    def rejoin(self) -> None:
        """Leave and join again: the topic was replaced, or the group has outdated URLs of this server."""
        self._rejoining = True
        self._wake.set()

    async def trigger_rebalance(self) -> None:
        """Make the group assign the topic's new partitions now, which it would otherwise notice minutes later."""
        if self._member is not None:
            with contextlib.suppress(*FAULTS):
                await self._member.trigger_rebalance()

    def stop(self) -> None:
        """Leave at once and permanently."""
        self._until = -math.inf
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Stay in the group while acquired, until stopped; leaving then takes at most 8 s."""
        joining_task = asyncio.create_task(self._keep_joined())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({joining_task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._member is None:
                # Idle: waiting for the cluster, or for a reader.
                joining_task.cancel()
            await asyncio.wait({joining_task}, timeout=STOP_TIMEOUT_S)
        finally:
            joining_task.cancel()
            stop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await joining_task

    async def _keep_joined(self) -> None:
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S, stable_s=STABLE_AFTER_S)
        while not self._stopping.is_set():
            if not self._is_acquired:
                self._clear()
                await self._sleep(math.inf)
                continue
            if self._lost_reader:
                reader = self._on_assignment
                await wait(self._stopping, SETTLE_S)
                self._lost_reader = reader is None or self._on_assignment is not reader
                continue
            began = time.monotonic()
            try:
                await self._join()
                backoff.reset()
                continue
            except NumberInUse:
                await self._wait_for_number()
                continue
            except FAULTS as error:
                self._on_fault(f"{type(error).__name__} {error}".strip())
            except Exception as error:  # noqa: BLE001  # the client library raises more than its own errors
                self._log.exception("membership failed")
                self._on_fault(type(error).__name__)
            await wait(self._stopping, backoff.next_delay(time.monotonic() - began))
        self._clear()

    async def _wait_for_number(self) -> None:
        """Stay out of the group while another bridge has this number: they would evict each other in turn."""
        fault = f"another bridge has number {int(self.owner.server.removeprefix('b'))} in the group {self.group}"
        self.fault = fault
        self._log.error(
            f"{fault}: this one waits. Give one of them and its server other numbers "
            "(DIEM_BRIDGE_NUMBER, DIEM_WEBSOCKET_NUMBER), or stop it",
            server=self.owner.internal,
        )
        self._announce(frozenset())
        absent = 0
        # Twice: the other one may only leave briefly to rejoin with new URLs.
        while absent < 2 and not self._stopping.is_set():
            # Of two that gave way together, the first to check takes the number.
            await wait(self._stopping, NUMBER_CHECK_S * random.uniform(1.0, 1.5))  # noqa: S311 - is no secret
            try:
                holder = await current_holder(self._options, self.group, self.owner.server)
            except (KafkaUnavailable, ConfigurationError):
                continue
            absent = absent + 1 if holder is None else 0
        self.fault = None

    @property
    def _is_acquired(self) -> bool:
        return time.monotonic() < self._until

    async def _join(self) -> None:
        """Join, stay while acquired, and leave.

        Raises:
            KafkaError: or any other error of the client library.
        """
        self._rejoining = False
        async with joining(self._options, self.group, self.owner, self._on_assigned) as member:
            self._member, self._member_id, self._forgotten = member, "", 0
            forgotten, forgotten_at, in_a_row = 0, -math.inf, 0
            # Two bridges with one number evict each other in turn. Random, so that not both give way.
            most = random.randint(2, MAX_REMOVALS)  # noqa: S311 - is no secret
            try:
                while self._is_acquired and not self._rejoining:
                    await self._sleep(min(CHECK_S, self._until - time.monotonic()))
                    member.check()
                    if self._forgotten > forgotten:
                        self._log.warning("the group had removed this bridge, rejoined", group=self.group)
                        before, forgotten, forgotten_at = forgotten_at, self._forgotten, time.monotonic()
                        in_a_row = in_a_row + 1 if forgotten_at - before < STABLE_AFTER_S else 1
                        if in_a_row >= most:
                            raise NumberInUse("removed from the group repeatedly")
                await self._leave(member)
                self._clear()
            finally:
                self._member = None

    async def _leave(self, member: GroupConsumer) -> None:
        began = time.monotonic()
        try:
            await member.leave()
        except FAULTS as error:
            fault = f"{type(error).__name__} {error}".strip()
            self._log.warning("leaving the group failed", group=self.group, error=fault)
        else:
            self._log.info("left the group", group=self.group, seconds=round(time.monotonic() - began, 3))

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the next request to this membership, at most ``seconds``."""
        await wait(self._wake, seconds)
        self._wake.clear()

    def _on_assigned(self, partitions: frozenset[int]) -> None:
        if self._member is not None:
            self._forgotten += self._member_id not in {"", self._member.id}
            self._member_id = self._member.id
        self.fault = None
        self.assignments += 1
        self._log.info("partitions assigned", group=self.group, generation=self.generation, owned=sorted(partitions))
        self._announce(partitions)

    def _announce(self, partitions: frozenset[int]) -> None:
        self.assigned = partitions
        if self._on_assignment is not None and (names := self.names) is not None:
            self._on_assignment(names)

    def _on_fault(self, fault: str) -> None:
        if self.fault is None:
            self._log.warning("not in the group, retrying", group=self.group, error=fault)
        self.fault = fault

    def _clear(self) -> None:
        self.assigned = self.fault = None
