"""Figures of a workload, each with its origin, the limits for a cluster, and the bounds that follow. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from learning.costs import Costs
from learning.sizing import even, kafka
from learning.sizing.solver import Solution, Workload, fewest_servers, solve

GIVEN: Final = "given"
BUILT_IN: Final = "built in"
RECORD_BYTES: Final = 256
"""Size of a record without data, with its share of a batch's header; data adds up to ``DIEM_DATA_INLINE_BYTES``."""


class Figure(NamedTuple):
    """A number with its origin, for people."""

    value: float
    origin: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Known figures of a workload, by default of a partitioned system of one group. Rates are per second."""

    updates: Figure = field(default=Figure(0, BUILT_IN))
    """Updates per second."""
    subscribers: Figure = field(default=Figure(1, BUILT_IN))
    """Frames per update: clients watching its endpoint."""
    record_bytes: Figure = field(default=Figure(RECORD_BYTES, BUILT_IN))
    servers: Figure = field(default=Figure(1, BUILT_IN))
    """Number of running WebSocket servers; per group in partitioned modes."""
    groups: Figure = field(default=Figure(1, BUILT_IN))
    """Number of consumer groups reading every update."""
    brokers: Figure | None = None
    """Brokers of the present cluster; None to compute the needed number."""
    partitions: Figure | None = None
    """Present partitions of the updates topic."""
    other_partitions: Figure = field(default=Figure(0, BUILT_IN))
    """Partitions of other topics in the cluster."""
    session_timeout_s: Figure = field(default=Figure(kafka.SESSION_TIMEOUT_S, "Kafka's default"))
    """``broker.session.timeout.ms`` of the controllers, in seconds."""
    partitioned: bool = True
    """True if servers divide the updates; in mode x each reads all."""

    def replaced(self, changed: Mapping[str, Figure]) -> "Figures":
        """Return the figures with some replaced, by the names of their fields."""
        return replace(self, **changed)  # type: ignore[arg-type]  # the names are those of figures


@dataclass(frozen=True, slots=True)
class Limits:
    """Requirements, and the capacity of one broker. Throughputs in bytes/s, times in seconds; None sets no bound."""

    tolerate: int = 1
    """Number of brokers that may be lost at the same time (the thesis' N)."""
    planned: tuple[int, ...] = even.PLANNED
    """Numbers of servers that should divide the partitions evenly."""
    latency_s: float = 0.1
    unavailability_s: float = 20.0
    """From the loss of a broker until all of its partitions are led again: T_heal of docs/reliability.md."""
    storage: float | None = None
    network: float | None = None
    open_files: int | None = 100_000

    @property
    def replicas(self) -> int:
        """Replicas needed to keep writing with the brokers lost."""
        return kafka.replicas_for(self.tolerate)

    @property
    def in_sync(self) -> int:
        """Replicas that must store a record before its acknowledgement."""
        return kafka.in_sync_for(self.tolerate)


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer of ``diem size``. Figures of a broker assume leaders and replicas that are spread evenly."""

    figures: Figures
    limits: Limits
    solution: Solution
    partitions: int
    utilisation: float
    """Cores used for the updates by a group's servers together; in mode x, by each server."""

    @property
    def brokers(self) -> int:
        """Number of present brokers, or of needed ones."""
        return self.solution.servers

    @property
    def detection_s(self) -> float:
        """Time until the loss of a broker is detected."""
        return float(kafka.detection_s(self.figures.session_timeout_s.value))

    @property
    def elections_s(self) -> float:
        """Time from the detection until all partitions of a lost broker are led again."""
        everything = self.partitions + self.figures.other_partitions.value
        election_s, metadata_s = kafka.ELECTION_S, kafka.QUORUM_METADATA_S
        return float(kafka.unavailability_s(everything, self.brokers, self.limits.replicas, election_s, metadata_s))

    @property
    def longest_session_timeout_s(self) -> float:
        """Longest session timeout for the chosen partitions to be led again in time; 0 if none suffices."""
        return max(0.0, (self.limits.unavailability_s - self.elections_s) / kafka.DETECTION_TIMEOUTS)


def size(figures: Figures, limits: Limits, costs: Costs) -> Sizing:
    """Return the sizing of a workload, on its present brokers or the fewest that suffice."""
    capacity = 1e6 / (costs.update_us + costs.delivery_us * figures.subscribers.value)
    workload = _workload(figures, limits, capacity)
    solution = fewest_servers(workload) if figures.brokers is None else solve(workload, int(figures.brokers.value))
    return Sizing(figures, limits, solution, _choose(figures, limits, solution), figures.updates.value / capacity)


def _workload(figures: Figures, limits: Limits, capacity: float) -> Workload:
    """Return the model's inputs, with the capacity of a server in updates per second.

    In mode x, partitions do not divide a server's work, so its consumers set no bound.
    """
    record = figures.record_bytes.value
    throughput = figures.updates.value * record
    return Workload(
        throughput=throughput,
        consumer=capacity * record if figures.partitioned else max(throughput, 1.0),
        consumers=max(limits.planned),
        groups=figures.groups.value,
        replicas=limits.replicas,
        other_partitions=figures.other_partitions.value,
        storage=limits.storage,
        network=limits.network,
        latency_s=limits.latency_s,
        unavailability_s=limits.unavailability_s,
        session_timeout_s=figures.session_timeout_s.value,
        open_files=limits.open_files,
    )


def _choose(figures: Figures, limits: Limits, solution: Solution) -> int:
    present = None if figures.partitions is None else int(figures.partitions.value)
    return even.choose_count(limits.planned, solution.fewest, solution.most, present)
