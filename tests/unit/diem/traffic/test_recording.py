"""Flushing from recorder to sink: in order, retried after failures, until the end of the process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from diem.fanout.fanout import UpdateCounter
from diem.fanout.session import DeliveryStats, Session
from diem.process.clock import ManualClock
from diem.protocol.traffic import TrafficEvent, Type, decode
from diem.traffic import recording as module
from diem.traffic.recorder import Recorder
from diem.traffic.recording import Flusher, samples
from diem.traffic.salt import DAY_MS, DailySalt
from diem.traffic.sinks import SinkUnavailable
from tests.support.patience import PATIENCE_S, until

START = 1_700_000_000_000 // 60_000 * 60_000


class MemorySink:
    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.fault: str | None = None
        self.hangs = False
        self.closed = False

    @property
    def events(self) -> list[TrafficEvent]:
        return [decode(line) for batch in self.batches for line in batch]

    async def write(self, events: Sequence[bytes]) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise SinkUnavailable(self.fault, "as the test says")
        if events:
            self.batches.append(list(events))

    async def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, **bounds: Any) -> None:
        self.clock = ManualClock(wall_ms=START + 1)
        self.sink = MemorySink()
        salt = DailySalt(b"salt", START // DAY_MS)
        self.recorder = Recorder("websocket-1", salt, self.clock.wall_ms, UpdateCounter(), **bounds)
        self.flusher = Flusher(self.recorder, self.sink, self.clock)

    def clients(self, count: int) -> None:
        for number in range(count):
            session = Session(lambda _: None, lambda _: None, DeliveryStats())
            self.recorder.begin(self.recorder.connected(session, number.to_bytes(8)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.flusher.run())
        yield
        self.clock.advance(0.001)
        self.flusher.stop()
        await asyncio.wait({task}, timeout=PATIENCE_S)
        assert task.done()
        task.result()

    @property
    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for sample in samples(self.flusher):
            found[sample.metric.name] = found.get(sample.metric.name, 0) + sample.value
        return found


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL_S", 0.01)


async def test_everything_arrives_once_and_in_order(tmp_path: Path) -> None:
    world = World()
    async with world.running():
        world.clients(3000)
        await until(lambda: world.flusher.written == 3000)
        world.clients(2)
    events = world.sink.events
    assert [event.connection for event in events[:3000]] == [number.to_bytes(8).hex() for number in range(3000)]
    assert [event.type for event in events[3000:]] == [Type.CONNECT, Type.CONNECT, Type.COUNTS]
    assert [int(event.id.rpartition("-")[2]) for event in events] == list(range(1, 3004))
    assert world.sink.closed
    assert all(sum(map(len, batch)) <= module.BATCH_BYTES + 65536 for batch in world.sink.batches)
    assert len(world.sink.batches) > 1


async def test_counts_are_recorded_at_full_minutes_and_at_the_end(tmp_path: Path) -> None:
    world = World()
    async with world.running():
        world.clients(1)
        await until(lambda: world.sink.events)
        world.clock.advance(59.999)
        await until(lambda: len(world.sink.events) == 2)
        world.clock.advance(60)
        await until(lambda: len(world.sink.events) == 3)
        world.clock.advance(10)
    spans = [(event.since - START, event.until - START) for event in world.sink.events[1:]]
    assert spans == [(1, 60_000), (60_000, 120_000), (120_000, 130_001)]


async def test_counts_do_not_wait_until_a_clock_that_was_set_back_is_there_again(tmp_path: Path) -> None:
    world = World()

    def later() -> list[TrafficEvent]:
        world.clock.advance(5)
        return world.sink.events

    async with world.running():
        await asyncio.sleep(0)
        world.clock.step_wall(-3600)
        await until(later)
    assert world.sink.events[0].until < START


async def test_a_failed_batch_is_written_again_unchanged(tmp_path: Path) -> None:
    world = World()
    world.sink.fault = "disk"
    with structlog.testing.capture_logs() as logs:
        async with world.running():
            world.clients(10)
            await until(lambda: world.recorder.drop_reason == "disk")
            world.clients(5)
            world.sink.fault = None
            await until(lambda: world.flusher.written == 15)
    assert [int(event.id.rpartition("-")[2]) for event in world.sink.events] == list(range(1, 17))
    assert [line["event"] for line in logs] == ["traffic cannot be recorded now", "traffic is recorded again"]


async def test_drops_are_counted_by_reason_and_logged_once_a_minute(tmp_path: Path) -> None:
    world = World(max_queued=5)
    world.sink.fault = "kafka"
    with structlog.testing.capture_logs() as logs:
        async with world.running():
            world.clients(1)
            await until(lambda: world.recorder.drop_reason == "kafka")
            world.clients(8)
            await until(lambda: any(line["event"] == "traffic events lost" for line in logs))
            world.clients(2)
            world.clock.advance(30)
            world.clock.advance(30)
            await until(lambda: sum(line["event"] == "traffic events lost" for line in logs) == 2)
            world.sink.fault = None
            await until(lambda: world.flusher.queued == 0)
    losses = [line["kafka"] for line in logs if line["event"] == "traffic events lost"]
    # Those of the first minute together; then those of the next one, with its counts.
    assert losses[0] == 3
    assert sum(losses) == world.recorder.dropped["kafka"] >= 6


async def test_the_account_is_even(tmp_path: Path) -> None:
    world = World(max_queued=5)
    async with world.running():
        world.clients(8)
        even = world.figures
        assert even["diem_traffic_recorded"] == 8
        assert even["diem_traffic_lost"] == 3
        assert even["diem_traffic_queued"] == 5
        await until(lambda: world.flusher.written == 5)
    assert world.figures == {
        "diem_traffic_recorded": 9,
        "diem_traffic_lost": 3,
        "diem_traffic_written": 6,
        "diem_traffic_batches": 2,
        "diem_traffic_queued": 0,
    }


async def test_what_a_sink_that_hangs_leaves_is_lost_with_the_process(tmp_path: Path) -> None:
    world = World()
    world.sink.hangs = True
    task = asyncio.create_task(world.flusher.run())
    world.clients(4)
    await until(lambda: world.recorder.queued == 0)
    world.clients(3)
    task.cancel()
    await asyncio.wait({task})
    with structlog.testing.capture_logs() as logs:
        world.flusher.give_up()
    assert world.recorder.dropped == {"end": 7}
    assert logs == [{"event": "traffic events lost", "log_level": "warning", "end": 7}]
    assert world.flusher.queued == 0
