"""Bridges that divide the partitions of a topic, against a real broker (docs/internals.md section 3)."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from bridge import group_member as membership_module
from diem.kafka.config import KafkaOptions
from diem.kafka.map_writer import write_map
from diem.links.feed_reader import FeedReader
from diem.protocol import feed
from diem.protocol.feed import partition_of_stream
from diem.protocol.partition_map import HEAD_KEY, HOT, START_KEY, Entry, Head, encode_entry
from diem.protocol.watermark import FIRST_INCARNATION, position_of
from tests.support.bridge import (
    FeedRecorder,
    RunningBridge,
    UpdatesTopic,
    bridge_process,
    place,
    running_bridge,
    updates_topic,
)
from tests.support.maps import ensure_map
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.required import in_cluster

SESSION = 10.0
"""Session timeout of a member in seconds."""
REBALANCED_WITHIN = 0.7 * SESSION * FACTOR
"""Seconds from a bridge's leave until the others have its partitions: one or two, because members learn of it at their
next heartbeat; ten if only the session's end removed it."""
PARTITIONS = 6
SESSION_S = 10.0
"""Session timeout of a silent member."""
ALL = set(range(PARTITIONS))


class Server(FeedRecorder):
    """The reader of one bridge, which keeps the offsets of its current streams like a server."""

    def __init__(self, resume: feed.Resume | None = None) -> None:
        super().__init__()
        self.offsets: dict[int, list[int]] = {}
        self.forget_repeated = False
        self._first = resume

    def resume(self) -> feed.Resume:
        resume = super().resume()
        first, self._first = self._first, None
        return first or resume

    def hello(self, message: feed.Hello) -> None:
        super().hello(message)
        numbers = (partition_of_stream(name) for name in message.names)
        self.offsets = {number: self.offsets.get(number, []) for number in numbers if number is not None}

    def _batch(self, batch: feed.Batch) -> None:
        # Raises for a name that the last hello did not announce: the link is closed then, as a server does it.
        super()._batch(batch)
        name, _, records = self.batches[-1]
        number = partition_of_stream(name)
        if number is not None:
            self.offsets[number] += [record[0] for record in records]

    @property
    def arrived(self) -> dict[int, list[int]]:
        """The offsets, each once if :attr:`forget_repeated`."""
        if not self.forget_repeated:
            return self.offsets
        return {number: sorted(set(offsets)) for number, offsets in self.offsets.items()}

    @property
    def hellos(self) -> list[feed.Hello]:
        return [each for each in self.control if isinstance(each, feed.Hello)]

    @property
    def owned(self) -> set[int]:
        return set(self.offsets) - {HOT}

    @property
    def left(self) -> list[Mapping[str, str]]:
        """The owners sent after it was about to stop."""
        return [each.owners for each in self.control if isinstance(each, feed.Owners) and each.left]

    @property
    def urls(self) -> dict[str, str]:
        """The owners sent last."""
        return dict(next((each.owners for each in reversed(self.control) if isinstance(each, feed.Owners)), {}))


@dataclass
class Pair:
    """A bridge and its server."""

    bridge: RunningBridge
    server: Server
    reader: FeedReader


Opener = Callable[..., AbstractAsyncContextManager[RunningBridge]]


@contextlib.asynccontextmanager
async def pair(
    directory: Path,
    topic: UpdatesTopic,
    number: int,
    *,
    opener: Opener = running_bridge,
    resume: feed.Resume | None = None,
) -> AsyncIterator[Pair]:
    """Run a bridge of the group and its server; at the end the bridge is stopped (a process is killed)."""
    async with opener(directory, topic.options, **place(number)) as bridge:
        server = Server(resume)
        async with bridge.reading(server) as reader:
            yield Pair(bridge, server, reader)


class Writer:
    """Writes new endpoints only, so that no two records of a partition are conflated."""

    def __init__(self, topic: UpdatesTopic) -> None:
        self._topic = topic
        self._task = asyncio.create_task(self._write())
        self.written: Counter[int] = Counter()

    async def _write(self) -> None:
        for n in itertools.count():
            name, hot = f"/e/{n}", n % 10 == 0
            self.written[HOT if hot else self._topic.partition(name)] += 1
            # To its end, also when the writing is to stop now.
            await asyncio.shield(asyncio.ensure_future(self._topic.put(name, hot=hot)))
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def all_arrives(self, *servers: Server, within: float = PATIENCE_S) -> None:
        """Check that servers have every record of their partitions once, in order, from the logs' beginnings."""
        await self.stop()
        for server in servers:
            expected = {number: list(range(self.written[number])) for number in (*server.owned, HOT)}
            with contextlib.suppress(TimeoutError):
                await until(lambda: server.arrived == expected, within)  # noqa: B023
            assert server.arrived == expected


async def share(*shares: tuple[Pair, set[int]], within: float = PATIENCE_S) -> float:
    """Wait until the servers own their partitions; return the seconds that it took."""
    began = time.monotonic()
    with contextlib.suppress(TimeoutError):
        await until(lambda: all(each.server.owned == owned for each, owned in shares), within)
    assert [each.server.owned for each, _ in shares] == [owned for _, owned in shares]
    return time.monotonic() - began


async def committed(topic: UpdatesTopic, group: str) -> dict[int, int]:
    arguments = topic.options.client_arguments()
    async with AIOKafkaConsumer(**arguments, group_id=group, enable_auto_commit=False) as reader:
        return {n: await reader.committed(TopicPartition(topic.name, n)) or 0 for n in range(topic.partitions)}


@pytest.fixture
async def topic(kafka_options: KafkaOptions) -> AsyncIterator[UpdatesTopic]:
    async with updates_topic(kafka_options, partitions=PARTITIONS) as made:
        yield made


@pytest.fixture
async def writer(topic: UpdatesTopic) -> AsyncIterator[Writer]:
    writing = Writer(topic)
    yield writing
    await writing.stop()


@pytest.mark.takes(30)
async def test_bridges_share_the_partitions_in_ranges_and_nothing_is_lost_or_repeated_while_they_come_and_go(
    topic: UpdatesTopic, writer: Writer, tmp_path: Path
) -> None:
    async with pair(tmp_path, topic, 1) as first:
        await share((first, ALL))
        async with pair(tmp_path, topic, 3) as third:
            await share((first, {0, 1, 2}), (third, {3, 4, 5}))
            async with pair(tmp_path, topic, 2) as second:
                await share((first, {0, 1}), (second, {2, 3}), (third, {4, 5}))
                async with asyncio.timeout(PATIENCE_S):
                    # What is read from its beginning later has a position there that it must not start from.
                    while min((await committed(topic, topic.options.names.z_group(1))).values()) < 5:
                        await asyncio.sleep(0.2)
            # The second was asked to stop, and has left before its process ended.
            await share((first, {0, 1, 2}), (third, {3, 4, 5}), within=REBALANCED_WITHIN)
            await until(lambda: len(third.server.offsets[3]) >= writer.written[3] > 0)
        await share((first, ALL), within=REBALANCED_WITHIN)
        await writer.all_arrives(first.server)
        assert (first.reader.connects, third.reader.connects, second.reader.connects) == (1, 1, 1)
        status = await first.bridge.status()
        hot = f"{topic.options.names.hot}/0"
        assert [hot in hello.names for hello in first.server.hellos] == [True] * len(first.server.hellos)
    expected = {"group": topic.options.names.z_group(1), "clone": 1, "server": "b001", "joined": True}
    assert {name: status[name] for name in expected} == expected
    assert status["assigned"] == sorted(ALL)
    assert status["recreated"] == 0, "one consumer reads on through all rebalances"


async def test_positions_of_a_reader_hold_for_the_first_assignment_and_later_ones_start_at_the_beginning(
    topic: UpdatesTopic, tmp_path: Path
) -> None:
    await topic.put(*(f"/{n}" for n in range(60)))
    counts = Counter(topic.partition(f"/{n}") for n in range(60))
    async with AsyncExitStack() as leaving:
        second = await leaving.enter_async_context(pair(tmp_path, topic, 2))
        await share((second, ALL))
        source = (await second.bridge.status())["source"]
        ends = {number: position_of(counts[number], FIRST_INCARNATION) for number in ALL}
        at_the_end = feed.Resume(source, {f"{topic.name}/{number}": position for number, position in ends.items()})
        async with pair(tmp_path, topic, 1, resume=at_the_end) as first:
            await share((first, {0, 1, 2}), (second, {3, 4, 5}))
            await until(lambda: len(first.server.caught_up_names()) >= 4)
            assert not any(first.server.offsets.values()), "it has all of that"
            await leaving.aclose()
            await share((first, ALL), within=REBALANCED_WITHIN)
            expected = {number: [] if number < 3 else list(range(counts[number])) for number in ALL} | {HOT: []}
            await until(lambda: first.server.offsets == expected)


@pytest.mark.takes(25)
async def test_a_bridge_stays_in_its_group_for_a_short_loss_of_its_reader_and_leaves_after_a_long_one(
    topic: UpdatesTopic, writer: Writer, tmp_path: Path
) -> None:
    async with (
        pair(tmp_path, topic, 1) as first,
        running_bridge(tmp_path, topic.options, **place(2)) as bridge,
    ):
        server = Server()
        await share((first, ALL))
        for times in (1, 2):
            async with bridge.reading(server) as reader:
                await until(lambda: len(server.hellos) == times and server.state.caught_up)  # noqa: B023
                await share((first, {0, 1, 2}), (Pair(bridge, server, reader), {3, 4, 5}))
                before = (await first.bridge.status())["assignments"]
                away = time.monotonic()
            # Long enough for a bridge that leaves to be missed, and less than it stays.
            await asyncio.sleep(2.5)
            after = (await first.bridge.status())["assignments"]
            assert after == before or time.monotonic() - away > 4.5, "the other one has left"
        await share((first, ALL))
        assert time.monotonic() - away > 4.5
        # The others are assigned its partitions a moment before it knows that it has left.
        await bridge.becomes(joined=False)
        async with bridge.reading(server) as reader:
            await share((first, {0, 1, 2}), (Pair(bridge, server, reader), {3, 4, 5}))
            await writer.all_arrives(first.server)
            await until(lambda: server.offsets.get(4, [])[-1:] == [writer.written[4] - 1])


@pytest.mark.takes(15)
async def test_a_bridge_whose_reader_is_about_to_stop_delivers_until_another_one_has_its_partitions(
    topic: UpdatesTopic, writer: Writer, tmp_path: Path
) -> None:
    async with pair(tmp_path, topic, 1) as first, pair(tmp_path, topic, 2) as second:
        await share((first, {0, 1, 2}), (second, {3, 4, 5}))
        await until(lambda: second.server.state.caught_up)
        assert second.reader.leave()
        await until(lambda: bool(second.server.left))
        # Others have its partitions, and it reads them as before.
        assert {name: url for name, url in second.server.left[0].items() if "public-1" not in url} == {}
        await share((first, ALL), (second, {3, 4, 5}))
        await second.bridge.becomes(joined=False)
        written = Counter(writer.written)
        await until(lambda: all(len(second.server.offsets.get(number, ())) > written[number] for number in (3, 4, 5)))
        await writer.all_arrives(first.server)


@pytest.mark.takes(50)
async def test_a_bridge_that_is_killed_and_restarted_at_once_causes_no_rebalance(
    topic: UpdatesTopic, writer: Writer, tmp_path: Path
) -> None:
    async with pair(tmp_path, topic, 1) as first:
        for _ in range(5):
            async with pair(tmp_path, topic, 2, opener=bridge_process) as killed:
                await share((first, {0, 1, 2}), (killed, {3, 4, 5}))
                before = await first.bridge.status()
                os.kill(killed.bridge.pid, signal.SIGKILL)
                gone = time.monotonic()
            # In this process: another one may take longer to start than the session lasts.
            async with pair(tmp_path, topic, 2) as back:
                await share((back, {3, 4, 5}))
                absent_s = time.monotonic() - gone
                await writer.all_arrives(first.server, back.server)
                after = await first.bridge.status()
            # Else the machine was too slow to be back at once: the session began with the last heartbeat before.
            if absent_s < SESSION_S / 2:
                break
        assert (before["assignments"], before["generation"]) == (after["assignments"], after["generation"])


@in_cluster("it waits for a rebalance")
async def test_a_bridge_stopped_for_longer_than_its_session_gets_its_partitions_back(
    topic: UpdatesTopic, writer: Writer, tmp_path: Path
) -> None:
    async with pair(tmp_path, topic, 1) as first, pair(tmp_path, topic, 2, opener=bridge_process) as zombie:
        await share((first, {0, 1, 2}), (zombie, {3, 4, 5}))
        await until(lambda: min(map(len, zombie.server.offsets.values())) > 2)
        os.kill(zombie.bridge.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        await share((first, ALL))
        await until(lambda: time.monotonic() - stopped > 12.0)
        os.kill(zombie.bridge.pid, signal.SIGCONT)
        await until(lambda: first.server.owned == {0, 1, 2})
        await share((first, {0, 1, 2}), (zombie, {3, 4, 5}))
        # Logs without watermarks are read again by a bridge that waits for them.
        zombie.server.forget_repeated = True
        await writer.all_arrives(first.server, zombie.server)


async def test_a_server_gets_the_whole_partition_map_on_each_link_and_then_its_changes(
    topic: UpdatesTopic, tmp_path: Path
) -> None:
    options, name = topic.options, f"{topic.options.names.partition_map}/0"
    await ensure_map(options, PARTITIONS, hot=["/hot"])
    async with running_bridge(tmp_path, options, **place(1)) as bridge:
        server = Server()

        def keys() -> list[list[bytes]]:
            return [[record[1] for record in records] for of, _, records in server.batches if of == name]

        async with bridge.reading(server):
            await until(lambda: name in server.caught_up_names())
            assert server.map.map is not None
            assert server.map.map.head == Head(PARTITIONS, 0)
            assert server.map.map.entry(b"/hot") == Entry(HOT)
            assert keys() == [[START_KEY, b"/hot", HEAD_KEY]]
            await write_map(options, {b"/moved": encode_entry(Entry(4)), b"/hot": None}, Head(PARTITIONS, 1))
            await until(lambda: server.map.map is not None and server.map.map.head.epoch == 1)
            assert server.map.map.entries == {b"/moved": Entry(4)}
            assert keys()[-1][-1] == HEAD_KEY
            assert START_KEY not in itertools.chain(*keys()[1:])
        server.batches.clear()
        async with bridge.reading(server):
            await until(keys)
            assert keys()[0][0] == START_KEY
            assert set(keys()[0][1:-1]) == {b"/moved", b"/hot"}
            assert keys()[0][-1] == HEAD_KEY
        assert (await bridge.status())["epoch"] == 1


async def test_every_server_gets_the_owner_of_each_partition(topic: UpdatesTopic, tmp_path: Path) -> None:
    def told(**owners: str) -> dict[str, str]:
        return {f"{topic.name}/{number[1:]}": f"ws://{url}/ws" for number, url in owners.items()}

    async with pair(tmp_path, topic, 1) as first:
        async with pair(tmp_path, topic, 2) as second:
            both = told(**{f"p{n}": "public-1" if n < 3 else "public-2" for n in ALL})
            await until(lambda: first.server.urls == second.server.urls == both)
        alone = told(**{f"p{n}": "public-1" for n in ALL})
        await until(lambda: first.server.urls == alone)


async def test_heartbeats_need_an_assignment_that_has_caught_up(
    topic: UpdatesTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joining: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
    acquire = membership_module.Membership.acquire

    def later(self: membership_module.Membership, on_assignment: Callable[[tuple[str, ...]], None]) -> None:
        if joining.done():  # a reader that has reconnected
            acquire(self, on_assignment)
        else:
            joining.set_result(lambda: acquire(self, on_assignment))

    monkeypatch.setattr(membership_module.Membership, "acquire", later)
    await ensure_map(topic.options, PARTITIONS)
    async with pair(tmp_path, topic, 1) as first:
        join = await joining
        assert not (await first.bridge.status())["joined"]
        assert first.server.hellos == []
        join()
        await until(lambda: first.server.heartbeats)
        assert first.server.owned == ALL
        assert set(first.server.caught_up_names()) == set(first.server.hellos[0].names)


@in_cluster("it waits for a rebalance")
async def test_more_partitions_cause_a_rebalance(topic: UpdatesTopic, tmp_path: Path) -> None:
    async with pair(tmp_path, topic, 1) as first, pair(tmp_path, topic, 2) as second:
        await share((first, {0, 1, 2}), (second, {3, 4, 5}))
        await topic.grow(8)
        await topic.write((b"/new", b"x", 7))
        await share((first, {0, 1, 2, 3}), (second, {4, 5, 6, 7}))
        await until(lambda: second.server.resynced == ["/new"])


@in_cluster("it waits for a rebalance")
async def test_a_replaced_topic_is_assigned_again_and_read_from_its_beginning(
    topic: UpdatesTopic, tmp_path: Path
) -> None:
    await topic.put(*(f"/old/{n}" for n in range(20)))
    async with pair(tmp_path, topic, 1) as first, pair(tmp_path, topic, 2) as second:
        await share((first, {0, 1, 2}), (second, {3, 4, 5}))
        source = first.server.state.source
        await topic.delete()
        topic.options, topic.partitions = replace(topic.options, partitions=4), 4
        await topic.create()
        await topic.put(*(f"/new/{n}" for n in range(20)))
        await share((first, {0, 1}), (second, {2, 3}))
        await until(lambda: first.server.names | second.server.names == {f"/new/{n}" for n in range(20)})
        assert first.server.state.source == second.server.state.source != source


@in_cluster("it waits for a rebalance")
async def test_a_bridge_that_returns_with_other_urls_publishes_them(topic: UpdatesTopic, tmp_path: Path) -> None:
    """Kafka keeps the client id with which a static member joined first."""
    async with pair(tmp_path, topic, 1, opener=bridge_process) as killed:
        await share((killed, ALL))
    server = Server()
    elsewhere = {**place(1), "server_public_url": "ws://elsewhere/ws"}
    async with bridge_process(tmp_path, topic.options, **elsewhere) as back, back.reading(server):
        await until(lambda: set(server.urls.values()) == {"ws://elsewhere/ws"})
        assert server.owned == ALL
