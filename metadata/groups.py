"""What is remembered of a clone's group: its last stable assignment, kept while the group has none."""

from typing import Final

from diem.protocol.assignment import STABLE, UNKNOWN, Clone

SILENT: Final = 3.0
"""Seconds between two answers after which Kafka counts as having been away."""
EMPTY_FOR: Final = 10.0
"""Seconds without any member after which nobody owns anything: all servers of a clone are restarted in less."""


class Group:
    """One clone's group over time. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.clone = Clone(UNKNOWN, {}, {})
        """Members and owners are those of the last stable assignment, whatever the state is now."""
        self.answered: float | None = None
        """When Kafka last said anything about it."""
        self.foreign = 0
        """Members that are not servers of ours."""
        self._empty_since: float | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: the assignment is the current one."""
        return self.clone.state == STABLE

    def take(self, now_is: Clone, foreign: int, now: float) -> bool:
        """Take what Kafka said of the group; True if that changes anything."""
        if self.answered is not None and now - self.answered > SILENT:
            # What was between two answers so far apart is not known: it does not count as emptiness.
            self._empty_since = None
        before, self.answered, self.foreign = self.clone, now, foreign
        empty_for = self._empty_for(now_is, now)
        if now_is.state == STABLE:
            self.clone = now_is
        elif empty_for < EMPTY_FOR:
            self.clone = before._replace(state=now_is.state)
        else:
            self.clone = Clone(UNKNOWN, {}, {})
        return self.clone != before

    def _empty_for(self, now_is: Clone, now: float) -> float:
        if now_is.state != UNKNOWN:
            self._empty_since = None
            return 0.0
        if self._empty_since is None:
            self._empty_since = now
        return now - self._empty_since
