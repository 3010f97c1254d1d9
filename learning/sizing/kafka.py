"""Equations 1 to 11 of the thesis (chapter 5): each a function that returns a ``Bound`` with its name, unit and source.

Symbols: T_T ``throughput`` of the topic, T_S ``storage`` and T_N ``network`` throughput of one server, T_C ``consumer``
throughput, n ``servers``, r ``replicas``, g ``groups``, p ``partitions``, t ``topics``. Throughputs are in one unit of
the caller's choice, such as bytes/s; times are in seconds.

All arithmetic is on exact decimals: a limit of 0.01 s is 1/100, and no bound loses a partition to binary rounding.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil, floor
from typing import Final

Number = int | float | Fraction

THESIS_ELECTION_S: Final = 0.005
"""Time to elect the leader of one partition, by the thesis (5.3, t_elect; also the paper's u)."""
THESIS_REPLICATION_S: Final = 0.00002
"""Time to replicate one partition to one server, by the thesis (5.3, t_repl): 1,000 partitions add 20 ms."""
ELECTION_S: Final = 0.0025
"""The same as measured (docs/sizing.md section 6: 1.5 to 3.4 ms)."""
REPLICATION_S: Final = 0.0006
"""The same as measured on two cores, for a record to every partition at once (section 6: 0.4 to 0.9 ms)."""
IDLE_REPLICATION_S: Final = 0.00002
"""The addition by a partition without a record at that time, as measured (section 6: 0.01 to 0.05 ms)."""
DETECTION_TIMEOUTS: Final = 1.07
"""Time to detect the loss of a broker, in session timeouts, as measured (section 6). Not in the thesis."""
SESSION_TIMEOUT_S: Final = 9.0
"""Kafka's default of ``broker.session.timeout.ms``."""
METADATA_S: Final = 0.002
"""Time in which a new traditional controller fetches one replica's metadata (thesis 5.3, t_meta)."""
QUORUM_METADATA_S: Final = 0.0
"""The same with a quorum of controllers, which all have the metadata: nothing is fetched."""
FILES_OF_SEGMENT: Final = 3
"""Open files of a segment: records, index of offsets, index of times."""


class Side(StrEnum):
    """The allowed side of a limit."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit with the name of its cause. ``limit`` is None if the equation sets no bound."""

    name: str
    quantity: str
    side: Side
    limit: Fraction | None
    unit: str
    source: str

    @property
    def whole(self) -> int | None:
        """The limit of a quantity that is counted: rounded to the side that keeps the bound."""
        if self.limit is None:
            return None
        return ceil(self.limit) if self.side is Side.AT_LEAST else floor(self.limit)

    def holds(self, value: Number) -> bool:
        """Return whether a value keeps the bound."""
        if self.limit is None:
            return True
        exactly = exact(value)
        return exactly >= self.limit if self.side is Side.AT_LEAST else exactly <= self.limit


def exact(value: Number) -> Fraction:
    """Return the decimal number that a float is written as: 0.1 is 1/10."""
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def storage_per_server(throughput: Number, servers: Number, replicas: Number) -> Bound:
    """Return the storage throughput that a server needs: T_T r / n (equation 4)."""
    limit = exact(throughput) * exact(replicas) / exact(servers)
    return Bound("storage", "storage throughput of a server", Side.AT_LEAST, limit, "per s", "thesis eq. 4")


def network_per_server(throughput: Number, servers: Number, replicas: Number, groups: Number) -> Bound:
    """Return the network throughput that a server needs: T_T (r + g) / n (equation 5).

    It adds up what is received (r) and what consumers are sent (g), and leaves out what leaders send to followers.
    """
    limit = exact(throughput) * (exact(replicas) + exact(groups)) / exact(servers)
    return Bound("network", "network throughput of a server", Side.AT_LEAST, limit, "per s", "thesis eq. 5")


def partitions_by_servers(servers: Number) -> Bound:
    """Return the fewest partitions with which every server has one: n (equation 6)."""
    return Bound("servers", "partitions", Side.AT_LEAST, exact(servers), "partitions", "thesis eq. 6")


def shares_replicas(partitions: int, replicas: int, servers: int) -> bool:
    """Return whether all servers hold equally many replicas: p r = 0 mod n (equation 7)."""
    return partitions * replicas % servers == 0


def shares_partitions(partitions: int, servers: int) -> bool:
    """Return whether all servers lead equally many partitions: p = 0 mod n (equation 8), which implies equation 7."""
    return partitions % servers == 0


def partitions_by_consumers(throughput: Number, consumer: Number) -> Bound:
    """Return the fewest partitions with which no consumer has more than it can take: T_T / T_C (equation 9)."""
    limit = exact(throughput) / exact(consumer)
    return Bound("consumer throughput", "partitions", Side.AT_LEAST, limit, "partitions", "thesis eq. 9")


def replication_delay_s(partitions: Number, servers: Number, replicas: Number, replication_s: Number) -> Fraction:
    """Return the delay of a record by replication (left side of equation 10); ``partitions`` are those of all topics.

    0 with one server or one replica: nothing is replicated.
    """
    peers = exact(servers) - 1
    if peers <= 0 or exact(replicas) <= 1:
        return Fraction(0)
    return exact(replication_s) * (exact(replicas) - 1) * exact(partitions) / (exact(servers) * peers)


def partitions_by_latency(
    latency_s: Number, servers: Number, replicas: Number, topics: Number = 1, replication_s: Number = REPLICATION_S
) -> Bound:
    """Return the most partitions of a topic by replication: n (n - 1) L / ((r - 1) t t_repl) (equation 10).

    No bound with one server or one replica, where the equation divides by zero: nothing is replicated.
    """
    of_one = replication_delay_s(topics, servers, replicas, replication_s)
    limit = exact(latency_s) / of_one if of_one else None
    return Bound("replication latency", "partitions", Side.AT_MOST, limit, "partitions", "thesis eq. 10")


def detection_s(session_timeout_s: Number) -> Fraction:
    """Return the time to detect the loss of a server, before any partition gets another leader."""
    return exact(DETECTION_TIMEOUTS) * exact(session_timeout_s)


def unavailability_s(
    partitions: Number, servers: Number, replicas: Number, election_s: Number, metadata_s: Number
) -> Fraction:
    """Return the time to elect other leaders for the partitions of a lost server (left side of equation 11).

    ``partitions`` are those of all topics. Excludes :func:`detection_s`, which the thesis leaves out.
    """
    led = exact(partitions) / exact(servers)
    return exact(election_s) * led + exact(metadata_s) * exact(partitions) * exact(replicas)


def partitions_by_unavailability(
    unavailability: Number,
    servers: Number,
    replicas: Number,
    topics: Number = 1,
    *,
    election_s: Number = ELECTION_S,
    metadata_s: Number = QUORUM_METADATA_S,
    session_timeout_s: Number = SESSION_TIMEOUT_S,
) -> Bound:
    """Return the most partitions of a topic by elections: n (U - D) / (t (t_elect + r n t_meta)) (equation 11).

    ``unavailability`` is U in seconds, and D is :func:`detection_s`, 0 in the thesis. Where D alone is longer, the
    limit is 0. ``metadata_s`` is ``METADATA_S`` for a traditional controller, 0 for a quorum.
    """
    of_one = unavailability_s(topics, servers, replicas, election_s, metadata_s)
    left = max(Fraction(0), exact(unavailability) - detection_s(session_timeout_s))
    limit = left / of_one if of_one else None
    return Bound("unavailability", "partitions", Side.AT_MOST, limit, "partitions", "thesis eq. 11")


def replicas_for(lost: int) -> int:
    """Return the replicas needed to keep writing with N brokers lost: 2 N + 1 (thesis 7.2)."""
    return 2 * lost + 1


def in_sync_for(lost: int) -> int:
    """Return the replicas that must store a record before its acknowledgement: N + 1 (thesis 7.2)."""
    return lost + 1


def open_files(partitions: Number, servers: Number, replicas: Number, segments: Number) -> Fraction:
    """Return the open files of a server: each replica has ``segments``, of ``FILES_OF_SEGMENT`` files each.

    Section 5.3 of the thesis names them, without an equation; the paper's equation 4 counts one per replica.
    """
    return exact(partitions) * exact(replicas) * exact(segments) * FILES_OF_SEGMENT / exact(servers)


def partitions_by_open_files(limit: Number, servers: Number, replicas: Number, segments: Number) -> Bound:
    """Return the most partitions, of all topics, with which a server keeps within its limit of open files."""
    most = exact(limit) / open_files(1, servers, replicas, segments)
    return Bound("open files", "partitions", Side.AT_MOST, most, "partitions", "thesis 5.3; paper eq. 4")
