"""Rollback guard: a high-water mark outside the database, to detect an older copy of the store."""

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
SQLITE: Final = "sqlite"

_logger = structlog.get_logger(__name__)


class HighWaterMark(NamedTuple):
    """The greatest sequence and version committed by a store."""

    store: str
    sequence: int
    version: int
    backend: str = SQLITE
    """The database: sqlite or postgresql."""


class MarkFile:
    """The file of a high-water mark, never ahead of the store; a missing or damaged file counts as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def read(self) -> HighWaterMark | None:
        """Return the stored mark; None if it is missing or damaged."""
        try:
            read = orjson.loads(self._path.read_bytes())
            numbers = int(read["sequence"]), int(read["version"])
            return HighWaterMark(str(read["store"]), *numbers, str(read.get("backend", SQLITE)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, mark: HighWaterMark) -> bool:
        """Replace the mark; return whether it succeeded. A full disk costs the mark, not the service."""
        try:
            replace_private(self._path, orjson.dumps(mark._asdict()))
        except OSError as error:
            if not self._failed:
                _logger.warning("the store's high-water mark cannot be written", reason=error.strerror)
            self._failed = True
        else:
            self._failed = False
        return not self._failed


class RollbackGuard:
    """Keeps the mark of one store, and detects an older copy of it.

    Args:
        file: of the mark; None keeps none.
        store: the store's id.
        index: the store's sequence and version.
        backend: its database.
    """

    def __init__(self, file: MarkFile | None, store: str, index: StoreIndex, backend: str = SQLITE) -> None:
        self._file = file
        self._store = store
        self._index = index
        self._backend = backend
        self._proof: str | None = None
        """What shows that this is an older copy."""
        known = file.read() if file is not None else None
        self._marked = known if known is not None and known.store == store else None
        """The mark in the file; None if it is not this store's, or may be damaged."""
        self._greatest = self._marked or HighWaterMark(store, 0, 0, backend)
        """The greatest sequence and version known of this store, whoever has them."""
        if self._greatest.sequence > index.changes.sequence:
            self.went_back(self._greatest.sequence)

    def went_back(self, position: int) -> None:
        """Mark the store as an older copy: it once reached ``position``, beyond its sequence."""
        self._fail(f"it has been at position {position}")

    def log_is_ahead(self, endpoint: str, version: int) -> None:
        """Mark the store as an older copy: its log has ``version`` of ``endpoint``, beyond the store's."""
        # Kept in the mark: a restore begins above it, where readers of the log accept its versions.
        self._greatest = self._greatest._replace(version=max(version, self._greatest.version))
        head = self._index.heads.get(endpoint)
        held = f"the store has {head.version}" if head is not None else "the store has none"
        self._fail(f"the log has version {version} of {endpoint}, {held}")

    def _fail(self, proof: str) -> None:
        # Keep the first proof: there may be one per endpoint, and a changing cause is confusing.
        if self._proof is None:
            self._proof = proof
            _logger.error("the store is an older copy of itself", reason=proof)

    @property
    def failure(self) -> str | None:
        """Reason why the store, an older copy, cannot be used; None if it is not one."""
        if self._proof is None:
            return None
        return (
            f"the store was replaced by an older copy of itself ({self._proof}): "
            "make it a new store with `diem backup` and `diem restore`"
        )

    async def run(self) -> None:
        """Write the mark every second until cancelled."""
        while True:
            self.write()
            await asyncio.sleep(MARK_EVERY_S)

    def write(self) -> None:
        """Write the mark if it has changed."""
        # An older copy's sequence does not count: a mark ahead of it stays as proof.
        if self._proof is None:
            version = max(self._index.version, self._greatest.version)
            self._greatest = HighWaterMark(self._store, self._index.changes.sequence, version, self._backend)
        if self._file is not None and self._greatest != self._marked:
            self._marked = self._greatest if self._file.write(self._greatest) else None
