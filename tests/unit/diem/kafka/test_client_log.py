"""What the client library leaves behind is one line each, and not a traceback."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest
import structlog
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
)

from diem.kafka.client_log import quieten

Fail = Callable[[], Awaitable[None]]


async def left_behind(error: Exception) -> None:
    """A task that ends with ``error`` when nobody waits for it any more: as a commit does that was given up."""

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
    quieten()
    quieten()
    with structlog.testing.capture_logs() as lines:
        await left_behind(kind())
    assert [(line["log_level"], line["error"].split()[0]) for line in lines] == [("warning", kind.__name__)]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_any_other_error_that_nobody_retrieves_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    quieten()
    with structlog.testing.capture_logs() as lines:
        await left_behind(ValueError("a fault of our own"))
    assert not lines
    (record,) = [record for record in caplog.records if record.name == "asyncio"]
    assert "never retrieved" in record.message
    assert record.exc_info is not None


async def test_a_handler_that_was_there_keeps_what_is_not_of_kafka() -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(context["exception"]))
    quieten()
    error = ValueError()
    await left_behind(error)
    await left_behind(KafkaError())
    assert heard == [error]
