"""A client that has reached the cluster, whichever of the brokers that are named answers first."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from diem.kafka.errors import KafkaUnavailable
from diem.kafka.options import KafkaOptions
from diem.kafka.refusal import why

WITHIN_S: Final = 10.0
REQUEST_TIMEOUT_MS: Final = 3000
ENDED_WITHIN_S: Final = 0.3
"""What other attempts are given to end by themselves once one has succeeded, or nobody waits any more."""


@asynccontextmanager
async def connected(options: KafkaOptions, within: float = WITHIN_S) -> AsyncIterator[AIOKafkaClient]:
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
            if reason := await why(clients[0], named):
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
            await asyncio.wait(waiting, timeout=ENDED_WITHIN_S)
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
