"""Attempts of a source: each error is its health, the next attempt follows, and pauses grow."""

import asyncio
import re

import pytest

from diem.process.clock import ManualClock
from services.data.errors import CheckpointMoved, DataError, StoreUnavailable, TooManyEndpoints
from services.data.sources.records.applier import RecordRefused
from services.data.sources.records.attempts import RETRY_CAP_S, InputFailed, keep_trying
from services.data.sources.source import Fault, Health


async def health_after(error: DataError, attempts: int = 1) -> tuple[Health, list[float]]:
    """Return the health after an error of each of several attempts, and the pauses."""
    health, pauses = Health("orders", ManualClock()), list[float]()

    async def attempt() -> None:
        raise error

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == attempts:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await keep_trying(health, attempt, sleep=sleep)
    return health, pauses


@pytest.mark.parametrize(
    ("error", "fault", "text"),
    [
        (
            RecordRefused("0", "11", "before 11", "{id} is missing"),
            Fault.INVALID,
            "0, before 11: .*replay orders --skip",
        ),
        (TooManyEndpoints("the store may hold 5 endpoints"), Fault.STORE, "may hold 5"),
        (StoreUnavailable("the disk is full"), Fault.STORE, "disk is full"),
        (InputFailed("no broker at a:1"), Fault.UNREACHABLE, "no broker"),
    ],
)
async def test_an_error_is_the_health_of_the_source(error: DataError, fault: Fault, text: str) -> None:
    health, _ = await health_after(error)
    assert re.search(text, health.error or "")
    assert health.fault is fault


async def test_a_moved_checkpoint_is_no_failure() -> None:
    health, pauses = await health_after(CheckpointMoved("orders", "0", "7"))
    assert (health.error, health.failures, pauses) == (None, 0, [0.0])


async def test_pauses_grow_up_to_a_bound() -> None:
    health, pauses = await health_after(InputFailed("no broker"), 40)
    assert health.failures == 40
    assert pauses[0] == 0
    assert RETRY_CAP_S / 4 < max(pauses) <= RETRY_CAP_S
