"""One sender per partition, with at most one request in flight."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from diem.kafka.errors import TimestampsRefused
from diem.process.tracing import TracedUpdates
from diem.protocol.update import GONE, WATERMARK, WATERMARK_KEY, encode, without_data
from services.data.publisher.backlog import PublisherState
from services.data.publisher.log import Log
from services.data.publisher.refusals import RecordsRefused
from services.data.publisher.store_view import PublishedStore

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MAX_RECORDS = 500
"""Endpoints in one request, and tombstones."""
Records = list[tuple[bytes, bytes | None]]
"""Keys and values of one request."""
WHOLE = 2 * MAX_RECORDS + 1
"""Records in one request with its watermark."""


class PartitionSenders:
    """Sends the backlog, one worker per partition: :meth:`run`. Calls ``on_acknowledged()`` after each request.

    Updates among ``traces`` carry their contexts.
    """

    def __init__(
        self,
        log: Log,
        state: PublisherState,
        store: PublishedStore,
        on_acknowledged: Callable[[], None] = lambda: None,
        traces: TracedUpdates | None = None,
    ) -> None:
        self._log = log
        self._state = state
        self._store = store
        self._queues = state.backlog.queues
        for tracker in state.trackers:
            tracker.reconnected()
        self.in_flight_since: dict[int, float] = {}
        """Send time of each partition's request, by the loop's clock."""
        self._on_acknowledged = on_acknowledged
        self._traces = traces
        self._wake = [asyncio.Event() for _ in self._queues]
        self._watermarks_due: set[int] = set()

    def wake(self, queues: Iterable[int]) -> None:
        """Wake the senders of partitions that have work."""
        for number in queues:
            self._wake[number].set()

    def request_watermarks(self) -> None:
        """Request a watermark in every partition as soon as it has every accepted change."""
        self._watermarks_due |= set(range(len(self._wake)))
        self.wake(self._watermarks_due)

    async def run(self, number: int) -> None:
        """Send the queue of one partition until a fault.

        A refused request is halved until a single record is left; requests grow again afterwards. While a record waits,
        or all do because of refused timestamps, the partition has no watermarks.

        Raises:
            KafkaError, OSError, RecordsRefused: the request in flight may or may not have been written.
        """
        queue, wake, loop = self._queues[number], self._wake[number], asyncio.get_running_loop()
        most, pause_s, tracker = WHOLE, 0.0, self._state.trackers[number]
        while True:
            await asyncio.sleep(pause_s)
            pause_s = 0.0
            held = self._state.refusals.held(number)
            updates = queue.dequeue(MAX_RECORDS, held)
            # Always the current update: a retry never restores an older one.
            records: Records = [(endpoint, self._value(number, endpoint)) for endpoint in updates]
            forgotten = {endpoint for endpoint in updates if self._is_forgotten(endpoint)}
            tombstones = self._state.backlog.dequeue_tombstones(number, MAX_RECORDS, held)
            records += [(endpoint, None) for endpoint in tombstones]
            # A watermark asserts that every accepted change is here: nothing due, nothing left to ingest.
            all_in = not queue.due and self._state.backlog.ingested >= self._store.changes.sequence
            due = all_in and number in self._watermarks_due and WATERMARK_KEY not in held
            if (proof := tracker.proof(len(records)) if due else None) is not None:
                records.append((WATERMARK_KEY, WATERMARK))
            if not records:
                wake.clear()
                await wake.wait()
                continue
            self.in_flight_since[number] = loop.time()
            spans, contexts = self._start_spans(number, updates, self._traces) if self._traces else ({}, {})
            try:
                base, count = await self._log.write(number, records[:most], proof, forgotten, contexts)
            except RecordsRefused as refused:
                await self._requeue_refused(number, records, refused)
                most = max(1, refused.count // 2)
                continue
            except TimestampsRefused as refused:
                queue.requeue()
                pause_s = self._state.refusals.all_refused(str(refused))
                continue
            finally:
                del self.in_flight_since[number]
            most = min(2 * most, WHOLE)
            tracker.acknowledged(base, count)
            written = {key for key, _ in records[:count]}
            if self._traces:
                self._end_spans(spans, written, self._traces)
            self._state.refusals.written(number, records[:count])
            queue.requeue(endpoint for endpoint in (*updates, *tombstones) if endpoint not in written)
            queue.acknowledged()
            self.wake(self._state.backlog.with_tombstones())
            self._on_acknowledged()
            self._state.published += len(written) - (WATERMARK_KEY in written)
            if proof is not None and WATERMARK_KEY in written:
                self._watermarks_due.discard(number)
                tracker.proved(proof)

    def _start_spans(
        self, number: int, updates: Iterable[bytes], traces: TracedUpdates
    ) -> tuple[dict[bytes, "Span"], dict[bytes, str]]:
        """Start the spans of traced updates in a request; return them, and their contexts."""
        spans: dict[bytes, Span] = {}
        topic, _, partition = self._log.name(number).rpartition("/")
        for endpoint in updates:
            change = self._store.changes.get(endpoint)
            if change is None or (context := traces.find(endpoint, change.version)) is None:
                continue
            attributes: dict[str, str | int] = {
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": partition,
                "diem.endpoint": endpoint.decode(),
                "diem.version": change.version,
            }
            spans[endpoint] = traces.tracer.start(f"send {topic}", context, attributes, kind="PRODUCER")
        return spans, {endpoint: traces.tracer.context_of(span) for endpoint, span in spans.items()}

    def _end_spans(self, spans: Mapping[bytes, "Span"], written: Collection[bytes], traces: TracedUpdates) -> None:
        for endpoint in spans.keys() & written:
            spans[endpoint].end()
            traces.discard(endpoint)

    def _is_forgotten(self, endpoint: bytes) -> bool:
        change = self._store.changes.get(endpoint)
        return change is None or (change.kind == GONE and change.sequence <= self._state.tombstones_until)

    def _value(self, number: int, endpoint: bytes) -> bytes:
        change = self._store.changes.get(endpoint)
        if change is None:
            # It was forgotten meanwhile, or its record is one that the log should have lost.
            floor = self._store.version_floor
            return encode(endpoint.decode(), floor, floor, gone=True)
        if self._state.refusals.goes_without_data(number, change.endpoint):
            return without_data(change.endpoint, change.value)
        return change.value

    async def _requeue_refused(self, number: int, records: Records, refused: RecordsRefused) -> None:
        # An earlier attempt of the same request may have been written, so only a new producer is safe.
        if (await self._log.end_offsets([number])).get(number, -1) != self._state.trackers[number].next:
            raise refused
        self._queues[number].requeue()
        if refused.count == 1:
            key, value = records[0]
            self._state.refusals.refused(number, key, value, str(refused))
