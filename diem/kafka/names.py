"""The names of topics and consumer groups (docs/protocol.md section 3): one prefix for all that belongs together."""

from typing import NamedTuple


class Names(NamedTuple):
    """The names under one prefix, which keeps several systems in one cluster apart."""

    prefix: str

    @property
    def updates(self) -> str:
        """The compacted topic of endpoint updates."""
        return f"{self.prefix}updates"

    @property
    def hot(self) -> str:
        """The topic of updates that every bridge reads."""
        return f"{self.prefix}updates.hot"

    @property
    def partition_map(self) -> str:
        """The compacted topic of the partition map."""
        return f"{self.prefix}partition-map"

    @property
    def log(self) -> tuple[str, str]:
        """The topics of updates, which positions belong to."""
        return self.updates, self.hot

    @property
    def topics(self) -> tuple[str, str, str]:
        """All topics that the system cannot be without."""
        return self.updates, self.hot, self.partition_map

    @property
    def traffic(self) -> str:
        """The topic of recorded traffic; none of ours in :attr:`topics`, for the system does without it."""
        return f"{self.prefix}traffic"

    @property
    def pipeline(self) -> str:
        """Begins the name of every group of whoever evaluates recorded traffic."""
        return f"{self.prefix}pipeline"

    @property
    def map_writer(self) -> str:
        """The transactional id of whoever writes the map: of several at a time, the last one wins."""
        return f"{self.prefix}map"

    def x_group(self, number: int) -> str:
        """The group of the bridge ``number`` on the X axis: its own, so that it reads everything."""
        return f"{self.prefix}x-{number:03}"

    def z_group(self, clone: int) -> str:
        """The group that the bridges of one ``clone`` on the Z axis share: each reads some of the partitions."""
        return f"{self.prefix}z-{clone}"

    def clone_of(self, group: str) -> int | None:
        """The clone whose group this is, by :meth:`z_group`; None for any other group."""
        number = group.removeprefix(f"{self.prefix}z-")
        # At most what an ``int`` is made of in no time; with leading zeros it is another group.
        is_number = number.isascii() and number.isdigit() and len(number) < 10
        return int(number) if is_number and self.z_group(int(number)) == group else None
