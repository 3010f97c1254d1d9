"""Layout of the pipeline's tables (docs/traffic.md section 2), and the lock of their writer."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from diem.errors import DiemError
from metadata.jobs.logs import SINK_LOG

EVENTS: Final = "events"
QUARANTINE: Final = "quarantine"


@dataclass(eq=False)
class SourceInUse(DiemError):
    """Another pipeline reads the same source into the same warehouse."""

    template = "another `diem pipeline run` reads {source}: stop it first, or read nothing with --source none"
    retriable = True

    source: str


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The folders of one warehouse. ``source`` is a source's name everywhere."""

    root: Path
    """Absolute."""

    def sink(self, source: str) -> Path:
        """Return the folder of what a source had, in both tables."""
        return self.root / source

    def checkpoint(self, source: str) -> Path:
        """Return the folder of how far it was read."""
        return self.root / "_checkpoints" / source

    def progress(self, source: str) -> Path:
        """Return the file of what the last batch was."""
        return self.root / "_progress" / f"{source}.json"

    @property
    def statistics(self) -> Path:
        """The folder of all statistics."""
        return self.root / "statistics"

    def sources(self) -> list[str]:
        """Return the sources of which something was committed."""
        return sorted(log.parent.name for log in self.root.glob(f"*/{SINK_LOG}"))

    @contextmanager
    def reading(self, source: str) -> Iterator[None]:
        """Hold a source against other pipelines; the system gives it free when this process ends in any way.

        Raises:
            SourceInUse: another one holds it.
        """
        self.checkpoint(source).mkdir(parents=True, exist_ok=True)
        with self.checkpoint(source).with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SourceInUse(source) from None
            yield
