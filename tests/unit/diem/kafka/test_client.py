"""Refused connections, as one line that names what to change; and errors of abandoned tasks."""

import asyncio
import gc
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import structlog
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from diem.kafka.client import connected_client, describe_error, diagnose, silence_library_log
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import NO_BROKER, KafkaUnavailable
from diem.kafka.metadata import describe
from diem.kafka.topics import create, traffic_spec


def unverified(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            unverified(20, "unable to get local issuer"),
            "k:1 is not accepted: unable to get local issuer (put the certificate of its CA in DIEM_KAFKA_CA_FILE)",
        ),
        (unverified(62, "Hostname mismatch."), "the certificate of k:1 is not accepted: Hostname mismatch"),
        (SaslAuthenticationFailed("no"), "k:1 does not accept user alice with this password"),
        (UnsupportedSaslMechanismError("no"), "k:1 does not offer PLAIN"),
        (TimeoutError(), "k:1 does not answer"),
        (KafkaConnectionError("closed"), "k:1 ends the connection"),
        (
            ConnectionResetError(),
            "k:1 ends the connection: does it need another security protocol, or a login? (reset)",
        ),
        (
            ssl.SSLError(1, "wrong version number"),
            "k:1 ends the connection: does it need another security protocol, or a login?",
        ),
        (OSError(111, "Connect call failed"), "Connect call failed"),
        (OSError(), "k:1: OSError"),
    ],
)
def test_every_error_names_what_to_change(error: Exception, line: str) -> None:
    assert line in describe_error(error, "k:1", "alice", "PLAIN")


@asynccontextmanager
async def closing() -> AsyncIterator[int]:
    """Yield the port of a server that closes connections at the first request."""

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_every_address_is_named_once_in_the_same_order() -> None:
    async with closing() as port:
        client = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{port}")
        ours, nobodys = ("127.0.0.1", port), ("127.0.0.1", 1)
        line = await diagnose(client, [ours, nobodys, ours])
        assert line == await diagnose(client, [nobodys, ours])
    first, second = line.split("; ")
    assert "('127.0.0.1', 1)" in first
    assert second.startswith(f"127.0.0.1:{port} ends the connection")


async def test_who_cannot_connect_hears_why() -> None:
    async with closing() as port:
        with pytest.raises(KafkaUnavailable, match=f"127.0.0.1:{port} ends the connection"):
            async with connected_client(KafkaOptions(f"127.0.0.1:{port}")):
                pass


async def test_a_broker_that_lets_us_in_meanwhile_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[AIOKafkaClient] = []

    async def bootstrap(client: AIOKafkaClient) -> None:
        attempts.append(client)
        if len(attempts) == 1:
            raise KafkaConnectionError("Unable to bootstrap")

    async def nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    monkeypatch.setattr("diem.kafka.client.diagnose", nothing)
    async with connected_client(KafkaOptions("127.0.0.1:1")) as client:
        assert attempts == [client, client]


Fail = Callable[[], Awaitable[None]]


async def left_behind(error: Exception) -> None:
    """Run a task that fails with ``error`` after its awaiter has gone, like an abandoned commit."""

    async def fail() -> None:
        raise error

    task = asyncio.ensure_future(fail())
    await asyncio.wait([task])
    del task
    gc.collect()


@pytest.mark.parametrize(
    "kind",
    [
        GroupLoadInProgressError,
        GroupCoordinatorNotAvailableError,
        NotCoordinatorForGroupError,
        RebalanceInProgressError,
        NodeNotReadyError,
    ],
)
async def test_an_error_of_kafka_that_nobody_retrieves_is_one_line(
    kind: type[KafkaError], caplog: pytest.LogCaptureFixture
) -> None:
    silence_library_log()
    silence_library_log()
    with structlog.testing.capture_logs() as lines:
        await left_behind(kind())
    assert [(line["log_level"], line["error"].split()[0]) for line in lines] == [("warning", kind.__name__)]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_error_in_the_library_itself_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    silence_library_log()
    with structlog.testing.capture_logs() as lines:
        task = asyncio.ensure_future(AIOKafkaAdminClient().create_topics([object()]))  # has no name of a topic
        await asyncio.wait([task])
        del task
        gc.collect()
    assert [(line["log_level"], line["error"].split()[0]) for line in lines] == [("warning", "AttributeError")]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_cluster_whose_brokers_are_all_fenced_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[AIOKafkaClient] = []

    async def bootstrap(_client: AIOKafkaClient) -> None:
        """Connect to a broker that counts none as active."""

    async def update(client: AIOKafkaClient) -> bool:
        updates.append(client)
        return False

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", bootstrap)
    monkeypatch.setattr(AIOKafkaClient, "force_metadata_update", update)
    options = KafkaOptions("127.0.0.1:1")
    with pytest.raises(KafkaUnavailable) as caught:
        await create(options, traffic_spec(options, 1))
    assert (caught.value.reason, len(updates)) == (NO_BROKER, 1)


async def test_the_answer_of_a_broker_that_counts_none_as_active_is_no_cluster() -> None:
    async def send(*_: object) -> SimpleNamespace:
        return SimpleNamespace(topics=[], brokers=[], cluster_id="c", controller_id=-1)

    known = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=1)])
    client = SimpleNamespace(cluster=known, send=send, _bootstrap_servers="h:1")
    with pytest.raises(KafkaUnavailable) as caught:
        await describe(cast("AIOKafkaClient", client))
    assert caught.value.reason == NO_BROKER


async def test_any_other_error_that_nobody_retrieves_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    silence_library_log()
    with structlog.testing.capture_logs() as lines:
        await left_behind(ValueError("a fault of our own"))
    assert not lines
    (record,) = [record for record in caplog.records if record.name == "asyncio"]
    assert "never retrieved" in record.message
    assert record.exc_info is not None


async def test_a_handler_that_was_there_keeps_what_is_not_of_kafka() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    silence_library_log()
    error = ValueError()
    await left_behind(error)
    await left_behind(KafkaError())
    assert reported == [error]
