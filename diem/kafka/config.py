"""Configuration: the cluster, the connection to it, and the names and sizes of our topics and groups.

Names are those of docs/internals.md section 3; :class:`KafkaSettings` reads ``DIEM_KAFKA_*``.
"""

import contextlib
import functools
import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import structlog
from pydantic import Field, field_validator, model_validator

from diem.errors import ConfigurationError
from diem.process.auth import BadKeyFile, read_secret
from diem.process.listeners import is_loopback
from diem.process.settings import ProcessSettings
from diem.protocol.keys import BadKeyTemplate, KeyTemplate
from diem.protocol.media_types import DOCUMENT
from diem.protocol.partitioners import Partitioner

_logger = structlog.get_logger("kafka")


class Names(NamedTuple):
    """Names of topics and groups; the prefix separates several systems in one cluster."""

    prefix: str
    served: str = ""
    """The topic of other programs that is served in place of our updates; empty without one."""

    @property
    def updates(self) -> str:
        """The compacted topic of endpoint updates."""
        return self.served or f"{self.prefix}updates"

    @property
    def epochs(self) -> str:
        """The topic of the epochs of a served topic."""
        return f"{self.prefix}epochs"

    @property
    def hot(self) -> str:
        """The topic of hot updates, read by every bridge."""
        return f"{self.prefix}updates.hot"

    @property
    def partition_map(self) -> str:
        """The compacted topic of the partition map."""
        return f"{self.prefix}partition-map"

    @property
    def log(self) -> tuple[str, str]:
        """The topics of updates; positions refer to them."""
        return self.updates, self.hot

    @property
    def topics(self) -> tuple[str, str, str]:
        """All required topics."""
        return self.updates, self.hot, self.partition_map

    @property
    def traffic(self) -> str:
        """The topic of recorded traffic; optional, so not in :attr:`topics`."""
        return f"{self.prefix}traffic"

    @property
    def pipeline(self) -> str:
        """Prefix of the consumer groups that evaluate recorded traffic."""
        return f"{self.prefix}pipeline"

    @property
    def map_writer(self) -> str:
        """Transactional id of the map's writers: the latest one fences the others."""
        return f"{self.prefix}map"

    def x_group(self, number: int) -> str:
        """Return the group of bridge ``number`` on the X axis: as its only member, it reads all partitions."""
        return f"{self.prefix}x-{number:03}"

    def z_group(self, clone: int) -> str:
        """Return the group of one ``clone``'s bridges on the Z axis, which divide the partitions."""
        return f"{self.prefix}z-{clone}"

    def clone_of(self, group: str) -> int | None:
        """Return the clone of a group named by :meth:`z_group`; None for any other group."""
        number = group.removeprefix(f"{self.prefix}z-")
        # Bounded, as parsing many digits is slow; with leading zeros it is another group.
        is_number = number.isascii() and number.isdigit() and len(number) < 10
        return int(number) if is_number and self.z_group(int(number)) == group else None


DEFAULT_PREFIX: Final = "diem."
PARTITIONS: Final = 12
"""Partitions of a topic created by us: 1, 2, 3, 4, 6 and 12 servers divide them evenly."""


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """A compacted topic of other programs that is served as it is, and how its records are read."""

    name: str
    key: KeyTemplate
    partitioner: Partitioner = Partitioner.MURMUR2
    media_type: str = DOCUMENT


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Options of a cluster. ``partitions`` and ``replication`` are None to accept those of existing topics."""

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    topic_prefix: str = DEFAULT_PREFIX
    partitions: int | None = None
    replication: int | None = None
    served: ServedTopic | None = None

    @property
    def names(self) -> Names:
        """The names of topics and groups."""
        topic = self.served and self.served.name
        return Names(f"{self.topic_prefix}{topic}.", topic) if topic else Names(self.topic_prefix)

    def client_arguments(self) -> dict[str, Any]:
        """Return the connection arguments for every client class of aiokafka.

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
        # The library's own helper does not verify host names; the default context does.
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.certificate_file, self.key_file) if file)
            raise ConfigurationError(f"the TLS files for Kafka cannot be used ({files}): {error}") from None
        return context


_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+]|[^\s:/,\[\]]+)(?::(\d{1,5}))?")


class KafkaSettings(ProcessSettings):
    """Base of the settings of a process with optional Kafka: unused without bootstrap servers."""

    kafka_bootstrap_servers: str | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_BOOTSTRAP_SERVERS",
        description="Kafka brokers, as HOST:PORT,... . Without any, Kafka is not used.",
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT",
        validation_alias="DIEM_KAFKA_SECURITY_PROTOCOL",
        description="Security protocol of the connection.",
    )
    kafka_sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        default="SCRAM-SHA-512", validation_alias="DIEM_KAFKA_SASL_MECHANISM", description="SASL mechanism."
    )
    kafka_sasl_username: str | None = Field(
        default=None, validation_alias="DIEM_KAFKA_SASL_USERNAME", description="SASL user name."
    )
    kafka_sasl_password_file: Path | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_SASL_PASSWORD_FILE",
        description="File of the SASL password (mode 0600).",
    )
    kafka_ca_file: Path | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_CA_FILE",
        description="CA certificates of the brokers (PEM). Default: the system's.",
    )
    kafka_certificate_file: Path | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_CERTIFICATE_FILE",
        description="Client certificate (PEM), for mutual TLS.",
    )
    kafka_key_file: Path | None = Field(
        default=None, validation_alias="DIEM_KAFKA_KEY_FILE", description="Private key of the client certificate."
    )
    kafka_topic_prefix: str = Field(
        default=DEFAULT_PREFIX,
        validation_alias="DIEM_KAFKA_TOPIC_PREFIX",
        description="Prefix of the names of all topics and consumer groups.",
    )
    kafka_partitions: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        validation_alias="DIEM_KAFKA_PARTITIONS",
        description="Partitions of the updates topic. Default: those it has, or 12 when it is created.",
    )
    kafka_replication: int | None = Field(
        default=None,
        ge=1,
        le=15,
        validation_alias="DIEM_KAFKA_REPLICATION",
        description="Replicas of each partition. Default: those it has, or up to 3 when it is created.",
    )
    kafka_topic: str | None = Field(
        default=None,
        max_length=200,
        pattern=r"^[A-Za-z0-9._-]+$",
        validation_alias="DIEM_KAFKA_TOPIC",
        description="A compacted topic of your own to serve as it is, without a store (docs/topic.md).",
    )
    kafka_topic_key: str | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_TOPIC_KEY",
        description="Names of its endpoints, such as /orders/{key}, or {id} with a member of JSON keys. Default: "
        "/TOPIC/{key}.",
    )
    kafka_topic_key_form: str | None = Field(
        default=None,
        pattern=r"^[^\n]+$",
        validation_alias="DIEM_KAFKA_TOPIC_KEY_FORM",
        description='Bytes of JSON keys by their members, such as {"id":{id}}: in modes with a Z axis their partitions '
        "follow from it.",
    )
    kafka_topic_partitioner: Partitioner = Field(
        default=Partitioner.MURMUR2,
        validation_alias="DIEM_KAFKA_TOPIC_PARTITIONER",
        description="Hash by which its producers choose partitions: murmur2 of Kafka's, crc32 of librdkafka.",
    )
    kafka_topic_type: str = Field(
        default=DOCUMENT,
        pattern=r"^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$",
        validation_alias="DIEM_KAFKA_TOPIC_TYPE",
        description="Media type of its values.",
    )

    @field_validator("kafka_bootstrap_servers")
    @classmethod
    def _are_brokers(cls, servers: str | None) -> str | None:
        return None if servers is None else broker_addresses(servers)

    @field_validator("kafka_topic_prefix")
    @classmethod
    def _is_a_topic_name(cls, prefix: str) -> str:
        if _PREFIX.fullmatch(prefix) is None:
            raise ValueError("a prefix has at most 100 letters, digits, '.', '_' and '-'")
        return prefix

    @model_validator(mode="after")
    def _sasl_is_complete(self) -> Self:
        if self.kafka_security_protocol.startswith("SASL") and not (
            self.kafka_sasl_username and self.kafka_sasl_password_file
        ):
            raise ValueError("SASL needs DIEM_KAFKA_SASL_USERNAME and DIEM_KAFKA_SASL_PASSWORD_FILE")
        return self

    @model_validator(mode="after")
    def _key_names_endpoints(self) -> Self:
        if self.kafka_topic_key is not None and self.kafka_topic is None:
            raise ValueError("DIEM_KAFKA_TOPIC_KEY is for a DIEM_KAFKA_TOPIC")
        if (self.kafka_topic or "").endswith(("updates.hot", "partition-map")):
            raise ValueError(f"DIEM_KAFKA_TOPIC: {self.kafka_topic} has the name of a topic of DIEM's own")
        try:
            self.served()
        except BadKeyTemplate as error:
            raise ValueError(str(error)) from None
        return self

    def served(self) -> ServedTopic | None:
        """Return the topic of other programs to serve; None without one."""
        if self.kafka_topic is None:
            return None
        template = KeyTemplate.of(self.kafka_topic, self.kafka_topic_key, self.kafka_topic_key_form)
        return ServedTopic(self.kafka_topic, template, self.kafka_topic_partitioner, self.kafka_topic_type)

    def kafka(self) -> KafkaOptions:
        """Return the options of these settings.

        Raises:
            ConfigurationError: no bootstrap servers are set, or the password file is unreadable or open to others.
        """
        if self.kafka_bootstrap_servers is None:
            raise ConfigurationError(
                "DIEM_KAFKA_BOOTSTRAP_SERVERS: Kafka is needed here, set the addresses of its brokers, as for the Data "
                "Service, with the same DIEM_KAFKA_TOPIC_PREFIX"
            )
        if not self.kafka_security_protocol.endswith("SSL"):
            _warn_of_plain_brokers(self.kafka_bootstrap_servers)
        return KafkaOptions(
            bootstrap_servers=self.kafka_bootstrap_servers,
            security_protocol=self.kafka_security_protocol,
            sasl_mechanism=self.kafka_sasl_mechanism,
            sasl_username=self.kafka_sasl_username,
            sasl_password=read_password(self.kafka_sasl_password_file),
            ca_file=self.kafka_ca_file,
            certificate_file=self.kafka_certificate_file,
            key_file=self.kafka_key_file,
            topic_prefix=self.kafka_topic_prefix,
            partitions=self.kafka_partitions,
            replication=self.kafka_replication,
            served=self.served(),
        )


def broker_addresses(text: str) -> str:
    """Return addresses of brokers without blanks; raises ValueError for another text."""
    named = [server.strip() for server in text.split(",")]
    for server in named:
        if not _is_broker(server):
            raise ValueError(f"brokers are host:port, separated by commas, not {server!r}")
    return ",".join(named)


@functools.cache
def _warn_of_plain_brokers(servers: str) -> None:
    """Warn, once per cluster, of brokers on other machines used without TLS."""
    away = [server for server in servers.split(",") if not is_loopback(server.rpartition(":")[0] or server)]
    if away:
        _logger.warning(
            "Kafka on another machine is used without TLS: updates can be read and forged on the way "
            "(DIEM_KAFKA_SECURITY_PROTOCOL=SASL_SSL or SSL)",
            brokers=away,
        )


def _is_broker(server: str) -> bool:
    match = _BROKER.fullmatch(server)
    if match is not None:
        return 0 < int(match[2] or 9092) <= 65535
    with contextlib.suppress(ValueError):
        return bool(ipaddress.IPv6Address(server))
    return False


def read_password(file: Path | None) -> str | None:
    """Return the password in a file; None without one. Raises ConfigurationError if it cannot be used."""
    if file is None:
        return None
    try:
        return read_secret(file)
    except BadKeyFile as error:
        raise ConfigurationError(f"the password file {file} cannot be used: {error.reason}") from None
