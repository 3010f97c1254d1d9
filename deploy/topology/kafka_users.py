"""Users of a local Kafka: the name and the password file of each; pure.

Every kind of process has its own user, with the rights of its role (``deploy.kafka.rights``).
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

PROTOCOL: Final = "SASL_PLAINTEXT"
"""Security protocol of clients: a login without encryption, because brokers listen on loopback only."""
MECHANISM: Final = "SCRAM-SHA-256"
"""SASL mechanism of clients (RFC 7677): both ends prove knowledge of the password without sending it."""

TOOLS_FILE: Final = "operator.properties"
"""File of the operator's login for Kafka's own tools, in the local Kafka's directory."""


class KafkaUser(StrEnum):
    """Users of a local Kafka."""

    OPERATOR = "operator"
    """Super user of commands and of Kafka's own tools."""
    BROKER = "broker"
    """Super user for brokers among each other."""
    DATA = "data"
    BRIDGE = "bridge"
    METADATA = "metadata"
    EDGE = "edge"
    """Servers and proxies: they record traffic."""
    COMPOSITE = "composite"
    """A composite with its bridges, metadata service, servers and proxy, sharing an environment."""
    PIPELINE = "pipeline"
    CHECK = "check"

    @property
    def login(self) -> str:
        """Name at the brokers."""
        return f"diem-{self}"

    def password_file(self, directory: Path) -> Path:
        """Return the password file; ``directory`` is the local Kafka's."""
        return directory / "users" / f"{self}.password"

    def settings(self, directory: Path) -> dict[str, str]:
        """Return a client's settings, by their names in ``KafkaSettings`` without ``kafka_``."""
        return {
            "security_protocol": PROTOCOL,
            "sasl_mechanism": MECHANISM,
            "sasl_username": self.login,
            "sasl_password_file": str(self.password_file(directory)),
        }


def directory_of(state_dir: Path) -> Path:
    """Return the directory of the local Kafka in a state directory."""
    return state_dir / "kafka"
