"""The map and the groups as one snapshot, and who is to hear when it changes."""

from collections.abc import Callable, Iterable, Mapping

from diem.protocol.assignment import REBALANCING, Clone, Snapshot
from diem.protocol.partition_map import HOT, PartitionMap, Phase
from metadata.groups import Group


class Directory:
    """Everything that answers are made of. Nothing is ever lost here: what is not known anew stays as it was."""

    def __init__(self, clones: Iterable[int]) -> None:
        self.groups = {number: Group() for number in clones}
        self.others: dict[int, Group] = {}
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
        self.others = {number: self.others.get(number, Group()) for number in found}
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
