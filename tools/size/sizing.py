"""Sizing for a workload: the cluster, the bounds, the counts side by side, the guideline. Pure."""

from dataclasses import dataclass
from typing import Final

from bridge.limits import FETCH_BYTES
from diem.kafka.topic_config import MAX_MESSAGE_BYTES, UPDATES_CONFIG
from diem.protocol.partition_map import partition_of
from learning.costs import Costs
from learning.sizing import even, kafka
from learning.sizing.kafka import QUORUM_METADATA_S, Side
from learning.sizing.solver import Excess, Solution, Workload, elasticities, fewest_servers, solve
from tools.size.workload import Figures, Limits, consumer_updates, workload_of

_DIRTY_S: Final = (int(UPDATES_CONFIG["segment.ms"]) + int(UPDATES_CONFIG["max.compaction.lag.ms"])) / 1000
"""Maximum age of superseded records: until their segment is closed and compacted."""


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """One number of partitions, compared with others."""

    partitions: int
    fits: bool
    uniform: tuple[int, ...]
    """Planned sizes that divide it evenly."""
    mean: float
    worst: float
    worst_at: int
    by_load: float | None
    """Largest recorded load of a server over the mean, at the present number of servers, by the hash of endpoints."""
    elections_s: float
    replication_s: float
    open_files: float
    """Per broker."""
    producer_bytes: int
    """Maximum memory of the publisher's batches: one per partition, of the topic's maximum size."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer of ``diem size``. Figures of a broker assume leaders and replicas that are spread evenly."""

    figures: Figures
    limits: Limits
    workload: Workload
    solution: Solution
    partitions: int
    counts: tuple[PartitionCount, ...]
    sensitivity: dict[Side, dict[str, float]]
    """Elasticities of the strictest bound of each side."""
    utilisation: float
    """Cores used for the updates by a group's servers together; in mode x, by each server."""

    @property
    def brokers(self) -> int:
        """Number of present brokers, or of needed ones."""
        return self.solution.servers

    @property
    def count(self) -> PartitionCount:
        """The chosen number of partitions."""
        return next(count for count in self.counts if count.partitions == self.partitions)

    @property
    def excesses(self) -> tuple[Excess, ...]:
        """Exceeded bounds, the worst first."""
        return self.solution.excesses

    @property
    def disk_bytes(self) -> float:
        """Disk of the updates topic on a broker: the latest record of each endpoint, and uncompacted ones."""
        kept = self.figures.endpoints.value * self.figures.record_bytes.value
        return (kept + float(self.workload.throughput) * _DIRTY_S) * self.limits.replicas / self.brokers

    @property
    def detection_s(self) -> float:
        """Time until the loss of a broker is detected."""
        return float(kafka.detection_s(self.figures.session_timeout_s.value))

    @property
    def longest_session_timeout_s(self) -> float:
        """Longest session timeout for the chosen partitions to be led again in time; 0 if none suffices."""
        left = self.limits.unavailability_s - self.count.elections_s
        return max(0.0, left / kafka.DETECTION_TIMEOUTS)

    @property
    def consumer_bytes(self) -> int:
        """Maximum memory of a consumer's prefetched data."""
        return FETCH_BYTES

    @property
    def duplex(self) -> float:
        """Bytes/s in the busier direction of a broker's link."""
        inputs = self.workload
        bound = kafka.duplex_per_server(inputs.throughput, self.brokers, inputs.replicas, inputs.groups)
        return float(bound.limit or 0)


def size(figures: Figures, limits: Limits, costs: Costs) -> Sizing:
    """Return the sizing of a workload, on its present brokers or the fewest that suffice."""
    workload = workload_of(figures, limits, costs)
    solution = fewest_servers(workload) if figures.brokers is None else solve(workload, int(figures.brokers.value))
    present = () if figures.partitions is None else (int(figures.partitions.value),)
    numbers = {*even.COUNTS, *present, solution.fewest}
    counts = [_count(number, figures, limits, solution) for number in sorted(numbers)]
    chosen = _choose(counts, present, limits.planned)
    return Sizing(
        figures,
        limits,
        workload,
        solution,
        chosen.partitions,
        tuple(counts),
        {side: elasticities(workload, solution.servers, side) for side in Side},
        figures.updates.value / consumer_updates(figures, costs),
    )


def _choose(counts: list[PartitionCount], present: tuple[int, ...], planned: tuple[int, ...]) -> PartitionCount:
    """Return the present count if it fits and is even enough, else the smallest such, else the most even."""
    fitting = [count for count in counts if count.fits]
    good = [count for count in fitting if even.is_even_enough(count.partitions, planned)]
    kept = [count for count in good if count.partitions in present]
    if kept or good:
        return (kept or good)[0]
    return min(fitting or counts, key=lambda count: (count.mean, count.partitions))


def _count(partitions: int, figures: Figures, limits: Limits, solution: Solution) -> PartitionCount:
    brokers, replicas = solution.servers, limits.replicas
    everything = partitions + figures.other_partitions.value
    worst, worst_at = even.worst_imbalance(partitions, limits.planned)
    away = kafka.unavailability_s(everything, brokers, replicas, kafka.ELECTION_S, QUORUM_METADATA_S)
    return PartitionCount(
        partitions,
        all(bound.holds(partitions) for bound in (*solution.lower, *solution.upper)),
        tuple(even.uniform_sizes(partitions, limits.planned)),
        even.mean_imbalance(partitions, limits.planned),
        worst,
        worst_at,
        _by_load(partitions, figures),
        float(away),
        float(
            kafka.replication_delay_s(partitions, brokers, replicas, kafka.REPLICATION_S)
            + kafka.replication_delay_s(figures.other_partitions.value, brokers, replicas, kafka.IDLE_REPLICATION_S)
        ),
        float(kafka.open_files(everything, brokers, replicas, Workload(1, 1).segments)),
        partitions * MAX_MESSAGE_BYTES,
    )


def _by_load(partitions: int, figures: Figures) -> float | None:
    """Return the imbalance of recorded load at the present number of servers, for endpoints placed by their hash."""
    if not figures.loads:
        return None
    loads = [0.0] * partitions
    for endpoint, load in figures.loads:
        loads[partition_of(endpoint.encode(), partitions)] += load
    return even.load_imbalance(loads, max(1, int(figures.servers.value)))
