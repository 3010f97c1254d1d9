"""Clients of aiokafka: connect to the cluster, administer it, end them in any state of it, explain refusals.

The library waits for a cluster that does not answer, and writes to its log, attempt by attempt, why brokers refuse it;
here everything ends in bounded time, with one kind of error that gives the reason.
"""

import asyncio
import logging
import ssl
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
from diem.kafka.errors import KafkaUnavailable

DIAGNOSE_TIMEOUT_S: Final = 3.0
_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another host name or address (X509_V_ERR_HOSTNAME_MISMATCH and so on)."""


async def diagnose(client: AIOKafkaClient, addresses: Iterable[tuple[str, int]]) -> str:
    """Return the fault of each address in one line, found by one more attempt; empty if all accept us now."""
    # In order: aiokafka shuffles its addresses, and the same fault is to be the same line.
    found = await asyncio.gather(*(_attempt(client, host, port) for host, port in sorted(addresses)))
    return "; ".join(dict.fromkeys(filter(None, found)))


async def _attempt(client: AIOKafkaClient, host: str, port: int) -> str | None:
    # The client has no public names for what it was made with.
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
                # A broker that waits for a login takes the connection, and ends it at the first request.
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except (KafkaError, OSError, TimeoutError) as error:
        return describe_error(error, f"{host}:{port}", client._sasl_plain_username, client._sasl_mechanism)  # noqa: SLF001
    return None


def describe_error(error: Exception, address: str, user: str | None, mechanism: str) -> str:
    """An error of connecting to ``address`` in words that say what to change."""
    match error:
        case ssl.SSLCertVerificationError():
            hint = "" if error.verify_code in _OTHER_NAME else " (who signed it belongs into DIEM_KAFKA_CA_FILE)"
            return f"the certificate of {address} is not accepted: {error.verify_message.rstrip('.')}{hint}"
        case SaslAuthenticationFailed():
            return f"{address} does not accept user {user} with this password"
        case UnsupportedSaslMechanismError():
            return f"{address} does not offer {mechanism}"
        case TimeoutError():
            return f"{address} does not answer"
        case ssl.SSLError() | KafkaConnectionError() | ConnectionResetError():
            return f"{address} ends the connection: is it of this security protocol? ({str(error) or 'reset'})"
    return str(error) or f"{address}: {type(error).__name__}"


CLOSE_TIMEOUT_S: Final = 1.0


async def close_all(*endings: Callable[[], Awaitable[Any]]) -> None:
    """Call each, one after the other, and leave it after a second; what goes wrong in it is nobody's concern."""
    for ending in endings:
        # In a task of its own: these end with the CancelledError of what they have themselves cancelled.
        task = asyncio.ensure_future(ending())
        await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # whatever it is, the client is given up


async def abort_producer(producer: AIOKafkaProducer) -> None:
    """End a producer at once. What is under way is sent again by whoever comes next: to wait would hold that up.

    Its own ``stop()`` waits for every request, which a broker that hangs does not answer for 40 s; and until then it
    would repeat them, beside its successor.
    """
    producer._closed = True  # noqa: SLF001  # there is no public way to end it without waiting
    await close_all(producer._sender.close, producer.client.close)  # noqa: SLF001
    # A writer that another one has shut out keeps that in a future that nobody asks: it would be in the log, later.
    transactions = producer._txn_manager  # noqa: SLF001
    waiter = transactions and transactions.wait_for_transaction_end()
    if waiter is not None and waiter.done() and not waiter.cancelled():
        waiter.exception()


CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_MS: Final = 3000
GRACE_S: Final = 0.3
"""For other attempts to end by themselves, once one has succeeded or the time is over."""


@asynccontextmanager
async def connected_client(options: KafkaOptions, within: float = CONNECT_TIMEOUT_S) -> AsyncIterator[AIOKafkaClient]:
    """A client that has reached the cluster; it is closed at the end.

    All brokers that are named are tried at once: one that hangs takes a connection, and answers nothing.

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
            # They let us in meanwhile.
            client = await _first(clients, within)
        if client is None:
            raise KafkaUnavailable(options.bootstrap_servers, "no broker answers")
        yield client
    finally:
        await asyncio.gather(*map(_close, clients))


async def _first(clients: Sequence[AIOKafkaClient], within: float) -> AIOKafkaClient | None:
    """The first that has reached the cluster."""
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
            # Not cancelled: an attempt that is cut short leaves its connection open. It ends by itself within 6 s.
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
"""Attempts that are being ended: a task that nobody holds may vanish."""


ADMIN_REQUEST_TIMEOUT_MS: Final = 10_000
ADMIN_TIMEOUT_S: Final = 20.0


@asynccontextmanager
async def admin_client(
    options: KafkaOptions, within: float | None = ADMIN_TIMEOUT_S
) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client; the block has ``within`` seconds, or with None as long as it takes.

    Raises:
        KafkaUnavailable: the cluster does not answer, or refuses; also for what fails so in the block.
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


Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def silence_library_log() -> None:
    """Keep the lines of aiokafka, and its exceptions that nobody retrieves, out of the log of the running loop.

    It writes a line for each of its attempts, ten in a second; what is wrong is in the exceptions that its callers get.
    And it leaves tasks behind: of a commit or a request that was given up, the part that is under way goes on, and may
    fail later with what the cluster says then (``GroupLoadInProgressError``, ``NotCoordinatorForGroupError``,
    ``NodeNotReadyError`` and so on). The loop would write a traceback of that; whoever gave up has tried again.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if not isinstance(before, _AbandonedTaskHandler):
        loop.set_exception_handler(_AbandonedTaskHandler(before))


class _AbandonedTaskHandler:
    """An exception handler of a loop (:meth:`asyncio.loop.set_exception_handler`)."""

    def __init__(self, before: Handler | None) -> None:
        self._before: Final = before
        self._log = structlog.get_logger("kafka")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, KafkaError) and "future" in context:
            text = f"{type(error).__name__} {error}".strip()
            self._log.warning("a request to Kafka that was given up has failed", error=text)
        elif self._before is None:
            loop.default_exception_handler(context)
        else:
            self._before(loop, context)
