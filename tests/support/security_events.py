"""Lines of the security log that a test causes, whatever the tests before it have caused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from diem.process import security_log


class RecordedEvents:
    """The lines of the log so far; lines of other logs are left out."""

    def __init__(self, captured: list[Any]) -> None:
        self._captured = captured

    def all(self) -> list[dict[str, Any]]:
        """Return all lines of the security log."""
        return [dict(line) for line in self._captured if "kind" in line]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of one kind."""
        return [line for line in self.all() if line["kind"] == kind]


@contextmanager
def recorded_events() -> Iterator[RecordedEvents]:
    """Yield the lines that are logged while the block runs."""
    with structlog.testing.capture_logs() as captured:
        # The first call reports what earlier tests have left, the second one forgets it.
        security_log.summarise()
        security_log.summarise()
        captured.clear()
        yield RecordedEvents(captured)
