"""The map and the groups of all clones as one snapshot, with listeners for its changes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone, Snapshot
from diem.protocol.partition_map import HOT, PartitionMap, Phase

SILENT: Final = 3.0
"""Seconds between two answers after which Kafka counts as having been away."""
EMPTY_FOR: Final = 10.0
"""Seconds without any member after which nobody owns anything: all servers of a clone are restarted in less."""


class CloneGroup:
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


class Directory:
    """Everything that answers are made of. Nothing is ever lost here: what is not known anew stays as it was."""

    def __init__(self, clones: Iterable[int]) -> None:
        self.groups = {number: CloneGroup() for number in clones}
        self.others: dict[int, CloneGroup] = {}
        """Groups of clones that other instances answer for; read while a move waits for every server's partitions."""
        self.map: PartitionMap | None = None
        self.snapshot: Snapshot | None = None
        """None until there is a map, and one group has had an assignment."""
        self.on_changed: list[Callable[[], None]] = []
        """Called after :attr:`snapshot` has become another one."""
        self._others_of: int | None = None

    def take_map(self, found: PartitionMap | None) -> None:
        """Take the map as it is now in Kafka; one that is not there is no news."""
        if found is not None and found != self.map:
            self.map = found
            self._changed()

    def take_group(self, number: int, now_is: Clone, foreign: int, now: float) -> None:
        """Take what Kafka said of one group."""
        if self.groups[number].take(now_is, foreign, now):
            self._changed()

    @property
    def preparing(self) -> int | None:
        """The epoch whose move waits for every server to have its partitions; None when none does."""
        return self.map.head.epoch if self.map is not None and self.map.head.phase is Phase.PREPARE else None

    def take_others(self, found: Mapping[int, tuple[Clone, int]], epoch: int, now: float) -> None:
        """Take what Kafka said of the groups of all other clones that there are, after ``epoch`` had begun."""
        self.others = {number: self.others.get(number, CloneGroup()) for number in found}
        for number, (now_is, foreign) in found.items():
            self.others[number].take(now_is, foreign, now)
        self._others_of = epoch

    def why_not_ready(self) -> str | None:
        """Why there can be no answer yet; None when there can be one, from then on for ever."""
        if self.map is None:
            return "the partition map has not been read yet"
        return None if self.snapshot else "no group has had an assignment yet"

    def unowned(self, map_: PartitionMap) -> str | None:
        """The partitions that endpoints move to and nobody owns, in words; a clone without servers misses nothing.

        All clones count that have a group: a composite answers for its own alone, and drives the move for all. Of a
        clone whose group was not read yet, or rebalances and was never read while it did not, that is not known.
        """
        targets = {target for _, target in map_.entries.values() if target is not None and target != HOT}
        if targets and self._others_of != map_.head.epoch:
            return "Kafka to say which clones there are"
        for number, group in sorted({**self.others, **self.groups}.items()):
            never = not group.clone.owners and group.clone.state == REBALANCING
            if targets and (group.answered is None or never):
                return f"Kafka to say who is in clone {number}"
            missing = sorted(targets - group.clone.owners.keys())
            if group.clone.owners and missing:
                return f"the servers of clone {number} to take partitions {', '.join(map(str, missing[:10]))}"
        return None

    def silence(self, now: float) -> float | None:
        """Seconds since Kafka last spoke of the group that it has been silent about for longest; None before it did."""
        answered = [group.answered for group in self.groups.values()]
        return None if None in answered else now - min(time for time in answered if time is not None)

    def _changed(self) -> None:
        if self.map is None:
            return
        if self.snapshot is None and not any(group.clone.owners for group in self.groups.values()):
            return
        self.snapshot = Snapshot(self.map, {number: group.clone for number, group in self.groups.items()})
        for tell in self.on_changed:
            tell()
