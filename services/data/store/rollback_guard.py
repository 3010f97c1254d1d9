"""Rollback guard: a high-water mark kept outside of the database, which detects an older copy of the store."""

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import structlog

from diem.process.private_files import replace_private
from services.data.store.index import StoreIndex

MARK_FILE: Final = "store.mark"
"""Name of the mark's file in the state directory."""
MARK_EVERY_S: Final = 1.0


class HighWaterMark(NamedTuple):
    """The greatest sequence and version that a store has committed."""

    store: str
    sequence: int
    version: int


class MarkFile:
    """The file of a high-water mark, never ahead of the store; a missing or damaged file counts as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def read(self) -> HighWaterMark | None:
        """Return the stored mark; None if it is missing or damaged."""
        try:
            read = orjson.loads(self._path.read_bytes())
            return HighWaterMark(str(read["store"]), int(read["sequence"]), int(read["version"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, mark: HighWaterMark) -> bool:
        """Replace the mark; return whether this succeeded. A full disk costs the mark, not the service."""
        try:
            replace_private(self._path, orjson.dumps(mark._asdict()))
        except OSError as error:
            if not self._failed:
                structlog.get_logger(__name__).warning(
                    "the store's high-water mark cannot be written", reason=error.strerror
                )
            self._failed = True
        else:
            self._failed = False
        return not self._failed


class RollbackGuard:
    """Keeps the mark of one store, and reports if the store is an older copy of itself.

    Args:
        file: of the mark; None keeps none.
        store: the store's id.
        index: the store's sequence and version.
    """

    def __init__(self, file: MarkFile | None, store: str, index: StoreIndex) -> None:
        self._file = file
        self._store = store
        self._index = index
        self._marked: int | None = None
        self._older_than: int | None = None
        known = file.read() if file is not None else None
        if known is not None and known.store == store and known.sequence > index.changes.sequence:
            self.went_back(known.sequence)

    def went_back(self, position: int) -> None:
        """Mark the store as an older copy: it was once at ``position``, beyond its sequence."""
        self._older_than = max(position, self._older_than or 0)

    @property
    def failure(self) -> str | None:
        """Why the store cannot be used: it is an older copy; None when it is not."""
        if self._older_than is None:
            return None
        return (
            f"the store was replaced by an older copy of itself (it has been at position {self._older_than}): "
            "make it a new store with `diem backup` and `diem restore`"
        )

    async def run(self) -> None:
        """Write the mark every second until cancelled."""
        while True:
            self.write()
            await asyncio.sleep(MARK_EVERY_S)

    def write(self) -> None:
        """Write the mark if the store has new changes."""
        # Never over a mark that is ahead: it proves that this is an older copy.
        sequence = self._index.changes.sequence
        if self._file is not None and self._older_than is None and sequence != self._marked:
            written = self._file.write(HighWaterMark(self._store, sequence, self._index.version))
            self._marked = sequence if written else None
