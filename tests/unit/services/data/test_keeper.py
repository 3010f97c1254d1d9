"""Sources run each by itself: one that breaks starts over, and the others never notice."""

import asyncio
from collections.abc import Sequence

import pytest

from diem.process import metrics
from diem.process.clock import ManualClock
from services.data.datasets import Dataset
from services.data.sources import keeper
from services.data.sources.keeper import Keeper
from services.data.sources.source import Claim, Health, Sink


class Broken:
    """Breaks a number of times, then works."""

    claims = (Claim("/broken"),)

    def __init__(self, times: int) -> None:
        self.name = "broken"
        self.health = Health("broken", ManualClock())
        self.times = times
        self.worked = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        if self.times:
            self.times -= 1
            raise ZeroDivisionError
        self.health.succeeded()
        self.worked.set()
        await asyncio.Event().wait()


async def test_a_source_that_breaks_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "RESTART_WITHIN_S", 0.0)
    source = Broken(2)

    async def sink(datasets: Sequence[Dataset], *, source: str) -> None:
        raise AssertionError

    kept = Keeper([source])
    running = asyncio.create_task(kept.run(sink))
    await asyncio.wait_for(source.worked.wait(), 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    (status,) = kept.status()
    assert status == {
        "name": "broken",
        "ok": True,
        "error": None,
        "last_success": "2023-11-14T22:13:20.000Z",
        "failures": 2,
    }
    assert list(kept.samples()) == [
        metrics.SOURCE_POLLS.sample(1, "broken"),
        metrics.SOURCE_FAILURES.sample(2, "broken"),
    ]


def test_a_source_that_has_not_succeeded_yet_is_not_ok() -> None:
    assert not Health("new", ManualClock()).status()["ok"]
