"""Settings of every process that speaks to Kafka, from ``DIEM_KAFKA_*``."""

import contextlib
import ipaddress
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from diem.kafka.options import KafkaOptions
from diem.process.auth import foreign_owner
from diem.process.faults import ConfigurationError
from diem.process.settings import ProcessSettings

_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.]+]|[^\s:/,\[\]]+)(?::(\d{1,5}))?")


class KafkaSettings(ProcessSettings):
    """Base of the settings of a process that may use Kafka; without bootstrap servers it does not."""

    kafka_bootstrap_servers: str | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_BOOTSTRAP_SERVERS",
        description="Kafka brokers, host:port separated by commas; without any, Kafka is not used.",
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", validation_alias="DIEM_KAFKA_SECURITY_PROTOCOL", description="How to speak to the brokers."
    )
    kafka_sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        default="SCRAM-SHA-512", validation_alias="DIEM_KAFKA_SASL_MECHANISM", description="How to log in with SASL."
    )
    kafka_sasl_username: str | None = Field(
        default=None, validation_alias="DIEM_KAFKA_SASL_USERNAME", description="Who logs in with SASL."
    )
    kafka_sasl_password_file: Path | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_SASL_PASSWORD_FILE",
        description="File of the password for SASL; only its owner may read it.",
    )
    kafka_ca_file: Path | None = Field(
        default=None,
        validation_alias="DIEM_KAFKA_CA_FILE",
        description="Certificates that sign the brokers'; default: the system's.",
    )
    kafka_certificate_file: Path | None = Field(
        default=None, validation_alias="DIEM_KAFKA_CERTIFICATE_FILE", description="Our own certificate, for mutual TLS."
    )
    kafka_key_file: Path | None = Field(
        default=None, validation_alias="DIEM_KAFKA_KEY_FILE", description="The key of our own certificate."
    )
    kafka_topic_prefix: str = Field(
        default="diem.",
        validation_alias="DIEM_KAFKA_TOPIC_PREFIX",
        description="Begins the name of every topic and consumer group.",
    )
    kafka_partitions: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        validation_alias="DIEM_KAFKA_PARTITIONS",
        description="Partitions of the updates topic; default: what the topic has, 12 when it is created.",
    )
    kafka_replication: int | None = Field(
        default=None,
        ge=1,
        le=15,
        validation_alias="DIEM_KAFKA_REPLICATION",
        description="Replicas of each partition; default: what the topic has, at most 3 when it is created.",
    )

    @field_validator("kafka_bootstrap_servers")
    @classmethod
    def _are_brokers(cls, servers: str | None) -> str | None:
        if servers is None:
            return None
        named = [server.strip() for server in servers.split(",")]
        for server in named:
            if not _is_broker(server):
                raise ValueError(f"brokers are host:port, separated by commas, and {server!r} is none")
        return ",".join(named)

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

    def kafka(self) -> KafkaOptions:
        """The options of these settings.

        Raises:
            ConfigurationError: there are no bootstrap servers, or the password cannot be read or is open to others.
        """
        if self.kafka_bootstrap_servers is None:
            raise ConfigurationError("DIEM_KAFKA_BOOTSTRAP_SERVERS: Kafka is needed here, name its brokers")
        return KafkaOptions(
            bootstrap_servers=self.kafka_bootstrap_servers,
            security_protocol=self.kafka_security_protocol,
            sasl_mechanism=self.kafka_sasl_mechanism,
            sasl_username=self.kafka_sasl_username,
            sasl_password=_password(self.kafka_sasl_password_file),
            ca_file=self.kafka_ca_file,
            certificate_file=self.kafka_certificate_file,
            key_file=self.kafka_key_file,
            topic_prefix=self.kafka_topic_prefix,
            partitions=self.kafka_partitions,
            replication=self.kafka_replication,
        )


def _is_broker(server: str) -> bool:
    match = _BROKER.fullmatch(server)
    if match is not None:
        return 0 < int(match[2] or 9092) <= 65535
    with contextlib.suppress(ValueError):
        return bool(ipaddress.IPv6Address(server))
    return False


def _password(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        status = file.stat()
        if owner := foreign_owner(status):
            raise ConfigurationError(f"{file} belongs to user {owner}: remove it, or chown it")
        if status.st_mode & 0o077:
            raise ConfigurationError(f"{file} is open to others: chmod 600 it")
        password = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigurationError(f"the password file {file} cannot be read: {reason}") from None
    if not password:
        raise ConfigurationError(f"the password file {file} is empty")
    return password
