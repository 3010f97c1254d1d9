"""Which writes are traced, and their spans from the queue until the commit."""

import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from diem.process.limits import TokenBucket
from diem.process.tracing import TracedUpdates
from services.data.errors import DataError
from services.data.store.write_plan import Accepted, Write

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TRACES_PER_S: Final = 10.0
"""Traces of this process a second; callers that sample more cost no more."""


class WriteTracer:
    """Starts traces of writes, and hands their updates to the senders.

    Args:
        updates: of the senders: publisher and feed.
        rate: share of the writes without a caller's context that are traced.
        now: monotonic seconds.
        draw: a random number from 0 to 1.
    """

    def __init__(
        self,
        updates: TracedUpdates,
        rate: float,
        *,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._updates = updates
        self._rate = rate
        self._now = now
        self._draw = draw
        self._allowance = TokenBucket(TRACES_PER_S, TRACES_PER_S)

    def begin(self, write: Write) -> "Span | None":
        """Start the span of a queued write; None if it is not sampled, by its caller or else by the rate."""
        tracer, caller = self._updates.tracer, write.traceparent
        sampled = self._draw() < self._rate if caller is None else tracer.is_sampled(caller)
        if not sampled or not self._allowance.take(self._now()):
            return None
        source = {"diem.source": write.source} if write.source else {}
        return tracer.start("write", caller, {"diem.endpoints": len(write.changes), **source}, kind="SERVER")

    def committed(self, writes: Iterable[tuple["Span | None", list[Accepted] | DataError]], start_ns: int) -> None:
        """End the spans of the writes of a transaction that began at ``start_ns``; before its updates are sent."""
        tracer = self._updates.tracer
        for span, outcome in writes:
            if span is None:
                continue
            if isinstance(outcome, DataError):
                span.set_attribute("error.type", type(outcome).__name__)
            else:
                context = tracer.context_of(span)
                tracer.start("commit", context, start_ns=start_ns).end()
                if len(outcome) == 1:
                    span.set_attribute("diem.endpoint", outcome[0].endpoint)
                    span.set_attribute("diem.version", outcome[0].version)
                for each in outcome:
                    if each.changed:
                        self._updates.add(each.endpoint.encode(), each.version, context)
            span.end()
