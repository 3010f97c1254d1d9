"""Carries events from the recorder to the sink, a little at a time, and lets nothing of it hold up the event loop."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final, Protocol

import structlog

from diem.process.clock import Clock
from diem.traffic.recorder import FULL
from diem.traffic.sink import EventSink, SinkUnavailable

EVERY: Final = 1.0
"""Seconds between two looks at the queue."""
COUNT_EVERY_MS: Final = 60_000
"""Counts are taken at full minutes of the wall clock, so that those of several processes are of the same interval."""
BATCH_BYTES: Final = 192 * 1024
SLICE_BYTES: Final = 6 * 1024
"""Of events that are encoded in one go: about 0.1 ms. A thread would hold the interpreter's lock for up to 5 ms."""
SAY_EVERY: Final = 60.0
END_WITHIN: Final = 2.0
UNWRITTEN: Final = "end"
"""The reason for what is lost because the process ends."""


class Events(Protocol):
    """What takes events down: the recorder of an edge, or what is asked of a Data Service."""

    edge: str
    boot: str
    recorded: Counter[str]
    lost: Counter[str]
    trouble: str

    @property
    def queued(self) -> int:
        """Events that were not given out yet."""
        ...

    def count(self) -> None:
        """Take what was counted since the last time."""
        ...

    def next(self) -> bytes | None:
        """The oldest event, encoded; None when nothing waits."""
        ...

    def lose(self, events: int, reason: str) -> None:
        """Events that were given out, or wait, are lost."""
        ...

    def drop_all(self, reason: str) -> None:
        """Nothing will be given out any more."""
        ...


class Flusher:
    """Writes what the recorder has; what the sink does not take is offered again, and the queue fills meanwhile."""

    def __init__(self, recorder: Events, sink: EventSink, clock: Clock) -> None:
        self.recorder = recorder
        self.written = 0
        self.batches = 0
        self._sink = sink
        self._clock = clock
        self._batch: list[bytes] = []
        self._stopping = asyncio.Event()
        self._count_at = self._next_minute()
        self._said_at = -SAY_EVERY
        self._said: Counter[str] = Counter()
        self._log = structlog.get_logger("traffic")

    @property
    def queued(self) -> int:
        """Events that wait, or are being written."""
        return self.recorder.queued + len(self._batch)

    async def run(self) -> None:
        """Write until :meth:`stop`, then what is left, once."""
        while not self._stopping.is_set():
            # Or the clock was set back: what is counted until it is there again would be of one minute.
            if not self._count_at - COUNT_EVERY_MS <= self._clock.wall_ms() < self._count_at:
                self.recorder.count()
                self._count_at = self._next_minute()
            await self._flush()
            self._say_losses()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(EVERY, max(0.01, (self._count_at - self._clock.wall_ms()) / 1000))):
                    await self._stopping.wait()
        self.recorder.count()
        await self._flush()
        await self._sink.close()

    def stop(self) -> None:
        """Let :meth:`run` end; all clients are gone."""
        self._stopping.set()

    def give_up(self) -> None:
        """Count what was never written, and say so."""
        self.recorder.lose(len(self._batch), UNWRITTEN)
        self._batch = []
        self.recorder.drop_all(UNWRITTEN)
        self._said_at = -SAY_EVERY
        self._say_losses()

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
            if recorder.trouble != error.reason:
                recorder.trouble = error.reason
                self._log.warning("traffic cannot be recorded now", reason=error.reason, error=str(error))
            return False
        if recorder.trouble != FULL:
            recorder.trouble = FULL
            self._log.info("traffic is recorded again")
        self.written += len(self._batch)
        self.batches += bool(self._batch)
        self._batch = []
        return True

    def _say_losses(self) -> None:
        now = self._clock.monotonic()
        new = self.recorder.lost - self._said
        if new and now - self._said_at >= SAY_EVERY:
            self._said_at, self._said = now, self.recorder.lost.copy()
            self._log.warning("traffic events lost", **new)

    def _next_minute(self) -> int:
        return (self._clock.wall_ms() // COUNT_EVERY_MS + 1) * COUNT_EVERY_MS
