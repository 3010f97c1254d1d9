"""The scaling modes as distinguished by the model, and the numbers of their processes."""

import functools
import math
from enum import StrEnum
from typing import Final, NamedTuple

from learning.sizing.even import choose_count, planned_sizes

MAX_SERVERS: Final = 64
"""Maximum number of servers of one ``diem up``, over all clones."""
PARTITIONS: Final = 12
"""Partitions of the updates topic, unless another number is given."""


class Configuration(StrEnum):
    """A mode of ``diem up``."""

    SINGLE = "single"
    ALL_TO_ALL = "all-to-all"
    X_BROADCAST = "x-broadcast"
    X = "x"
    Z_CLIENT = "z-client"
    Z_PROXY = "z-proxy"
    Z_COMPOSITE = "z-composite"
    XZ = "xz"

    @property
    def behind_nginx(self) -> bool:
        """True if servers are equal: on several hosts clients connect through nginx, on one host these share a port."""
        return self in {Configuration.ALL_TO_ALL, Configuration.X_BROADCAST, Configuration.X, Configuration.XZ}

    @property
    def partitioned(self) -> bool:
        """True if servers divide the endpoints."""
        return self in _PARTITIONED

    @property
    def uses_kafka(self) -> bool:
        """True if updates go through Kafka."""
        return self is Configuration.X or self.partitioned

    @property
    def has_proxy(self) -> bool:
        """True if clients connect to a proxy, possibly of a composite."""
        return self.partitioned and self is not Configuration.Z_CLIENT


_PARTITIONED: Final = frozenset(
    {
        Configuration.Z_CLIENT,
        Configuration.Z_PROXY,
        Configuration.Z_COMPOSITE,
        Configuration.XZ,
    }
)


class Size(NamedTuple):
    """Numbers of processes: servers of each clone, and clones (composites in xz)."""

    servers: int = 1
    clones: int = 1

    @property
    def all_servers(self) -> int:
        """Servers of all clones."""
        return self.servers * self.clones

    @property
    def partitions(self) -> int:
        """Partitions of a new topic for this number of servers."""
        return _partitions(self.servers)

    @property
    def largest_share(self) -> float:
        """Share of the partitions on the fullest server of a clone."""
        return math.ceil(self.partitions / self.servers) / self.partitions


@functools.cache
def _partitions(servers: int) -> int:
    return choose_count(planned_sizes(servers))


def up_arguments(configuration: Configuration, size: Size, brokers: int = 1) -> tuple[str, ...]:
    """Return the arguments of ``diem`` to start this configuration."""
    words = ["up", "--mode", configuration]
    if configuration is not Configuration.SINGLE:
        words += ["--servers", str(size.servers)]
    if configuration is Configuration.XZ or size.clones > 1:
        words += ["--clones", str(size.clones)]
    if configuration.uses_kafka and brokers != 1:
        words += ["--brokers", str(brokers)]
    if configuration.partitioned and size.partitions != PARTITIONS:
        words += ["--partitions", str(size.partitions)]
    return tuple(words)
