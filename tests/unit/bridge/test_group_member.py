"""When a bridge is in its group; what a member does is in tests/integration/kafka/test_bridge_membership.py."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupLoadInProgressError, KafkaConnectionError, for_code
from structlog.testing import capture_logs

from bridge import group_member as module
from bridge.group_member import GroupConsumer, MemberLost, Membership, NumberInUse
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.process import backoff
from diem.protocol.assignment import Owner
from tests.support.patience import until

OWNER = Owner("b001", "ws://internal/ws", "ws://public/ws")


class FakeMember:
    """A member that is assigned a partition as soon as it joins."""

    def __init__(self, world: "World", on_assigned: Callable[[frozenset[int]], None]) -> None:
        self._world = world
        self.consumer = None
        self.generation = 1
        self.id = "member"
        self.on_assigned = on_assigned
        on_assigned(frozenset({len(world.members)}))

    def check(self) -> None:
        if fault := self._world.faults.pop(0) if self._world.faults else None:
            raise fault

    async def leave(self) -> None:
        self._world.left += 1
        if self._world.unresponsive:
            raise KafkaConnectionError


class World:
    """The group as the membership sees it."""

    def __init__(self) -> None:
        self.members: list[FakeMember] = []
        self.left = 0
        self.ended = 0
        self.faults: list[Exception] = []
        self.unresponsive = False

    @contextlib.asynccontextmanager
    async def joining(
        self, options: KafkaOptions, group: str, owner: Owner, on_assigned: Callable[[frozenset[int]], None]
    ) -> AsyncIterator[FakeMember]:
        self.members.append(FakeMember(self, on_assigned))
        try:
            yield self.members[-1]
        finally:
            self.ended += 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "joining", made.joining)
    monkeypatch.setattr(module, "GRACE_S", 0.15)
    monkeypatch.setattr(module, "SETTLE_S", 0.1)
    monkeypatch.setattr(module, "CHECK_S", 0.02)
    monkeypatch.setattr(module, "RETRY_CAP_S", 0.02)
    return made


@pytest.fixture
async def membership(world: World) -> AsyncIterator[Membership]:
    made = Membership(KafkaOptions("nobody:1"), "z-1", OWNER)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    yield made
    made.stop()
    await running


class Clock:
    """The membership's clock, which only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


async def test_a_bridge_without_a_reader_is_in_no_group(world: World, membership: Membership) -> None:
    await asyncio.sleep(0.05)
    assert (world.members, membership.joined, membership.assigned) == ([], False, None)


async def test_a_bridge_leaves_some_time_after_its_reader(world: World, clock: Clock, membership: Membership) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.release()
    clock.now += 0.14
    await asyncio.sleep(0.05)
    assert world.left == 0
    clock.now += 0.02
    await until(lambda: world.left)
    await until(lambda: membership.assigned is None)


async def test_a_reader_that_is_there_again_in_time_changes_nothing(
    world: World, clock: Clock, membership: Membership
) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    for _ in range(5):
        membership.release()
        clock.now += 0.1
        await asyncio.sleep(0.03)
        membership.acquire(lambda _names: None)
    clock.now += 1.0
    await asyncio.sleep(0.05)
    assert (len(world.members), world.left, membership.assigned) == (1, 0, frozenset({0}))


async def test_a_reader_that_comes_again_in_vain_is_not_joined_for(
    world: World, clock: Clock, membership: Membership
) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.release()
    clock.now += 1.0
    await until(lambda: world.left)
    for _ in range(6):
        membership.acquire(lambda _names: None)
        await asyncio.sleep(0.03)
        membership.release()
        await asyncio.sleep(0.01)
    assert len(world.members) == 1
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    assert len(world.members) == 2


async def test_a_member_that_is_lost_without_a_reader_is_not_replaced(
    world: World, clock: Clock, membership: Membership
) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.release()
    world.faults.append(MemberLost("its task has ended"))
    await until(lambda: world.ended)
    await asyncio.sleep(0.25)  # longer than a reader has to stay
    assert len(world.members) == 1


async def test_time_runs_from_the_first_release(world: World, clock: Clock, membership: Membership) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    for _ in range(10):
        membership.release()
        clock.now += 0.03
        await asyncio.sleep(0)
    await until(lambda: world.left)


async def test_a_bridge_that_stops_leaves_at_once_and_joins_no_more(world: World, membership: Membership) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.stop()
    await until(lambda: world.left)
    membership.acquire(lambda _names: None)
    await asyncio.sleep(0.1)
    assert (len(world.members), world.ended) == (1, 1)


async def test_a_member_that_is_lost_is_replaced_without_leaving_and_its_partitions_are_kept_meanwhile(
    world: World, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough to be looked at.
    monkeypatch.setattr(backoff, "full_jitter", lambda *_: 0.2)
    owned: list[frozenset[int] | None] = []
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.acquire(lambda _names: owned.append(membership.assigned))
    world.faults.append(MemberLost("its task has ended"))
    await until(lambda: not membership.joined)
    assert (membership.assigned, membership.fault) == (frozenset({0}), "MemberLost its task has ended")
    await until(lambda: len(world.members) == 2)
    assert (world.left, owned, membership.fault) == (0, [frozenset({1})], None)


async def test_any_fault_of_the_library_is_survived(world: World, membership: Membership) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    world.faults += [KafkaConnectionError(), RuntimeError("nobody thought of it")]
    await until(lambda: len(world.members) == 3 and membership.joined)


async def test_a_group_is_left_even_if_the_coordinator_does_not_confirm(world: World, membership: Membership) -> None:
    world.unresponsive = True
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.release()
    await until(lambda: world.ended)
    await until(lambda: membership.assigned is None)
    assert membership.fault is None
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)


async def test_another_topic_is_joined_for_anew(world: World, membership: Membership) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    membership.rejoin()
    await until(lambda: len(world.members) == 2 and membership.joined)
    assert (world.left, membership.assigned) == (1, frozenset({1}))


async def test_a_member_whose_coordination_has_ended_is_lost_with_the_reason_and_no_unretrieved_exception() -> None:
    async def coordinate() -> None:
        raise GroupLoadInProgressError

    coordination = asyncio.ensure_future(coordinate())
    await asyncio.wait([coordination])
    consumer: Any = SimpleNamespace(_coordinator=SimpleNamespace(_coordination_task=coordination))
    with pytest.raises(MemberLost, match=r"has ended: .*GroupLoadInProgressError"):
        GroupConsumer(consumer).check()
    assert not coordination._log_traceback  # the loop would write one


async def test_a_bridge_whose_number_another_one_has_says_so_once_and_waits_until_it_is_free(
    world: World, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Owner | Exception | None] = []
    asked: list[tuple[str, str]] = []

    async def holder(_options: KafkaOptions, group: str, name: str) -> Owner | None:
        asked.append((group, name))
        answer = answers.pop(0) if answers else OWNER
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "current_holder", holder)
    monkeypatch.setattr(module, "NUMBER_CHECK_S", 0.001)
    streams: list[tuple[str, ...]] = []
    membership.acquire(streams.append)
    await until(lambda: membership.joined)
    with capture_logs() as lines:
        world.faults.append(NumberInUse("fenced"))
        await until(lambda: len(asked) > 20)
        assert (len(world.members), membership.joined, membership.assigned) == (1, False, frozenset())
        assert membership.fault == "another bridge has number 1 in the group z-1"
        assert streams[-1] == ("diem.updates.hot/0",)
        # Gone for a moment only, then unknown.
        answers += [None, OWNER, None, KafkaUnavailable("nobody:1", "away"), None]
        await until(lambda: len(world.members) == 2 and membership.joined)
    assert not answers
    assert set(asked) == {("z-1", "b001")}
    assert membership.fault is None
    (error,) = [line["event"] for line in lines if line["log_level"] == "error"]
    assert error.startswith("another bridge has number 1 in the group z-1: this one waits. ")
    assert "DIEM_BRIDGE_NUMBER" in error


async def test_a_bridge_that_waits_for_its_number_stops_at_once(
    world: World, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    world.faults.append(NumberInUse("fenced"))
    await until(lambda: membership.fault)
    membership.stop()


@pytest.mark.parametrize(("code", "lost"), [(82, NumberInUse), (15, MemberLost)])
async def test_a_member_that_was_fenced_is_told_from_one_that_failed(code: int, lost: type[MemberLost]) -> None:
    pending = asyncio.get_running_loop().create_future()
    error = f"Unexpected exception in heartbeat task: {for_code(code)()!r}"
    coordinator = SimpleNamespace(_coordination_task=pending, _pending_exception=KafkaConnectionError(error))
    consumer: Any = SimpleNamespace(_coordinator=coordinator)
    with pytest.raises(MemberLost) as caught:
        GroupConsumer(consumer).check()
    assert type(caught.value) is lost


async def test_a_bridge_that_is_removed_again_and_again_gives_way_and_one_that_is_removed_now_and_then_does_not(
    world: World, clock: Clock, membership: Membership
) -> None:
    def remove() -> None:
        (member,) = world.members
        member.id += "'"
        member.on_assigned(frozenset({0}))

    membership.acquire(lambda _names: None)
    await until(lambda: membership.joined)
    world.members[0].on_assigned(frozenset({0}))
    with capture_logs() as lines:
        for removals in range(1, 2 * module.MAX_REMOVALS):
            clock.now += module.STABLE_AFTER_S
            remove()
            await until(lambda removals=removals: len(lines) == 2 * removals)  # type: ignore[misc]
        assert membership.fault is None
        removals = 1
        while membership.fault is None:
            before = len(lines)
            clock.now += 1.0
            remove()
            removals += 1
            await until(lambda before=before: len(lines) >= before + 2)  # type: ignore[misc]
            await asyncio.sleep(0)
    assert 2 <= removals <= module.MAX_REMOVALS
    assert "another bridge" in str(membership.fault)
