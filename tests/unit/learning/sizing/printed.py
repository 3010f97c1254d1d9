"""The figures that thesis and paper print: what tests and docs/sizing.md put beside the computed ones."""

from typing import Final, NamedTuple

from learning.sizing.kafka import (
    METADATA_S,
    QUORUM_METADATA_S,
    THESIS_ELECTION_S,
    THESIS_REPLICATION_S,
    partitions_by_latency,
    partitions_by_unavailability,
)


class Entry(NamedTuple):
    """A row of a table in section 5.3 of the thesis: topics, limit in seconds, and the printed most partitions."""

    table: str
    topics: int
    limit_s: float
    printed: int


SERVERS: Final = 5
"""n of the thesis' tables."""
REPLICAS: Final = 3
"""r of the thesis' tables."""
TRADITIONAL: Final = "unavailability, traditional controller"
LATENCY: Final = "latency"
QUORUM: Final = "unavailability, quorum controller"
ENTRIES: Final = (
    *(
        Entry(TRADITIONAL, *row)
        for row in (
            (100, 10, 14), (100, 100, 142), (100, 1000, 1428),
            (1000, 10, 1), (1000, 100, 14), (1000, 1000, 142),
        )
    ),
    *(
        Entry(LATENCY, *row)
        for row in (
            (100, 0.001, 5), (100, 0.010, 50), (100, 0.100, 500), (100, 1.0, 5000),
            (1000, 0.001, 0), (1000, 0.010, 5), (1000, 0.100, 50), (1000, 1.0, 500),
        )
    ),
    *(
        Entry(QUORUM, *row)
        for row in (
            (100, 1, 10), (100, 10, 100), (100, 100, 1000), (100, 1000, 10000),
            (1000, 1, 1), (1000, 10, 10), (1000, 100, 100), (1000, 1000, 1000),
        )
    ),
)  # fmt: skip
"""The 22 entries of the three tables, by n = 5, r = 3, t_elect 5 ms, t_meta 2 ms and t_repl 0.02 ms."""
UNIFORM: Final = {
    24: (1, 2, 3, 4, 6, 8, 12),
    36: (1, 2, 3, 4, 6, 9, 12),
    48: (1, 2, 3, 4, 6, 8, 12),
    60: (1, 2, 3, 4, 5, 6, 10, 12),
    72: (1, 2, 3, 4, 6, 8, 9, 12),
    120: (1, 2, 3, 4, 5, 6, 8, 10, 12),
}
"""Cluster sizes up to 12 for which thesis 5.3 says that a count is uniform."""


def compute(entry: Entry) -> int:
    """Return the most partitions of an entry by equation 10 or 11, with the constants of the thesis."""
    if entry.table == LATENCY:
        bound = partitions_by_latency(entry.limit_s, SERVERS, REPLICAS, entry.topics, THESIS_REPLICATION_S)
    else:
        metadata_s = METADATA_S if entry.table == TRADITIONAL else QUORUM_METADATA_S
        bound = partitions_by_unavailability(
            entry.limit_s,
            SERVERS,
            REPLICAS,
            entry.topics,
            election_s=THESIS_ELECTION_S,
            metadata_s=metadata_s,
            session_timeout_s=0,
        )
    return bound.whole or 0
