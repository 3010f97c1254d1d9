"""The decisions of `diem autoplan` on disk, and who may make them: one loop for a state directory."""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deploy.plans.loop import Decision
from deploy.statedir import BadStateDir
from diem.errors import DiemError


@dataclass(eq=False)
class AlreadyPlanning(DiemError):
    """Another `diem autoplan` runs for the same state directory."""

    template = "another `diem autoplan` runs here (it holds {lock})"

    lock: Path


class Journal:
    """The decisions, one JSON object a line, and who may make them. `folder` is a state directory."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.file = folder / "autoplan.jsonl"
        self._lock = folder / "autoplan.lock"
        self._say = say

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder against others; it is free again when this process ends in any way.

        Raises:
            AlreadyPlanning: another one holds it.
            BadStateDir: it cannot be written.
        """
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = self._lock.open("w")
        except OSError as error:
            raise BadStateDir(self.file.parent, error.strerror or str(error)) from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyPlanning(self._lock) from None
            yield

    def note(self, decision: Decision, seconds: float) -> None:
        """Say a decision, and write it down; that this cannot be done is said, and no reason to end."""
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._say(f"{at}  {decision.line()}")
        entry = {"at": at, **decision._asdict(), "seconds": round(seconds, 1)}
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            self._say(f"{self.file} was not written: {error.strerror or error}")
