"""The feed protocol of docs/internals.md section 2, for every feed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from diem.fanout.feed_state import FeedState
from diem.links import feed_server
from diem.links.feed_reader import FeedReader
from diem.links.mutual_auth import PeerNotAuthenticated
from diem.process.auth import SharedKey
from diem.protocol import feed
from tests.contract.feeds import FEEDS, FeedUnderTest, Opener, bridge, memory
from tests.support.internal import InternalConnect
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.stalls import stalls

READ_NOTHING_S = 4.0
"""Less than the 5 s of silence after which a blocked link is cut."""
BUFFERED = 9000
"""Changes of the longest names that do not all fit into the kernel's buffers, of some 2.5 MB."""


class Recorder:
    """A reader's sink: the state, and the messages received."""

    def __init__(self) -> None:
        self.state = FeedState()
        self.records = 0
        self.heartbeats = 0
        self.caught_up_times = 0
        self.dropped: list[bytes] = []
        self.resynced: list[str] = []

    def resume(self) -> feed.Resume:
        return self.state.resume()

    def hello(self, message: feed.Hello) -> None:
        self.state.hello(message.source, message.names)

    def batch(self, *batches: feed.Batch) -> None:
        before = self.state.counts.consumed
        for batch in batches:
            self.state.apply(batch)
        self.records += self.state.counts.consumed - before

    def caught_up(self, name: str) -> None:
        self.dropped += self.state.finish_catch_up(name).dropped
        # A bridge has several names.
        self.caught_up_times += self.state.caught_up

    def resync(self, message: feed.Resync) -> None:
        self.resynced += message.endpoints

    def owners(self, message: feed.Owners) -> None:
        raise AssertionError(f"this feed has no group: {message}")

    def traced(self, message: feed.Traced) -> None:
        raise AssertionError(f"no update is traced here: {message}")

    def heartbeat(self) -> None:
        self.heartbeats += 1

    @property
    def names(self) -> set[str]:
        return {endpoint.decode() for endpoint in self.state.retained}


@pytest.fixture(params=[*FEEDS, "bridge"])
def opener(request: pytest.FixtureRequest) -> Opener:
    # Not in the fixture below, because Kafka is started in an event loop of its own.
    if request.param == "bridge":
        options = request.getfixturevalue("kafka_options")
        return lambda directory: bridge(directory, options)
    return FEEDS[request.param]


@pytest.fixture
async def source(opener: Opener, tmp_path: Path) -> AsyncIterator[FeedUnderTest]:
    async with opener(tmp_path) as under_test:
        yield under_test


@contextlib.asynccontextmanager
async def reading(source: FeedUnderTest, recorder: Recorder, *before: str) -> AsyncIterator[FeedReader]:
    first, *others = [*before, source.url]
    reader = FeedReader(first, source.key, recorder, others=others)
    task = asyncio.create_task(reader.run())
    yield reader
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def raw(source: FeedUnderTest, key: SharedKey | None = None) -> AsyncIterator[ClientConnection]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with InternalConnect(
                    source.url, key or source.key, subprotocols=[Subprotocol(feed.SUBPROTOCOL)]
                ) as connection:
                    yield connection
                    return
            except InvalidStatus as error:
                if error.response.status_code != 503:
                    raise
                await asyncio.sleep(0.05)


async def test_a_new_reader_gets_everything_and_then_caught_up(source: FeedUnderTest) -> None:
    await source.put("/a", "/b")
    recorder = Recorder()
    async with reading(source, recorder):
        await until(lambda: recorder.caught_up_times)
        assert recorder.names == {"/a", "/b"}
        assert recorder.state.caught_up


async def test_a_reader_of_several_urls_reads_the_one_that_answers(tmp_path: Path) -> None:
    async with FEEDS["memory"](tmp_path) as source:
        await source.put("/a")
        recorder = Recorder()
        async with reading(source, recorder, "ws://127.0.0.1:9/feed"):
            await until(lambda: recorder.caught_up_times)
        assert recorder.names == {"/a"}


async def test_a_reader_that_has_caught_up_gets_a_heartbeat_at_once(source: FeedUnderTest) -> None:
    first = Recorder()
    async with reading(source, first):
        await until(lambda: first.heartbeats)
        second = Recorder()
        async with reading(source, second):
            async with stalls() as stalled:
                await until(lambda: second.caught_up_times)
                caught_up, stood = time.monotonic(), stalled.seconds
                await until(lambda: second.heartbeats)
            assert time.monotonic() - caught_up - (stalled.seconds - stood) < 0.5 * FACTOR


async def test_later_changes_follow_and_heartbeats_come(source: FeedUnderTest) -> None:
    recorder = Recorder()
    async with reading(source, recorder):
        await until(lambda: recorder.caught_up_times)
        await source.put("/a")
        await until(lambda: recorder.names == {"/a"})
        first = recorder.state.retained[b"/a"][0]
        await source.put("/a")
        await until(lambda: recorder.state.retained[b"/a"][0] > first)
        heartbeats = recorder.heartbeats
        await until(lambda: recorder.heartbeats >= heartbeats + 2)


async def test_a_reader_resumes_at_its_position(source: FeedUnderTest) -> None:
    await source.put("/a", "/b", "/c")
    recorder = Recorder()
    async with reading(source, recorder):
        await until(lambda: recorder.caught_up_times)
    assert recorder.records == 3
    await source.put("/b", "/d")
    async with reading(source, recorder):
        await until(lambda: recorder.caught_up_times == 2)
    assert recorder.records == 5, "only what changed meanwhile is sent again"
    assert recorder.names == {"/a", "/b", "/c", "/d"}
    assert recorder.dropped == [], "what was seen is kept with the positions"


async def test_a_reader_of_another_store_starts_over_and_drops_what_is_no_longer_there(source: FeedUnderTest) -> None:
    await source.put("/kept", "/lost")
    recorder = Recorder()
    async with reading(source, recorder):
        await until(lambda: recorder.caught_up_times)
        before = recorder.state.retained[b"/kept"][0]
        old = recorder.state.source
        await source.wipe()
        await source.put("/kept")
        await until(lambda: recorder.state.source != old and recorder.names == {"/kept"})
        await until(lambda: recorder.state.retained[b"/kept"][0] > before)
        # A reader that was connected before the new store had any data drops the old state, too, and gets the new one.
        assert b"/lost" in recorder.dropped
        assert set(recorder.dropped) <= {b"/lost", b"/kept"}


async def test_values_are_the_clients_update_frames(source: FeedUnderTest) -> None:
    await source.put("/a")
    recorder = Recorder()
    async with reading(source, recorder):
        await until(lambda: recorder.names)
        version, value = recorder.state.retained[b"/a"]
        update = orjson.loads(value)
        assert (update["type"], update["endpoint"], update["version"]) == ("update", "/a", version)


async def test_a_slow_reader_skips_to_the_latest(source: FeedUnderTest) -> None:
    names = ["/" + f"slow-{n}-".ljust(240, "x") for n in range(50)]
    await source.put(*names)
    async with raw(source) as connection:
        await connection.send(orjson.dumps({"type": "resume", "source": None, "positions": {}}), text=True)
        connection.transport.pause_reading()
        began, rounds = time.monotonic(), 0
        while rounds < 250 and time.monotonic() - began < READ_NOTHING_S:
            await source.put(*names)
            await connection.ping()
            rounds += 1
        connection.transport.resume_reading()
        last: dict[bytes, int] = {}
        received = 0
        async with asyncio.timeout(PATIENCE_S):
            async for message in _batches(connection):
                for change in message:
                    assert change.version > last.get(change.endpoint, 0), "versions of one endpoint only grow"
                    last[change.endpoint] = change.version
                    received += 1
                if received >= 50 and len(last) == 50:
                    break
            await source.put("/end")
            async for message in _batches(connection):
                found = list(message)
                received += len(found)
                if any(change.endpoint == b"/end" for change in found):
                    break
        # What a slow machine writes in this time may fit into the buffers.
        assert received < max(rounds * 50, BUFFERED), "superseded changes are skipped, not queued"


async def _batches(connection: ClientConnection) -> AsyncIterator[Iterator[Any]]:
    while True:
        message = await connection.recv()
        if isinstance(message, bytes):
            yield feed.decode_batch(message).records


@pytest.mark.parametrize("message", ["{", '{"type":"beat"}', '{"type":"resume","source":1,"positions":{}}'])
async def test_a_reader_that_does_not_resume_is_closed_with_4500(source: FeedUnderTest, message: str) -> None:
    async with raw(source) as connection:
        await connection.send(message, text=True)
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await connection.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4500


async def test_without_the_key_there_is_no_feed(source: FeedUnderTest) -> None:
    with pytest.raises(PeerNotAuthenticated):
        async with raw(source, key=SharedKey("wrong-key-wrong-key")):
            pass
    bearer = {"Authorization": source.key.header}
    with pytest.raises(InvalidStatus) as caught:
        await connect(source.url, additional_headers=bearer, subprotocols=[Subprotocol(feed.SUBPROTOCOL)], proxy=None)
    assert caught.value.response.status_code == 401


async def test_a_reader_that_missed_a_deletion_that_was_forgotten_begins_again(tmp_path: Path) -> None:
    async with memory(tmp_path) as source:
        source.feed.put("/a", "/b")
        away, there = Recorder(), Recorder()
        async with reading(source, away):
            await until(lambda: away.caught_up_times)
        async with reading(source, there):
            await until(lambda: there.caught_up_times)
            source.feed.put("/b", gone=True)
            await until(lambda: there.records == 3)
            source.feed.forget("/b")
            async with reading(source, away):
                await until(lambda: away.caught_up_times == 2)
            assert (away.state.source, away.names, away.dropped) == ("store-1.3", {"/a"}, [b"/b"])
            assert away.state.positions == {feed.STORE: 4}, "it need not begin again at its next link"
            source.feed.put("/c")
            await until(lambda: there.records == 4)
        assert (there.caught_up_times, there.state.source) == (1, "store-1"), "it has read the deletion"
        async with reading(source, there), reading(source, away):
            await until(lambda: (there.caught_up_times, away.caught_up_times) == (2, 3))
        assert (there.records, there.state.source) == (4, "store-1")
        assert (away.records, away.state.source) == (4, "store-1.3")


async def test_readers_begin_again_before_they_hold_many_endpoints_that_were_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_server, "LEAST_FORGOTTEN", 3)
    async with memory(tmp_path) as source:
        source.feed.put("/kept")
        there, away = Recorder(), Recorder()
        async with reading(source, away):
            await until(lambda: away.caught_up_times)
            async with reading(source, there):
                await until(lambda: there.caught_up_times)
                for number in range(8):
                    name = f"/{number}"
                    source.feed.put(name)
                    source.feed.put(name, gone=True)
                    await until(lambda: there.state.positions == {feed.STORE: source.feed.changes.sequence + 1})
                    if number < 3:
                        await until(lambda: len(away.names) == len(there.names))
                    source.feed.forget(name)
                    await until(lambda: there.state.caught_up and len(there.names) <= 1 + 3)
                assert there.state.source == "store-1.17"
        async with reading(source, away):
            await until(lambda: away.state.source == "store-1.17" and away.state.caught_up)
        assert away.names == {"/kept"}


async def test_a_reader_is_cut_off_from_what_it_has_yet_to_read_when_that_is_forgotten(tmp_path: Path) -> None:
    async with memory(tmp_path) as source:
        names = ["/" + f"slow-{n}-".ljust(240, "x") for n in range(BUFFERED)]
        source.feed.put(*names)
        async with raw(source) as connection:
            await connection.send(orjson.dumps({"type": "resume", "source": None, "positions": {}}), text=True)
            await connection.recv()
            connection.transport.pause_reading()
            source.feed.put("/b", gone=True)
            source.feed.forget("/b")
            connection.transport.resume_reading()
            with pytest.raises(ConnectionClosed) as caught:
                while True:
                    await connection.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1012


@pytest.mark.parametrize("form", ["{}", "{}.1"])
async def test_a_position_beyond_the_store_is_noticed_and_not_served(tmp_path: Path, form: str) -> None:
    for name in ("memory", "store"):
        (tmp_path / name).mkdir()
        async with FEEDS[name](tmp_path / name) as source:
            await source.put("/a")
            recorder = Recorder()
            async with reading(source, recorder):
                await until(lambda: recorder.caught_up_times)  # noqa: B023 - awaited within the loop
            async with raw(source) as connection:
                resume = {"type": "resume", "source": form.format(recorder.state.source), "positions": {"store": 999}}
                await connection.send(orjson.dumps(resume), text=True)
                with pytest.raises(ConnectionClosed):
                    while True:
                        await connection.recv()
