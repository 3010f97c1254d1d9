"""``POST /v1/locate`` without sockets: who may ask, and one clear answer to everything."""

import random
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from diem.process.limits import AddressRateLimiter, RateLimit
from diem.process.listeners import origin_allowed
from metadata.api import LocateApi
from metadata.directory import Directory
from metadata.locate import MAX_REQUEST_BYTES, OwnerLookup
from tests.unit.metadata.made import Said, a_map, clone, server

PAGE = "http://localhost:8080"
SITE = "https://site.test"


def public(*, ready: bool = True, rate: RateLimit | None = None, loopback_bind: bool = True) -> LocateApi:
    plan = rate or RateLimit(1000, 1000)
    directory = Directory([1])
    if ready:
        directory.update_map(a_map())
        directory.update_group(1, clone(1), 0, 0.0)
    answers = OwnerLookup(directory, Said(), random.Random(1))
    allows_origin = partial(origin_allowed, allowed=frozenset({SITE}), page_port=8080, loopback_bind=loopback_bind)
    return LocateApi(answers, allows_origin, AddressRateLimiter(plan, plan), most=1000)


async def ask(
    app: LocateApi,
    content: bytes = b'{"endpoints":["/a"]}',
    method: str = "POST",
    path: str = "/v1/locate",
    **more: Any,
) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(more.pop("client", "127.0.0.1"), 5000))
    headers = {"Content-Type": "application/json"} | more.pop("headers", {})
    async with httpx.AsyncClient(transport=transport, base_url="http://metadata.test") as http:
        return await http.request(method, path, content=content, headers=headers)


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["Content-Type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["detail"]
    return answer.status_code, document["code"]


async def test_a_question_is_answered() -> None:
    answer = await ask(public())
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {
        "clone": 1,
        "epoch": 0,
        "endpoints": {"/a": {"owner": server(1).public}},
        "rejected": {},
        "servers": [server(1).public],
    }


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", (400, "bad_json")),
        (b"[]", (400, "bad_message")),
        (b'{"endpoints":[],"clone":"x"}', (400, "bad_message")),
        (orjson.dumps({"endpoints": [f"/{number}" for number in range(1001)]}), (413, "too_many")),
        (b" " * (MAX_REQUEST_BYTES + 1), (413, "too_many")),
    ],
)
async def test_a_bad_question_has_one_clear_answer(content: bytes, expected: tuple[int, str]) -> None:
    assert problem_of(await ask(public(), content)) == expected


async def test_a_question_of_another_type_is_refused() -> None:
    assert problem_of(await ask(public(), headers={"Content-Type": "text/plain"})) == (415, "unsupported")


async def test_other_paths_and_methods_are_refused() -> None:
    assert problem_of(await ask(public(), path="/v1/partitions")) == (404, "not_found")
    answer = await ask(public(), method="GET")
    assert problem_of(answer) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "POST"


async def test_before_anything_is_known_the_client_is_told_when_to_come_back() -> None:
    answer = await ask(public(ready=False))
    assert problem_of(answer) == (503, "not_ready")
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("origin", [PAGE, "http://127.0.0.1:8080", SITE])
async def test_pages_of_allowed_origins_read_the_answer_and_its_errors(origin: str) -> None:
    for answer in (
        await ask(public(), headers={"Origin": origin}),
        await ask(public(ready=False), headers={"Origin": origin}),
    ):
        assert answer.headers["Access-Control-Allow-Origin"] == origin
        assert answer.headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["http://evil.test", "http://localhost:9999", "null", "https://site.test.evil.test"])
async def test_pages_of_other_origins_are_refused(origin: str) -> None:
    answer = await ask(public(), headers={"Origin": origin})
    assert problem_of(answer) == (403, "origin")
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_page_asks_first_and_is_told_what_it_may() -> None:
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    answer = await ask(public(), b"", "OPTIONS", headers={"Origin": SITE, **asks})
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == SITE
    assert answer.headers["Access-Control-Allow-Methods"] == "POST"
    assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type"
    refused = await ask(public(), b"", "OPTIONS", headers={"Origin": "http://evil.test", **asks})
    assert "Access-Control-Allow-Origin" not in refused.headers


async def test_the_pages_names_on_loopback_count_on_a_loopback_bind_only() -> None:
    assert (await ask(public(loopback_bind=False), headers={"Origin": PAGE})).status_code == 403


async def test_without_an_origin_only_this_machine_may_ask() -> None:
    assert (await ask(public(), client="127.0.0.1")).status_code == 200
    assert problem_of(await ask(public(), client="192.0.2.1")) == (403, "origin")
    assert (await ask(public(), client="192.0.2.1", headers={"Origin": SITE})).status_code == 200


async def test_an_address_that_asks_too_often_is_told_to_wait() -> None:
    app = public(rate=RateLimit(0.1, 2))
    assert [(await ask(app)).status_code for _ in range(3)] == [200, 200, 429]
    answer = await ask(app, headers={"Origin": SITE})
    assert problem_of(answer) == (429, "rate")
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["Access-Control-Allow-Origin"] == SITE


async def test_every_answer_has_the_headers_that_keep_browsers_careful() -> None:
    for answer in (await ask(public()), await ask(public(), b"{"), await ask(public(), path="/")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"


async def test_answers_are_counted_by_method_and_status() -> None:
    app = public()
    await ask(app)
    await ask(app, b"{")
    await ask(app, method="BREW")
    assert app.requests == {("POST", 200): 1, ("POST", 400): 1, ("other", 405): 1}
