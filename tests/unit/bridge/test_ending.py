"""How a bridge takes leave of a consumer, whatever the client library makes of it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bridge import consumer as module
from tests.support.patience import PATIENCE_S


def stub(stop: Callable[[], Awaitable[None]]) -> Any:
    async def close() -> None:
        stub_.closed = True

    stub_ = SimpleNamespace(
        stop=stop,
        closed=False,
        _fetcher=SimpleNamespace(_fetch_task=None),
        _coordinator=SimpleNamespace(),
        _client=SimpleNamespace(close=close),
    )
    return stub_


async def test_a_stop_that_ends_with_what_it_cancelled_itself_ends_nobody_else() -> None:
    async def stop() -> None:
        raise asyncio.CancelledError

    consumer = stub(stop)
    await module._stop(consumer)
    assert consumer.closed, "it is abandoned"


async def test_a_stop_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_WITHIN", 0.05)
    cut_short = asyncio.Event()

    async def stop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut_short.set()

    consumer = stub(stop)
    async with asyncio.timeout(PATIENCE_S):
        await module._stop(consumer)
        await cut_short.wait()
    assert consumer.closed


async def test_a_stop_that_works_abandons_nothing() -> None:
    async def stop() -> None:
        await asyncio.sleep(0)

    consumer = stub(stop)
    await module._stop(consumer)
    assert not consumer.closed
