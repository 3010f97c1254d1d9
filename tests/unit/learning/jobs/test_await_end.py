"""Batches that a query reports."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from learning.jobs.ingest import BatchWriter, CommittedBatch, _await_end


class Report:
    """A progress report of Spark."""

    def __init__(self, number: int) -> None:
        self.number = number

    def json(self) -> str:
        return json.dumps({"batchId": self.number, "timestamp": "now", "durationMs": {"triggerExecution": 1500}})


class Query:
    """A query that writes a batch before some polls, and reports it a poll later; counts how often it is asked."""

    def __init__(self, writer: BatchWriter, writes: Iterator[int]) -> None:
        self.writer, self.writes = writer, writes
        self.number, self.reports, self.asked = 0, list[Report](), 0

    @property
    def _jsq(self) -> "Query":
        return self

    def recentProgress(self) -> list[Report]:  # noqa: N802  # Spark's name
        self.asked += 1
        return self.reports

    def awaitTermination(self, _timeout: float) -> bool:  # noqa: N802  # Spark's name
        # Also a trigger without lines is reported, with the number of the next batch.
        self.reports.append(Report(self.number))
        if (lines := next(self.writes, None)) is None:
            return True
        if lines:
            self.number += 1
            self.writer.written[self.number] = lines
        return False


def test_reports_are_read_only_after_a_batch_was_written(tmp_path: Path) -> None:
    writer = BatchWriter(tmp_path / "sink", tmp_path / "checkpoint")
    query: Any = Query(writer, iter([0] * 50 + [7] + [0] * 50 + [5, 0, 0]))
    seen = list[tuple[CommittedBatch, int]]()
    assert _await_end(query, writer, None, lambda batch, since: seen.append((batch, since))) == (12, True)
    assert [(batch.number, batch.lines, batch.seconds, since) for batch, since in seen] == [
        (1, 7, 1.5, 0),
        (2, 5, 1.5, 2),
    ]
    assert query.asked == 2 * 2
    assert not writer.written
