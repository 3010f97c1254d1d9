"""Liveness of a feed: not live after 10 s without a heartbeat (docs/protocol.md section 1)."""

from typing import Final

SILENT_AFTER: Final = 10.0
"""Seconds without a beat after which a feed counts as lost."""


class Liveness:
    """Live while beats arrive on a feed that has caught up.

    Beats during a catch-up do not count: what is retained then may be older than what the source holds.
    """

    def __init__(self, silent_after: float = SILENT_AFTER) -> None:
        self._silent_after = silent_after
        self._last: float | None = None
        self.live = False

    def beat(self, now: float) -> None:
        """The source is alive and everything before was received; ``now`` in monotonic seconds."""
        self._last = now

    def changed(self, now: float) -> bool:
        """Look at the clock; True when :attr:`live` is not what it was at the last look."""
        live = self._last is not None and now - self._last < self._silent_after
        if live == self.live:
            return False
        self.live = live
        return True

    def silence(self, now: float) -> float | None:
        """Seconds since the last beat, None before the first."""
        return None if self._last is None else now - self._last
