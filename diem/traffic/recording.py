"""Recording of a process's traffic: a task that writes events to the sink, as a context manager."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog

from diem.fanout.fanout import UpdateCounter
from diem.links.edge import Edge
from diem.process import metrics
from diem.process.backoff import wait
from diem.process.clock import Clock, SystemClock
from diem.process.metrics import Sample
from diem.process.tasks import on_failure
from diem.protocol.traffic import Accessed
from diem.traffic.recorder import FULL, AccessCounter, Recorder
from diem.traffic.salt import DailySalt
from diem.traffic.settings import TrafficSettings
from diem.traffic.sinks import EventSink, Files, FileSink, SinkUnavailable

POLL_INTERVAL_S: Final = 1.0
"""Interval of flushes of the queue."""
COUNT_EVERY_MS: Final = 60_000
"""Interval of counts, at full minutes of the wall clock, so that all processes cover the same intervals."""
BATCH_BYTES: Final = 192 * 1024
SLICE_BYTES: Final = 6 * 1024
"""Bytes encoded in one turn of the loop, about 0.1 ms. A thread would hold the interpreter's lock for up to 5 ms."""
LOG_INTERVAL_S: Final = 60.0
END_TIMEOUT_S: Final = 2.0
UNWRITTEN: Final = "end"
"""Drop reason at the end of the process."""


class EventSource(Protocol):
    """Source of encoded events: the recorder of an edge, or the access counter of a Data Service."""

    edge: str
    incarnation: str
    recorded: Counter[str]
    dropped: Counter[str]
    drop_reason: str

    @property
    def queued(self) -> int:
        """Events that were not dequeued yet."""
        ...

    def renew(self) -> None:
        """Give clients the pseudonyms of a new day; called every second."""
        ...

    def count(self) -> None:
        """Queue events with the counts since the last call."""
        ...

    def next(self) -> bytes | None:
        """Dequeue and encode the oldest event; None when the queue is empty."""
        ...

    def drop(self, events: int, reason: str) -> None:
        """Count events as dropped."""
        ...

    def drop_all(self, reason: str) -> None:
        """Drop all queued events."""
        ...


class Flusher:
    """Writes queued events to the sink; retries a failed batch while the queue fills."""

    def __init__(self, recorder: EventSource, sink: EventSink, clock: Clock) -> None:
        self.recorder = recorder
        self.written = 0
        self.batches = 0
        self._sink = sink
        self._clock = clock
        self._batch: list[bytes] = []
        self._stopping = asyncio.Event()
        self._count_at = self._next_minute()
        self._logged_at = -LOG_INTERVAL_S
        self._logged: Counter[str] = Counter()
        self._log = structlog.get_logger("traffic")

    @property
    def queued(self) -> int:
        """Events that are queued or being written."""
        return self.recorder.queued + len(self._batch)

    async def run(self) -> None:
        """Write until :meth:`stop`; then try once to write the rest."""
        while not self._stopping.is_set():
            # Due, or the clock was set back: otherwise one count would span the whole time until then.
            if not self._count_at - COUNT_EVERY_MS <= self._clock.wall_ms() < self._count_at:
                self.recorder.count()
                self._count_at = self._next_minute()
            self.recorder.renew()
            await self._flush()
            self._log_drops()
            until_count_s = (self._count_at - self._clock.wall_ms()) / 1000
            await wait(self._stopping, min(POLL_INTERVAL_S, max(0.01, until_count_s)))
        self.recorder.count()
        await self._flush()
        await self._sink.close()

    def stop(self) -> None:
        """End :meth:`run`; all clients are gone."""
        self._stopping.set()

    def give_up(self) -> None:
        """Count unwritten events as dropped, and log it."""
        self.recorder.drop(len(self._batch), UNWRITTEN)
        self._batch = []
        self.recorder.drop_all(UNWRITTEN)
        self._logged_at = -LOG_INTERVAL_S
        self._log_drops()

    async def _flush(self) -> None:
        while True:
            if not self._batch:
                await self._fill()
            if not await self._write() or not self.recorder.queued:
                return

    async def _fill(self) -> None:
        size = pause_at = 0
        while size < BATCH_BYTES and (line := self.recorder.next()) is not None:
            self._batch.append(line)
            size += len(line)
            if size >= pause_at:
                pause_at = size + SLICE_BYTES
                await asyncio.sleep(0)

    async def _write(self) -> bool:
        recorder = self.recorder
        try:
            await self._sink.write(self._batch)
        except SinkUnavailable as error:
            if recorder.drop_reason != error.reason:
                recorder.drop_reason = error.reason
                self._log.warning("traffic cannot be recorded now", reason=error.reason, error=str(error))
            return False
        if recorder.drop_reason != FULL:
            recorder.drop_reason = FULL
            self._log.info("traffic is recorded again")
        self.written += len(self._batch)
        self.batches += bool(self._batch)
        self._batch = []
        return True

    def _log_drops(self) -> None:
        now = self._clock.monotonic()
        new = self.recorder.dropped - self._logged
        if new and now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at, self._logged = now, self.recorder.dropped.copy()
            self._log.warning("traffic events lost", **new)

    def _next_minute(self) -> int:
        return (self._clock.wall_ms() // COUNT_EVERY_MS + 1) * COUNT_EVERY_MS


CANCEL_TIMEOUT_S: Final = 0.5


@asynccontextmanager
async def recording(settings: TrafficSettings, edge: Edge) -> AsyncIterator[None]:
    """Record the clients and updates of ``edge`` while the block runs; then write the rest within 2 s.

    Raises:
        ConfigurationError: the salt or the options of Kafka cannot be used.
    """
    if settings.traffic_sink == "off":
        yield
        return
    counter = UpdateCounter()
    name, clock = settings.traffic_edge or settings.process_name, SystemClock()
    salt = DailySalt.load(settings.traffic_salt_file, clock.wall_ms())
    recorder = Recorder(name, salt, clock.wall_ms, counter, count_open=edge.admission.open_of)
    edge.trace_sink, edge.fanout.update_counter = recorder, counter
    async with _flushing(settings, recorder):
        yield


@asynccontextmanager
async def recording_accesses(settings: TrafficSettings, take: Callable[[], Sequence[Accessed]]) -> AsyncIterator[None]:
    """Record the counts of ``take`` every minute while the block runs; then write the rest within 2 s.

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
async def _flushing(settings: TrafficSettings, recorder: EventSource) -> AsyncIterator[None]:
    clock = SystemClock()
    flusher = Flusher(recorder, _sink(settings, recorder, clock), clock)
    unregister = metrics.register(lambda: samples(flusher))
    work = asyncio.create_task(flusher.run())
    work.add_done_callback(on_failure(_log_failure))
    try:
        yield
    finally:
        flusher.stop()
        await asyncio.wait({work}, timeout=END_TIMEOUT_S)
        work.cancel()
        await asyncio.wait({work}, timeout=CANCEL_TIMEOUT_S)
        flusher.give_up()
        unregister()


def samples(flusher: Flusher) -> Iterable[Sample]:
    """Yield the samples of one scrape: recorded = written + lost + queued."""
    recorder = flusher.recorder
    for type_, count in recorder.recorded.items():
        yield metrics.TRAFFIC_RECORDED.sample(count, type_)
    for reason, count in recorder.dropped.items():
        yield metrics.TRAFFIC_LOST.sample(count, reason)
    yield metrics.TRAFFIC_WRITTEN.sample(flusher.written)
    yield metrics.TRAFFIC_BATCHES.sample(flusher.batches)
    yield metrics.TRAFFIC_QUEUED.sample(flusher.queued)


def _sink(settings: TrafficSettings, recorder: EventSource, clock: SystemClock) -> EventSink:
    if settings.traffic_sink == "kafka":
        # Only processes that use Kafka import its client.
        from diem.traffic.kafka_sink import KafkaSink  # noqa: PLC0415

        return KafkaSink(settings.kafka(), recorder.edge)
    limit = settings.traffic_max_mib << 20
    return FileSink(Files(settings.traffic_dir, recorder.edge, recorder.incarnation, clock.monotonic, max_bytes=limit))


def _log_failure(error: BaseException) -> None:
    # Clients are still served: the queue fills, and drops are counted.
    structlog.get_logger("traffic").error("recording of traffic has failed", exc_info=error)
