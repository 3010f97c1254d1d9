"""Metrics of the query that reads traffic, as a file for Prometheus' node exporter (its textfile collector).

A file instead of a listener, because the pipeline is usually a short-lived command that scrapes would miss.
"""

import json
import threading
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from diem.process import metrics
from diem.process.files import replace_file
from diem.process.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_LAST_EVENT_S: Final = 10.0
"""Spark reports to listeners in a thread of its own: time for its last report."""


class QueryMetrics(StreamingQueryListener):
    """Counts reports of queries, and writes the file after each batch."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines = self._batches = 0
        self._seconds = self._at = 0.0
        self._lag: int | None = None
        self.ended = threading.Event()
        """Set when a query has ended."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's interface
        """A query starts."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """There is nothing to read."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is committed."""
        self.batch(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802
        """A query has ended."""
        self.ended.set()

    def batch(self, progress: dict[str, Any]) -> None:
        """Count a batch reported by Spark."""
        if progress["numInputRows"]:
            self._lines += progress["numInputRows"]
            self._batches += 1
            self._seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
            self._at = datetime.fromisoformat(progress["timestamp"]).timestamp()
        behind = [source.get("metrics", {}).get("maxOffsetsBehindLatest") for source in progress["sources"]]
        known = [int(records) for records in behind if records is not None]
        self._lag = max(known, default=None)
        # The pipeline works even without the file.
        with suppress(OSError):
            replace_file(self._file, metrics.render()[0])

    def samples(self) -> Iterable[Sample]:
        """Return the samples of the file."""
        yield metrics.PIPELINE_LINES.sample(self._lines)
        yield metrics.PIPELINE_BATCHES.sample(self._batches)
        yield metrics.PIPELINE_BATCH_SECONDS.sample(self._seconds)
        yield metrics.PIPELINE_BATCH_TIME.sample(self._at)
        if self._lag is not None:
            yield metrics.PIPELINE_LAG.sample(self._lag)


@contextmanager
def measured(spark: "SparkSession", file: Path | None) -> "Iterator[None]":
    """Write the metrics of a query in the block to a file; without one, do nothing."""
    if file is None:
        yield
        return
    listener = QueryMetrics(file)
    unregister = metrics.register(listener.samples)
    spark.streams.addListener(listener)
    try:
        yield
        listener.ended.wait(_LAST_EVENT_S)
    finally:
        # With a dead JVM there is nothing to remove.
        with suppress(Exception):
            spark.streams.removeListener(listener)
        unregister()
