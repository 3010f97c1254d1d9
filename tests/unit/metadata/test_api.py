"""``POST /v1/locate`` without sockets."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from diem.links.client_auth import ClientAuth
from diem.process.clock import ManualClock, SystemClock
from diem.process.edge_settings import Anonymous
from diem.process.limits import AddressRateLimiter, RateLimit
from diem.process.listeners import origin_allowed
from diem.tokens.key_set import TokenKey
from diem.tokens.verifier import Verifier
from metadata.api import LocateApi
from metadata.directory import Directory
from metadata.locate import MAX_REQUEST_BYTES, OwnerLookup
from tests.support.described import check_described
from tests.support.security_events import recorded_events
from tests.support.tokens import NOW, Issuer
from tests.unit.metadata.snapshots import FixedLoads, a_map, clone, server

PAGE = "http://localhost:8080"
SITE = "https://site.test"


ISSUER = Issuer()


def api(
    *,
    ready: bool = True,
    rate: RateLimit | None = None,
    loopback_bind: bool = True,
    anonymous: Anonymous = "auto",
    auth: ClientAuth | None = None,
) -> LocateApi:
    limit = rate or RateLimit(1000, 1000)
    directory = Directory([1])
    if ready:
        directory.update_map(a_map())
        directory.update_group(1, clone(1), 0, 0.0)
    owners = OwnerLookup(directory, FixedLoads(), random.Random(1))
    allows_origin = partial(origin_allowed, allowed=frozenset({SITE}), page_port=8080, loopback_bind=loopback_bind)
    return LocateApi(
        owners,
        allows_origin,
        AddressRateLimiter(limit, limit),
        auth or ClientAuth(SystemClock()),
        max_names=1000,
        anonymous=anonymous,
        loopback_bind=loopback_bind,
    )


def api_with_tokens(*keys: TokenKey, locations: Sequence[str] = ()) -> LocateApi:
    """Return an API whose clients all need tokens."""
    auth = ClientAuth(ManualClock(0, int(NOW * 1000)), Verifier(keys), locations)
    return api(anonymous="off", auth=auth)


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def request(
    app: LocateApi,
    content: bytes = b'{"endpoints":["/a"]}',
    method: str = "POST",
    path: str = "/v1/locate",
    **more: Any,
) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(more.pop("client", "127.0.0.1"), 5000))
    headers = {"Content-Type": "application/json"} | more.pop("headers", {})
    hooks = {"response": [check_described]}
    async with httpx.AsyncClient(transport=transport, base_url="http://metadata.test", event_hooks=hooks) as http:
        return await http.request(method, path, content=content, headers=headers)


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["Content-Type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["detail"]
    return answer.status_code, document["code"]


async def test_a_query_is_answered_with_owners_and_servers() -> None:
    answer = await request(api())
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
async def test_an_invalid_query_is_refused_with_its_code(content: bytes, expected: tuple[int, str]) -> None:
    assert problem_of(await request(api(), content)) == expected


async def test_another_content_type_is_refused() -> None:
    assert problem_of(await request(api(), headers={"Content-Type": "text/plain"})) == (415, "unsupported")


async def test_other_paths_and_methods_are_refused() -> None:
    assert problem_of(await request(api(), path="/v1/partitions")) == (404, "not_found")
    answer = await request(api(), method="GET")
    assert problem_of(answer) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "POST"


async def test_without_a_snapshot_the_answer_is_503_with_retry_after() -> None:
    answer = await request(api(ready=False))
    assert problem_of(answer) == (503, "not_ready")
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("origin", [PAGE, "http://127.0.0.1:8080", SITE])
async def test_pages_of_allowed_origins_can_read_answers_and_errors(origin: str) -> None:
    for answer in (
        await request(api(), headers={"Origin": origin}),
        await request(api(ready=False), headers={"Origin": origin}),
    ):
        assert answer.headers["Access-Control-Allow-Origin"] == origin
        assert answer.headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["http://evil.test", "http://localhost:9999", "null", "https://site.test.evil.test"])
async def test_pages_of_other_origins_are_refused(origin: str) -> None:
    answer = await request(api(), headers={"Origin": origin})
    assert problem_of(answer) == (403, "origin")
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_preflight_requests_of_allowed_origins_are_answered() -> None:
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    answer = await request(api(), b"", "OPTIONS", headers={"Origin": SITE, **preflight})
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == SITE
    assert answer.headers["Access-Control-Allow-Methods"] == "POST"
    assert answer.headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type"
    refused = await request(api(), b"", "OPTIONS", headers={"Origin": "http://evil.test", **preflight})
    assert "Access-Control-Allow-Origin" not in refused.headers


async def test_loopback_origins_are_allowed_only_on_a_loopback_bind() -> None:
    assert (await request(api(loopback_bind=False), headers={"Origin": PAGE})).status_code == 403


async def test_requests_without_a_token_are_allowed_only_from_this_machine() -> None:
    for origin in ({}, {"Origin": SITE}):
        assert (await request(api(), client="127.0.0.1", headers=origin)).status_code == 200
        answer = await request(api(), client="192.0.2.1", headers=origin)
        assert problem_of(answer) == (401, "unauthorised")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert problem_of(await request(api(loopback_bind=False), headers={"Origin": SITE})) == (401, "unauthorised")


async def test_where_anonymous_clients_are_allowed_programs_of_other_machines_need_a_token() -> None:
    app = api(anonymous="on", loopback_bind=False)
    assert (await request(app, client="192.0.2.1", headers={"Origin": SITE})).status_code == 200
    assert problem_of(await request(app, client="192.0.2.1")) == (401, "unauthorised")
    assert (await request(app, client="127.0.0.1")).status_code == 200


async def test_token_covers_its_endpoints_and_no_others() -> None:
    app = api_with_tokens(ISSUER.key)
    assert problem_of(await request(app)) == (401, "unauthorised")
    content = b'{"endpoints":["/a","/dam/x","bad"]}'
    answer = await request(app, content, headers=bearing(ISSUER.token(prefixes=["/a"])), client="192.0.2.1")
    assert answer.json()["endpoints"] == {"/a": {"owner": server(1).public}}
    assert {name: why["code"] for name, why in answer.json()["rejected"].items()} == {
        "/dam/x": "forbidden",
        "bad": "bad_name",
    }
    everything = await request(app, content, headers=bearing(ISSUER.token(prefixes=["/"])))
    assert set(everything.json()["endpoints"]) == {"/a", "/dam/x"}


async def test_token_for_other_pages_is_refused_like_a_foreign_origin() -> None:
    app = api_with_tokens(ISSUER.key)
    token = bearing(ISSUER.token(prefixes=["/"], origins=[SITE]))
    for origin in ({"Origin": SITE}, {}):
        assert (await request(app, headers={**token, **origin})).status_code == 200
    assert problem_of(await request(app, headers={**token, "Origin": PAGE})) == (403, "origin")


@pytest.mark.parametrize(
    "header",
    [f"Bearer {Issuer().token()}", f"Bearer {ISSUER.token(exp=int(NOW) - 60)}", "Bearer", "Basic YTpi", ""],
    ids=["foreign", "expired", "no token", "basic", "empty"],
)
async def test_bad_token_is_refused_even_where_none_is_needed(header: str) -> None:
    for app in (api_with_tokens(ISSUER.key), api(auth=ClientAuth(ManualClock(), Verifier([ISSUER.key])))):
        answer = await request(app, headers={"Authorization": header})
        assert problem_of(answer) == (401, "unauthorised")
        assert header.removeprefix("Bearer ") == "" or header.removeprefix("Bearer ") not in answer.text


async def test_before_the_keys_are_read_a_token_is_answered_with_503() -> None:
    app = api_with_tokens(locations=["https://issuer.test/keys"])
    answer = await request(app, headers=bearing(ISSUER.token()))
    assert problem_of(answer) == (503, "not_ready")
    assert answer.headers["Retry-After"] == "2"


async def test_requests_beyond_the_rate_of_an_address_are_refused_with_retry_after() -> None:
    app = api(rate=RateLimit(0.1, 2))
    assert [(await request(app)).status_code for _ in range(3)] == [200, 200, 429]
    answer = await request(app, headers={"Origin": SITE})
    assert problem_of(answer) == (429, "rate")
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["Access-Control-Allow-Origin"] == SITE


async def test_every_answer_has_the_security_headers() -> None:
    for answer in (await request(api()), await request(api(), b"{"), await request(api(), path="/")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"


async def test_requests_are_counted_by_method_and_status() -> None:
    app = api()
    await request(app)
    await request(app, b"{")
    await request(app, method="BREW")
    assert app.requests == {("POST", 200): 1, ("POST", 400): 1, ("other", 405): 1}


async def test_refused_questions_are_security_events() -> None:
    app = api(rate=RateLimit(0.001, 2))
    with recorded_events() as events:
        for _ in range(3):
            await request(app, client="192.0.2.9", headers={"Origin": "https://evil.example"})
    forbidden, rate = events.all()
    assert (forbidden["kind"], forbidden["address"], forbidden["origin"], forbidden["code"]) == (
        "forbidden",
        "192.0.2.9",
        "https://evil.example",
        "origin",
    )
    assert (rate["kind"], rate["address"], rate["code"]) == ("rate_exceeded", "192.0.2.9", 429)
