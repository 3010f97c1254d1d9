"""Pure: whether an answer of a metadata service may take the place of an earlier one's, by the epochs of their maps."""

from typing import Final

BELIEVE_AFTER_S: Final = 60.0
"""Seconds of nothing but older maps after which one is believed: the map was begun anew, and nobody knows a newer."""


class EpochGuard:
    """Keeps who asks several services from going back when the one that answers now is behind the one before."""

    def __init__(self) -> None:
        self._epoch = -1
        self._partitions: int | None = None
        self._older_since: float | None = None
        self._older_at = 0.0

    @property
    def behind(self) -> bool:
        """Whether what was told last was older than what holds."""
        return self._older_since is not None

    def admits(self, epoch: int, now: float, partitions: int | None = None) -> bool:
        """Whether to go by a map of this epoch from now on; ``now`` is seconds of a monotonic clock.

        With another P of the hash it is another map, not an older one: that changes only when the topics are made anew
        (docs/protocol.md section 3).
        """
        if epoch < self._epoch and partitions == self._partitions:
            # Who asks seldom does not know what there was between two answers.
            if self._older_since is None or now - self._older_at > BELIEVE_AFTER_S:
                self._older_since = now
            self._older_at = now
            if now - self._older_since < BELIEVE_AFTER_S:
                return False
        self._epoch, self._partitions, self._older_since = epoch, partitions, None
        return True
