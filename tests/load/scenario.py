"""Definition and outcome of a convergence run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from diem.kafka.config import KafkaOptions
from tests.load.bench import Goal
from tests.load.contents import POINTS
from tests.load.injection import PARTITIONED
from tests.oracle import Bounds, Report
from tests.support.size import SIZE, RunSize


@dataclass(frozen=True)
class Scenario:
    """A run. ``faults`` are injected one after another, each after all clients have converged.

    Writing begins some seconds before the first fault and goes on until all are over.
    """

    mode: str = "single"
    seconds: float = 30.0
    """Shortest time of writing."""
    clients: int = 500
    subscriptions: int = 10
    communities: int = 0
    """Number of groups of clients with common interests; 0 = any interests."""
    endpoints: int = 200
    mixed: bool = True
    """Endpoints of every kind (``mix``), without a trace; False: series only."""
    rate: float = 1000.0
    """Updates per second."""
    churn_seconds: float = 20.0
    probes: int = 2
    data: float = 0.5
    """Share of the clients that ask for the data of updates, every second probe among them."""
    compression: float = 0.5
    """Share of the clients that offer compression, of those who ask for data as of the others."""
    polls: float = 0.0
    """Share of the clients that make long polls, instead of WebSocket."""
    streams: float = 0.0
    """Share of those that read event streams."""
    points: int = POINTS
    """Length of the datasets."""
    retained_data_bytes: int | None = None
    """Bytes of updates that each process retains with their data; None: its default. With it, some must lose theirs."""
    faults: tuple[str, ...] = ()
    seed: int = 1
    controls: bool = False
    """Run the negative controls on the recorded history."""
    servers: int | None = None
    """Number of WebSocket servers; None = the default of ``diem up``."""
    max_servers: int | None = None
    nginx: bool | None = None
    """Whether nginx stands in front, or servers share a port; None = the default of ``diem up``."""
    clones: int | None = None
    drain_seconds: float | None = None
    """Time that a stopping server gives its clients; None = the default of ``diem up``."""
    traffic: str | None = None
    """Where traffic is recorded: files, kafka or off; None = the default of ``diem up``."""
    brokers: int = 1
    """Number of local brokers in modes with Kafka, unless ``kafka`` names a cluster."""
    kafka: KafkaOptions | None = None
    label: str = ""
    """Name of the run, instead of its faults."""
    quick: bool = False
    tokens: bool = False
    """Every client needs a token, and outsiders try to see what theirs do not cover."""
    token_seconds: int | None = None
    """Life of the clients' tokens; None: half an hour."""
    trace: str | None = None
    """A trace whose clients and writes the run repeats, instead of those above; None: none."""
    batch: int = 50
    """With a trace: most updates of a write."""
    to_topic: bool = False
    """With a trace: updates are written straight to the topic."""
    plan: str | None = None
    """File of a plan that is applied before the clients come, for the map as it is then; None: none."""
    rest: float = 0.0
    """With a trace: seconds for which the system is measured before, with all clients, at rest."""
    program: str = "deploy"
    """The module that is run as ``diem``."""
    release: str | None = None
    """The commit of the release that the run begins with; None: this checkout."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further variables of all processes."""
    anonymous: str = "off"
    """With tokens: who needs none (``DIEM_*_ANONYMOUS``). Another value is for trying that outsiders detect it."""

    @property
    def name(self) -> str:
        """Name of the bench file and the folder of histories."""
        if self.trace is not None:
            return self.label
        return "-".join(["convergence", self.mode, *([self.label] if self.label else self.faults)])

    @property
    def uses_kafka(self) -> bool:
        """Whether updates go through Kafka."""
        return self.mode == "x" or self.partitioned

    @property
    def partitioned(self) -> bool:
        """Whether servers divide the endpoints."""
        return self.mode in PARTITIONED

    @property
    def mixes(self) -> bool:
        """Whether there are endpoints of every kind: not of those of a trace, or of a release that has series only."""
        return self.mixed and self.trace is None and self.release is None

    @property
    def compresses(self) -> bool:
        """Whether servers or proxies compress updates for some clients."""
        return bool(self.data and self.compression)

    @property
    def bounds(self) -> Bounds:
        """The bounds that the mode promises."""
        return Bounds(t_conv=15.0) if self.uses_kafka else Bounds()

    @property
    def gap(self) -> float:
        """Seconds of writing before the first fault, and between convergence and the next fault."""
        if len(self.faults) < 2:
            return self.seconds / 2
        return 1.0 if self.quick else 3.0

    @property
    def options(self) -> list[str]:
        """Options of ``diem up``, besides the mode."""
        given = {
            "--servers": self.servers,
            "--max-servers": self.max_servers,
            "--clones": self.clones,
            "--drain-seconds": self.drain_seconds,
            "--traffic": self.traffic,
        }
        options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        if self.nginx is not None:
            options.append("--nginx" if self.nginx else "--no-nginx")
        if self.uses_kafka and self.kafka is None:
            options += ["--brokers", str(self.brokers)]
        elif self.kafka:
            options += ["--bootstrap-servers", self.kafka.bootstrap_servers, "--topic-prefix", self.kafka.topic_prefix]
            options += ["--replication", str(self.kafka.replication or 1)]
            options += ["--partitions", str(self.kafka.partitions)] if self.kafka.partitions else []
        return options


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    scenario: Scenario
    report: Report
    figures: dict[str, Any]
    goals: list[Goal]
    folder: Path

    @property
    def clean(self) -> bool:
        """Whether the oracle found no violation."""
        return self.report.clean


BENCH_FILE: Final = "build/bench/{}.json, and the history of each run in build/histories"
QUICK_RUN: Final = "5 s of writing, at most 100 clients and 500 updates a second"


def quick(scenario: Scenario) -> Scenario:
    """Return the scenario in the size of this run."""
    if SIZE is RunSize.FULL:
        return scenario
    smoke = SIZE is RunSize.SMOKE
    seconds, clients, rate = (1.0, 10, 50.0) if smoke else (5.0, 100, 500.0)
    clients, rate = min(scenario.clients, clients), min(scenario.rate, rate)
    found = replace(scenario, seconds=seconds, clients=clients, rate=rate, quick=True)
    if smoke and scenario.servers is not None:
        return replace(found, servers=min(scenario.servers, 2))
    return found
