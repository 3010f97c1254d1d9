"""Sources of traffic for Spark: a folder of JSON Lines files, or a Kafka topic."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions
from learning.jobs.checkpoint import read_files
from learning.jobs.spark_options import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERN: Final = "*.jsonl"
"""Pattern of complete files; Spark itself skips names that begin with a dot."""
MAX_FILE_AGE: Final = "3650d"
"""Largest age of a file relative to the newest one: by default Spark silently skips files older than 7 days."""
_LOGINS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def complete_files(folder: Path) -> list[Path]:
    """Return the complete files of a folder, sorted."""
    return sorted(file for file in folder.glob(PATTERN) if not file.name.startswith("."))


class TrafficSource(Protocol):
    """A source of recorded lines."""

    @property
    def name(self) -> str:
        """Name of its folder in the warehouse, unique per source with separate read positions."""

    @property
    def where(self) -> str:
        """Human-readable location."""

    def lines(self, spark: "SparkSession") -> "DataFrame":
        """Return the stream of its lines: ``value`` binary, ``arrived`` timestamp, ``source`` string (the location)."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """The complete files of a folder, including later ones."""

    folder: Path
    """Absolute; created if missing."""
    files_per_batch: int = 100

    @property
    def name(self) -> str:
        """See :class:`TrafficSource`."""
        return f"files-{_hash(str(self.folder))}"

    @property
    def where(self) -> str:
        """See :class:`TrafficSource`."""
        return str(self.folder)

    def lines(self, spark: "SparkSession") -> "DataFrame":
        """See :class:`TrafficSource`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stream = (
            spark.readStream.format("text")
            .option("pathGlobFilter", PATTERN)
            .option("maxFileAge", MAX_FILE_AGE)
            .option("maxFilesPerTrigger", self.files_per_batch)
            # By default, a carriage return would also end a line.
            .option("lineSep", "\n")
            .load(spark_path(self.folder))
        )
        return stream.selectExpr(
            "CAST(value AS BINARY) AS value",
            "_metadata.file_modification_time AS arrived",
            "_metadata.file_path AS source",
        )


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A topic, from its beginning."""

    options: KafkaOptions
    identity: str
    """Identity of cluster and topic: offsets are meaningless in another topic of the same name."""
    records_per_batch: int = 500_000

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.options.names.traffic

    @property
    def name(self) -> str:
        """See :class:`TrafficSource`."""
        return f"kafka-{_hash(self.identity)}"

    @property
    def where(self) -> str:
        """See :class:`TrafficSource`."""
        return f"{self.topic} at {self.options.bootstrap_servers}"

    def lines(self, spark: "SparkSession") -> "DataFrame":
        """See :class:`TrafficSource`."""
        stream = (
            spark.readStream.format("kafka")
            .options(**client_options(self.options))
            .option("subscribe", self.topic)
            .option("groupIdPrefix", self.options.names.pipeline)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.records_per_batch)
            # Records deleted by the broker before being read are lost either way; ``SourceLag`` counts them.
            .option("failOnDataLoss", "false")
            .load()
        )
        return stream.selectExpr("value", "timestamp AS arrived", "concat_ws('/', topic, partition, offset) AS source")


def client_options(options: KafkaOptions) -> dict[str, str]:
    """Return the connection settings of Kafka's Java client, as options of Spark's source.

    Raises:
        ConfigurationError: a file of the TLS set-up cannot be read.
    """
    found = {"bootstrap.servers": options.bootstrap_servers, "security.protocol": options.security_protocol}
    if options.security_protocol.endswith("SSL"):
        found |= _tls(options)
    if options.security_protocol.startswith("SASL"):
        login = _LOGINS[options.sasl_mechanism]
        user, password = _quoted(options.sasl_username or ""), _quoted(options.sasl_password or "")
        found |= {
            "sasl.mechanism": options.sasl_mechanism,
            "sasl.jaas.config": f"{login} required username={user} password={password};",
        }
    return {f"kafka.{key}": value for key, value in found.items()}


def _tls(options: KafkaOptions) -> dict[str, str]:
    found: dict[str, str] = {}
    if options.ca_file is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(options.ca_file)}
    if options.certificate_file is not None:
        chain, key = _text(options.certificate_file), _text(options.key_file or options.certificate_file)
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the TLS file {file} for Kafka cannot be read: {error}") from None


def _quoted(value: str) -> str:
    """Quote a value for JAAS."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class SourceLag(NamedTuple):
    """Lag of the pipeline in a source: files of a folder, or records of a topic."""

    unread: int
    lost: int = 0
    """Records deleted by brokers before being read, or missing at the end of a log already read."""
    size: int = 0
    """Of unread files, in bytes."""


def unread_files(folder: Path, checkpoint: Path) -> SourceLag:
    """Return the lag in a folder: its unread complete files."""
    unread = set(complete_files(folder)) - set(read_files(checkpoint))
    return SourceLag(len(unread), size=sum(file.stat().st_size for file in unread))
