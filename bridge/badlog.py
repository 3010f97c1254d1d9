"""Says in the log what was wrong with a record, without filling the disk when a million are."""

from collections.abc import Callable
from typing import Final

import structlog

from bridge.records import Bad

BURST: Final = 20
EVERY: Final = 60.0
"""Seconds: after the first 20 bad records, one of them is logged in each minute (at most 6 MB a day)."""
SHOWN: Final = 1024
"""Bytes of key and of value that are shown, in hex: they may be anything."""


class BadLog:
    """Logs bad records as far as a bucket of tokens allows. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._filled = clock()
        self._unsaid = 0
        self._log = structlog.get_logger("bridge")

    def __call__(self, bad: Bad) -> None:
        """Log ``bad`` or count it for the next line."""
        now = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now - self._filled) / EVERY)
        self._filled = now
        if self._tokens < 1:
            self._unsaid += 1
            return
        self._tokens -= 1
        unsaid, self._unsaid = self._unsaid, 0
        topic, _, partition = bad.name.rpartition("/")
        self._log.error(
            "record is no update, passed",
            topic=topic,
            partition=int(partition),
            offset=bad.offset,
            record_key_hex=None if bad.key is None else bad.key[:SHOWN].hex(),
            record_value_hex=bad.value[:SHOWN].hex(),
            not_logged_before=unsaid,
        )
