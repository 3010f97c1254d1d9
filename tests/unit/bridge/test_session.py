"""A session whose consumer is scripted; against a broker it is in tests/integration/kafka/test_bridge.py."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from bridge import session as module
from bridge.consumer import FetchedBatches
from bridge.link import BridgeLink
from bridge.records import Records
from bridge.session import BridgeState, FeedSession
from diem.kafka.config import KafkaOptions
from diem.protocol import feed
from diem.protocol.update import encode
from tests.support.patience import until

A, B, HOT = "x.updates/0", "x.updates/1", "x.updates.hot/0"


class Kafka:
    """Kafka as a session sees it: logs, and scripted polls."""

    def __init__(self) -> None:
        self.ends = {A: 0, B: 5, HOT: 0}
        self.fetched: list[FetchedBatches] = []
        self.assigned: list[dict[str, int]] = []
        self.polls = 0

    @contextlib.asynccontextmanager
    async def consuming(self, *_: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(last_poll_timestamp=lambda _: None, highwater=lambda _: None)

    async def bounds(self, _: Any, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        return {name: (0, self.ends[name]) for name in names}

    def assign(self, _: Any, positions: Mapping[str, int]) -> None:
        self.assigned.append(dict(positions))

    async def poll(self, _: Any, timeout_s: float, interrupt: asyncio.Future[None]) -> list[FetchedBatches]:
        self.polls += 1
        if not self.fetched:
            await asyncio.wait([interrupt], timeout=timeout_s)
        fetched, self.fetched = self.fetched, []
        return fetched


class Wire:
    """A link, and the streams of the frames on it."""

    def __init__(self) -> None:
        self.sent: list[feed.Control | feed.UnknownMessage | str] = []
        self.writes: list[int] = []
        """The number of frames in each write."""
        self._held: list[feed.Control | feed.UnknownMessage | str] = []
        connection = SimpleNamespace(
            paused=False, send_text=self._text, send_binary=self._binary, hold_binary=self._hold, flush=self._flush
        )
        self.link = BridgeLink(cast("Any", connection))

    def _text(self, data: bytes) -> None:
        self._held.append(feed.decode(data))
        self._flush()

    def _binary(self, data: bytes) -> None:
        self._hold(data)
        self._flush()

    def _hold(self, data: bytes) -> None:
        self._held.append(feed.decode_batch(data).name)

    def _flush(self) -> None:
        if self._held:
            self.writes.append(len(self._held))
            self.sent += self._held
            self._held.clear()


class Committer:
    async def close(self) -> None: ...

    def commit(self, *_: object) -> None: ...


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    for name in ("consuming", "bounds", "assign", "poll"):
        monkeypatch.setattr(module, name, getattr(made, name))
    # What is due every second is not part of these tests: it would come whenever the machine stands still that long.
    monkeypatch.setattr(module, "TICK_S", 3600.0)
    return made


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def bridge() -> BridgeState:
    watcher = SimpleNamespace(names=(A, HOT), partitions=1, leaderless=frozenset(), check_now=lambda: None)
    records = Records(lambda _: None)
    return BridgeState(
        KafkaOptions("nobody:1", topic_prefix="x."),
        "g",
        cast("Any", watcher),
        records,
        commits=cast("Any", Committer()),
    )


@pytest.fixture
async def session(kafka: Kafka, wire: Wire, bridge: BridgeState) -> AsyncIterator[FeedSession]:
    made = FeedSession(wire.link, "s", feed.Resume("s", {A: 0, B: 3}), bridge)
    running = asyncio.create_task(made.run())
    await until(lambda: kafka.polls)
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def assign(session: FeedSession, bridge: BridgeState, *names: str) -> None:
    cast("Any", bridge.watcher).names = names
    session.on_assignment(names)


async def test_session_announces_streams_and_sends_no_heartbeat_before_a_watermark(
    session: FeedSession, wire: Wire
) -> None:
    assert wire.sent == [feed.Hello("s", (A, HOT)), feed.CaughtUp(A), feed.CaughtUp(HOT)]
    assert session.partitions.names == (A, HOT)


async def test_assignment_is_announced_and_a_gained_partition_starts_at_its_beginning(
    session: FeedSession, bridge: BridgeState, kafka: Kafka, wire: Wire
) -> None:
    wire.sent.clear()
    assign(session, bridge, A, B, HOT)
    await until(lambda: len(kafka.assigned) == 2)
    assert wire.sent == [feed.Hello("s", (A, B, HOT))]
    assert kafka.assigned[1] == {A: 0, B: 0, HOT: 0}, "the position that the reader had of it before does not count"


async def test_partitions_of_one_poll_are_one_write(session: FeedSession, kafka: Kafka, wire: Wire) -> None:
    topics = ("x.updates", "x.updates.hot")
    kafka.fetched = [FetchedBatches(TopicPartition(topic, 0), 1, iter(())) for topic in topics]
    cast("Any", session)._interrupt.set_result(None)
    await until(lambda: wire.sent[-1] == HOT)
    assert wire.sent[-2:] == [A, HOT]
    assert wire.writes[-1] == 2


async def test_records_of_a_lost_partition_are_not_sent_after_the_announcement(
    session: FeedSession, bridge: BridgeState, kafka: Kafka, wire: Wire
) -> None:
    value = encode("/a", 1_700_000_000_000, 1_700_000_000_000)
    records = [SimpleNamespace(offset=0, key=b"/a", value=value)]
    kafka.fetched = [FetchedBatches(TopicPartition("x.updates", 0), 1, iter(cast("Any", records)))]
    wire.sent.clear()
    assign(session, bridge, HOT)
    await until(lambda: len(kafka.assigned) == 2)
    assert wire.sent == [feed.Hello("s", (HOT,))]
    assert kafka.assigned[1] == {HOT: 0}


async def test_same_assignment_changes_nothing(
    session: FeedSession, bridge: BridgeState, kafka: Kafka, wire: Wire
) -> None:
    wire.sent.clear()
    polls = kafka.polls
    assign(session, bridge, A, HOT)
    await asyncio.sleep(0.01)
    assert (kafka.polls, wire.sent, len(kafka.assigned)) == (polls, [], 1)


async def test_partition_whose_bounds_are_found_late_does_not_delay_the_others(
    session: FeedSession, bridge: BridgeState, kafka: Kafka, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asyncio.Event()

    async def bounds(consumer: Any, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        await found.wait()
        return await kafka.bounds(consumer, names)

    monkeypatch.setattr(module, "bounds", bounds)
    monkeypatch.setattr(module, "BOUNDS_WAIT_S", 0.0)
    assign(session, bridge, A, B, HOT)
    await until(lambda: len(kafka.assigned) == 2)
    assert kafka.assigned[1] == {A: 0, HOT: 0}
    assert not session.partitions.is_live(0.0)
    found.set()
    await until(lambda: len(kafka.assigned) == 3)
    assert kafka.assigned[2] == {A: 0, B: 0, HOT: 0}
    assert bridge.partitions is session.partitions
