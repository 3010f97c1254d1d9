"""The map and the groups of all clones as one snapshot, and listeners for its changes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from diem.protocol.assignment import REBALANCING, STABLE, UNKNOWN, Clone, Snapshot
from diem.protocol.partition_map import HOT, PartitionMap, Phase

SILENCE_S: Final = 3.0
"""Time between two answers beyond which Kafka counts as having been unavailable."""
EMPTY_S: Final = 10.0
"""Time without members after which a group owns nothing; longer than a restart of all servers of a clone."""


class CloneGroup:
    """One clone's group over time. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.clone = Clone(UNKNOWN, {}, {})
        """Members and owners are those of the last stable assignment, whatever the state is now."""
        self.answered: float | None = None
        """Time of Kafka's last answer about the group."""
        self.unknown_members = 0
        """Number of members that are not servers of DIEM."""
        self._empty_since: float | None = None

    @property
    def is_stable(self) -> bool:
        """True unless the group is rebalancing: its assignment is current."""
        return self.clone.state == STABLE

    def update(self, current: Clone, unknown_members: int, now: float) -> bool:
        """Apply Kafka's description of the group; return True if that changes anything."""
        if self.answered is not None and now - self.answered > SILENCE_S:
            # An outage does not count as time without members: the group may have had some.
            self._empty_since = None
        before, self.answered, self.unknown_members = self.clone, now, unknown_members
        empty_for = self._empty_for(current, now)
        if current.state == STABLE:
            self.clone = current
        elif empty_for < EMPTY_S:
            self.clone = before._replace(state=current.state)
        else:
            self.clone = Clone(UNKNOWN, {}, {})
        return self.clone != before

    def _empty_for(self, current: Clone, now: float) -> float:
        if current.state != UNKNOWN:
            self._empty_since = None
            return 0.0
        if self._empty_since is None:
            self._empty_since = now
        return now - self._empty_since


class Directory:
    """The map and the groups of all clones. Groups without an answer from Kafka keep their last state."""

    def __init__(self, clones: Iterable[int]) -> None:
        self.groups = {number: CloneGroup() for number in clones}
        self.others: dict[int, CloneGroup] = {}
        """Groups of clones that other instances serve; read while a move waits for every server's partitions."""
        self.map: PartitionMap | None = None
        self.snapshot: Snapshot | None = None
        """None until there is a map and a first assignment."""
        self.on_changed: list[Callable[[], None]] = []
        """Called after :attr:`snapshot` has changed."""
        self._others_epoch: int | None = None
        """Epoch of the move for which ``others`` was read last."""

    def update_map(self, current: PartitionMap | None) -> None:
        """Apply the current map in Kafka; None changes nothing."""
        if current is not None and current != self.map:
            self.map = current
            self._changed()

    def update_group(self, number: int, current: Clone, unknown_members: int, now: float) -> None:
        """Apply Kafka's description of one group."""
        if self.groups[number].update(current, unknown_members, now):
            self._changed()

    @property
    def preparing(self) -> int | None:
        """Epoch of a move waiting for every server to get its partitions; None without one."""
        return self.map.head.epoch if self.map is not None and self.map.head.phase is Phase.PREPARE else None

    def update_others(self, groups: Mapping[int, tuple[Clone, int]], epoch: int, now: float) -> None:
        """Apply Kafka's descriptions of all other clones' groups, read after ``epoch`` began."""
        self.others = {number: self.others.get(number, CloneGroup()) for number in groups}
        for number, (current, unknown_members) in groups.items():
            self.others[number].update(current, unknown_members, now)
        self._others_epoch = epoch

    def why_not_ready(self) -> str | None:
        """Return the reason why requests cannot be answered yet; None once they can."""
        if self.map is None:
            return "the partition map has not been read yet"
        return None if self.snapshot else "no group has had an assignment yet"

    def unassigned(self, map_: PartitionMap) -> str | None:
        """Return a description of the move's target partitions without an owner; None if there are none.

        A clone without servers lacks nothing. All clones with a group count: a composite serves only its own clone, but
        drives the move for all. A clone's owners are unknown until its group has been read outside a rebalance.
        """
        targets = {target for _, target in map_.entries.values() if target is not None and target != HOT}
        if targets and self._others_epoch != map_.head.epoch:
            return "Kafka to report the clones"
        for number, group in sorted({**self.others, **self.groups}.items()):
            never = not group.clone.owners and group.clone.state == REBALANCING
            if targets and (group.answered is None or never):
                return f"Kafka to report the members of clone {number}"
            missing = sorted(targets - group.clone.owners.keys())
            if group.clone.owners and missing:
                return f"the servers of clone {number} to take partitions {', '.join(map(str, missing[:10]))}"
        return None

    def staleness(self, now: float) -> float | None:
        """Return the age in seconds of the oldest last answer about a group; None until each has one."""
        answered = [group.answered for group in self.groups.values()]
        return None if None in answered else now - min(time for time in answered if time is not None)

    def _changed(self) -> None:
        if self.map is None:
            return
        if self.snapshot is None and not any(group.clone.owners for group in self.groups.values()):
            return
        self.snapshot = Snapshot(self.map, {number: group.clone for number, group in self.groups.items()})
        for notify in self.on_changed:
            notify()
