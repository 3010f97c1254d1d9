"""Ends clients of aiokafka without waiting for a cluster that does not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer

END_WITHIN_S: Final = 1.0


async def end(*endings: Callable[[], Awaitable[Any]]) -> None:
    """Call each, one after the other, and leave it after a second; what goes wrong in it is nobody's concern."""
    for ending in endings:
        # In a task of its own: these end with the CancelledError of what they have themselves cancelled.
        task = asyncio.ensure_future(ending())
        await asyncio.wait([task], timeout=END_WITHIN_S)
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()  # whatever it is, the client is given up


async def end_producer(producer: AIOKafkaProducer) -> None:
    """End a producer at once. What is under way is sent again by whoever comes next: to wait would hold that up.

    Its own ``stop()`` waits for every request, which a broker that hangs does not answer for 40 s; and until then it
    would repeat them, beside its successor.
    """
    producer._closed = True  # noqa: SLF001  # there is no public way to end it without waiting
    await end(producer._sender.close, producer.client.close)  # noqa: SLF001
    # A writer that another one has shut out keeps that in a future that nobody asks: it would be in the log, later.
    transactions = producer._txn_manager  # noqa: SLF001
    waiter = transactions and transactions.wait_for_transaction_end()
    if waiter is not None and waiter.done() and not waiter.cancelled():
        waiter.exception()
