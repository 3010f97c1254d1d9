"""The client of ``/status``: any answer but the status document is none."""

import time
from collections.abc import Callable

import httpx
import pytest

from diem.links.internal_client import clock_difference_s, fetch_status, internal_client
from diem.process.auth import SharedKey

KEY = SharedKey("0123456789abcdef0123456789abcdef")
URL = "http://127.0.0.1:9101"


def answering(reply: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(reply))


async def test_status_is_fetched() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == f"{URL}/status"
        return httpx.Response(200, json={"ready": True})

    async with answering(reply) as http:
        assert await fetch_status(http, URL) == {"ready": True}


async def test_clock_of_a_process_is_compared_with_ours() -> None:
    ahead = httpx.Response(200, json={"clock": time.time() + 3600})
    async with answering(lambda _request: ahead) as http:
        found = await fetch_status(http, URL)
    assert found is not None
    assert 3000 < found["clock_difference"] <= 3600


@pytest.mark.parametrize(
    ("stated_s", "difference_s"), [(99.5, -0.5), (100.0, 0.0), (100.6, 0.0), (101.0, 0.0), (191.0, 90.0), (40.0, -60.0)]
)
def test_a_clock_within_the_time_of_the_request_may_be_equal(stated_s: float, difference_s: float) -> None:
    assert clock_difference_s(stated_s, 100.0, 101.0) == difference_s


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(503, json={"ready": True}),
        httpx.Response(200, content=b"not JSON"),
        httpx.Response(200, content=b"[" * 100_000),
        httpx.Response(200, json=[1]),
    ],
)
async def test_any_other_answer_is_none(reply: httpx.Response) -> None:
    async with answering(lambda _request: reply) as http:
        assert await fetch_status(http, URL) is None


async def test_no_answer_is_none() -> None:
    def refuse(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with answering(refuse) as http:
        assert await fetch_status(http, URL) is None
        assert await fetch_status(http, "http://[") is None


async def test_the_client_uses_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    async with internal_client(KEY, 1.0) as http:
        assert not http.trust_env
