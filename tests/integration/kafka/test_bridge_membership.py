"""A bridge's membership of its group, against a real broker: joining, staying through faults, leaving."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.structs import OffsetAndMetadata

from bridge.group_member import Membership
from diem.kafka.assignment import read_assignment
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.protocol.assignment import STABLE, Owner
from tests.support.bridge import updates_topic
from tests.support.kafka import killed, stopped
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, until
from tests.support.required import in_cluster
from tests.support.stalls import stalls

ALL = frozenset(range(4))
LOW, HIGH = frozenset({0, 1}), frozenset({2, 3})


def owner(number: int) -> Owner:
    return Owner(f"b{number:03d}", f"ws://internal-{number}/ws", f"ws://public-{number}/ws")


@contextlib.asynccontextmanager
async def member(options: KafkaOptions, number: int) -> AsyncIterator[Membership]:
    """Run a membership that is acquired; at the end it leaves."""
    membership = Membership(options, options.names.z_group(1), owner(number))
    running = asyncio.create_task(membership.run())
    membership.acquire(lambda _names: None)
    try:
        yield membership
    finally:
        membership.stop()
        await running


@pytest.fixture
async def options(kafka_options: KafkaOptions) -> AsyncIterator[KafkaOptions]:
    async with updates_topic(kafka_options):
        yield kafka_options


async def stable(membership: Membership) -> Any:
    """The consumer of a member when no join is in progress: a moment after its partitions are assigned."""
    await until(lambda: membership.consumer is not None)
    return membership.consumer


async def inside(membership: Membership) -> Any:
    """The client library's coordinator of a member when no join is in progress."""
    return (await stable(membership))._coordinator


async def test_the_group_shows_the_urls_and_partitions_of_a_member(options: KafkaOptions) -> None:
    async with member(options, 2) as second, member(options, 1) as first:
        await until(lambda: (first.assigned, second.assigned) == (LOW, HIGH))
        async with admin_client(options) as admin:
            clone = await read_assignment(admin, first.group, options.names.updates)
    assert clone.state == STABLE
    assert clone.members == {"b001": owner(1), "b002": owner(2)}
    assert clone.owners == {0: "b001", 1: "b001", 2: "b002", 3: "b002"}


async def test_a_member_fetches_nothing_whether_or_not_there_are_committed_offsets(options: KafkaOptions) -> None:
    async with updates_topic(options) as topic:
        await topic.put(*(f"/{n}" for n in range(50)))
        async with member(options, 1) as only:
            for times in (1, 2):
                await until(lambda: only.assignments == times)  # noqa: B023
                consumer = await stable(only)
                await consumer.commit({TopicPartition(topic.name, 0): 3})
                # As long as a fetch takes that finds something.
                await asyncio.sleep(1.0)
                parts = [TopicPartition(topic.name, number) for number in ALL]
                assert [consumer.highwater(part) for part in parts] == [None] * 4
                assert not consumer._fetcher._records
                consumer._coordinator.request_rejoin()


async def test_a_member_that_never_polls_stays(options: KafkaOptions) -> None:
    async with member(options, 1) as only:
        await until(lambda: only.assigned == ALL)
        (await stable(only))._subscription._last_fetch_ended -= 30 * 86_400
        async with member(options, 2) as other:
            await until(lambda: (only.assigned, other.assigned) == (LOW, HIGH))
        await until(lambda: only.assigned == ALL)
        assert only.assignments == 3


async def test_a_member_that_the_group_has_forgotten_joins_again_and_never_owns_nothing(options: KafkaOptions) -> None:
    seen: list[frozenset[int] | None] = []
    async with member(options, 1) as only:
        only.acquire(lambda _names: seen.append(only.assigned))
        await until(lambda: only.assigned == ALL)
        coordinator = await inside(only)
        request = LeaveGroupRequest(only.group, coordinator.member_id)
        await coordinator._client.send(coordinator.coordinator_id, request)
        await until(lambda: only.assignments == 2 and only.joined)
        assert seen == [ALL, ALL]


def _cancel_coordination(coordinator: Any) -> None:
    coordinator._coordination_task.cancel()


def _park(coordinator: Any) -> None:
    """Fail like an error that the library keeps for its user to retrieve."""
    coordinator._pending_exception = RuntimeError("parked")


@pytest.mark.parametrize("fault", [_cancel_coordination, _park])
async def test_a_member_whose_tasks_are_stuck_is_replaced(options: KafkaOptions, fault: Callable[[Any], None]) -> None:
    async with member(options, 1) as first, member(options, 2) as broken:
        await until(lambda: (first.assigned, broken.assigned) == (LOW, HIGH))
        coordinator, assignments = await inside(broken), (first.assignments, broken.assignments)
        fault(coordinator)
        await until(lambda: broken.assignments > assignments[1])
        assert await inside(broken) is not coordinator
        assert (broken.assigned, broken.fault, first.assignments) == (HIGH, None, assignments[0])


async def test_of_two_members_of_one_name_one_waits_until_the_other_has_left(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.group_member.NUMBER_CHECK_S", 1.0)
    async with contextlib.AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(member(options, 1)) for _ in range(2)]

        def waiting_and_serving() -> tuple[list[Membership], list[Membership]]:
            # Which one has the number may change until the group is stable, and a member may have other faults before.
            waiting = [one for one in pair if not one.joined and "another bridge has number 1" in (one.fault or "")]
            return waiting, [one for one in pair if one.joined and one.assigned == ALL]

        await until(lambda: all(len(members) == 1 for members in waiting_and_serving()))
        (waiting,), (serving,) = waiting_and_serving()
        assert waiting.assigned == frozenset()
        serving.stop()
        await until(lambda: waiting.joined and waiting.assigned == ALL)
        assert waiting.fault is None


@in_cluster("it kills its broker")
async def test_a_member_keeps_its_assignment_during_an_outage_and_leaves_in_time(
    own_broker: LocalCluster, own_broker_options: KafkaOptions
) -> None:
    options = own_broker_options
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(updates_topic(options))
        only = await stack.enter_async_context(member(options, 1))
        seen: list[frozenset[int] | None] = []
        only.acquire(lambda _names: seen.append(only.assigned))
        await until(lambda: only.assigned == ALL)
        async with killed(own_broker):
            await asyncio.sleep(2.0)
            assert only.assigned == ALL
        async with member(options, 2) as other:
            await until(lambda: (only.assigned, other.assigned) == (LOW, HIGH))
        await until(lambda: only.assigned == ALL)
        assert None not in seen
        with stopped(own_broker):
            await asyncio.sleep(0.5)
            began = time.monotonic()
            async with stalls() as stalled:
                only.stop()
                await until(lambda: only.assigned is None)
            assert time.monotonic() - began < 6.0 * FACTOR + stalled.seconds
            await stack.aclose()


async def test_a_member_that_joins_while_no_broker_answers_stops_at_once() -> None:
    options = KafkaOptions("127.0.0.1:1", topic_prefix="x.")
    async with stalls() as stalled, member(options, 1) as nobody:
        await until(lambda: nobody.fault is not None)
        assert (nobody.joined, nobody.assigned) == (False, None)
        began = time.monotonic()
    assert time.monotonic() - began < 3.0 * FACTOR + stalled.seconds


async def test_a_commit_during_a_join_does_not_cause_another_join(options: KafkaOptions) -> None:
    """A commit refused just after the join would make the library join again."""
    async with member(options, 1) as leader:
        await until(lambda: leader.assigned == ALL)
        coordinator = await inside(leader)
        send = coordinator._send_req

        async def with_a_commit(request: Any) -> Any:
            if type(request).__name__.startswith("SyncGroup") and leader.consumer is not None:
                offsets = {TopicPartition(options.names.updates, 0): OffsetAndMetadata(1, "")}
                with contextlib.suppress(KafkaError):
                    await coordinator._do_commit_offsets(None, offsets)
            return await send(request)

        coordinator._send_req = with_a_commit
        before = leader.assignments
        async with member(options, 2) as second:
            await until(lambda: (leader.assigned, second.assigned) == (LOW, HIGH))
            await asyncio.sleep(4.0)
            assert leader.assignments - before == 1
