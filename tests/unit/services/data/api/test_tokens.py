"""POST /v1/tokens, GET /v1/tokens/keys, and tokens as credentials of reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.process.clock import ManualClock
from diem.process.limits import RateLimit
from diem.tokens.key_set import parse_key_set
from diem.tokens.verifier import Verifier
from services.data.access import accounts
from services.data.access.access import Access
from services.data.access.keys import WriteTerms
from services.data.access.plans import AccessPlan, AccessPlans, RequestLimits
from services.data.access.quota import day_of
from tests.support.patience import PATIENCE_S
from tests.support.small import AS_SERIES
from tests.support.tokens import Issuer
from tests.unit.services.data.access.test_access import NOON, serving
from tests.unit.services.data.conftest import BODY, WRITE_KEY, assert_problem

PLANS = (
    AccessPlan("dam", per_day=20, prefixes=("/dam",)),
    AccessPlan("open"),
    AccessPlan("page", per_minute=60),
    AccessPlan("users", per_minute=60, per_user=RequestLimits(3, 5)),
)


@dataclass
class World:
    """A service without anonymous reads, with the endpoints /dam/a and /load/a."""

    clock: ManualClock
    access: Access
    http: httpx.AsyncClient

    @property
    def now(self) -> float:
        return self.clock.wall_ms() / 1000

    async def key(self, plan: str = "dam") -> tuple[str, str]:
        key, text = await self.access.create("a test", plan)
        return key.id, text

    async def mint(self, text: str, **wanted: Any) -> httpx.Response:
        return await self.http.post("/v1/tokens", headers=bearer(text), json=wanted or None)

    async def token(self, text: str, **wanted: Any) -> str:
        answer = await self.mint(text, **wanted)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    async def read(self, credential: str) -> httpx.Response:
        return await self.http.get("/v1/data/dam/a", headers=bearer(credential))

    async def used(self, key_id: str) -> int:
        key = next(key for key in self.access.all_keys() if key.id == key_id)
        return (await self.access.usage_of(key))[0]


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    options: dict[str, Any] = {"anonymous": lambda _address: False, "loopback_rate": RateLimit(1, 20)}
    async with serving(tmp_path, *PLANS, **options) as made, made.http(client="127.0.0.1") as http:
        for name in ("/dam/a", "/load/a"):
            assert (
                await http.put(f"/v1/data{name}", json=BODY, headers={**AS_SERIES, **bearer(WRITE_KEY)})
            ).status_code == 200
        yield World(made.clock, made.access, http)


async def test_a_token_costs_no_request_and_is_verified_by_the_published_keys(world: World) -> None:
    key_id, text = await world.key()
    answer = await world.mint(text)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert await world.used(key_id) == 0
    body = answer.json()
    assert body.keys() == {"token", "expires"}
    assert body["expires"] == world.now + 1800
    keys = await world.http.get("/v1/tokens/keys")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    claims = Verifier(parse_key_set(keys.content, secrets=False).keys).verify(body["token"], world.now)
    assert (claims.key, claims.prefixes) == (key_id, ("/dam",))


async def test_the_public_keys_need_no_key_and_are_read_conditionally(world: World) -> None:
    first = await world.http.get("/v1/tokens/keys")
    again = await world.http.get("/v1/tokens/keys", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert first.headers["cache-control"] == "no-cache"
    key_id, _ = await world.key()
    await world.access.revoke(key_id)
    changed = await world.http.get("/v1/tokens/keys", headers={"If-None-Match": first.headers["etag"]})
    assert changed.json()["revoked"] == {key_id: int(world.now)}


@pytest.mark.parametrize("credential", [None, WRITE_KEY, "diem_k3v9x0ab_" + "x" * 43, "a.b.c"])
async def test_only_an_api_key_gets_a_token(world: World, credential: str | None) -> None:
    headers = {} if credential is None else bearer(credential)
    assert_problem(await world.http.post("/v1/tokens", headers=headers), 401, "unauthorised")


async def test_a_token_gets_no_other_token(world: World) -> None:
    _, text = await world.key()
    assert_problem(await world.mint(await world.token(text)), 401, "unauthorised")


async def test_a_key_gets_as_many_tokens_as_its_plan_has_requests(world: World) -> None:
    _, text = await world.key()
    answers = [await world.mint(text) for _ in range(10)]
    answers += [await world.mint(text, seconds=9) for _ in range(10)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [422] * 10
    refused = await world.mint(text)
    assert_problem(refused, 429, "rate")
    assert refused.headers["retry-after"] == "43200"
    assert (await world.read(text)).status_code == 200


async def test_one_user_of_a_key_leaves_reads_and_tokens_to_the_others(world: World) -> None:
    key_id, text = await world.key("page")
    mallory, alice = await world.token(text, subject="mallory"), await world.token(text, subject="alice")
    answers = [await world.read(mallory) for _ in range(60)]
    assert [answer.status_code for answer in answers] == [200] * 6 + [429] * 54
    assert '"user_minute";q=6;w=60' in answers[0].headers["ratelimit-policy"]
    assert answers[5].headers["ratelimit"] == '"minute";r=54;t=61, "user_minute";r=0;t=61'
    assert_problem(answers[6], 429, "rate")
    assert answers[6].headers["retry-after"] == "61"
    # As many times as the page may be loaded in a minute.
    assert [(await world.mint(text, subject="mallory")).status_code for _ in range(60)] == [200] * 5 + [429] * 55
    assert (await world.read(alice)).status_code == 200
    assert (await world.mint(text, subject="bob")).status_code == 200
    assert await world.used(key_id) == 7
    world.clock.advance(61)
    assert (await world.read(mallory)).status_code == 200


async def test_a_refused_request_costs_a_user_nothing(world: World) -> None:
    _, text = await world.key("page")
    alice = await world.token(text, subject="alice")
    assert {(await world.read(text)).status_code for _ in range(60)} == {200}
    assert {(await world.read(alice)).status_code for _ in range(20)} == {429}
    world.clock.advance(61)
    assert [(await world.read(alice)).status_code for _ in range(7)] == [200] * 6 + [429]


async def test_a_plan_says_what_one_user_may_have(world: World) -> None:
    _, text = await world.key("users")
    alice, bob = await world.token(text, subject="alice"), await world.token(text, subject="bob")
    assert [(await world.read(alice)).status_code for _ in range(4)] == [200] * 3 + [429]
    world.clock.advance(61)
    answers = [await world.read(alice) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert_problem(answers[2], 429, "quota")
    assert (await world.read(bob)).status_code == 200


async def test_users_in_memory_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_IN_MEMORY", 2)
    _, text = await world.key("page")
    for number in range(6):
        assert (await world.read(await world.token(text, subject=str(number)))).status_code == 200
    assert len(world.access._users._quotas) == len(world.access._minters._quotas) == 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed"),
        (b"[]", 422, "invalid_dataset"),
        (b'{"admin":true}', 422, "invalid_dataset"),
        (b'{"subject":""}', 422, "invalid_dataset"),
        (b'{"subject":"a\\nb"}', 422, "invalid_dataset"),
        (b'{"subject":7}', 422, "invalid_dataset"),
        (b'{"prefixes":[]}', 422, "invalid_dataset"),
        (b'{"prefixes":"/dam"}', 422, "invalid_dataset"),
        (b'{"prefixes":["dam"]}', 422, "invalid_dataset"),
        (b'{"prefixes":["/load"]}', 403, "not_in_plan"),
        (b'{"prefixes":["/"]}', 403, "not_in_plan"),
        (b'{"seconds":9}', 422, "invalid_dataset"),
        (b'{"seconds":1801}', 422, "invalid_dataset"),
        (b'{"seconds":60.5}', 422, "invalid_dataset"),
        (b'{"seconds":null}', 422, "invalid_dataset"),
        (b'{"subject":null}', 422, "invalid_dataset"),
        (b'{"prefixes":null}', 422, "invalid_dataset"),
        (b'{"seconds":true}', 422, "invalid_dataset"),
        (b" " * 40_000, 413, "too_large"),
    ],
)
async def test_a_bad_request_gets_one_clear_answer(world: World, body: bytes, status: int, code: str) -> None:
    _, text = await world.key()
    headers = {**bearer(text), "Content-Type": "application/json"}
    answer = await world.http.post("/v1/tokens", content=body, headers=headers)
    assert_problem(answer, status, code)


async def test_a_body_is_json(world: World) -> None:
    _, text = await world.key()
    answer = await world.http.post("/v1/tokens", content=b"subject=alice", headers=bearer(text))
    assert_problem(answer, 415, "unsupported_media_type")


async def test_a_user_may_get_fewer_rights_for_a_shorter_time(world: World) -> None:
    key_id, text = await world.key("open")
    answer = await world.mint(text, subject="alice", prefixes=["/dam"], seconds=60)
    assert answer.json()["expires"] == world.now + 60
    claims, _ = await world.access.tokens.verify(answer.json()["token"])
    assert (claims.subject, claims.prefixes) == (f"{key_id}/alice", ("/dam",))


@pytest.mark.parametrize("resource", ["/v1/data", "/v1/history"])
async def test_a_token_reads_what_it_covers_at_the_cost_of_its_key(world: World, resource: str) -> None:
    key_id, text = await world.key("open")
    token = await world.token(text, prefixes=["/dam"])
    answer = await world.http.get(f"{resource}/dam/a", headers=bearer(token))
    assert answer.status_code == 200
    assert_problem(await world.http.get(f"{resource}/load/a", headers=bearer(token)), 403, "not_in_plan")
    assert_problem(await world.http.get(f"{resource}/dam/a"), 401, "unauthorised")
    assert await world.used(key_id) == 2
    assert world.access.usage.today(key_id, day_of(NOON)) == {"/dam/a": 1}


async def test_a_token_has_no_more_rights_than_the_plan_of_its_key_has_now(world: World) -> None:
    _, text = await world.key("dam")
    token = await world.token(text)
    assert (await world.http.get("/v1/endpoints", headers=bearer(token))).status_code == 200
    world.access.plans = AccessPlans([AccessPlan("dam", prefixes=("/load",))])
    assert_problem(await world.http.get("/v1/data/dam/a", headers=bearer(token)), 403, "not_in_plan")
    assert_problem(await world.http.get("/v1/data/load/a", headers=bearer(token)), 403, "not_in_plan")
    world.access.plans = AccessPlans()
    assert_problem(await world.http.get("/v1/data/dam/a", headers=bearer(token)), 403, "no_plan")


async def test_the_quota_of_the_key_ends_the_reads_of_its_tokens(world: World) -> None:
    _, text = await world.key()
    token = await world.token(text)
    read = [(await world.http.get("/v1/data/dam/a", headers=bearer(token))).status_code for _ in range(21)]
    assert read == [200] * 20 + [429]


async def test_a_revoked_key_ends_its_tokens_at_once(world: World) -> None:
    key_id, text = await world.key()
    token = await world.token(text)
    assert (await world.http.get("/v1/data/dam/a", headers=bearer(token))).status_code == 200
    await world.access.revoke(key_id)
    for path in ("/v1/data/dam/a", "/v1/endpoints"):
        refused = await world.http.get(path, headers=bearer(token))
        assert_problem(refused, 401, "key_revoked")
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    assert_problem(await world.mint(text), 401, "key_revoked")


async def test_a_token_of_an_expired_key_is_refused(world: World) -> None:
    _, text = await world.access.create("a test", "dam", lifetime_s=60)
    token = await world.token(text)
    world.clock.advance(61)
    # Verifiers elsewhere allow for clocks that differ; the service knows the key itself.
    assert_problem(await world.http.get("/v1/data/dam/a", headers=bearer(token)), 401, "key_expired")


async def test_a_write_key_gets_no_token(world: World) -> None:
    _, text = await world.access.create_writer("a test", WriteTerms())
    assert_problem(await world.mint(text), 401, "unauthorised")


async def test_an_expired_or_forged_token_is_refused_and_costs_its_address(world: World) -> None:
    key_id, text = await world.key()
    token = await world.token(text)
    forged = Issuer("memory").token(world.now, key=key_id)
    assert_problem(await world.http.get("/v1/data/dam/a", headers=bearer(forged)), 401, "unauthorised")
    world.clock.advance(1831)
    assert_problem(await world.http.get("/v1/data/dam/a", headers=bearer(token)), 401, "unauthorised")
    assert await world.used(key_id) == 0
    many = [(await world.http.get("/v1/data/dam/a", headers=bearer(forged))).status_code for _ in range(20)]
    assert set(many) == {401, 429}
    assert many[-1] == 429


async def test_a_flood_of_forged_tokens_is_verified_no_faster_than_its_address_may_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_id, text = await world.key("open")
    known, new = await world.token(text, subject="known"), await world.token(text, subject="new")
    checked: list[str] = []
    check = Verifier._signed_payload

    def counting(verifier: Verifier, token: str) -> Any:
        checked.append(token)
        return check(verifier, token)

    async def read(token: str) -> int:
        return (await world.http.get("/v1/data/dam/a", headers=bearer(token))).status_code

    monkeypatch.setattr(Verifier, "_signed_payload", counting)
    # Valid tokens cost their address nothing, when they are new no more than later.
    assert [await read(known) for _ in range(40)] == [200] * 40
    assert checked == [known]
    forger = Issuer("memory")
    forged = [forger.token(world.now, key=key_id, sub=str(number)) for number in range(50)]
    assert [await read(token) for token in forged] == [401] * 20 + [429] * 30
    assert checked == [known, *forged[:20]]
    # Who was verified before is not affected; a newcomer waits until the address may read again.
    assert [await read(known), await read(new)] == [200, 429]
    world.clock.advance(1)
    assert [await read(new), await read(new), await read(forged[20])] == [200, 200, 401]
    assert checked == [known, *forged[:20], new, forged[20]]


async def test_a_token_writes_nothing(world: World) -> None:
    _, text = await world.key()
    token = await world.token(text)
    assert_problem(await world.http.put("/v1/data/dam/a", json=BODY, headers=bearer(token)), 403, "read_only")
    assert_problem(await world.http.post("/v1/data/dam/a", json=BODY, headers=bearer(token)), 403, "read_only")


async def test_a_page_of_another_origin_gets_tokens_with_its_key_only(world: World) -> None:
    _, text = await world.key()
    origin = {"Origin": "https://app.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    preflight = await world.http.options("/v1/tokens", headers={**origin, **asked})
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert "Content-Type" in preflight.headers["access-control-allow-headers"]
    answer = await world.http.post("/v1/tokens", headers={**origin, **bearer(text)})
    assert answer.headers["access-control-allow-origin"] == "*"
    without = await world.http.post("/v1/tokens", headers=origin)
    assert "access-control-allow-origin" not in without.headers
    # POST is for tokens only.
    assert (await world.http.options("/v1/data/dam/a", headers={**origin, **asked})).status_code != 204


async def test_a_key_for_some_pages_and_its_tokens_are_refused_to_others(world: World) -> None:
    key, text = await world.access.create("a page", "dam", origins=("https://app.example",))
    token = await world.token(text)
    (jwk,) = (await world.http.get("/v1/tokens/keys")).json()["keys"]
    assert Verifier(parse_key_set(json.dumps({"keys": [jwk]}).encode(), secrets=False).keys).verify(
        token, world.now
    ).origins == ("https://app.example",)

    async def read(credential: str, origin: str | None) -> httpx.Response:
        headers = bearer(credential) if origin is None else {**bearer(credential), "Origin": origin}
        return await world.http.get("/v1/data/dam/a", headers=headers)

    for credential in (text, token):
        for origin in ("https://app.example", None):
            assert (await read(credential, origin)).status_code == 200
    used = await world.used(key.id)
    for credential in (text, token):
        for origin in ("https://evil.example", "null"):
            assert_problem(await read(credential, origin), 403, "origin")
    evil = {**bearer(text), "Origin": "https://evil.example"}
    for method, path in (("POST", "/v1/tokens"), ("GET", "/v1/usage"), ("GET", "/v1/endpoints")):
        assert_problem(await world.http.request(method, path, headers=evil), 403, "origin")
    # Pages of others use up nothing of the key.
    assert await world.used(key.id) == used
    many = [(await read(text, "https://evil.example")).status_code for _ in range(20)]
    assert (many[0], many[-1]) == (403, 429)
    assert (await read(text, "https://app.example")).status_code == 200


async def test_slow_requests_for_tokens_do_not_hold_up_readers(world: World) -> None:
    _, text = await world.key("open")
    stalled = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        await stalled.wait()
        yield b"{}"

    headers = {**bearer(text), "Content-Type": "application/json"}
    slow = [asyncio.create_task(world.http.post("/v1/tokens", headers=headers, content=body())) for _ in range(100)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(PATIENCE_S):
        assert (await world.http.get("/v1/data/load/a", headers=bearer(text))).status_code == 200
        assert not any(task.done() for task in slow)
        stalled.set()
        assert {answer.status_code for answer in await asyncio.gather(*slow)} == {200}
