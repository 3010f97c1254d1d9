"""The runner: a source that raises is restarted, and does not affect the others."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from diem.process import metrics
from diem.process.clock import ManualClock
from services.data.errors import DataError
from services.data.kinds import Representation
from services.data.kinds.series import Dataset, Point, build
from services.data.sources import runner
from services.data.sources.runner import SourceRunner
from services.data.sources.source import Claim, Health, Sink
from tests.support.patience import PATIENCE_S


class Broken:
    """A source that raises a number of times, then works."""

    claims = (Claim("/broken"),)

    def __init__(self, times: int, error: type[BaseException]) -> None:
        self.name = "broken"
        self.health = Health("broken", ManualClock())
        self.times = times
        self.error = error
        self.worked = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        if self.times:
            self.times -= 1
            raise self.error
        self.health.succeeded()
        self.worked.set()
        await asyncio.Event().wait()


async def run_until(done: asyncio.Event, kept: SourceRunner) -> list[Representation]:
    """Run sources until an event; return what they have written."""
    stored: list[Representation] = []

    async def sink(datasets: Sequence[Representation], *, source: str) -> None:
        stored.extend(datasets)

    running = asyncio.create_task(kept.run(sink))
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return stored


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_source_that_raises_is_restarted(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    monkeypatch.setattr(runner, "RESTART_WITHIN_S", 0.0)
    source = Broken(2, error)
    kept = SourceRunner([source])
    assert await run_until(source.worked, kept) == []
    (status,) = kept.status()
    assert status == {
        "name": "broken",
        "type": "",
        "ok": True,
        "error": None,
        "last_success": "2023-11-14T22:13:20.000Z",
        "failures": 2,
        "next_attempt": "2023-11-14T22:13:20.000Z",
        "endpoints": 0,
    }
    assert list(kept.samples()) == [
        metrics.SOURCE_OK.sample(1, "broken"),
        metrics.SOURCE_POLLS.sample(1, "broken"),
        metrics.SOURCE_FAILURES.sample(2, "broken"),
    ]


class Eager:
    """A source that writes two datasets, and then one that it does not claim."""

    claims = (Claim("/a", below=True),)
    name = "eager"

    def __init__(self) -> None:
        self.health = Health("eager", ManualClock())
        self.done = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        points = [Point(0, 1)]
        for _ in range(2):
            await sink([build("/a/x", "MW", "PT1H", points), build("/a/y", "MW", "PT1H", points)], source=self.name)
        for endpoint, name in (("/other", "other"), ("/b", self.name)):
            try:
                await sink([build(endpoint, "MW", "PT1H", points)], source=name)
            except DataError as error:
                self.health.failed(str(error))
        self.done.set()
        await asyncio.Event().wait()


class Other:
    """A source with the claim that the first one violates."""

    claims = (Claim("/other"),)
    name = "other"
    health = Health("other", ManualClock())

    async def run(self, sink: Sink) -> None:
        await asyncio.Event().wait()


async def test_a_source_may_only_write_its_claims_and_its_endpoints_are_counted() -> None:
    source = Eager()
    kept = SourceRunner([source, Other()], {"eager": "test"})
    stored = await run_until(source.done, kept)
    status, other = kept.status()
    assert (status["type"], status["endpoints"], status["failures"]) == ("test", 2, 2)
    assert other["endpoints"] == 0
    assert status["error"] == "/b is not claimed by the source 'eager'"
    assert [dataset.endpoint for dataset in stored] == ["/a/x", "/a/y"] * 2


async def test_a_source_that_can_only_be_run_is_tried_until_its_first_outcome() -> None:
    kept = SourceRunner([Broken(0, ZeroDivisionError)])
    await asyncio.wait_for(kept.try_once(unused), PATIENCE_S)
    assert [entry["ok"] for entry in kept.status()] == [True]


async def test_a_trial_of_a_source_without_an_outcome_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "TRIAL_S", 0.0)
    silent = Other()
    silent.health = Health("other", ManualClock())
    kept = SourceRunner([silent])
    await asyncio.wait_for(kept.try_once(unused), PATIENCE_S)
    assert silent.health.error == f"no outcome within 0 s: {runner.NO_OUTCOME}"
    assert metrics.SOURCE_OK.sample(0, "other") in kept.samples()


async def test_a_trial_of_a_source_that_ends_without_an_outcome_is_an_error() -> None:
    class Ending(Other):
        async def run(self, sink: Sink) -> None:
            pass

    ending = Ending()
    ending.health = Health("other", ManualClock())
    await asyncio.wait_for(SourceRunner([ending]).try_once(unused), PATIENCE_S)
    assert ending.health.error == f"it ended without an outcome: {runner.NO_OUTCOME}"


async def test_a_source_that_raises_when_it_is_tried_fails_alone() -> None:
    kept = SourceRunner([Broken(1, ZeroDivisionError), Quick()])
    await asyncio.wait_for(kept.try_once(unused), PATIENCE_S)
    assert [health.error for health in kept.health()] == ["internal: ZeroDivisionError", None]
    assert kept.status()[1]["ok"]


class Quick(Broken):
    """A source that can be tried without running it."""

    claims = (Claim("/quick"),)

    def __init__(self) -> None:
        super().__init__(1, ZeroDivisionError)
        self.name = "quick"

    async def try_once(self, _sink: Sink) -> None:
        self.health.succeeded()


async def unused(datasets: Sequence[Representation], *, source: str) -> None:
    raise AssertionError


class Odd:
    """A source that writes one invalid dataset, and records the error."""

    claims = (Claim("/odd", below=True),)
    name = "odd"

    def __init__(self, dataset: Dataset) -> None:
        self.health = Health("odd", ManualClock())
        self.dataset = dataset
        self.done = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        try:
            await sink([self.dataset], source=self.name)
        except DataError as error:
            self.health.failed(str(error))
        self.done.set()
        await asyncio.Event().wait()


GOOD = build("/odd/a", "MW", "PT1H", [Point(0, 1)])


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (replace(GOOD, title="x" * 201), "/odd/a: the title has more than 200 characters"),
        (GOOD.described(area="x" * 65), "/odd/a: the area has more than 64 characters"),
        (GOOD.described(quantity="x" * 65), "/odd/a: the quantity has more than 64 characters"),
        (replace(GOOD, title="\ud800"), "/odd/a: the title is not valid text"),
        (replace(GOOD, endpoint="/odd/a b"), "'/odd/a b' is not an endpoint name"),
        (replace(GOOD, endpoint="/odd/" + "x" * 256), "longer than 256 bytes"),
        (GOOD.described(title="x" * 200, area="y" * 64, quantity="z" * 32), None),
    ],
)
async def test_a_dataset_that_no_database_can_store_is_refused_before_the_transaction(
    dataset: Dataset, why: str | None
) -> None:
    source = Odd(dataset)
    stored = await run_until(source.done, SourceRunner([source]))
    assert stored == ([dataset] if why is None else [])
    assert (why or "None") in str(source.health.error)


def test_error_texts_are_bounded_and_a_continuing_fault_is_counted_once() -> None:
    health = Health("x", ManualClock())
    health.failed("e" * 1000)
    health.failed("f" * 1000, times=0)
    assert (health.error, health.failures) == ("f" * 300, 1)


def test_a_source_that_has_not_succeeded_yet_is_not_ok() -> None:
    assert not Health("new", ManualClock()).status()["ok"]
