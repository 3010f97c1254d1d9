"""The publisher over a broker that loses, delays and repeats requests, as a whole and in virtual time.

Publisher with all of its tasks, backlog, senders, log monitor and the store's change map are the real ones; the log is
a list of records for each queue, behind requests that the walk answers, loses, or has written late. Whatever happens,
no accepted change is lost. The records of an endpoint are in the order of its versions, except those of requests that
were given up. Watermarks and cursor never pass the log. A topic that was altered so that it would lose updates gets no
more of them until it has been corrected, and then everything again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerFenced, RequestTimedOutError
from hypothesis import given
from hypothesis import strategies as st

from diem.fanout.change_map import ChangeMap
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase
from diem.protocol.update import FORGOTTEN, GONE, GONE_TAIL, UPDATE, WATERMARK_KEY, Change, encode, version_of
from metadata.plans.steps import begin, proceed, reverse
from services.data.publisher import forgetting, publisher, senders
from services.data.publisher import publisher as module
from services.data.publisher.backlog import PublisherState
from services.data.publisher.log import LogTopics
from services.data.publisher.publisher import Publisher, Topics
from services.data.store.tables import Cursor
from tests.support.virtual_time import run_virtual
from tests.walks import walk_settings

pytestmark = pytest.mark.usefixtures("silent_log")

START: Final = 1_700_000_000_000
ENDPOINTS: Final = (b"/a", b"/b", b"/c")
PARTITIONS: Final = 2
QUEUES: Final = (0, 1, HOT)
OPTIONS: Final = KafkaOptions("k:9092")
TOPICS: Final = OPTIONS.names
FAULTS: Final[Sequence[Callable[[], KafkaError]]] = (KafkaConnectionError, RequestTimedOutError, ProducerFenced)
MAX_LATE: Final = 3
REST_S: Final = 300.0
"""Longer than the pause between resends of a partition, and than the full resync after a start."""
NOTICED_S: Final = 13.0
"""Time within which a topic is checked again, or reopened after a fault."""


class Store:
    """The store's side of the publisher."""

    def __init__(self) -> None:
        self.changes = ChangeMap()
        self.cursor: Cursor | None = None
        self.version_floor = self.forgotten = 0

    @property
    def _gone(self) -> list[Change]:
        return [change for change in self.changes.after(0, 100) if change.kind == GONE]

    @property
    def expired(self) -> int:
        return max((change.sequence for change in self._gone), default=0)

    def deleted(self, upto: int) -> list[bytes]:
        return [change.endpoint for change in self._gone if change.sequence <= upto]

    def release_deleted(self, upto: int, cursor: Cursor) -> None:
        self.forgotten, self.cursor = upto, cursor
        self.version_floor = max([self.version_floor, *(self.latest[name] for name in self.deleted(upto))])
        self.changes.remove(self.deleted(upto))

    def keep_cursor(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def log_is_ahead(self, endpoint: str, version: int) -> None:
        raise AssertionError(f"the log has version {version} of {endpoint}, which was never accepted")

    def put(self, endpoint: bytes, *, gone: bool = False) -> None:
        sequence = self.changes.sequence + 1
        version = START + sequence
        value = encode(endpoint.decode(), version, version, gone=gone)
        self.changes.apply(Change(sequence, endpoint, version, GONE if gone else UPDATE, value))

    @property
    def latest(self) -> dict[bytes, int]:
        return {change.endpoint: change.version for change in self.changes.after(0, 100)}


@dataclass
class Request:
    """One request; ``marked`` are the versions accepted when it was made, if it contains a watermark."""

    queue: int
    records: list[tuple[bytes, bytes | None]]
    answer: "asyncio.Future[tuple[int, int]]"
    marked: dict[bytes, int]
    forgotten: Collection[bytes]
    written: bool = False


@dataclass
class Written:
    """One record: version 0 is a tombstone, -1 anything that is no update."""

    endpoint: bytes
    version: int
    late: bool
    kind: int = UPDATE
    """A tombstone with a deletion is FORGOTTEN."""


@dataclass
class Broker:
    """The cluster: its logs, the map, and how it behaves."""

    map: PartitionMap
    store: Store
    homes: Callable[[bytes], Collection[int]] = lambda _endpoint: ()
    """The queues of an endpoint by the map that the publisher follows."""
    logs: list[list[Written]] = field(default_factory=lambda: [[] for _ in QUEUES])
    under_way: list[Request] = field(default_factory=list)
    given_up: list[Request] = field(default_factory=list)
    readers: list["Reader"] = field(default_factory=list)
    up: bool = True
    well: bool = False
    """Every request is answered at once."""
    fits: int = 500
    wrong_since: float | None = None
    """When the topic was altered so that it would lose updates."""
    lates: int = 0
    acknowledged: int = -1

    @property
    def cluster(self) -> Cluster:
        sizes = {TOPICS.updates: PARTITIONS, TOPICS.hot: 1, TOPICS.partition_map: 1}
        found = {
            name: Topic(name, name, {n: Partition(1, (1,), (1,)) for n in range(size)}) for name, size in sizes.items()
        }
        return Cluster("c", 1, {1: ("k", 9092)}, found)

    def check(self) -> None:
        if not self.up:
            raise KafkaUnavailable("k", "away")

    def check_settings(self) -> None:
        self.check()
        if self.wrong_since is not None:
            raise WrongTopic(TOPICS.updates, ["cleanup.policy is compact,delete, it must be compact"])

    def request(
        self, queue: int, records: Sequence[tuple[bytes, bytes | None]], forgotten: Collection[bytes]
    ) -> Request:
        fitting = list(records[: self.fits])
        mine = {each: version for each, version in self.store.latest.items() if queue in self.homes(each)}
        answer = asyncio.get_running_loop().create_future()
        return Request(queue, fitting, answer, mine if fitting[-1][0] == WATERMARK_KEY else {}, forgotten)

    def write(self, request: Request, *, late: bool = False) -> int:
        """Append a request to its log; returns the offset of its first record."""
        now = asyncio.get_running_loop().time()
        assert late or self.wrong_since is None or now - self.wrong_since < NOTICED_S, "published to a wrong topic"
        log, request.written = self.logs[request.queue], True
        base = len(log)
        for key, value in request.records:
            log.append(self._record(log, request, key, value, late=late))
        return base

    def _record(self, log: list[Written], request: Request, key: bytes, value: bytes | None, *, late: bool) -> Written:
        if key == WATERMARK_KEY:
            if not late:
                for endpoint, version in request.marked.items():
                    has = max((each.version for each in log if each.endpoint == endpoint), default=0)
                    assert has >= version, f"a watermark passes {endpoint.decode()} by {version - has}"
            return Written(key, -1, late)
        found = None if value is None else version_of(key, value)
        assert value is None or found is not None
        version = found or 0
        before = [each.version for each in log if each.endpoint == key and not each.late]
        assert late or not version or version >= max(before, default=0), "an older version after a newer one"
        kind = GONE if value is not None and value.endswith(GONE_TAIL) else UPDATE
        return Written(key, version, late, FORGOTTEN if key in request.forgotten else kind)


class Reader:
    """Follows the map."""

    broker: Broker

    def __init__(self, _options: KafkaOptions) -> None:
        self.caught_up = self.is_complete = True
        self.is_cut = False
        self.on_changed: Callable[[], None] = lambda: None
        self.broker.readers.append(self)

    @property
    def map(self) -> PartitionMap:
        return self.broker.map

    async def run(self) -> None:
        self.on_changed()
        await asyncio.Event().wait()


class Log:
    """The open topics."""

    topic = TOPICS.updates

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def write(
        self,
        queue: int,
        records: Sequence[tuple[bytes, bytes | None]],
        _proof: object,
        forgotten: Collection[bytes],
        _traces: object,
    ) -> tuple[int, int]:
        broker = self._broker
        request = broker.request(queue, records, forgotten)
        if broker.well:
            return broker.write(request), len(request.records)
        broker.under_way.append(request)
        try:
            return await request.answer
        finally:
            broker.under_way = [each for each in broker.under_way if each is not request]
            if not request.written:
                broker.given_up.append(request)

    async def acknowledge(self, epoch: int, _unknown: Iterable[bytes]) -> None:
        self._broker.check()
        self._broker.acknowledged = max(epoch, self._broker.acknowledged)

    async def end_offsets(self, queues: Sequence[int]) -> dict[int, int]:
        return {number: len(self._broker.logs[number]) for number in queues}

    async def updates(self, begins: Mapping[int, int]) -> AsyncIterator[tuple[int, Change]]:
        for queue, first in begins.items():
            for offset, written in enumerate(self._broker.logs[queue][first:], first):
                if written.version > 0 and written.kind != FORGOTTEN:
                    yield queue, Change(offset, written.endpoint, written.version, written.kind, b"")

    async def begin_offsets(self, queues: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(queues, 0)

    def name(self, queue: int) -> str:
        return str(queue)

    async def describe(self, avoid: Collection[int] = ()) -> LogTopics:
        self._broker.check()
        cluster, leaders = self._broker.cluster, dict.fromkeys(range(len(QUEUES)), 1)
        return LogTopics(cluster.source(*TOPICS.log), cluster.source(TOPICS.partition_map), leaders, PARTITIONS)

    async def check_settings(self) -> list[str]:
        self._broker.check_settings()
        return []


class World:
    """All of it, and the steps that a walk takes: each does something with a number from 0 to 255, or nothing."""

    def __init__(self, map_: PartitionMap) -> None:
        self.store = Store()
        self.broker = Broker(map_, self.store)
        self.publisher: Publisher
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A process with the store as it is on the disk."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.publisher = Publisher(self.store, OPTIONS)
        self.broker.homes = self._homes
        self._task = asyncio.create_task(self.publisher.run())

    def _homes(self, endpoint: bytes) -> Collection[int]:
        progress = self.publisher._state
        return () if progress is None else progress.backlog.homes(endpoint)

    async def supervise(self) -> None:
        """A process that has ended, because its topic was wrong at the start, is started again."""
        if self._task is not None and self._task.done():
            assert isinstance(self._task.exception(), WrongTopic)
            await self.start()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # Steps

    async def put(self, number: int) -> None:
        self.store.put(ENDPOINTS[number % 3])
        self.publisher.changed()

    async def delete(self, number: int) -> None:
        if (change := self.store.changes.get(ENDPOINTS[number % 3])) is not None and change.kind == UPDATE:
            self.store.put(change.endpoint, gone=True)
            self.publisher.changed()

    async def forget(self, number: int) -> None:
        """An endpoint is deleted, and forgotten while every request is answered."""
        await self.delete(number)
        self.broker.well = True
        await self.answer(0)
        await asyncio.sleep(10.0)
        self.broker.well = False

    async def wait(self, number: int) -> None:
        await asyncio.sleep(number / 100)

    async def wait_long(self, number: int) -> None:
        await asyncio.sleep(number / 10)

    async def answer(self, number: int) -> None:
        """The oldest request of a queue, or every one."""
        for request in list(self.broker.under_way):
            if not request.answer.done() and (number < 128 or request.queue == number % 3):
                request.answer.set_result((self.broker.write(request), len(request.records)))
                await asyncio.sleep(0)

    async def fail(self, number: int) -> None:
        """A request ends with an error: written, or not, or later."""
        for request in [each for each in self.broker.under_way if not each.answer.done()][:1]:
            if number & 4:
                self.broker.write(request)
            request.answer.set_exception(FAULTS[number % 3]())
            await asyncio.sleep(0)

    async def write_late(self, _number: int) -> None:
        """A request that was given up is written after all."""
        if self.broker.given_up and self.broker.lates < MAX_LATE:
            self.broker.lates += 1
            self.broker.write(self.broker.given_up.pop(), late=True)

    async def cut(self, _number: int) -> None:
        """All connections end."""
        for request in [each for each in self.broker.under_way if not each.answer.done()]:
            request.answer.set_exception(KafkaConnectionError())
        await asyncio.sleep(0)

    async def outage(self, number: int) -> None:
        self.broker.up = number % 4 == 0
        await self.cut(number)

    async def back(self, _number: int) -> None:
        self.broker.up = True

    async def fill(self, number: int) -> None:
        """Requests hold fewer records, or more."""
        self.broker.fits = 1 + number % 4

    async def restart(self, _number: int) -> None:
        await self.start()

    async def move(self, number: int) -> None:
        """The next step of a move if it may be taken, or a new one; now and then back."""
        map_ = self.broker.map
        if map_.head.phase is Phase.STABLE:
            endpoint = ENDPOINTS[number % 3]
            others = [place for place in QUEUES if place != map_.home(endpoint)]
            step = begin(map_, {endpoint: others[number // 3 % 2]}, f"plan-{map_.head.epoch}")
        elif number % 8 == 7:
            step = reverse(map_)
        elif (following := proceed(map_, self.broker.acknowledged, 1.0, 1.0)) is not None:
            step = following
        else:
            return
        entries = dict(map_.entries)
        for name, value in step.records.items():
            entries.pop(name, None)
            if value is not None:
                entries[name] = Entry(**orjson.loads(value))
        self.broker.map = PartitionMap(step.head, entries)
        for reader in self.broker.readers[-1:]:
            reader.on_changed()

    async def alter(self, number: int) -> None:
        """Somebody alters the topic, which then loses what is old."""
        if self.broker.up and self.publisher.publishing and self.broker.wrong_since is None:
            self.broker.wrong_since = asyncio.get_running_loop().time()
            await asyncio.sleep(NOTICED_S + number / 16)
            assert not self.publisher.publishing
            self._lose(ENDPOINTS[number % 3])

    async def alter_while_away(self, number: int) -> None:
        """The same before a process starts, which ends for it."""
        if self.broker.up and self.broker.wrong_since is None:
            await self.stop()
            self.broker.wrong_since = asyncio.get_running_loop().time() - NOTICED_S
            self._lose(ENDPOINTS[number % 3])
            await self.start()
            await asyncio.sleep(1.0)

    def _lose(self, endpoint: bytes) -> None:
        for log in self.broker.logs:
            log[:] = [Written(b"", -1, each.late) if each.endpoint == endpoint else each for each in log]

    async def put_right(self, _number: int) -> None:
        self.broker.wrong_since = None
        await self.supervise()

    # What must hold

    def check(self) -> None:
        """The cursor claims only what was written, unless a topic has lost it."""
        if self.store.cursor is None or self.publisher._state is None or self.broker.wrong_since is not None:
            return
        for change in self.store.changes.after(0, 100):
            if change.sequence <= self.publisher._state.backlog.cursor:
                written = max(
                    (w.version for log in self.broker.logs for w in log if w.endpoint == change.endpoint), default=0
                )
                assert written >= change.version, f"the cursor passes {change.endpoint.decode()}"

    async def come_to_rest(self) -> None:
        broker = self.broker
        broker.up, broker.well, broker.wrong_since, broker.fits = True, True, None, 500
        await self.answer(0)
        await self.supervise()
        await asyncio.sleep(REST_S)
        assert self.publisher.publishing, self.publisher.failure
        assert (self.publisher.lag, self.publisher.failure) == (0, None)
        for endpoint, version in self.store.latest.items():
            homes = {place % len(QUEUES) for place in broker.map.written_to(endpoint)}
            for number, log in enumerate(broker.logs):
                last = [each.version for each in log if each.endpoint == endpoint][-1:]
                if number in homes:
                    assert last == [version], f"{endpoint.decode()} is lost in queue {number}"
                elif not broker.lates:
                    assert last in ([], [0]), f"{endpoint.decode()} is left in queue {number}"
        assert not self.store.expired, "not forgotten"
        for endpoint in set(ENDPOINTS) - self.store.latest.keys():
            for number, log in enumerate(broker.logs):
                records = [each for each in log if each.endpoint == endpoint]
                buried = not records or records[-1].kind == FORGOTTEN or not records[-1].version
                assert buried, f"forgotten {endpoint.decode()} is left in queue {number}"


@contextlib.asynccontextmanager
async def _open_log(broker: Broker) -> AsyncIterator[Log]:
    broker.check()
    yield Log(broker)


@contextlib.contextmanager
def _wired(broker: Broker) -> Iterator[None]:
    """The publisher finds the walk's broker where it would find Kafka."""

    async def find(_options: KafkaOptions, _hot: Collection[str], before: PublisherState | None) -> Topics:
        broker.check()
        if before is None or before.map is None:
            broker.check_settings()
        cluster = broker.cluster
        source, map_source = cluster.source(*TOPICS.log), cluster.source(TOPICS.partition_map)
        assert source is not None
        assert map_source is not None
        return Topics(cluster, PARTITIONS, source, map_source, broker.map)

    Reader.broker = broker
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher, "find_topics", find)
        patch.setattr(senders, "MAX_RECORDS", 1)
        patch.setattr(forgetting, "FORGET_EVERY_S", 1.0)
        patch.setattr(module, "open_log", lambda _options, _count: _open_log(broker))
        patch.setattr(module, "MapReader", Reader)
        yield


Step = Callable[[World, int], Any]
STEPS: Final[Sequence[Step]] = (
    *[World.put] * 6,
    *[World.delete] * 2,
    *[World.forget] * 2,
    *[World.wait] * 4,
    *[World.wait_long] * 2,
    *[World.answer] * 8,
    *[World.fail] * 2,
    *[World.write_late] * 2,
    World.cut,
    World.outage,
    *[World.back] * 2,
    World.fill,
    World.restart,
    *[World.move] * 3,
    World.alter,
    World.alter_while_away,
    *[World.put_right] * 2,
)


@contextlib.asynccontextmanager
async def _publishing() -> AsyncIterator[World]:
    world = World(PartitionMap(Head(PARTITIONS, 0)))
    with _wired(world.broker):
        for endpoint in ENDPOINTS:
            world.store.put(endpoint)
        await world.start()
        try:
            yield world
        finally:
            await world.stop()


async def _walk(walk: list[tuple[Step, int]]) -> None:
    async with _publishing() as world:
        for step, number in walk:
            await step(world, number)
            world.check()
        await world.come_to_rest()
        world.check()


@walk_settings(examples=60)
@given(walk=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 255)), min_size=5, max_size=40))
def test_nothing_accepted_is_lost_reordered_or_passed_by_a_watermark(walk: list[tuple[Step, int]]) -> None:
    run_virtual(lambda _loop: _walk(walk))


async def _walk_with_short_sessions() -> None:
    async with _publishing() as world:
        world.broker.well = True
        await asyncio.sleep(REST_S)
        await world.delete(0)
        opened = world.publisher.opened
        for number in range(40):
            await asyncio.sleep(0.7 * forgetting.FORGET_EVERY_S)
            world.broker.well = False
            await world.put(1 + number % 2)
            await asyncio.sleep(0.01)
            await world.fail(0)
            world.broker.well = True
        assert world.publisher.opened > opened + 5
        assert not world.store.expired


def test_endpoints_are_forgotten_though_no_connection_lasts_for_the_interval() -> None:
    run_virtual(lambda _loop: _walk_with_short_sessions())
