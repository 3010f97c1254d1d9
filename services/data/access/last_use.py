"""Time of each key's last use, to the minute: held in memory and written to the store rarely, never by a request."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from services.data.access.keys import Key
from services.data.errors import StoreUnavailable

MINUTE_MS: Final = 60_000
WRITE_EVERY_S: Final = 600.0
MAX_BATCH: Final = 1000
"""Maximum number of keys per transaction, so as not to delay writes of data."""

_logger = structlog.get_logger(__name__)


class LastUse:
    """The last uses since the start; bounded by the number of keys. A killed process loses ten minutes of them.

    Args:
        write: stores times (Unix milliseconds) by the ids of their keys. Raises StoreUnavailable.
    """

    def __init__(self, write: Callable[[Mapping[str, int]], Awaitable[None]]) -> None:
        self._write = write
        self._used_ms: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}

    def touch(self, key_id: str, now_ms: int) -> None:
        """Record a use of a key at ``now_ms``."""
        minute = now_ms - now_ms % MINUTE_MS
        if self._used_ms.get(key_id) != minute:
            self._used_ms[key_id] = self._unwritten[key_id] = minute

    def of(self, key: Key) -> int | None:
        """Return the minute of a key's last use (Unix milliseconds); None if it was never used."""
        return self._used_ms.get(key.id, key.last_used_ms)

    def forget(self, key_id: str) -> None:
        """Drop a key that no longer exists."""
        self._used_ms.pop(key_id, None)
        self._unwritten.pop(key_id, None)

    async def run(self) -> None:
        """Write to the store every ten minutes, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the changes; keep those that cannot be written now for the next time."""
        waiting, self._unwritten = self._unwritten, {}
        while waiting:
            batch = {key_id: waiting[key_id] for key_id in list(waiting)[:MAX_BATCH]}
            try:
                await self._write(batch)
            except StoreUnavailable as error:
                _logger.warning("last uses of keys are not stored yet", error=str(error))
                self._unwritten = {**waiting, **self._unwritten}
                return
            for key_id in batch:
                del waiting[key_id]
