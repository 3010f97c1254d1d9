"""Errors of Kafka: the cluster is unavailable, or its topics are wrong."""

from collections.abc import Iterable
from dataclasses import dataclass

from diem.errors import ConfigurationError, DiemError


@dataclass(eq=False)
class KafkaUnavailable(DiemError):
    """The cluster does not answer, or cannot do now what was asked."""

    template = "Kafka at {bootstrap_servers}: {reason}"
    retriable = True

    bootstrap_servers: str
    reason: str


class WrongTopic(ConfigurationError):
    """A topic is not as this system needs it; one line for each fault in ``lines``."""

    def __init__(self, topic: str, lines: Iterable[str]) -> None:
        self.topic = topic
        self.lines = tuple(lines)
        super().__init__(topic, self.lines)

    def __str__(self) -> str:
        return "\n".join(f"topic {self.topic}: {line}" for line in self.lines)
