"""A Kafka as in production: TLS with host names, SCRAM users and ACLs, closed by default."""

import argparse
import asyncio
import os
import secrets
import shlex
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

import pytest
from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest

from deploy.kafka.brokers import HOST, BrokerPlan
from deploy.kafka.program import KafkaProgram
from deploy.kafka.users import SetPasswords
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions, KafkaSettings
from diem.kafka.metadata import describe
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.ports import free_port

NAME: Final = "localhost"
"""The name in the broker's certificate; its address is not in it."""
_SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Certificates:
    """A certificate authority, the broker's certificate, and another authority."""

    def __init__(self, directory: Path) -> None:
        self.ca, self.other_ca = directory / "ca.pem", directory / "other.pem"
        self.broker = directory / "broker.pem"
        key, request, names = directory / "broker.key", directory / "broker.csr", directory / "names"
        for file in (self.ca, self.other_ca):
            _openssl("req", "-x509", *_new_key(file.with_suffix(".key")), "-subj", f"/CN={file.stem}", "-out", file)
        _openssl("req", *_new_key(key), "-subj", "/CN=broker", "-out", request)
        names.write_text(f"subjectAltName=DNS:{NAME}\n")
        signed = directory / "broker.crt"
        by = ("-CA", self.ca, "-CAkey", self.ca.with_suffix(".key"), "-CAcreateserial", "-days", "2")
        _openssl("x509", "-req", "-in", request, *by, "-extfile", names, "-out", signed)
        self.broker.write_text(key.read_text() + signed.read_text())


def _new_key(file: Path) -> tuple[str | Path, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class SecureProgram(KafkaProgram):
    """A broker with two additional listeners: for users, and one whose advertised address is not in its certificate."""

    ports: ClassVar[tuple[int, int]]
    certificate: ClassVar[Path]

    def argv(self, plan: BrokerPlan) -> tuple[str, ...]:
        users, misnamed = self.ports
        listeners = f"PLAINTEXT://{HOST}:{plan.port},CONTROLLER://{HOST}:{plan.controller_port}"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_SSL,MISNAMED:SASL_SSL"
        internal = f"PLAINTEXT://{HOST}:{plan.port}"
        changed = {
            "listeners": f"{listeners},USERS://{HOST}:{users},MISNAMED://{HOST}:{misnamed}",
            "advertised.listeners": f"{internal},USERS://{NAME}:{users},MISNAMED://{HOST}:{misnamed}",
            "listener.security.protocol.map": protocols,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.users.scram-sha-512.sasl.jaas.config": _SCRAM_LOGIN,
            "listener.name.misnamed.scram-sha-512.sasl.jaas.config": _SCRAM_LOGIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            # Whoever comes over the internal listeners: the broker itself, and the test as its administrator.
            "super.users": "User:ANONYMOUS",
        }
        return (*super().argv(plan), *(word for pair in changed.items() for word in ("--override", "=".join(pair))))


class SecureKafka:
    """The cluster, its certificates and its users, whose passwords are files."""

    def __init__(self, directory: Path, program: KafkaProgram) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.certificates = Certificates(directory)

        class Here(SecureProgram):
            ports = (free_port(), free_port())
            certificate = self.certificates.broker

        self._ports = Here.ports
        self.cluster = LocalCluster(directory, prepare=lambda: Here(*program), time_factor=FACTOR)

    @property
    def servers(self) -> str:
        return f"{NAME}:{self._ports[0]}"

    @property
    def servers_by_address(self) -> str:
        """The listener by a name that is not in its certificate."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def misnamed_servers(self) -> str:
        """A listener with a valid name that advertises another one."""
        return f"{NAME}:{self._ports[1]}"

    @property
    def plain(self) -> KafkaOptions:
        """Options of the administrator, over the internal listener."""
        return KafkaOptions(self.cluster.bootstrap_servers)

    def environment(self, user: str, **other: object) -> dict[str, str]:
        """Return the environment for a process of this user; `other` replaces fields of `KafkaOptions`."""
        given = {
            "bootstrap_servers": self.servers,
            "security_protocol": "SASL_SSL",
            "sasl_username": user,
            "sasl_password_file": self.password_file(user),
            "ca_file": self.certificates.ca,
        } | other
        return {f"DIEM_KAFKA_{name.upper()}": str(value) for name, value in given.items()}

    def options(self, user: str, **other: object) -> KafkaOptions:
        """Return the options that a process reads from this environment."""
        with pytest.MonkeyPatch.context() as patch:
            for name in set(os.environ) - set(without_diem()):
                patch.delenv(name)
            for name, value in self.environment(user, **other).items():
                patch.setenv(name, value)
            return KafkaSettings.load().kafka()

    def password_file(self, user: str) -> Path:
        """Return the file of a user's password, created at the first use."""
        file = self.directory / f"{user}.password"
        if not file.exists():
            file.touch(0o600)
            file.write_text(secrets.token_urlsafe(12) + "\n")
        return file

    async def add_user(self, name: str, password: str | None = None) -> None:
        """Create a user, or change its password."""
        word = password or self.password_file(name).read_text().strip()
        async with self._administrator() as (client, node):
            answer = await client.send(node, SetPasswords("SCRAM-SHA-512", {name: word}))
        assert [code for _, code, *_ in answer.results] == [0], answer

    async def allow(self, lines: Iterable[str]) -> int:
        """Apply `kafka-acls.sh` lines; return the number of ACLs."""
        made = 0
        async with self._administrator() as (client, node):
            for line in lines:
                for right in rights(line):
                    answer = await client.send(node, CreateAclsRequest(*right))
                    assert answer.creation_responses[0][0] == 0, answer
                    made += 1
        return made

    async def make_topic(self, line: str) -> None:
        """Apply a `kafka-topics.sh` line."""
        async with admin_client(self.plain) as admin:
            await admin.create_topics([new_topic(line)])

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, if it exists, and wait until it is gone."""
        async with admin_client(self.plain) as admin:
            await admin.delete_topics([name])
        async with connected_client(self.plain) as client, asyncio.timeout(PATIENCE_S):
            while name in (await describe(client, name)).topics:
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def _administrator(self) -> AsyncIterator[tuple[AIOKafkaClient, int]]:
        async with connected_client(self.plain) as client:
            node = client.get_random_node()
            assert node is not None
            yield client, node


def without_diem() -> dict[str, str]:
    """Return the environment without DIEM's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}


# Emulation of Kafka's tools for the lines of `diem topics --print`, beyond what aiokafka supports

# Numbers of Kafka's protocol guide.
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = 2, 3, 4, 5
_ALLOW: Final = 3
_PATTERNS: Final = {"literal": 3, "prefixed": 4}
_OPERATIONS: Final = {"Read": 3, "Write": 4, "Alter": 7, "Describe": 8, "DescribeConfigs": 10}

Right = tuple[int, str, int, str, str, int, int]
"""The arguments of aiokafka's `CreateAclsRequest`."""


def rights(line: str) -> Iterator[Right]:
    """Return the ACLs of a `kafka-acls.sh` line; an unknown option fails the test."""
    said = _acls.parse_args(shlex.split(line))
    kinds = {_TOPIC: said.topic, _GROUP: said.group, _CLUSTER: "kafka-cluster" if said.cluster else None}
    kinds[_TRANSACTIONAL_ID] = said.transactional_id
    ((kind, name),) = ((kind, name) for kind, name in kinds.items() if name is not None)
    pattern = _PATTERNS[said.resource_pattern_type]
    for operation in said.operation:
        yield kind, name, pattern, said.allow_principal, "*", _OPERATIONS[operation], _ALLOW


def new_topic(line: str) -> NewTopic:
    """Return the topic of a `kafka-topics.sh` line."""
    said = _topics.parse_args(shlex.split(line))
    config = dict(each.split("=", 1) for each in said.config)
    return NewTopic(said.topic, said.partitions, said.replication, topic_configs=config)


def _tool(name: str, command: str) -> argparse.ArgumentParser:
    tool = argparse.ArgumentParser(name, allow_abbrev=False)
    tool.add_argument("tool", choices=[name])
    tool.add_argument("--bootstrap-server", required=True)
    tool.add_argument("--command-config", required=True)
    tool.add_argument(command, action="store_true", required=True)
    tool.add_argument("--topic")
    return tool


_acls = _tool("kafka-acls.sh", "--add")
_acls.add_argument("--allow-principal", required=True)
_acls.add_argument("--operation", action="append", required=True)
_acls.add_argument("--resource-pattern-type", default="literal")
_acls.add_argument("--group")
_acls.add_argument("--transactional-id")
_acls.add_argument("--cluster", action="store_true")
_topics = _tool("kafka-topics.sh", "--create")
_topics.add_argument("--partitions", type=int, required=True)
_topics.add_argument("--replication-factor", type=int, required=True, dest="replication")
_topics.add_argument("--config", action="append", default=[])
