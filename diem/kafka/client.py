"""Clients of aiokafka: connect, administer, close in any state of the cluster, and diagnose refused connections.

The library waits forever for an unresponsive cluster, and only logs the reasons of refused connections. Here, every
wait is bounded, and one error gives the reason. This uses internals of aiokafka (0.14).
"""

import asyncio
import logging
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.protocol.metadata import MetadataRequest

from diem.kafka.config import KafkaOptions
from diem.kafka.errors import NO_BROKER, KafkaUnavailable

DIAGNOSE_TIMEOUT_S: Final = 3.0
_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate with a different host name or address (X509_V_ERR_HOSTNAME_MISMATCH and so on)."""


async def diagnose(client: AIOKafkaClient, addresses: Iterable[tuple[str, int]]) -> str:
    """Connect once to each address; return the faults in one line, empty if all accept connections."""
    # Sorted, as aiokafka shuffles its addresses: equal faults should give equal lines.
    found = await asyncio.gather(*(_attempt(client, host, port) for host, port in sorted(addresses)))
    return "; ".join(dict.fromkeys(filter(None, found)))


async def _attempt(client: AIOKafkaClient, host: str, port: int) -> str | None:
    # The client has no public attributes for its options.
    try:
        async with asyncio.timeout(DIAGNOSE_TIMEOUT_S):
            connection = await create_conn(
                host,
                port,
                security_protocol=client._security_protocol,  # noqa: SLF001
                ssl_context=client._ssl_context,  # noqa: SLF001
                sasl_mechanism=client._sasl_mechanism,  # noqa: SLF001
                sasl_plain_username=client._sasl_plain_username,  # noqa: SLF001
                sasl_plain_password=client._sasl_plain_password,  # noqa: SLF001
            )
            try:
                # A broker that requires a login accepts the connection and closes it at the first request.
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except (KafkaError, OSError, TimeoutError) as error:
        return describe_error(error, f"{host}:{port}", client._sasl_plain_username, client._sasl_mechanism)  # noqa: SLF001
    return None


def describe_error(error: Exception, address: str, user: str | None, mechanism: str) -> str:
    """Return the text of a connection error, with the setting to change if there is one."""
    match error:
        case ssl.SSLCertVerificationError():
            hint = "" if error.verify_code in _OTHER_NAME else " (put the certificate of its CA in DIEM_KAFKA_CA_FILE)"
            return f"the certificate of {address} is not accepted: {error.verify_message.rstrip('.')}{hint}"
        case SaslAuthenticationFailed():
            return f"{address} does not accept user {user} with this password"
        case UnsupportedSaslMechanismError():
            return f"{address} does not offer {mechanism}"
        case TimeoutError():
            return f"{address} does not answer"
        case ssl.SSLError() | KafkaConnectionError() | ConnectionResetError():
            hint = "does it need another security protocol, or a login?"
            return f"{address} ends the connection: {hint} ({str(error) or 'reset'})"
    return str(error) or f"{address}: {type(error).__name__}"


CLOSE_TIMEOUT_S: Final = 1.0


async def close_all(*endings: Callable[[], Awaitable[Any]]) -> None:
    """Call ``endings`` one after the other, each for at most a second; their errors are ignored."""
    for ending in endings:
        # In its own task: it may raise the CancelledError of a task it cancelled itself.
        task = asyncio.ensure_future(ending())
        await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # retrieved: the client is abandoned in any case


async def abort_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer without waiting for requests in flight, which its successor resends.

    Its own ``stop()`` waits for all of them, 40 s for a hung broker, and resends them meanwhile, in parallel with the
    successor.
    """
    producer._closed = True  # noqa: SLF001  # there is no public way to close it without waiting
    await close_all(producer._sender.close, producer.client.close)  # noqa: SLF001
    # The error of a fenced producer is in a future nobody awaits, and would be logged later if not retrieved.
    transactions = producer._txn_manager  # noqa: SLF001
    waiter = transactions and transactions.wait_for_transaction_end()
    if waiter is not None and waiter.done() and not waiter.cancelled():
        waiter.exception()


CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_MS: Final = 3000
GRACE_S: Final = 0.3
"""Time for the other attempts to end, once one has succeeded or all have timed out."""


@asynccontextmanager
async def connected_client(options: KafkaOptions, within: float = CONNECT_TIMEOUT_S) -> AsyncIterator[AIOKafkaClient]:
    """Open a client connected to the cluster, and close it after the block.

    All bootstrap servers are tried concurrently: a hung one accepts connections and never answers.

    Raises:
        KafkaUnavailable: no broker answered ``within`` seconds.
        ConfigurationError: see :meth:`KafkaOptions.client_arguments`.
    """
    arguments = options.client_arguments() | {"request_timeout_ms": REQUEST_TIMEOUT_MS}
    servers = options.bootstrap_servers.split(",")
    clients = [AIOKafkaClient(**arguments | {"bootstrap_servers": server.strip()}) for server in servers]
    try:
        client = await _first(clients, within)
        if client is None:
            named = [(host, port) for each in clients for host, port, _family in each.hosts]
            if reason := await diagnose(clients[0], named):
                raise KafkaUnavailable(options.bootstrap_servers, reason)
            # The brokers accept connections by now.
            client = await _first(clients, within)
        if client is None:
            raise KafkaUnavailable(options.bootstrap_servers, "no broker answers")
        yield client
    finally:
        await asyncio.gather(*map(_close, clients))


async def _first(clients: Sequence[AIOKafkaClient], within: float) -> AIOKafkaClient | None:
    """Return the first client to connect to the cluster, None if none does."""
    attempts = {asyncio.create_task(client.bootstrap()): client for client in clients}
    limit, waiting = asyncio.get_running_loop().time() + within, set(attempts)
    try:
        while waiting and (left := limit - asyncio.get_running_loop().time()) > 0:
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                if attempt.exception() is None:
                    return attempts[attempt]
        return None
    finally:
        if waiting:
            await asyncio.wait(waiting, timeout=GRACE_S)
        for attempt in (attempt for attempt in waiting if not attempt.done()):
            # Not cancelled: a cancelled attempt leaks its connection. It ends by itself within 6 s.
            ending = asyncio.create_task(_end(attempt, attempts[attempt]))
            _endings.add(ending)
            ending.add_done_callback(_endings.discard)


async def _end(attempt: "asyncio.Task[None]", client: AIOKafkaClient) -> None:
    await asyncio.wait([attempt])
    if not attempt.cancelled():
        attempt.exception()
    await _close(client)


async def _close(client: AIOKafkaClient) -> None:
    with suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(2):
            await client.close()


_endings: Final[set["asyncio.Task[None]"]] = set()
"""References to ending attempts: an unreferenced task may be garbage collected."""


ADMIN_REQUEST_TIMEOUT_MS: Final = 10_000
ADMIN_TIMEOUT_S: Final = 20.0


@asynccontextmanager
async def admin_client(
    options: KafkaOptions, within: float | None = ADMIN_TIMEOUT_S
) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open a connected admin client; the block may take ``within`` seconds (None: any time).

    Raises:
        KafkaUnavailable: the cluster does not answer, or refuses, including in the block.
        ConfigurationError: see :meth:`KafkaOptions.client_arguments`.
    """
    admin = AIOKafkaAdminClient(request_timeout_ms=ADMIN_REQUEST_TIMEOUT_MS, **options.client_arguments())
    try:
        async with asyncio.timeout(within):
            await admin.start()
            yield admin
    except (KafkaError, OSError, TimeoutError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}".strip()
        raise KafkaUnavailable(options.bootstrap_servers, reason) from error
    finally:
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(2):
                await admin.close()


async def require_controller(admin: AIOKafkaAdminClient, options: KafkaOptions) -> None:
    """Raise ``KafkaUnavailable`` without a controller, which the library assumes when changing topics."""
    client = admin._client  # noqa: SLF001  # it has no public name
    if client.cluster.controller is None:
        await client.force_metadata_update()
    if client.cluster.controller is None:
        raise KafkaUnavailable(options.bootstrap_servers, NO_BROKER)


def raised_in_library(error: BaseException) -> bool:
    """Return whether an error of any type originates in aiokafka, which has bugs in unexpected cluster states."""
    if isinstance(error, KafkaError):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__")).partition(".")[0] == "aiokafka" for frame, _ in frames)


Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def silence_library_log() -> None:
    """Keep aiokafka's log lines and the exceptions of its abandoned tasks out of the running loop's log.

    It logs every attempt, ten a second, although callers get the reason as an exception. And it abandons tasks: parts
    of a cancelled commit or request continue and may fail later (``GroupLoadInProgressError``,
    ``NotCoordinatorForGroupError``, ``NodeNotReadyError`` and so on), and the loop would log a traceback although the
    caller has retried.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if not isinstance(before, _AbandonedTaskHandler):
        loop.set_exception_handler(_AbandonedTaskHandler(before))


class _AbandonedTaskHandler:
    """Exception handler of a loop (:meth:`asyncio.loop.set_exception_handler`): one line for errors of aiokafka."""

    def __init__(self, before: Handler | None) -> None:
        self._before: Final = before
        self._log = structlog.get_logger("kafka")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "future" in context and raised_in_library(error):
            text = f"{type(error).__name__} {error}".strip()
            self._log.warning("an abandoned request to Kafka has failed", error=text)
        elif self._before is None:
            loop.default_exception_handler(context)
        else:
            self._before(loop, context)
