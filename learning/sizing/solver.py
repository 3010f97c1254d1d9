"""The bounds of a workload, the strictest first, and the excess if nothing fits.

The program: partitions p of a topic on n servers, between the lower bounds (equations 6 and 9, planned consumers) and
the upper ones (equations 10 and 11, open files), where n servers must store and send the throughput (equations 4, 5).
All bounds loosen as n grows but equation 6, so the fewest servers are found by trying n = r, r + 1, ...
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from learning.sizing.kafka import (
    ELECTION_S,
    IDLE_REPLICATION_S,
    QUORUM_METADATA_S,
    REPLICATION_S,
    SESSION_TIMEOUT_S,
    Bound,
    Number,
    Side,
    detection_s,
    exact,
    network_per_server,
    partitions_by_consumers,
    partitions_by_latency,
    partitions_by_open_files,
    partitions_by_servers,
    partitions_by_unavailability,
    storage_per_server,
)

MAX_SERVERS: Final = 1000
"""Largest cluster tried."""
DETECTION: Final = "detection of a lost broker"
"""Name of the excess if the loss is detected too late for any number of partitions and servers."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs of the model. Throughputs are in bytes/s, times in seconds; None sets no bound."""

    throughput: Number
    """T_T, of all records of the topic."""
    consumer: Number
    """T_C: capacity of one consumer."""
    consumers: Number = 1
    """Consumers of a group that are planned for; each needs a partition."""
    groups: Number = 1
    """g: consumer groups that read the whole topic."""
    replicas: Number = 3
    other_partitions: Number = 0
    """Partitions of other topics in the cluster, which share its elections, replication and files."""
    storage: Number | None = None
    """T_S of one server."""
    network: Number | None = None
    """T_N of one server."""
    latency_s: Number | None = 0.1
    unavailability_s: Number | None = 20.0
    """From the loss of a broker until its last partition is led again: detection and elections."""
    open_files: Number | None = None
    """Files that a server may have open."""
    segments: Number = 2
    """Segments of a partition."""
    election_s: Number = ELECTION_S
    metadata_s: Number = QUORUM_METADATA_S
    session_timeout_s: Number = SESSION_TIMEOUT_S
    """``broker.session.timeout.ms``; a multiple of it passes before the first election."""
    replication_s: Number = REPLICATION_S
    idle_replication_s: Number = IDLE_REPLICATION_S
    """The same for each of ``other_partitions``, which are taken as idle."""


@dataclass(frozen=True, slots=True)
class Excess:
    """Two bounds that contradict each other, or a server that is too slow; ``factor`` is required over allowed."""

    name: str
    factor: float
    required: float
    allowed: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Solution:
    """The bounds of a workload on a number of servers, the strictest first on each side."""

    servers: int
    lower: tuple[Bound, ...]
    """Bounds of the partitions from below."""
    upper: tuple[Bound, ...]
    """Bounds of the partitions from above, those without a limit left out."""
    needs: tuple[Bound, ...]
    """Required throughput of a server (equations 4 and 5)."""
    excesses: tuple[Excess, ...]
    """Infeasibilities, the worst first; empty if the workload fits."""

    @property
    def feasible(self) -> bool:
        """True if some number of partitions keeps all bounds."""
        return not self.excesses

    @property
    def fewest(self) -> int:
        """The fewest partitions."""
        return max(bound.whole or 0 for bound in self.lower)

    @property
    def most(self) -> int | None:
        """The most partitions; None without an upper bound."""
        return self.upper[0].whole if self.upper else None

    def fits(self, partitions: int) -> bool:
        """Return whether a number of partitions keeps all bounds."""
        return all(bound.holds(partitions) for bound in (*self.lower, *self.upper))


def solve(workload: Workload, servers: int) -> Solution:
    """Return the bounds of a workload on ``servers`` servers."""
    lower = sorted(_lower(workload, servers), key=_limit, reverse=True)
    upper = sorted((bound for bound in _upper(workload, servers) if bound.limit is not None), key=_limit)
    needs = (
        storage_per_server(workload.throughput, servers, workload.replicas),
        network_per_server(workload.throughput, servers, workload.replicas, workload.groups),
    )
    excesses = sorted(_excesses(workload, servers, (lower, upper), needs), key=lambda each: -each.factor)
    return Solution(servers, tuple(lower), tuple(upper), needs, tuple(excesses))


def fewest_servers(workload: Workload, most: int = MAX_SERVERS) -> Solution:
    """Return the solution with the fewest servers that the workload fits on; else that on ``most``, with excesses.

    All bounds loosen as n grows but equation 6: the search starts at n = r, below which replicas have no place. A loss
    that is detected too late is so on any number of servers, and does not count.
    """
    counted = replace(workload, unavailability_s=None) if _is_detected_late(workload) else workload
    for servers in range(max(1, int(workload.replicas)), most + 1):
        if solve(counted, servers).feasible:
            return solve(workload, servers)
    return solve(workload, most)


def _limit(bound: Bound) -> Fraction:
    return bound.limit if bound.limit is not None else Fraction(0)


def _lower(workload: Workload, servers: Number) -> Iterator[Bound]:
    yield partitions_by_servers(servers)
    yield partitions_by_consumers(workload.throughput, workload.consumer)
    consumers = exact(workload.consumers)
    yield Bound("planned consumers", "partitions", Side.AT_LEAST, consumers, "partitions", "paper eq. 2")


def _upper(workload: Workload, servers: Number) -> Iterator[Bound]:
    replicas, others = workload.replicas, exact(workload.other_partitions)
    if workload.latency_s is not None:
        bound = partitions_by_latency(workload.latency_s, servers, replicas, 1, workload.replication_s)
        idle = exact(workload.idle_replication_s) / exact(workload.replication_s)
        yield _of_topic(bound, others * idle)
    if workload.unavailability_s is not None and not _is_detected_late(workload):
        times = {
            "election_s": workload.election_s,
            "metadata_s": workload.metadata_s,
            "session_timeout_s": workload.session_timeout_s,
        }
        bound = partitions_by_unavailability(workload.unavailability_s, servers, replicas, 1, **times)
        yield _of_topic(bound, others)
    if workload.open_files is not None:
        bound = partitions_by_open_files(workload.open_files, servers, replicas, workload.segments)
        yield _of_topic(bound, others)


def _of_topic(bound: Bound, others: Fraction) -> Bound:
    """Return the bound of one topic, from that of the partitions of all topics in the cluster."""
    if bound.limit is None:
        return bound
    return replace(bound, limit=max(Fraction(0), bound.limit - others))


def _excesses(
    workload: Workload, servers: int, bounds: tuple[list[Bound], list[Bound]], needs: tuple[Bound, Bound]
) -> Iterator[Excess]:
    for need, capacity in zip(needs, (workload.storage, workload.network), strict=True):
        if capacity is not None and not need.holds(capacity):
            yield _excess(need.name, _limit(need), exact(capacity), need.unit, need.source)
    if exact(workload.replicas) > servers:
        yield _excess("replicas", exact(workload.replicas), Fraction(servers), "servers", "thesis 7.2")
    if workload.unavailability_s is not None and _is_detected_late(workload):
        needed, allowed = detection_s(workload.session_timeout_s), exact(workload.unavailability_s)
        yield _excess(DETECTION, needed, allowed, "s", "sizing 6")
    lower, upper = bounds
    fewest = max(bound.whole or 0 for bound in lower)
    for bound in upper:
        if (bound.whole or 0) < fewest:
            name = f"{lower[0].name} against {bound.name}"
            sources = f"{lower[0].source} against {bound.source.removeprefix('thesis ')}"
            yield _excess(name, Fraction(fewest), _limit(bound), "partitions", sources)


def _is_detected_late(workload: Workload) -> bool:
    """Return whether no partition could have a leader again in time, however few there are."""
    limit = workload.unavailability_s
    return limit is not None and detection_s(workload.session_timeout_s) >= exact(limit)


def _excess(name: str, required: Fraction, allowed: Fraction, unit: str, source: str) -> Excess:
    factor = float(required / allowed) if allowed else float("inf")
    return Excess(name, factor, float(required), float(allowed), unit, source)
