"""Errors of Kafka: the cluster is unavailable, or its topics are wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from diem.errors import ConfigurationError, DiemError
from diem.kafka.topic_config import LOG_APPEND_TIME, TIMESTAMP_TYPE

NO_BROKER: Final = "no broker takes part in the cluster now: it starts, or its controller has fenced all"
"""Reason: a broker answers, but none is active, not even this one."""


@dataclass(eq=False)
class KafkaUnavailable(DiemError):
    """The cluster does not answer, or cannot fulfil a request now."""

    template = "Kafka at {bootstrap_servers}: {reason}"
    retriable = True

    bootstrap_servers: str
    reason: str


@dataclass(eq=False)
class TimestampsRefused(DiemError):
    """The brokers reject the timestamps of our records, whatever their content (``INVALID_TIMESTAMP``)."""

    template = (
        "topic {topic} refuses the time of records: the clocks of this host and of the brokers differ by more than "
        "message.timestamp.after.max.ms: correct them, and let the brokers set the time: kafka-configs.sh --alter "
        f"--topic {{topic}} --add-config {TIMESTAMP_TYPE}={LOG_APPEND_TIME}"
    )
    retriable = True

    topic: str


class WrongTopic(ConfigurationError):
    """A topic has wrong settings; ``lines`` has one line for each."""

    def __init__(self, topic: str, lines: Iterable[str]) -> None:
        self.topic = topic
        self.lines = tuple(lines)
        super().__init__(topic, self.lines)

    def __str__(self) -> str:
        return "\n".join(f"topic {self.topic}: {line}" for line in self.lines)
