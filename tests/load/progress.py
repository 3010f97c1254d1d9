"""Progress of a run: a bar on a terminal, otherwise an occasional line."""

import sys
from contextlib import AbstractContextManager
from time import monotonic
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_SECONDS = 10.0


class Display(AbstractContextManager["Display"]):
    """Progress display. ``total`` is the expected duration in seconds."""

    def __init__(self, name: str, total: float) -> None:
        self._name = name
        self._total = total
        self._start = monotonic()
        self._said = -LINE_SECONDS
        self._phase = ""
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, transient=True)
            self._task = self._bar.add_task(self._name, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, phase: str, detail: str = "") -> None:
        """Show the phase; without a terminal only if it is new or was shown 10 s ago."""
        elapsed = monotonic() - self._start
        if self._bar:
            completed = min(elapsed, self._total)
            self._bar.update(self._task, completed=completed, description=f"{self._name}: {phase} {detail}")
        elif phase != self._phase or elapsed - self._said >= LINE_SECONDS:
            print(f"{self._name}: {elapsed:5.1f} s: {phase} {detail}".rstrip(), file=sys.stderr, flush=True)
            self._said = elapsed
        self._phase = phase
