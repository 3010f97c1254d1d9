"""How far a store has come, kept outside of its database: an older copy that is put in its place is then noticed."""

import os
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import structlog

MARK_FILE: Final = "store.mark"
"""Its name in the state directory."""


class Mark(NamedTuple):
    """A store has had this sequence, and versions up to this one."""

    store: str
    sequence: int
    version: int


class MarkFile:
    """The file of a mark. It never says more than was committed; a lost or damaged one says nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def read(self) -> Mark | None:
        """What was last written."""
        try:
            read = orjson.loads(self._path.read_bytes())
            return Mark(str(read["store"]), int(read["sequence"]), int(read["version"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, mark: Mark) -> None:
        """Replace it. A disk that is full costs the mark, not the service."""
        part = self._path.with_name(f".{self._path.name}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(orjson.dumps(mark._asdict()))
            part.replace(self._path)
            self._failed = False
        except OSError as error:
            if not self._failed:
                structlog.get_logger(__name__).warning("the store's mark cannot be written", reason=error.strerror)
            self._failed = True
