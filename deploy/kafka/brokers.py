"""Plans the brokers of the local Kafka: configuration, directories and command lines.

With ``BrokerCredentials``, brokers accept clients with a password and a right (``deploy.kafka.users``). Controllers
authenticate each other by certificates: they read users from a log, whose end they cannot agree on before connecting.
Without, anybody on this machine may do everything, as in most tests.
"""

import base64
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from deploy.kafka.credentials import CERTIFICATE_NAME, BrokerCredentials, certificate_file, jaas
from deploy.topology.kafka_users import MECHANISM, PROTOCOL, KafkaUser
from diem.errors import ConfigurationError

HOST: Final = "127.0.0.1"
SIZES: Final = (1, 3)
"""Sizes of a local cluster; two brokers would not survive the loss of one."""
STARTED: Final = "Kafka Server started"
"""Log line of a ready broker."""

FEATURES: Final = Path(__file__).with_name("features.checkpoint")
"""Feature levels of a new cluster, in Kafka's own format; written by ``python -m requirements.kafka_jars``."""
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")

_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "num.partitions": "1",
    # No delay for the first member of a group.
    "group.initial.rebalance.delay.ms": "0",
    # Small internal topics, thread pools and compaction buffers.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.segment.bytes": str(64 * 1024 * 1024),
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    # Interval of an idle controller's no-op records, by which others measure their lag: without them an idle broker
    # takes 1.3 % of a core, with the usual 500 ms 2.1 %.
    "metadata.max.idle.interval.ms": "5000",
    # The pause after a broker is killed is mostly the session timeout, 9 s by default.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}
_OPEN: Final = "PLAINTEXT"
_OPEN_SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": _OPEN,
}
_USERS: Final = "USERS"


def _closed_settings(credentials: BrokerCredentials) -> dict[str, str]:
    of_users, of_controllers = f"listener.name.{_USERS.lower()}", "listener.name.controller"
    files = {
        f"{of_controllers}.ssl.{store}.{setting}": value
        for store in ("keystore", "truststore")
        for setting, value in (("type", "PEM"), ("location", str(credentials.certificate)))
    }
    return {
        "listener.security.protocol.map": f"{_USERS}:{PROTOCOL},CONTROLLER:SSL",
        "inter.broker.listener.name": _USERS,
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"{of_users}.{MECHANISM.lower()}.sasl.jaas.config": jaas(KafkaUser.BROKER, credentials.broker_password),
        **files,
        f"{of_controllers}.ssl.client.auth": "required",
        f"{of_controllers}.ssl.enabled.protocols": "TLSv1.3",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": ";".join(
            f"User:{name}" for name in (f"CN={CERTIFICATE_NAME}", KafkaUser.BROKER.login, KafkaUser.OPERATOR.login)
        ),
    }


@dataclass(eq=False)
class UnusableData(ConfigurationError):
    """A directory has the data of a different cluster, or cannot be written."""

    template = "the Kafka data in {directory} {reason}: choose another directory or remove it"

    directory: Path
    reason: str


class BrokerPlan(NamedTuple):
    """One broker, which is also a controller."""

    node: int
    """From 1."""
    port: int
    controller_port: int
    directory: Path
    """The broker's own directory; those of one cluster are siblings."""

    @property
    def properties_file(self) -> Path:
        """Its configuration file."""
        return self.directory / "server.properties"

    @property
    def meta_file(self) -> Path:
        """File identifying the broker and cluster of the data directory."""
        return self.directory / "data" / "meta.properties"

    @property
    def features_file(self) -> Path:
        """First snapshot of the metadata: without it, a new cluster has its newest features disabled."""
        return self.directory / "data" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"

    @property
    def stopped_file(self) -> Path:
        """File that marks a clean shutdown; removed at the next start."""
        return self.directory / "data" / ".kafka_cleanshutdown"


def plans(directory: Path, ports: Sequence[tuple[int, int]]) -> tuple[BrokerPlan, ...]:
    """Plan one broker for each pair of a port and a controller port."""
    absolute = directory.absolute()
    return tuple(BrokerPlan(node, *pair, absolute / f"kafka-{node}") for node, pair in enumerate(ports, start=1))


def bootstrap_servers(all_plans: Sequence[BrokerPlan]) -> str:
    """Return the bootstrap servers: every broker."""
    return ",".join(f"{HOST}:{plan.port}" for plan in all_plans)


def properties(plan: BrokerPlan, all_plans: Sequence[BrokerPlan], credentials: BrokerCredentials | None = None) -> str:
    """Return the broker's ``server.properties``; three brokers each have every record, and two suffice for writes."""
    security = _OPEN_SETTINGS if credentials is None else _closed_settings(credentials)
    listener = f"{_OPEN if credentials is None else _USERS}://{HOST}:{plan.port}"
    replicas = str(len(all_plans))
    enough = str(len(all_plans) // 2 + 1)
    return _render(
        _SETTINGS
        | security
        | {
            "node.id": str(plan.node),
            "controller.quorum.voters": ",".join(f"{p.node}@{HOST}:{p.controller_port}" for p in all_plans),
            "listeners": f"{listener},CONTROLLER://{HOST}:{plan.controller_port}",
            "advertised.listeners": listener,
            "log.dirs": str(plan.directory / "data"),
            "default.replication.factor": replicas,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": enough,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": enough,
        }
    )


def argv(java: Path, jars: Sequence[Path], plan: BrokerPlan, archive: Path | None = None) -> tuple[str, ...]:
    """Return the broker's command line, tuned for memory and start time rather than throughput.

    ``archive`` is from ``program.prepare_archive``; without a matching one, the start takes twice as long.
    """
    shared = () if archive is None else (f"-XX:SharedArchiveFile={archive}",)
    return (
        str(java),
        "-Xmx256m",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # With this compiler the default code cache is 48 MiB: a JVM fails in odd ways once it is full.
        "-XX:ReservedCodeCacheSize=128m",
        "-XX:-UsePerfData",
        # Java keeps the controllers' key in memory, encrypted with a password in the same memory: the usual 10,000
        # iterations of each operation take a fifth of the start's CPU time, for nothing.
        "-Dkeystore.pkcs12.keyPbeIterationCount=1",
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={plan.directory}/java-error-%p.log",
        *shared,
        # For unpacked native libraries, left behind by a killed broker.
        f"-Djava.io.tmpdir={plan.directory / 'tmp'}",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        "-cp",
        ":".join(map(str, jars)),
        "kafka.Kafka",
        str(plan.properties_file),
    )


def write(all_plans: Sequence[BrokerPlan], *, with_users: bool = False) -> str:
    """Write the brokers' start-up files, and return the id of their cluster; existing data is kept.

    Raises:
        UnusableData: existing data is of another number of brokers or of several clusters, has users these brokers
            would not use, or cannot be written.
        BadKeyFile: a file of a secret is invalid, or open to others.
    """
    try:
        return _write(all_plans, with_users=with_users)
    except OSError as error:
        raise UnusableData(all_plans[0].directory.parent, f"cannot be written ({error.strerror})") from error


def _write(all_plans: Sequence[BrokerPlan], *, with_users: bool) -> str:
    parent = all_plans[0].directory.parent
    if not with_users and certificate_file(parent).exists():
        raise UnusableData(parent, "has users, and would be open to everybody on this machine")
    there = {path.parent.parent: _id_of(path) for path in parent.glob("kafka-*/data/meta.properties")}
    if there and set(there) != {plan.directory for plan in all_plans}:
        raise UnusableData(parent, f"is of {_count(len(there))}, not of {_count(len(all_plans))}")
    if len(set(there.values())) > 1:
        raise UnusableData(parent, "is of more than one cluster")
    credentials = BrokerCredentials.prepare(parent) if with_users else None
    cluster_id = next(iter(there.values()), None) or new_id()
    for plan in all_plans:
        (plan.directory / "data").mkdir(parents=True, exist_ok=True)
        (plan.directory / "tmp").mkdir(exist_ok=True)
        plan.properties_file.unlink(missing_ok=True)
        with open(plan.properties_file, "x", encoding="utf-8", opener=_private) as file:
            file.write(properties(plan, all_plans, credentials))
        if plan.directory not in there:
            plan.features_file.parent.mkdir(exist_ok=True)
            plan.features_file.write_bytes(FEATURES.read_bytes())
            plan.meta_file.write_text(_meta(plan.node, cluster_id), encoding="utf-8")
    return cluster_id


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def new_id() -> str:
    """Return a new id in Kafka's format: 22 characters, never with a leading dash."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _meta(node: int, cluster_id: str) -> str:
    return _render({"version": "1", "cluster.id": cluster_id, "node.id": str(node), "directory.id": new_id()})


def _id_of(meta: Path) -> str:
    lines = (line.partition("=") for line in meta.read_text(encoding="utf-8").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "cluster.id"), "")


def _render(settings: Mapping[str, str]) -> str:
    # A backslash begins an escape in Java's properties.
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items())


def _count(brokers: int) -> str:
    return "one broker" if brokers == 1 else f"{brokers} brokers"
