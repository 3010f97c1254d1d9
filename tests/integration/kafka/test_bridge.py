"""A bridge against a real broker (docs/internals.md sections 2 and 3; the feed's contract is in tests/contract)."""

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from bridge import partition_state, session
from bridge.consumer import FetchedBatches, assign, consuming
from bridge.consumer import poll as poll_consumer
from diem.fanout.feed_state import FeedState
from diem.kafka.config import KafkaOptions
from diem.protocol import feed, update
from diem.protocol.update import encode
from diem.protocol.watermark import offset_of
from tests.support.bridge import FeedRecorder, RunningBridge, UpdatesTopic, running_bridge, updates_topic
from tests.support.internal import InternalConnect
from tests.support.kafka import broker_stalls, killed, stopped
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.required import in_cluster
from tests.support.stalls import stalls


@pytest.fixture
async def topic(kafka_options: KafkaOptions) -> AsyncIterator[UpdatesTopic]:
    async with updates_topic(kafka_options) as made:
        yield made


@pytest.fixture
async def running(topic: UpdatesTopic, tmp_path: Path) -> AsyncIterator[RunningBridge]:
    async with running_bridge(tmp_path, topic.options) as bridge:
        yield bridge


@contextlib.asynccontextmanager
async def raw(running: RunningBridge) -> AsyncIterator[ClientConnection]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                connection = await InternalConnect(
                    running.url, running.key, subprotocols=[Subprotocol(feed.SUBPROTOCOL)]
                )
                break
            except InvalidStatus as error:
                assert error.response.status_code == 503
                await asyncio.sleep(0.05)
    async with connection:
        yield connection


async def test_every_partition_even_an_empty_one_catches_up_once_and_a_heartbeat_follows(
    topic: UpdatesTopic, running: RunningBridge
) -> None:
    await topic.put("/a")
    recorder = FeedRecorder()
    async with running.reading(recorder):
        await until(lambda: recorder.heartbeats)
        await topic.put("/a", "/b", "/c")
        await until(lambda: recorder.names == {"/a", "/b", "/c"} and recorder.records == 4)
        await until(lambda: len(recorder.heartbeats) >= 3)
        # After a pause of three seconds it is not, until its next heartbeat.
        status = await running.becomes(live=True)
        await topic.put("/hot", hot=True)
        await until(lambda: "/hot" in recorder.names)
    assert sorted(recorder.caught_up_names()) == sorted(topic.names)
    assert recorder.state.source == status["source"]
    assert {name: status[name] for name in ("ready", "live", "reader", "partitions", "position", "lag", "bad")} == {
        "ready": True, "live": True, "reader": True, "partitions": 4, "position": 4, "lag": 0, "bad": 0,
    }  # fmt: skip


async def test_positions_are_committed_and_reading_never_starts_from_them(
    topic: UpdatesTopic, running: RunningBridge
) -> None:
    await topic.put(*(f"/{n}" for n in range(50)))
    first = FeedRecorder()
    parts = [TopicPartition(topic.name, number) for number in range(4)]
    async with (
        AIOKafkaConsumer(
            **topic.options.client_arguments(), group_id=topic.options.names.x_group(1), enable_auto_commit=False
        ) as group,
        running.reading(first),
    ):
        await until(lambda: len(first.names) == 50)
        async with asyncio.timeout(PATIENCE_S):
            while sum([await group.committed(part) or 0 for part in parts]) < 50:
                await asyncio.sleep(0.1)
    again = FeedRecorder()
    async with running.reading(again):
        await until(lambda: again.state.caught_up)
        assert again.records == 50


async def test_a_reader_resumes_at_its_positions_and_reads_unknown_streams_from_their_beginning(
    topic: UpdatesTopic, running: RunningBridge
) -> None:
    await topic.put(*(f"/{n}" for n in range(50)))
    recorder = FeedRecorder()
    async with running.reading(recorder):
        await until(lambda: recorder.state.caught_up)
    unknown = f"{topic.name}/2"
    del recorder.state._logs[unknown]
    before = recorder.records
    async with running.reading(recorder):
        await until(lambda: recorder.state.caught_up and unknown in recorder.state.positions)
    assert recorder.records - before == sum(topic.partition(f"/{n}") == 2 for n in range(50))


async def test_position_beyond_the_end_of_a_log_starts_it_over(topic: UpdatesTopic, running: RunningBridge) -> None:
    await topic.put(*(f"/{n}" for n in range(20)))
    name = f"{topic.name}/1"
    source = (await running.becomes(ready=True))["source"]
    async with raw(running) as connection:
        positions_ = {f"{topic.name}/{number}": 0 for number in range(4)} | {name: 999}
        await connection.send(orjson.dumps({"type": "resume", "source": source, "positions": positions_}), text=True)
        state = FeedState()
        state.hello(source, list(positions_))
        async with asyncio.timeout(PATIENCE_S):
            while len(state.retained) < 20:
                message = await connection.recv()
                if isinstance(message, bytes):
                    state.apply(feed.decode_batch(message))


async def test_the_greatest_version_of_a_log_is_what_a_reader_gets(topic: UpdatesTopic, running: RunningBridge) -> None:
    v = topic.version
    await topic.write(*((b"/a", encode("/a", version, v), 0) for version in (v + 8, v + 9, v + 8)))
    recorder = FeedRecorder()
    async with running.reading(recorder):
        await until(lambda: recorder.state.caught_up)
        assert recorder.state.retained[b"/a"][0] == v + 9


async def test_second_reader_replaces_the_first(topic: UpdatesTopic, running: RunningBridge) -> None:
    await topic.put("/a")
    async with raw(running) as first:
        await first.send(orjson.dumps({"type": "resume", "source": None, "positions": {}}), text=True)
        assert orjson.loads(await first.recv())["type"] == "hello"
        second = FeedRecorder()
        async with running.reading(second):
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await first.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4500, "replaced")
            await until(lambda: second.names == {"/a"} and len(second.heartbeats) >= 2)


async def test_a_malformed_record_causes_a_resync_and_is_passed_within_a_second(
    topic: UpdatesTopic, running: RunningBridge
) -> None:
    recorder = FeedRecorder()
    async with running.reading(recorder), stalls() as stalled, broker_stalls(topic.options) as broker:
        await until(lambda: recorder.heartbeats)
        good = encode("/good", topic.version, topic.version)
        await topic.write(
            (b"/bad", b"\x00\xff not json", 0),
            (b"not a name", b"x" * 2000, 0),
            # A compacted topic takes no record without a key.
            (b"/good", None, 0),
            (b"/good", good, 0),
        )
        written, stood = time.monotonic(), stalled.seconds + broker.seconds
        await until(lambda: "/good" in recorder.names)
        assert time.monotonic() - written - (stalled.seconds + broker.seconds - stood) < FACTOR
        assert recorder.resynced == ["/bad"]
        assert offset_of(recorder.state.positions[f"{topic.name}/0"]) == 4
        assert (await running.status())["bad"] == 2
        metrics = _metrics((await running.get("/metrics")).text)
    assert metrics["diem_updates_received_total"] == 4
    assert metrics["diem_updates_bad_total"] == 2
    assert metrics["diem_updates_tombstones_total"] == 1
    assert metrics["diem_feed_changes_sent_total"] == 1
    assert metrics[f'diem_feed_position{{name="{topic.name}/0"}}'] == 4


def _metrics(text: str) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def test_more_partitions_are_announced_and_read_from_their_beginning(
    topic: UpdatesTopic, running: RunningBridge
) -> None:
    await topic.put(*(f"/{n}" for n in range(20)))
    recorder = FeedRecorder()
    async with running.reading(recorder) as reader:
        await until(lambda: recorder.heartbeats)
        await topic.grow(6)
        await topic.put(*(f"/new/{n}" for n in range(50)))
        await until(lambda: len(recorder.names) == 70 and recorder.state.caught_up)
        assert reader.connects == 1
        heartbeats = len(recorder.heartbeats)
        await until(lambda: len(recorder.heartbeats) > heartbeats)
    hellos = [each for each in recorder.control if isinstance(each, feed.Hello)]
    assert [len(hello.names) for hello in hellos] == [5, 7]
    assert sorted(recorder.caught_up_names()) == sorted(hellos[-1].names)
    assert recorder.records == 70, "nothing is read twice"


async def test_without_a_reader_nothing_is_consumed(topic: UpdatesTopic, running: RunningBridge) -> None:
    recorder = FeedRecorder()
    async with running.reading(recorder):
        await until(lambda: recorder.heartbeats)
    await running.becomes(reader=False, lag=None)
    await topic.put("/a")
    await asyncio.sleep(1.5)  # longer than a poll and a tick
    assert _metrics((await running.get("/metrics")).text)["diem_updates_received_total"] == 0
    async with running.reading(recorder):
        await until(lambda: recorder.names == {"/a"})


async def test_nothing_is_consumed_for_a_blocked_reader_and_it_gets_everything_later(
    topic: UpdatesTopic, running: RunningBridge
) -> None:
    names = [f"/{n}".ljust(250, "x") for n in range(40_000)]
    for start in range(0, len(names), 2000):
        await topic.put(*names[start : start + 2000])
    async with raw(running) as connection:
        await connection.send(orjson.dumps({"type": "resume", "source": None, "positions": {}}), text=True)
        await connection.recv()
        connection.transport.pause_reading()
        await until_still(running)
        status = await running.status()
        assert 0 <= status["position"] < len(names) * 0.75, "what is not read stays in Kafka"
        connection.transport.resume_reading()
        state = FeedState()
        state.hello("", [f"{topic.name}/{number}" for number in range(4)])
        async with asyncio.timeout(PATIENCE_S):
            while len(state.retained) < len(names):
                message = await connection.recv()
                if isinstance(message, bytes):
                    state.apply(feed.decode_batch(message))


async def until_still(running: RunningBridge) -> None:
    """Wait until the position has not moved for half a second."""
    seen: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < 6 or len(set(seen[-6:])) > 1 or not seen[-1]:
            seen.append((await running.status())["position"])
            await asyncio.sleep(0.1)


@in_cluster("it waits for time-outs")
async def test_a_silent_reader_is_disconnected(topic: UpdatesTopic, running: RunningBridge) -> None:
    async with raw(running) as connection:
        await connection.send(orjson.dumps({"type": "resume", "source": None, "positions": {}}), text=True)
        await connection.recv()
        connection.transport.pause_reading()
        assert (await running.status())["reader"]
        await running.becomes(reader=False)
        connection.transport.abort()


@in_cluster("it waits for time-outs")
async def test_an_offset_out_of_range_closes_the_link_and_the_reader_reconnects(
    topic: UpdatesTopic, running: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = iter([OffsetOutOfRangeError({TopicPartition(topic.name, 0): 5})])

    async def poll(consumer: AIOKafkaConsumer, seconds: float, interrupt: asyncio.Future[None]) -> list[FetchedBatches]:
        for error in polls:
            raise error
        return await poll_consumer(consumer, seconds, interrupt)

    monkeypatch.setattr(session, "poll", poll)
    await topic.put("/a")
    recorder = FeedRecorder()
    async with running.reading(recorder) as reader:
        await until(lambda: recorder.names == {"/a"} and recorder.heartbeats)
        assert reader.connects == 2
        assert (await running.status())["recreated"] == 0


@in_cluster("it waits for time-outs")
async def test_a_stalled_consumer_is_replaced_and_the_reader_misses_heartbeats_only(
    topic: UpdatesTopic, running: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck: list[AIOKafkaConsumer] = []
    standing = asyncio.Event()
    stood: list[float] = []

    async def poll(consumer: AIOKafkaConsumer, seconds: float, interrupt: asyncio.Future[None]) -> list[FetchedBatches]:
        if consumer in stuck:
            stood.append(time.monotonic())
            standing.set()
            await asyncio.sleep(seconds)
            return []
        return await poll_consumer(consumer, seconds, interrupt)

    monkeypatch.setattr(session, "poll", poll)
    monkeypatch.setattr(partition_state, "STALLED_AFTER_S", 4.0)
    opened: list[AIOKafkaConsumer] = []

    def assigning(consumer: AIOKafkaConsumer, next_: dict[str, int]) -> None:
        opened.append(consumer)
        assign(consumer, next_)

    monkeypatch.setattr(session, "assign", assigning)
    await topic.put("/a")
    recorder = FeedRecorder()
    async with running.reading(recorder) as reader, stalls() as stalled:
        await until(lambda: recorder.heartbeats)
        stuck += opened
        await standing.wait()
        await topic.put("/b")
        part = TopicPartition(topic.name, topic.partition("/b"))
        end = sum(topic.partition(name) == part.partition for name in ("/a", "/b"))
        # Until it knows of the record, which a broker may report late, its heartbeats are true.
        await until(lambda: stuck[0].highwater(part) == end or "/b" in recorder.names)
        known = time.monotonic()
        await until(lambda: recorder.names == {"/a", "/b"})
        assert time.monotonic() - stood[0] >= 3.0
        silent = known + 1.5 + stalled.seconds
        assert not [at for at in recorder.heartbeats if silent < at < stood[0] + 4.0], (
            "a stalled consumer sends no heartbeats"
        )
        assert (await running.status())["recreated"] == 1
        assert recorder.records == 2, "it goes on where the last one stopped"
        assert reader.connects == 1
        assert len(recorder.caught_up_names()) == 5


async def test_a_consumer_abandoned_while_it_opens_leaves_no_connection(
    kafka_options: KafkaOptions,
) -> None:
    port = int(kafka_options.bootstrap_servers.rpartition(":")[2])

    def connections() -> set[int]:
        found = psutil.Process().net_connections("tcp")
        return {each.laddr.port for each in found if bool(each.raddr) and each.raddr.port == port}

    async def opening() -> None:
        async with consuming(kafka_options, "g", 1):
            await asyncio.sleep(60)

    before = connections()  # of tests before, which no collection closes meanwhile
    gc.disable()  # it would close what was left behind
    try:
        for milliseconds in range(0, 40, 2):
            task = asyncio.create_task(opening())
            await asyncio.sleep(milliseconds / 1000)
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE_S)
            assert task.cancelled()
        await until(lambda: connections() <= before)
    finally:
        gc.enable()


async def test_a_bridge_without_kafka_reports_why_it_is_not_ready_and_serves_once_the_topic_exists(
    own_broker: LocalCluster, own_broker_options: KafkaOptions, tmp_path: Path
) -> None:
    options = own_broker_options
    async with contextlib.AsyncExitStack() as stack:
        async with killed(own_broker):
            running = await stack.enter_async_context(running_bridge(tmp_path, options))
            await _says(running, "Kafka at")
            with pytest.raises(InvalidStatus):
                async with InternalConnect(running.url, running.key, subprotocols=[Subprotocol(feed.SUBPROTOCOL)]):
                    pass
        await _says(running, f"topic {options.names.updates} does not exist")
        async with contextlib.AsyncExitStack() as inner:
            topic = await inner.enter_async_context(updates_topic(options))
            recorder = FeedRecorder()
            async with running.reading(recorder) as reader:
                await until(lambda: recorder.heartbeats)
                await topic.put("/a")
                await until(lambda: recorder.names == {"/a"})
                await _through_an_outage(own_broker, topic, recorder)
                assert reader.connects == 1
                # The process ends in time although its brokers do not answer.
                inner.enter_context(stopped(own_broker))
                inner.push_async_callback(stack.aclose)
                await asyncio.sleep(0.5)
                await topic.close_hard()
            # Leaving the bridge is the end of its process: consumers that cannot stop are abandoned.


async def _says(running: RunningBridge, why_not: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await running.get("/readyz")
                if answer.status_code == 503 and answer.text.startswith(why_not):
                    return
            await asyncio.sleep(0.05)


async def _through_an_outage(cluster: LocalCluster, topic: UpdatesTopic, recorder: FeedRecorder) -> None:
    """Heartbeats end with a broker that is stopped, and return with it; so do updates."""
    os.kill(cluster.pid(1), signal.SIGSTOP)
    stopped = time.monotonic()
    async with stalls() as stalled:
        await asyncio.sleep(6)
    assert max(recorder.heartbeats) - stopped < 5 + stalled.seconds, (
        "the server knows within 15 s: this, and its own 10 s of patience"
    )
    os.kill(cluster.pid(1), signal.SIGCONT)
    await until(lambda: max(recorder.heartbeats) - stopped > 6)
    await topic.put("/b")
    await until(lambda: recorder.names == {"/a", "/b"})


async def test_a_reader_whose_session_has_ended_is_disconnected(
    topic: UpdatesTopic, running: RunningBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(self: session.FeedSession) -> None:
        """Fail as a task with an unforeseen error would."""

    monkeypatch.setattr(session.FeedSession, "run", ended)
    async with raw(running) as connection:
        await connection.send(feed.encode(feed.Resume(None, {})).decode())
        with pytest.raises(ConnectionClosed) as caught:
            async with asyncio.timeout(PATIENCE_S):
                await connection.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1012


async def test_heartbeats_follow_the_publishers_watermarks(
    topic: UpdatesTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mark() -> None:
        await topic.write(*((update.WATERMARK_KEY, update.WATERMARK, number) for number in range(topic.partitions)))
        await topic.write((update.WATERMARK_KEY, update.WATERMARK, 0), topic=topic.options.names.hot)

    async with running_bridge(tmp_path, topic.options, watermarks=True) as bridge:
        monkeypatch.setattr(partition_state, "WATERMARK_WITHIN_S", 1.5)
        server = FeedRecorder()

        async def marked_until_a_beat() -> None:
            heartbeats = len(server.heartbeats)
            async with asyncio.timeout(PATIENCE_S):
                while len(server.heartbeats) == heartbeats:
                    await mark()
                    await asyncio.sleep(0.2)

        async with bridge.reading(server):
            await marked_until_a_beat()
            await bridge.becomes(live=False)
            await marked_until_a_beat()
            assert (await bridge.status())["bad"] == 0
