"""The keys of ``[[source]]`` with ``type = "kafka"``."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from diem.kafka.config import KafkaOptions, broker_addresses, read_password
from services.data.sources.records.record import is_of_key
from services.data.sources.records.table import RecordTable
from services.data.sources.tables import OwnFile, Url

Format = Literal["json", "text", "bytes", "avro", "protobuf"]
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
MAX_TOPICS: Final = 1000
REGISTERED: Final = frozenset({"avro", "protobuf"})
"""Formats whose schemas are in a registry."""


def _topic(name: str) -> str:
    if _TOPIC.fullmatch(name) is None or name in {".", ".."}:
        raise ValueError("a topic has at most 249 letters, digits, '.', '_' and '-'")
    return name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return text


def _start(text: str) -> str:
    if text not in {"earliest", "latest"}:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("expected earliest, latest, or a time such as 2026-06-01T00:00:00Z") from None
        if moment.tzinfo is None:
            raise ValueError("the time needs an offset, as in 2026-06-01T00:00:00Z")
    return text


class KafkaTable(RecordTable):
    """A source of the records of topics."""

    origin: ClassVar[Sequence[str]] = ("topic", "partition")

    type: Literal["kafka"]
    bootstrap_servers: Annotated[str, AfterValidator(broker_addresses)] = Field(
        description="Brokers, as host:port, separated by commas."
    )
    topics: list[Annotated[str, AfterValidator(_topic)]] = Field(
        default=[], max_length=MAX_TOPICS, description="Names of topics."
    )
    pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        default=None,
        max_length=200,
        description="Instead of topics: a regular expression of whole names; topics that appear later are read, too.",
    )
    start: Annotated[str, AfterValidator(_start)] = Field(
        default="earliest", description="Where a source begins that has read nothing yet: earliest, latest, or a time."
    )
    format: Format = Field(default="json", description="Of values: json, text, bytes, avro or protobuf.")
    key_format: Format | None = Field(
        default=None, description="Of keys, as far as they are used. Default: text for {key}, else json."
    )
    registry: Url | None = Field(default=None, description="URL of the schema registry for avro and protobuf.")
    registry_username: str | None = Field(default=None, max_length=200, description="User of the registry.")
    registry_password_file: OwnFile | None = Field(default=None, description="File of that user's password.")
    registry_ca_file: OwnFile | None = Field(default=None, description="CA certificates of the registry (PEM).")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="Security protocol of the connection."
    )
    sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        default="SCRAM-SHA-512", description="SASL mechanism."
    )
    sasl_username: str | None = Field(default=None, max_length=200, description="SASL user name.")
    sasl_password_file: OwnFile | None = Field(default=None, description="File of the SASL password (mode 0600).")
    ca_file: OwnFile | None = Field(
        default=None, description="CA certificates of the brokers (PEM). Default: the system's."
    )
    certificate_file: OwnFile | None = Field(default=None, description="Client certificate (PEM), for mutual TLS.")
    key_file: OwnFile | None = Field(default=None, description="Private key of the client certificate.")

    def _conflicts(self) -> Iterator[str]:
        yield from super()._conflicts()
        if bool(self.topics) == (self.pattern is not None):
            yield "give either topics or a pattern"
        needs_registry = [name for name in ("format", "key_format") if getattr(self, name) in REGISTERED]
        if needs_registry and self.registry is None:
            yield f"{needs_registry[0]} = '{getattr(self, needs_registry[0])}' needs registry"
        if self.registry is not None and not needs_registry:
            yield "registry needs format = 'avro' or 'protobuf'"
        if self.registry is not None and "@" in urlsplit(self.registry).netloc:
            yield "the user of the registry belongs into registry_username"
        if (self.registry_username is None) != (self.registry_password_file is None):
            yield "registry_username and registry_password_file belong together"
        if self.security_protocol.startswith("SASL") != (self.sasl_username is not None) or (
            (self.sasl_username is None) != (self.sasl_password_file is None)
        ):
            yield "SASL_SSL and SASL_PLAINTEXT need sasl_username and sasl_password_file, and the other way round"
        if self.key_file is not None and self.certificate_file is None:
            yield "key_file needs certificate_file"

    @property
    def uses_key(self) -> bool:
        """True if records with a value need their key, too."""
        paths = (*self.fields, *self.where, *self.gone, *filter(None, (self.value, self.time)))
        return self.envelope == "debezium" or any(map(is_of_key, paths))

    @property
    def format_of_keys(self) -> Format:
        """:attr:`key_format`, or what the names of endpoints need of keys."""
        return self.key_format or ("text" if "key" in self.fields and self.envelope != "debezium" else "json")

    @property
    def starts_at(self) -> str | int:
        """:attr:`start`; a time in Unix ms."""
        if self.start in {"earliest", "latest"}:
            return self.start
        return int(datetime.fromisoformat(self.start).timestamp() * 1000)

    def covers(self, topic: str) -> bool:
        """Return whether a topic is read."""
        return topic in self.topics if self.pattern is None else re.fullmatch(self.pattern, topic) is not None

    def options(self) -> KafkaOptions:
        """Return the options of the connection, with the password as it is in its file now.

        Raises:
            ConfigurationError: the file cannot be read, or others can read it.
        """

        def path(file: str | None) -> Path | None:
            return None if file is None else Path(file)

        return KafkaOptions(
            bootstrap_servers=self.bootstrap_servers,
            security_protocol=self.security_protocol,
            sasl_mechanism=self.sasl_mechanism,
            sasl_username=self.sasl_username,
            sasl_password=read_password(path(self.sasl_password_file)),
            ca_file=path(self.ca_file),
            certificate_file=path(self.certificate_file),
            key_file=path(self.key_file),
        )

    def registry_login(self) -> tuple[str, str] | None:
        """Return user and password of the registry; None without. Raises ConfigurationError as :meth:`options`."""
        password = read_password(None if self.registry_password_file is None else Path(self.registry_password_file))
        return None if self.registry_username is None or password is None else (self.registry_username, password)
