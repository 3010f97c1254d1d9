"""State of a bridge that outlives one reader's session."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer

from bridge.consumer import OffsetCommitter
from bridge.member import Membership
from bridge.records import Records
from bridge.topic_watcher import TopicWatcher
from diem.kafka.config import KafkaOptions
from diem.kafka.map_reader import MapReader


@dataclass(slots=True)
class GroupState:
    """What a bridge has that reads only some partitions: its place in a group, and the map that it hands on."""

    membership: Membership
    map: MapReader


@dataclass(slots=True)
class BridgeState:
    """What outlives a reader."""

    options: KafkaOptions
    own_group: str | None
    """The group with which positions are committed, if not with that of the membership."""
    watch: TopicWatcher
    records: Records
    group: GroupState | None = None
    """None: this bridge reads all partitions."""
    commits: OffsetCommitter = field(default_factory=OffsetCommitter)
    recreated: int = 0
    """Consumers that were replaced while a reader was served."""
    marks: dict[str, float] = field(default_factory=dict)
    """When the publisher's last mark in each name was read."""
    beaten: float = float("-inf")
    """When the last beat was sent."""
    fault: str | None = None
    """Why the reader is not being served now, if so."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names to be read now; None until the group has given out its partitions."""
        if self.group is None:
            return self.watch.names
        owned = self.group.membership.assigned
        if owned is None:
            return None
        names = self.options.names
        return (*(f"{names.updates}/{number}" for number in sorted(owned)), f"{names.hot}/0")

    @property
    def map_name(self) -> str | None:
        """The name of the partition map, if this bridge hands it on."""
        return None if self.group is None else f"{self.options.names.partition_map}/0"

    def mark(self, consumer: AIOKafkaConsumer, positions: Mapping[str, int]) -> None:
        """Commit positions as progress marks, if possible now."""
        if self.group is None:
            self.commits.mark(consumer, positions)
        elif (member := self.group.membership.consumer) is not None:
            # What is not its own now, and the hot updates that are nobody's own, a member may not commit.
            own = f"{self.options.names.updates}/"
            self.commits.mark(member, {name: next_ for name, next_ in positions.items() if name.startswith(own)})
