"""Compares the answers of several metadata services by the epochs of their maps, ignoring outdated ones; pure."""

from typing import Final

ACCEPT_OLDER_AFTER_S: Final = 60.0
"""Seconds of only older maps after which one is accepted: the map was recreated."""


class EpochGuard:
    """Keeps a client of several services from returning to an older map when one lags."""

    def __init__(self) -> None:
        self._epoch = -1
        self._partitions: int | None = None
        self._older_since: float | None = None
        self._older_at = 0.0

    @property
    def behind(self) -> bool:
        """True if the last answer was older than the map in force."""
        return self._older_since is not None

    def admits(self, epoch: int, now: float, partitions: int | None = None) -> bool:
        """Return whether to use a map of this epoch from now on; ``now`` is monotonic seconds.

        A map with another P of the hash is a new one, not an older one: P changes only when the topics are created
        again (docs/internals.md section 3).
        """
        if epoch < self._epoch and partitions == self._partitions:
            # A client that polls rarely does not know the maps between two answers.
            if self._older_since is None or now - self._older_at > ACCEPT_OLDER_AFTER_S:
                self._older_since = now
            self._older_at = now
            if now - self._older_since < ACCEPT_OLDER_AFTER_S:
                return False
        self._epoch, self._partitions, self._older_since = epoch, partitions, None
        return True
