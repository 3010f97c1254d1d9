"""Attacks on the Kafka of a running ``diem up`` by other processes of the machine, and by processes of DIEM themselves.

The data of its broker is of a release whose brokers had no users: nothing of it may be lost. Where it can be, the
system is started under the restrictions of the systemd unit.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.conn import create_conn
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from aiokafka.protocol.metadata import MetadataRequest

from deploy.kafka.credentials import password_of
from deploy.kafka.program import KafkaProgram
from deploy.kafka.users import create_users
from deploy.topology.kafka_users import KafkaUser
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_writer import write_map
from diem.kafka.metadata import describe
from diem.kafka.topic_config import TRAFFIC_PARTITIONS
from diem.kafka.topics import ensure, ensure_traffic
from diem.protocol.assignment import Owner, client_id
from diem.protocol.partition_map import Head
from tests.integration.deploy.running import diem
from tests.support import sandbox
from tests.support.fork_server import executing
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.required import in_cluster, unavailable
from tests.support.running import ROOT, Running, running

pytestmark = [
    in_cluster("it takes 25 s of CPU time"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("attacks-on-kafka"),
    pytest.mark.takes(30),
]
KEPT = b"recorded before there were users"
UNIT = ROOT / "deploy" / "systemd" / "diem.service"
FORGED = Owner("b999", "ws://127.0.0.1:9/ws", "ws://127.0.0.1:9/ws")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(kafka_program: KafkaProgram, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """Run a system with processes of all kinds on data without users."""
    directory = tmp_path_factory.mktemp("kafka")
    (directory / "state").mkdir(mode=0o700)
    async with LocalCluster(
        kafka_of(directory / "state"), prepare=lambda: kafka_program, time_factor=FACTOR
    ) as open_to_all:
        options = KafkaOptions(open_to_all.bootstrap_servers, partitions=4, replication=1)
        await ensure(options)
        await ensure_traffic(options)
        producer = AIOKafkaProducer(**options.client_arguments())
        await producer.start()
        await producer.send_and_wait(options.names.traffic, KEPT, partition=0)
        await producer.stop()
    launcher: tuple[str, ...] = ()
    with contextlib.suppress(sandbox.Unsupported):
        launcher = sandbox.launcher(UNIT)
    # Command lines and environments of forked processes would be those of the fork server.
    with executing():
        async with running(directory, "z-composite", servers=1, launcher=launcher) as started:
            yield started


def kafka_of(state: Path) -> Path:
    return state / "kafka"


def anonymous(system: Running) -> KafkaOptions:
    return KafkaOptions(f"127.0.0.1:{system.processes['kafka-1']['ports']['public']}")


def login(system: Running, user: KafkaUser, password: str | None = None) -> KafkaOptions:
    directory = kafka_of(system.state_dir)
    return replace(
        anonymous(system),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username=user.login,
        sasl_password=password or password_of(user, directory),
    )


@asynccontextmanager
async def producing(options: KafkaOptions) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(**options.client_arguments())
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def joined(options: KafkaOptions, group: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Join a group of bridges as a forged member, with an address for clients."""
    member = AIOKafkaConsumer(
        options.names.updates, group_id=group, client_id=client_id(FORGED), **options.client_arguments()
    )
    try:
        await member.start()
        yield member
    finally:
        await member.stop()


@pytest.mark.parametrize("who", ["no user", "wrong password", "unknown user"])
async def test_who_is_no_user_cannot_list_produce_or_join(system: Running, who: str) -> None:
    options = {
        "no user": anonymous(system),
        "wrong password": login(system, KafkaUser.OPERATOR, "guessed-guessed-guessed-guessed-guessed"),
        "unknown user": replace(login(system, KafkaUser.OPERATOR), sasl_username="admin"),
    }[who]
    with pytest.raises(KafkaUnavailable):
        async with connected_client(options):
            pass
    with pytest.raises(KafkaError):
        async with producing(options):
            pass
    with pytest.raises(KafkaError):
        async with joined(options, options.names.z_group(1)):
            pass


@pytest.mark.parametrize("user", [KafkaUser.BRIDGE, KafkaUser.METADATA, KafkaUser.EDGE, KafkaUser.PIPELINE])
async def test_only_the_data_service_writes_updates(system: Running, user: KafkaUser) -> None:
    options = login(system, user)
    async with producing(options) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(options.names.updates, b"{}", b"/forged", partition=0)


async def test_a_bridge_does_not_write_the_partition_map(system: Running) -> None:
    with pytest.raises(KafkaUnavailable, match="the partition map was not written"):
        await write_map(login(system, KafkaUser.BRIDGE), {}, Head(1, 1))


@pytest.mark.parametrize("user", [KafkaUser.METADATA, KafkaUser.DATA, KafkaUser.EDGE])
async def test_only_bridges_join_the_group_that_names_owners(system: Running, user: KafkaUser) -> None:
    options = login(system, user)
    with pytest.raises((GroupAuthorizationFailedError, TopicAuthorizationFailedError)):
        async with joined(options, options.names.z_group(1)):
            pass


async def test_controllers_accept_brokers_alone(system: Running) -> None:
    port = system.processes["kafka-1"]["ports"]["internal"]
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    for protocol, context in (("PLAINTEXT", None), ("SSL", unverified)):
        with pytest.raises((KafkaError, OSError)):
            connection = await create_conn(
                "127.0.0.1", port, security_protocol=protocol, ssl_context=context, request_timeout_ms=5000
            )
            try:
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()


async def test_passwords_are_in_private_files_and_nowhere_else(system: Running) -> None:
    directory = kafka_of(system.state_dir)
    passwords = {password_of(user, directory) for user in KafkaUser}
    root = psutil.Process(system.up.pid)
    shown = [str((each.cmdline(), each.environ())) for each in (root, *root.children(recursive=True))]
    logged = [path.read_text() for path in (system.state_dir / "logs").iterdir()]
    texts = [*shown, *logged, (system.state_dir / "processes.json").read_text()]
    assert len(texts) > 10
    assert not any(password in text for password in passwords for text in texts)
    private = [*directory.glob("*.*"), *directory.glob("users/*"), *directory.glob("kafka-*/server.properties")]
    assert len(private) > len(passwords)
    assert [path for path in private if path.stat().st_mode & 0o077] == []


async def test_data_of_brokers_without_users_is_kept_and_closed(system: Running) -> None:
    options = login(system, KafkaUser.OPERATOR)
    consumer = AIOKafkaConsumer(**options.client_arguments(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(options.names.traffic, 0)])
        assert (await consumer.getone()).value == KEPT
    finally:
        await consumer.stop()
    async with connected_client(options) as client:
        topic = (await describe(client, options.names.updates)).topics[options.names.updates]
    assert len(topic.partitions) == 4


async def test_commands_connect_with_users_of_their_own(system: Running) -> None:
    state = ("--state-dir", str(system.state_dir))
    _, out, err = await diem("check", *state, "--tolerate", "0", "--json", cwd=system.state_dir)
    findings = {each["rule"]: each for each in json.loads(out)["findings"]}
    assert err == ""
    assert (findings["authorizer"]["verdict"], findings["authorizer"]["found"]) == ("ok", "StandardAuthorizer")
    assert not [name for name, each in findings.items() if each["found"].startswith("the cluster does not show ")]
    code, out, err = await diem("topics", *state, "--traffic", cwd=system.state_dir)
    assert (code, out.count(": OK"), err) == (0, 4, "")


async def test_a_replaced_password_file_counts_from_the_next_start(system: Running) -> None:
    """What a start does is done again here."""
    directory, controller = kafka_of(system.state_dir), system.processes["kafka-1"]["ports"]["internal"]
    old = login(system, KafkaUser.CHECK)
    KafkaUser.CHECK.password_file(directory).write_text("another-password-of-the-auditor\n")
    await create_users(directory, [controller], old.names, PATIENCE_S)
    # The controller has it; the broker follows.
    async with asyncio.timeout(PATIENCE_S):
        while not await accepts(login(system, KafkaUser.CHECK)):
            await asyncio.sleep(0.1)
    with pytest.raises(KafkaUnavailable, match="does not accept user diem-check with this password"):
        async with connected_client(old):
            pass


async def accepts(options: KafkaOptions) -> bool:
    """Return whether the broker accepts a login."""
    try:
        async with connected_client(options):
            return True
    except KafkaUnavailable:
        return False


async def test_processes_work_with_their_rights(system: Running) -> None:
    """Updates are published, owners are known, and requests are recorded in the topic of traffic."""
    (await system.put({"/dam/real": 2.0})).raise_for_status()
    assert (await system.http.get(f"{system.page}v1/data/dam/real")).status_code == 200
    options = login(system, KafkaUser.PIPELINE)
    consumer = AIOKafkaConsumer(**options.client_arguments())
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (await system.status("data"))["publisher"]["lag"] or not await owners_are_known(system):
                await asyncio.sleep(0.1)
            # Its counts are written each minute, and when it ends.
            os.kill(system.pid("data"), signal.SIGTERM)
            parts = [TopicPartition(options.names.traffic, number) for number in range(TRAFFIC_PARTITIONS)]
            while sum((await consumer.end_offsets(parts)).values()) < 2:
                await asyncio.sleep(0.2)
    finally:
        await consumer.stop()


async def owners_are_known(system: Running) -> bool:
    children = (await system.status("composite-1"))["children"]
    (metadata,) = (each["report"] or {} for each in children if each["name"] == "metadata")
    return bool(metadata.get("live"))


async def test_the_local_kafka_starts_under_the_restrictions_of_the_unit(system: Running) -> None:
    try:
        sandbox.launcher(UNIT)
    except sandbox.Unsupported as error:
        unavailable("what a systemd unit restricts", error)
    status = Path(f"/proc/{system.pid('kafka-1')}/status").read_text().splitlines()
    assert {"NoNewPrivs:\t1", "Seccomp:\t2"} <= set(status)
