"""A secured Kafka: TLS with host names, SCRAM, ACLs; the settings come from the environment, as in production."""

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from deploy.kafka.program import KafkaProgram
from diem.kafka.assignment import read_assignment
from diem.kafka.client import admin_client, connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import read_map
from diem.kafka.map_writer import change_map, write_map
from diem.kafka.metadata import describe
from diem.links.feed_reader import FeedReader
from diem.process.auth import SharedKey
from diem.protocol.assignment import Owner, client_id
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase, encode_entry
from diem.traffic.kafka_sink import KafkaSink
from diem.traffic.sinks import SinkUnavailable
from tests.integration.data.process import bulk
from tests.integration.kafka.secure_kafka import SecureKafka, without_diem
from tests.support.bridge import FeedRecorder
from tests.support.internal import http_client
from tests.support.kafka_source import create_topic, produce, reading, table_of
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port
from tests.support.required import in_cluster

S = TypeVar("S", bound="Service")

ROOT: Final = Path(__file__).parents[3]
TOPIC: Final = "diem.updates"
ROLES: Final = {
    "data": "data-service",
    "bridge": "bridge",
    "check": "auditor",
    "metadata": "metadata",
    "edge": "edge",
    "pipeline": "pipeline",
}
"""User of each role of ``diem topics --print``."""
OWNER: Final = Owner("b001", "ws://127.0.0.1:9101/ws", "ws://127.0.0.1:8101/ws")


class Service:
    """One of our processes with its log and its status."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path, internal_port: int) -> None:
        self.process = process
        self.directory = directory
        self.internal_port = internal_port
        self.log: list[str] = []

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log.append(line.decode().rstrip())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in map(json.loads, self.log) if event["event"] == name]

    def told(self, name: str, why: str) -> int:
        """Return the number of lines of this name with a reason. A slow broker may cause another one."""
        return sum(any(why in str(value) for value in event.values()) for event in self.events(name))

    @property
    def tracebacks(self) -> list[str]:
        """Return lines that no operator should see."""
        return [line for line in self.log if "Traceback" in line or not line.startswith("{")]

    @property
    def key(self) -> SharedKey:
        return SharedKey.load(self.directory / "internal.key")

    async def get(self, path: str) -> httpx.Response:
        url = f"http://127.0.0.1:{self.internal_port}{path}"
        async with http_client(self.key) as http:
            return await http.get(url)

    async def until(self, path: str, condition: Callable[[httpx.Response], bool], within: float = PATIENCE_S) -> None:
        """Repeat the request until its answer is right."""
        last = None
        try:
            async with asyncio.timeout(within):
                while last is None or not condition(last):
                    with contextlib.suppress(httpx.HTTPError):
                        last = await self.get(path)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError((last and last.text, self.log)) from None


class DataService(Service):
    @property
    def port(self) -> int:
        return int(self.events("serving")[0]["port"])

    async def put(self, name: str, value: float) -> None:
        key = SharedKey.load(self.directory / "write.key")
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            url = f"http://127.0.0.1:{self.port}/v1/data"
            answer = await http.put(url, json=bulk({name: value}), headers={"Authorization": key.header})
        assert answer.is_success, answer.text

    async def says(self, failure: str) -> None:
        await self.until("/status", lambda answer: failure in (answer.json()["publisher"]["failure"] or ""))

    async def publishes(self) -> None:
        await self.until("/status", lambda answer: answer.json()["publisher"]["state"] == "publishing")


class Bridge(Service):
    async def says(self, why_not: str) -> None:
        await self.until("/readyz", lambda answer: answer.status_code == 503 and why_not in answer.text)

    async def serves(self) -> None:
        await self.until("/readyz", lambda answer: answer.status_code == 200)

    @asynccontextmanager
    async def reading(self, sink: FeedRecorder) -> AsyncIterator[None]:
        reader = asyncio.create_task(FeedReader(f"ws://127.0.0.1:{self.internal_port}/feed", self.key, sink).run())
        try:
            yield
        finally:
            reader.cancel()
            await asyncio.wait([reader])


# One broker for all of them.
pytestmark = [pytest.mark.xdist_group("secure-kafka"), in_cluster("it takes 15 s of CPU time")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secure(kafka_program: KafkaProgram, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecureKafka]:
    """A broker with users and ACLs, without topics."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, and makes the certificates")
    kafka = SecureKafka(tmp_path_factory.mktemp("secure"), kafka_program)
    async with kafka.cluster:
        for user in (*ROLES.values(), "stranger"):
            await kafka.add_user(user)
        rights = [line for line in (await printed(kafka)) if line.startswith("kafka-acls.sh")]
        assert await kafka.allow(rights) >= len(rights) > 0
        yield kafka


async def diem(kafka: SecureKafka, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy", *arguments,
        cwd=kafka.directory, env=without_diem() | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def printed(kafka: SecureKafka) -> list[str]:
    names = [word for role, user in ROLES.items() for word in ("--principal", f"{role}={user}")]
    code, out, err = await diem(kafka, kafka.environment("auditor"), "topics", "--print", "--replication", "1", *names)
    assert (code, err) == (0, "")
    return out.replace("\\\n", "").splitlines()  # as a shell joins them


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def topic_lines(secure: SecureKafka) -> list[str]:
    """Return the printed lines that create the topics."""
    return [line for line in await printed(secure) if line.startswith("kafka-topics.sh")]


@pytest.fixture
async def topic(secure: SecureKafka, topic_lines: list[str]) -> str:
    """The updates topic, created with the others by an administrator."""
    for line in topic_lines:
        await secure.make_topic(line)
    return TOPIC


@asynccontextmanager
async def running(made: type[S], program: str, directory: Path, **environment: str) -> AsyncIterator[S]:
    """Start a process by its name (``diem.process.program``), with its internal port and this environment."""
    port = free_port()
    own = {"DIEM_STATE_DIR": str(directory), f"DIEM_{program.upper()}_INTERNAL_PORT": str(port)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "diem.process.program", program,
        cwd=ROOT, env=without_diem() | own | environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    service = made(process, directory, port)
    reading = asyncio.create_task(service.read())
    try:
        yield service
        assert process.returncode is None, "it went on"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@asynccontextmanager
async def both(directory: Path, kafka: SecureKafka, **other: object) -> AsyncIterator[tuple[DataService, Bridge]]:
    """Run a Data Service and a bridge."""
    for name in ("internal.key", "write.key"):
        SharedKey.create(directory / name)
    sources = directory / "diem.toml"
    sources.write_text("")
    own = {"DIEM_DATA_PORT": "0", "DIEM_DATA_CONFIG": str(sources), "DIEM_DATA_HOT": '["/south"]'} | kafka.environment(
        "data-service", **other
    )
    async with (
        running(DataService, "data", directory, **own) as data,
        running(Bridge, "bridge", directory, **kafka.environment("bridge", **other)) as bridge,
    ):
        yield data, bridge


async def test_updates_pass_from_the_data_service_to_a_server_by_printed_rights_alone(
    secure: SecureKafka, topic_lines: list[str], tmp_path: Path
) -> None:
    for name in secure.plain.names.topics:
        await secure.delete_topic(name)
    heard = FeedRecorder()
    async with both(tmp_path, secure) as (data, bridge):
        await bridge.says(f"topic {TOPIC} does not exist")
        await data.says(f"topic {TOPIC} was not made: Authorization failed")
        for line in topic_lines:
            await secure.make_topic(line)
        await data.put("/north", 1.0)
        async with bridge.reading(heard):
            await until(lambda: heard.state.caught_up and "/north" in heard.names)
            await data.put("/south", 2.0)
            await until(lambda: heard.names == {"/north", "/south"})
            await data.until("/status", lambda answer: answer.json()["publisher"]["lag"] == 0)
            # Rights to the group are used, too.
            await until_marked(secure)
        # The publisher has made the map, and its other readers may read it.
        for user in ("bridge", "metadata"):
            assert await read_map(secure.options(user)) == PartitionMap(Head(12, 0), {b"/south": Entry(HOT)})
        assert not data.tracebacks
        assert not bridge.tracebacks


async def test_bridges_share_a_group_and_the_metadata_service_sees_it(secure: SecureKafka, topic: str) -> None:
    options = secure.options("bridge")
    group = options.names.z_group(1)
    member = AIOKafkaConsumer(topic, group_id=group, client_id=client_id(OWNER), **options.client_arguments())
    await member.start()
    try:
        assert len(member.assignment()) == 12
        async with admin_client(secure.options("metadata")) as admin:
            clone = await read_assignment(admin, group, topic)
        assert clone.members == {OWNER.server: OWNER}
        assert clone.owners == dict.fromkeys(range(12), OWNER.server)
    finally:
        await member.stop()


async def until_marked(kafka: SecureKafka) -> None:
    """Wait until the bridge's group has committed an offset."""
    options = kafka.options("bridge")
    async with admin_client(options) as admin, asyncio.timeout(PATIENCE_S):
        while not await admin.list_consumer_group_offsets(options.names.x_group(1)):
            await asyncio.sleep(0.1)


async def test_traffic_is_written_and_read_by_printed_rights_alone(secure: SecureKafka, topic_lines: list[str]) -> None:
    edge = KafkaSink(secure.options("edge"), "websocket-1")
    name = secure.plain.names.traffic
    await secure.delete_topic(name)
    with pytest.raises(SinkUnavailable, match="was not made: Authorization failed"):
        await edge.write([b"1"])
    (line,) = [each for each in topic_lines if f"--topic {name} " in each]
    await secure.make_topic(line)
    await edge.write([b"2"])
    await edge.close()
    reader = AIOKafkaConsumer(name, **_reading(secure.options("pipeline")))
    await reader.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.getone()).value == b"2"
    finally:
        await reader.stop()
    reader = AIOKafkaConsumer(name, **_reading(secure.options("edge")))
    try:
        with pytest.raises(GroupAuthorizationFailedError):
            await reader.start()
    finally:
        await reader.stop()


def _reading(options: KafkaOptions) -> dict[str, Any]:
    return {
        "group_id": f"{options.names.pipeline}-1",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **options.client_arguments(),
    }


async def test_nobody_may_do_more_than_is_printed(secure: SecureKafka, topic: str) -> None:
    async with connected_client(secure.options("stranger")) as client:
        assert not (await describe(client)).topics
        with pytest.raises(KafkaUnavailable, match=f"this user has no rights to topic {topic}"):
            await describe(client, topic)
    async with connected_client(secure.options("bridge")) as client:
        assert topic in (await describe(client)).topics
    producer = AIOKafkaProducer(**secure.options("bridge").client_arguments())
    await producer.start()
    try:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(topic, b"{}", b"/forged")
    finally:
        await producer.stop()
    with pytest.raises(KafkaUnavailable, match="the partition map was not written"):
        await write_map(secure.options("bridge"), {}, Head(1, 1))
    consumer = AIOKafkaConsumer(**secure.options("metadata").client_arguments(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()
    finally:
        await consumer.stop()


async def test_a_wrong_password_is_one_line_and_both_go_on_until_it_is_right(
    secure: SecureKafka, topic: str, tmp_path: Path
) -> None:
    other = tmp_path / "password"
    other.touch(0o600)
    other.write_text("another one")
    async with both(tmp_path, secure, sasl_password_file=other) as (data, bridge):
        try:
            await data.says(f"{secure.servers} does not accept user data-service with this password")
            await bridge.says(f"{secure.servers} does not accept user bridge with this password")
            await data.put("/kept", 1.0)
            for user in ("data-service", "bridge"):
                await secure.add_user(user, "another one")
            await data.publishes()
            await bridge.serves()
            assert data.told("not publishing", "does not accept user") == 1
            assert bridge.told("Kafka cannot be used now", "does not accept user") == 1
        finally:
            for user in ("data-service", "bridge"):
                await secure.add_user(user)
    for service in (data, bridge):
        assert not service.tracebacks
        assert "another one" not in "".join(service.log)


REFUSED: Final[dict[str, tuple[Callable[[SecureKafka], dict[str, object]], str]]] = {
    "another authority": (
        lambda kafka: {"ca_file": kafka.certificates.other_ca},
        "the certificate of {servers} is not accepted: unable to get local issuer certificate (put the",
    ),
    "another name": (
        lambda kafka: {"bootstrap_servers": kafka.servers_by_address},
        "the certificate of {address} is not accepted: IP address mismatch",
    ),
    "another advertised name": (
        lambda kafka: {"bootstrap_servers": kafka.misnamed_servers},
        "the certificate of {misnamed} is not accepted: IP address mismatch",
    ),
    "no TLS": (
        lambda kafka: {"security_protocol": "SASL_PLAINTEXT"},
        "{servers} ends the connection: does it need another security protocol, or a login?",
    ),
    "no login": (
        lambda kafka: {"security_protocol": "SSL"},
        "{servers} ends the connection: does it need another security protocol, or a login?",
    ),
    "another mechanism": (
        lambda kafka: {"sasl_mechanism": "SCRAM-SHA-256"},
        "{servers} does not offer SCRAM-SHA-256",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_connection_is_one_line_with_the_reason(secure: SecureKafka, case: str) -> None:
    changed, expected = REFUSED[case]
    misnamed = secure.misnamed_servers.replace("localhost", "127.0.0.1")
    with pytest.raises(KafkaUnavailable) as refused:
        async with connected_client(secure.options("bridge", **changed(secure))) as client:
            await describe(client)
    said = str(refused.value)
    assert expected.format(servers=secure.servers, address=secure.servers_by_address, misnamed=misnamed) in said
    assert "\n" not in said


async def test_an_unknown_authority_leaves_the_services_up_with_one_line_each(
    secure: SecureKafka, tmp_path: Path
) -> None:
    changed, expected = REFUSED["another authority"]
    line = expected.format(servers=secure.servers)
    async with both(tmp_path, secure, **changed(secure)) as (data, bridge):
        await data.says(line)
        await bridge.says(line)
        await data.put("/kept", 1.0)
    for service, event in ((data, "not publishing"), (bridge, "Kafka cannot be used now")):
        assert service.told(event, line) == 1
        assert not service.tracebacks


async def test_check_finds_no_fault_of_security_with_its_own_rights(secure: SecureKafka, topic: str) -> None:
    code, out, err = await diem(secure, secure.environment("auditor"), "check", "--tolerate", "0", "--json")
    assert err == ""
    findings = {each["rule"]: each for each in json.loads(out)["findings"]}
    faults = [each for each in findings.values() if each["verdict"] == "fault"]
    assert (code, faults) == (0, [])
    assert (findings["authorizer"]["verdict"], findings["authorizer"]["found"]) == ("ok", "StandardAuthorizer")
    hidden = [name for name, each in findings.items() if each["found"].startswith("the cluster does not show ")]
    assert hidden == [], "its rights are enough to see everything"


async def test_check_without_rights_names_the_missing_ones(secure: SecureKafka, topic: str) -> None:
    code, out, err = await diem(secure, secure.environment("stranger"), "check", "--tolerate", "0", "--json")
    findings = {each["rule"]: each for each in json.loads(out)["findings"]}
    assert (code, err) == (1, "")
    assert [name for name, each in findings.items() if each["verdict"] == "fault"] == ["topic"]
    assert findings["topic"]["found"] == f"topic {topic} does not exist, or this user may not see it"
    assert findings["authorizer"]["change"] == "give this user the rights that `diem topics --print` lists for check"


async def test_check_with_a_wrong_password_is_one_line(secure: SecureKafka) -> None:
    wrong = secure.environment("auditor", sasl_password_file=secure.password_file("bridge"))
    reason = f"{secure.servers} does not accept user auditor with this password"
    assert await diem(secure, wrong, "check") == (1, "", f"diem: Kafka at {secure.servers}: {reason}\n")


async def test_plans_are_applied_by_printed_rights_alone(secure: SecureKafka, topic: str) -> None:
    before = Head(12, 100)
    await write_map(secure.options("data-service"), {}, before)
    options, head = secure.options("metadata"), Head(12, 101, Phase.PREPARE, "p")
    assert await change_map(options, before, {b"/a": encode_entry(Entry(1, 2))}, head)
    assert not await change_map(options, before, {}, Head(12, 102)), "the map is another one by now"
    async with admin_client(options) as admin:
        await admin.create_partitions({topic: NewPartitions(13)})
    found = await read_map(options)
    assert found is not None
    assert (found.head, found.entries[b"/a"]) == (head, Entry(1, 2))


async def test_a_source_reads_a_topic_with_rights_to_it_alone(secure: SecureKafka, tmp_path: Path) -> None:
    await secure.add_user("reader")
    await create_topic(replace(secure.plain, topic_prefix=""), "stock", 2)
    await produce(secure.plain, "stock", [("a", {"n": 1})])
    fields = {
        "security_protocol": "SASL_SSL",
        "sasl_username": "reader",
        "sasl_password_file": str(secure.password_file("reader")),
        "ca_file": str(secure.certificates.other_ca),
        "bootstrap_servers": secure.servers,
    }
    async with reading(table_of(secure.plain, "stock", **fields), tmp_path) as source:
        await source.failed("is not accepted")
        assert "put the certificate of its CA in ca_file" in str(source.source.health.error)
    fields["ca_file"] = str(secure.certificates.ca)
    async with reading(table_of(secure.plain, "stock", **fields), tmp_path) as source:
        await source.failed("this user has no rights to topic stock")
        tools = f"kafka-acls.sh --bootstrap-server {secure.servers} --command-config admin.properties --add"
        line = f"{tools} --allow-principal User:reader --operation Read --operation Describe --topic stock"
        assert await secure.allow([line]) == 2
        async with asyncio.timeout(PATIENCE_S):
            while await source.content("/t/a") != {"n": 1}:
                await asyncio.sleep(0.05)
        await source.caught_up()
    other = tmp_path / "other.password"
    other.touch(0o600)
    other.write_text("wrong\n")
    fields["sasl_password_file"] = str(other)
    async with reading(table_of(secure.plain, "stock", **fields), tmp_path) as source:
        await source.failed("does not accept user reader with this password")
