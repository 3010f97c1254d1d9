"""Gets ready what brokers are run with, whoever runs them."""

from pathlib import Path
from typing import NamedTuple

from deploy.kafka import archive, brokers, jars, java
from deploy.kafka.brokers import BrokerPlan


class KafkaProgram(NamedTuple):
    """What brokers are run with."""

    java: Path
    jars: tuple[Path, ...]
    archive: Path | None

    def argv(self, plan: BrokerPlan) -> tuple[str, ...]:
        """Return the command line of one broker."""
        return brokers.argv(self.java, self.jars, plan, self.archive)


def prepare(progress: jars.Progress = lambda _there, _total: None) -> KafkaProgram:
    """Find Java, download the jars and make the archive of classes, each only once; blocks, the first time for 15 s.

    Raises:
        NoJava: there is no Java.
        JarsUnavailable: the jars are not here and cannot be downloaded.
    """
    command = java.find()
    class_path = jars.prepare(progress)
    return KafkaProgram(command, class_path, archive.prepare(command, class_path))
