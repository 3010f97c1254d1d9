"""Which Kafka cluster, how to connect to it, and the names and sizes of what is ours there."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from diem.kafka.names import Names
from diem.process.faults import ConfigurationError

PARTITIONS: Final = 12
"""Of a topic that we create: 1, 2, 3, 4, 6 and 12 servers share it evenly."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How to reach a cluster, as plain values. ``partitions`` and ``replication`` are None where the topic decides."""

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    topic_prefix: str = "diem."
    partitions: int | None = None
    replication: int | None = None

    @property
    def names(self) -> Names:
        """The names of topics and groups."""
        return Names(self.topic_prefix)

    def client_arguments(self) -> dict[str, Any]:
        """What every client class of aiokafka takes to connect.

        Raises:
            ConfigurationError: a file of the TLS set-up cannot be used.
        """
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            arguments["ssl_context"] = self._ssl_context()
        if self.security_protocol.startswith("SASL"):
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.sasl_password,
            }
        return arguments

    def _ssl_context(self) -> ssl.SSLContext:
        # Certificates and host names are verified: the library's own helper leaves host names to the caller.
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.certificate_file, self.key_file) if file)
            raise ConfigurationError(f"the TLS files for Kafka cannot be used ({files}): {error}") from None
        return context
