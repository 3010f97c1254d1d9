"""Figures of a workload, each with its origin, and the limits for a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from learning.costs import Costs
from learning.sizing.even import PLANNED
from learning.sizing.kafka import SESSION_TIMEOUT_S, in_sync_for, replicas_for
from learning.sizing.solver import Workload

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
    """Known figures of a workload. Rates are per second, sizes in bytes."""

    updates: Figure
    """Updates per second."""
    subscribers: Figure
    """Frames per update: clients watching its endpoint."""
    record_bytes: Figure
    endpoints: Figure
    servers: Figure
    """Number of running WebSocket servers; per group in partitioned modes."""
    groups: Figure
    """Number of consumer groups reading every update."""
    brokers: Figure | None = None
    """Brokers of the present cluster; None to compute the needed number."""
    partitions: Figure | None = None
    """Present partitions of the updates topic."""
    other_partitions: Figure = field(default=Figure(0, BUILT_IN))
    """Partitions of other topics in the cluster."""
    session_timeout_s: Figure = field(default=Figure(SESSION_TIMEOUT_S, "Kafka's default"))
    """``broker.session.timeout.ms`` of the controllers, in seconds."""
    partitioned: bool = True
    """True if servers divide the updates; in mode x each reads all."""
    loads: tuple[tuple[str, float], ...] = ()
    """Recorded CPU time per second of each endpoint; empty without records."""

    def replaced(self, changed: Mapping[str, Figure]) -> "Figures":
        """Return the figures with some replaced, by the names of their fields."""
        return replace(self, **changed)  # type: ignore[arg-type]  # the names are those of figures

    def scaled(self, growth: float) -> "Figures":
        """Return the figures with ``growth`` times the updates."""
        if growth == 1:
            return self
        origin = f"{self.updates.origin}, times {growth:g}"
        return replace(self, updates=Figure(self.updates.value * growth, origin))


@dataclass(frozen=True, slots=True)
class Limits:
    """Requirements, and the capacity of one broker. Throughputs in bytes/s, times in seconds; None sets no bound."""

    tolerate: int = 1
    """Number of brokers that may be lost at the same time (the thesis' N)."""
    planned: tuple[int, ...] = PLANNED
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
        return replicas_for(self.tolerate)

    @property
    def in_sync(self) -> int:
        """Replicas that must store a record before its acknowledgement."""
        return in_sync_for(self.tolerate)


def consumer_updates(figures: Figures, costs: Costs) -> float:
    """Return the capacity of a one-core server in updates per second, by the costs of updates and frames."""
    return 1e6 / (costs.update_us + costs.delivery_us * figures.subscribers.value)


def workload_of(figures: Figures, limits: Limits, costs: Costs) -> Workload:
    """Return the model's inputs. In mode x, partitions do not divide a server's work, so its consumers set no bound."""
    record = figures.record_bytes.value
    throughput = figures.updates.value * record
    return Workload(
        throughput=throughput,
        consumer=max(throughput, 1.0) if not figures.partitioned else consumer_updates(figures, costs) * record,
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


def without_system() -> Figures:
    """Return default figures: a partitioned system of one group, to be overridden."""
    return Figures(
        updates=Figure(0, BUILT_IN),
        subscribers=Figure(1, BUILT_IN),
        record_bytes=Figure(RECORD_BYTES, BUILT_IN),
        endpoints=Figure(0, BUILT_IN),
        servers=Figure(1, BUILT_IN),
        groups=Figure(1, BUILT_IN),
    )
