"""The HTTP source: conditional, bounded, patient; a bad answer changes nothing and is told once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from diem.process.clock import ManualClock
from services.data.datasets import Dataset
from services.data.errors import Unavailable
from services.data.sources.config import HttpConfig
from services.data.sources.http import HttpSource

CSV = "time,value\n2026-01-01T00:00:00Z,{}\n"
Answer = Callable[[httpx.Request], httpx.Response]


class Bench:
    """A source, the server it polls and the store it fills, all in memory."""

    def __init__(self, **config: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.stored: list[Dataset] = []
        self.refuse: Exception | None = None
        self.answer: Answer = lambda _request: httpx.Response(200, text=CSV.format(1))
        self.jitter: list[tuple[float, float]] = []
        defaults = {
            "type": "http",
            "name": "prices",
            "url": "http://source.example/prices.csv",
            "endpoint": "/p",
            "unit": "MW",
            "resolution": "PT1H",
        }
        wanted = {key: value for key, value in {**defaults, **config}.items() if value is not None}
        self.source = HttpSource(HttpConfig.model_validate(wanted), ManualClock(), uniform=self._uniform)

    def _uniform(self, low: float, high: float) -> float:
        self.jitter.append((low, high))
        return high

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer(request)

    async def sink(self, datasets: Sequence[Dataset], *, source: str) -> None:
        assert source == "prices"
        if self.refuse:
            raise self.refuse
        self.stored += datasets

    async def poll(self) -> float:
        async with httpx.AsyncClient(transport=httpx.MockTransport(self._handle)) as client:
            return await self.source.poll(client, self.sink)


async def test_what_was_found_is_stored() -> None:
    bench = Bench(title="Prices")
    assert await bench.poll() == 10.0
    (dataset,) = bench.stored
    assert (dataset.endpoint, dataset.unit, dataset.title) == ("/p", "MW", "Prices")
    assert bench.source.health.status()["ok"]


async def test_it_asks_only_for_what_is_new() -> None:
    bench = Bench()
    headers = {"ETag": '"7"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    bench.answer = lambda _request: httpx.Response(200, text=CSV.format(1), headers=headers)
    await bench.poll()
    bench.answer = lambda _request: httpx.Response(304)
    await bench.poll()
    assert bench.requests[1].headers["if-none-match"] == '"7"'
    assert bench.requests[1].headers["if-modified-since"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert len(bench.stored) == 1
    assert bench.source.health.successes == 2


async def test_the_same_body_again_is_not_stored_again() -> None:
    bench = Bench()
    await bench.poll()
    await bench.poll()
    assert len(bench.stored) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _r: httpx.Response(500), "status 500"),
        (lambda _r: httpx.Response(302, headers={"Location": "http://127.0.0.1/"}), "redirects are not followed"),
        (lambda _r: httpx.Response(200, text="<html>"), "line 1: the header must be"),
        (lambda _r: httpx.Response(200, text=CSV.format("x")), "line 2: 'x' is not a number"),
        (lambda _r: httpx.Response(200, text=CSV.format(1) + " " * 2000), "more than 1000 bytes"),
    ],
)
async def test_a_bad_answer_changes_nothing_and_the_next_good_one_heals(answer: Answer, error: str) -> None:
    bench = Bench(max_bytes=1000)
    await bench.poll()
    good, bench.answer = bench.answer, answer
    await bench.poll()
    assert error in str(bench.source.health.error)
    assert not bench.source.health.status()["ok"]
    assert len(bench.stored) == 1
    bench.answer = good
    await bench.poll()
    assert bench.source.health.status()["ok"]
    assert bench.source.health.failures == 1


async def test_a_connection_that_fails_is_a_failure_of_the_poll() -> None:
    bench = Bench()

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    bench.answer = refuse
    await bench.poll()
    assert bench.source.health.error == "ConnectError: refused"


async def test_waiting_grows_with_jitter_up_to_a_minute_and_starts_over_after_success() -> None:
    bench = Bench(every=1.0)
    good, bench.answer = bench.answer, lambda _request: httpx.Response(503)
    for _ in range(8):
        await bench.poll()
    assert [high for _, high in bench.jitter] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert all(low == 0.2 for low, _ in bench.jitter)
    bench.answer = good
    assert await bench.poll() == 1.0
    bench.answer = lambda _request: httpx.Response(503)
    await bench.poll()
    assert bench.jitter[-1][1] == 2


async def test_a_rare_source_is_not_asked_more_often_because_it_fails() -> None:
    bench = Bench(every=3600.0)
    bench.answer = lambda _request: httpx.Response(503)
    assert await bench.poll() == 3600.0


async def test_what_the_store_could_not_take_is_asked_for_again_in_full() -> None:
    bench = Bench()
    bench.answer = lambda _request: httpx.Response(200, text=CSV.format(1), headers={"ETag": '"7"'})
    bench.refuse = Unavailable("the disk is full")
    await bench.poll()
    assert bench.source.health.error == "the disk is full"
    bench.refuse = None
    await bench.poll()
    assert "if-none-match" not in bench.requests[1].headers
    assert len(bench.stored) == 1


async def test_one_url_can_keep_several_endpoints_below_its_prefix() -> None:
    bench = Bench(endpoint=None, prefix="/m")
    bench.answer = lambda _request: httpx.Response(
        200, text="endpoint,time,value\n" + "".join(f"/m/{i},2026-01-01T00:00:00Z,{i}\n" for i in range(120))
    )
    await bench.poll()
    assert len(bench.stored) == 120
    bench.answer = lambda _request: httpx.Response(200, text="endpoint,time,value\n/other,2026-01-01T00:00:00Z,1\n")
    await bench.poll()
    assert bench.source.health.error == "/other is not below the prefix /m"


@pytest.mark.parametrize(
    ("url", "declared", "form"),
    [
        ("http://s.example/x", "application/json; charset=utf-8", "json"),
        ("http://s.example/x.json", "application/octet-stream", "json"),
        ("http://s.example/x.json", "text/csv", "csv"),
        ("http://s.example/x.csv?a=.json", "text/plain", "csv"),
    ],
)
async def test_the_form_is_known_by_type_or_name(url: str, declared: str, form: str) -> None:
    bench = Bench(url=url)
    text = CSV.format(1) if form == "csv" else '[{"time":"2026-01-01T00:00:00Z","value":1}]'
    bench.answer = lambda _request: httpx.Response(200, content=text, headers={"Content-Type": declared})
    await bench.poll()
    assert bench.source.health.error is None
    assert len(bench.stored) == 1


async def test_a_server_that_never_answers_is_given_up() -> None:
    bench = Bench(timeout=0.01)

    async def stall(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with httpx.AsyncClient(transport=httpx.MockTransport(stall)) as client:
        await bench.source.poll(client, bench.sink)
    assert bench.source.health.error == "no complete answer in time"
