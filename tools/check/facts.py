"""Facts of a cluster at one moment, as plain values, and the types of rules and results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from diem.kafka.metadata import Cluster, Topic
from learning.sizing.even import PLANNED
from learning.sizing.kafka import in_sync_for, replicas_for

Settings = Mapping[str, str | None]
"""Settings by name; None for hidden values."""


class NotVisible(Exception):
    """The cluster hides a setting, from this user or in this version."""


class TopicMissing(Exception):
    """The updates topic does not exist: most rules do not apply."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of all rules.

    ``topics`` and ``brokers`` hold settings in force, by topic and broker id, as far as they may be read.
    ``side_topics`` are the topics of hot updates and of the partition map, which have one partition each; ``traffic``
    is the optional topic of recorded traffic. ``wanted`` is this system's configuration of a new updates topic,
    ``started`` the ids of the brokers of a local ``diem up`` (empty for any other cluster), ``silent`` those listed but
    not answering. ``tolerate`` is the thesis' N, ``restart`` the options of the ``diem up`` that uses the cluster.
    """

    bootstrap_servers: str
    security_protocol: str
    cluster: Cluster
    updates: str
    wanted: Mapping[str, str]
    topics: Mapping[str, Settings]
    brokers: Mapping[int, Settings]
    producer: Mapping[str, object]
    consumer: Mapping[str, object]
    started: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    tolerate: int = 1
    planned: tuple[int, ...] = PLANNED
    restart: tuple[str, ...] = ("--mode", "x")
    side_topics: tuple[str, ...] = ()
    traffic: str = ""

    @property
    def topic(self) -> Topic:
        """The updates topic. Raises ``TopicMissing``."""
        found = self.cluster.topics.get(self.updates)
        if found is None or not found.partitions:
            raise TopicMissing
        return found

    def of_topic(self, name: str, key: str) -> str:
        """Return a setting of a topic. Raises ``NotVisible``, or ``TopicMissing`` for the updates topic."""
        if name == self.updates:
            _ = self.topic
        value = self.topics.get(name, {}).get(key)
        if value is None:
            raise NotVisible(f"{key} of {name}")
        return value

    def of_brokers(self, key: str) -> dict[int, str]:
        """Return a setting of every broker. Raises ``NotVisible`` if any hides it."""
        values = {number: self.brokers.get(number, {}).get(key) for number in sorted(self.cluster.brokers)}
        if any(value is None for value in values.values()):
            raise NotVisible(f"{key} of the brokers")
        return {number: value for number, value in values.items() if value is not None}

    @property
    def ours(self) -> list[str]:
        """Our topics that exist."""
        return [name for name in (self.updates, *self.side_topics) if name in self.cluster.topics]

    @property
    def needed_replicas(self) -> int:
        """Replicas needed to keep writing with N brokers lost: 2 N + 1 (thesis, 7.2)."""
        return replicas_for(self.tolerate)

    @property
    def needed_in_sync(self) -> int:
        """Replicas that must store a record before its acknowledgement: N + 1 (thesis, 7.2)."""
        return in_sync_for(self.tolerate)


def replicas_of(topic: Topic) -> int:
    """Return the number of replicas of the partition with the fewest."""
    return min(len(part.replicas) for part in topic.partitions.values())


class Severity(StrEnum):
    """Severity of a finding, in the order of the report. Any fault makes ``diem check`` fail."""

    FAULT = "fault"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of a rule: the state found, and the change, in words and as ``commands`` for a shell."""

    verdict: Severity
    found: str
    change: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One guideline. ``evaluate`` is pure; it returns None where the rule does not apply."""

    name: str
    protects: str
    source: str
    """Its explanation: a section of docs/internals.md, of docs/reliability.md or of the thesis."""
    evaluate: Callable[[Facts], Judgement | None]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """A judgement with its rule; ``group`` is the heading in the report."""

    group: str
    rule: Rule
    judgement: Judgement


def ok(found: str) -> Judgement:
    """Return a judgement without a change."""
    return Judgement(Severity.OK, found)


def warning(found: str, change: str, *commands: str) -> Judgement:
    """Return a judgement on a suboptimal or hidden state."""
    return Judgement(Severity.WARNING, found, change, commands)


def fault(found: str, change: str, *commands: str) -> Judgement:
    """Return a judgement on a broken guarantee, now or on a failure."""
    return Judgement(Severity.FAULT, found, change, commands)
