"""Record the traffic of a process, as one context around its life."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from diem.fanout.fanout import UpdateCounter
from diem.links.edge import Edge
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.metrics import Sample
from diem.protocol.traffic import Accessed
from diem.traffic.accesses import AccessCounter
from diem.traffic.files import Files, FileSink
from diem.traffic.flusher import END_WITHIN, Events, Flusher
from diem.traffic.recorder import Recorder
from diem.traffic.settings import TrafficSettings
from diem.traffic.sink import EventSink

CANCELLED_WITHIN: Final = 0.5


@asynccontextmanager
async def recording(settings: TrafficSettings, edge: Edge) -> AsyncIterator[None]:
    """Record the clients and updates of ``edge`` while the block lasts; at its end, what is left within 2 s.

    Raises:
        ConfigurationError: the salt or the options of Kafka cannot be used.
    """
    if settings.traffic_sink == "off":
        yield
        return
    tally = UpdateCounter()
    salt = SharedKey.load(settings.traffic_salt_file)
    name, clock = settings.traffic_edge or settings.process_name, SystemClock()
    recorder = Recorder(name, salt, clock.wall_ms, tally, open_of=edge.gate.open_of)
    edge.visitors, edge.fanout.update_counter = recorder, tally
    async with _flushing(settings, recorder):
        yield


@asynccontextmanager
async def recording_accesses(settings: TrafficSettings, take: Callable[[], Sequence[Accessed]]) -> AsyncIterator[None]:
    """Record what ``take`` has counted, every minute, while the block lasts; at its end, what is left within 2 s.

    Raises:
        ConfigurationError: the options of Kafka cannot be used.
    """
    if settings.traffic_sink == "off":
        yield
        return
    async with _flushing(
        settings, AccessCounter(settings.traffic_edge or settings.process_name, SystemClock().wall_ms, take)
    ):
        yield


@asynccontextmanager
async def _flushing(settings: TrafficSettings, recorder: Events) -> AsyncIterator[None]:
    clock = SystemClock()
    flusher = Flusher(recorder, _sink(settings, recorder, clock), clock)
    forget = metrics.register(lambda: samples(flusher))
    work = asyncio.create_task(flusher.run())
    work.add_done_callback(_say_failure)
    try:
        yield
    finally:
        flusher.stop()
        await asyncio.wait({work}, timeout=END_WITHIN)
        work.cancel()
        await asyncio.wait({work}, timeout=CANCELLED_WITHIN)
        flusher.give_up()
        forget()


def samples(flusher: Flusher) -> Iterable[Sample]:
    """All samples of one scrape: recorded = written + lost + queued."""
    recorder = flusher.recorder
    for type_, count in recorder.recorded.items():
        yield metrics.TRAFFIC_RECORDED.sample(count, type_)
    for reason, count in recorder.lost.items():
        yield metrics.TRAFFIC_LOST.sample(count, reason)
    yield metrics.TRAFFIC_WRITTEN.sample(flusher.written)
    yield metrics.TRAFFIC_BATCHES.sample(flusher.batches)
    yield metrics.TRAFFIC_QUEUED.sample(flusher.queued)


def _sink(settings: TrafficSettings, recorder: Events, clock: SystemClock) -> EventSink:
    if settings.traffic_sink == "kafka":
        # Only who uses Kafka needs its client.
        from diem.traffic.kafka import KafkaSink  # noqa: PLC0415

        return KafkaSink(settings.kafka(), recorder.edge)
    limit = settings.traffic_max_mib << 20
    return FileSink(Files(settings.traffic_dir, recorder.edge, recorder.boot, clock.monotonic, max_bytes=limit))


def _say_failure(work: "asyncio.Task[None]") -> None:
    # Clients are served all the same: the queue fills, and what is lost is counted.
    if not work.cancelled() and (error := work.exception()) is not None:
        structlog.get_logger("traffic").error("recording of traffic has failed", exc_info=error)
