"""Tokens of API keys: issued, published, verified, revoked."""

import json
from dataclasses import dataclass
from typing import Any

import jwt
import pytest

from diem.process.clock import ManualClock
from diem.tokens.errors import TokenExpired, TokenInvalid, TokenRevoked
from diem.tokens.key_set import parse_key_set
from diem.tokens.verifier import Verifier
from services.data.access.keys import ApiKeys, Key, KeyState, WriteTerms, new_key
from services.data.access.plans import MAX_TOKEN_S, AccessPlan
from services.data.access.signing import SigningKeys
from services.data.access.tokens import PrefixNotInPlan, TokenRequest, Tokens, TokenTooLarge, client_token
from tests.support.tokens import Issuer

PLAN = AccessPlan("p", prefixes=("/dam", "/load/GR"))
ALL = AccessPlan("all")


@dataclass
class Bench:
    clock: ManualClock
    api_keys: ApiKeys
    key: Key
    tokens: Tokens

    @property
    def now(self) -> float:
        return self.clock.wall_ms() / 1000

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.tokens.document().body)
        return found


@pytest.fixture
def bench() -> Bench:
    clock = ManualClock(wall_ms=1_800_000_000_000)
    key, _ = new_key("a test", "p", clock.wall_ms())
    api_keys = ApiKeys([key])
    return Bench(clock, api_keys, key, Tokens(api_keys, SigningKeys(None, clock), clock))


async def test_a_token_has_the_rights_and_the_id_of_its_key(bench: Bench) -> None:
    issued = await bench.tokens.mint(bench.key, PLAN, TokenRequest())
    assert issued.expires == bench.now + MAX_TOKEN_S
    verifier = Verifier(parse_key_set(bench.tokens.document().body, secrets=False).keys)
    claims = verifier.verify(issued.token, bench.now)
    assert (claims.subject, claims.key, claims.prefixes) == (bench.key.id, bench.key.id, PLAN.prefixes)
    assert (claims.issued_at, claims.expires_at) == (bench.now, issued.expires)
    assert await bench.tokens.verify(issued.token) == (claims, bench.key)
    assert jwt.get_unverified_header(issued.token) == {"alg": "EdDSA", "typ": "JWT", "kid": "memory"}


async def test_a_plan_without_prefixes_covers_everything(bench: Bench) -> None:
    claims, _ = await bench.tokens.verify((await bench.tokens.mint(bench.key, ALL, TokenRequest())).token)
    assert claims.everything
    narrow = TokenRequest(prefixes=("/dam",))
    claims, _ = await bench.tokens.verify((await bench.tokens.mint(bench.key, ALL, narrow)).token)
    assert claims.prefixes == ("/dam",)


async def test_the_holder_may_name_users_and_give_them_less(bench: Bench) -> None:
    wanted = TokenRequest("alice", ("/dam/prices", "/load/GR"), 60)
    issued = await bench.tokens.mint(bench.key, PLAN, wanted)
    claims, _ = await bench.tokens.verify(issued.token)
    # Holders of different keys cannot name the same user.
    assert claims.subject == f"{bench.key.id}/alice"
    assert claims.prefixes == ("/dam/prices", "/load/GR")
    assert issued.expires == bench.now + 60


@pytest.mark.parametrize("prefix", ["/", "/load", "/damage", "/gas"])
async def test_no_token_has_more_rights_than_its_plan(bench: Bench, prefix: str) -> None:
    with pytest.raises(PrefixNotInPlan):
        await bench.tokens.mint(bench.key, PLAN, TokenRequest(prefixes=("/dam", prefix)))


async def test_no_token_is_valid_for_longer_than_its_plan_says(bench: Bench) -> None:
    short = AccessPlan("short", token_s=60)
    for seconds, expected in ((None, 60), (1800, 60), (30, 30)):
        issued = await bench.tokens.mint(bench.key, short, TokenRequest(seconds=seconds))
        assert issued.expires == bench.now + expected
    bench.clock.advance(91)
    with pytest.raises(TokenExpired):
        await bench.tokens.verify(issued.token)


async def test_a_token_that_no_verifier_would_accept_is_not_issued(bench: Bench) -> None:
    plan = AccessPlan("long", prefixes=tuple(f"/{'x' * 60}/{number}" for number in range(60)))
    with pytest.raises(TokenTooLarge):
        await bench.tokens.mint(bench.key, plan, TokenRequest())
    assert (await bench.tokens.mint(bench.key, plan, TokenRequest(prefixes=plan.prefixes[:3]))).token


async def test_no_token_outlives_its_key(bench: Bench) -> None:
    key, _ = new_key("short", "p", bench.clock.wall_ms(), expires_ms=bench.clock.wall_ms() + 90_500)
    issued = await bench.tokens.mint(key, PLAN, TokenRequest())
    assert issued.expires == bench.now + 90


async def test_revoked_write_keys_are_not_published(bench: Bench) -> None:
    writer, _ = new_key("a writer", "", bench.clock.wall_ms(), writes=WriteTerms())
    bench.api_keys.add(writer)
    bench.api_keys.revoke(writer.id, bench.clock.wall_ms())
    assert bench.document["revoked"] == {}


async def test_a_revocation_is_in_force_and_published_at_once(bench: Bench) -> None:
    issued = await bench.tokens.mint(bench.key, PLAN, TokenRequest())
    await bench.tokens.verify(issued.token)
    before = bench.tokens.document()
    assert bench.document["revoked"] == {}
    bench.api_keys.revoke(bench.key.id, bench.clock.wall_ms())
    assert (await bench.tokens.verify(issued.token))[1].state(bench.clock.wall_ms()) is KeyState.REVOKED
    assert bench.document["revoked"] == {bench.key.id: int(bench.now)}
    assert bench.tokens.document().etag != before.etag
    # Another service that reads the keys of the store, as after a restart, publishes the same.
    restarted = Tokens(ApiKeys(bench.api_keys.all()), SigningKeys(None, bench.clock), bench.clock)
    assert json.loads(restarted.document().body)["revoked"] == {bench.key.id: int(bench.now)}
    bench.clock.advance(3600)
    assert bench.document["revoked"] == {}


async def test_tokens_of_others_are_refused(bench: Bench) -> None:
    others = Issuer("memory")
    with pytest.raises(TokenInvalid):
        await bench.tokens.verify(others.token(bench.now, key=bench.key.id))
    stranger, _ = new_key("not in the store", "p", 0)
    issued = await bench.tokens.mint(stranger, PLAN, TokenRequest())
    with pytest.raises(TokenRevoked):
        await bench.tokens.verify(issued.token)


def test_the_document_has_public_keys_only(bench: Bench) -> None:
    (jwk,) = bench.document["keys"]
    assert jwk.keys() == {"kty", "crv", "kid", "x", "alg", "use"}


def test_the_document_is_built_when_it_changes(bench: Bench) -> None:
    first = bench.tokens.document()
    bench.clock.advance(7200)
    assert bench.tokens.document() is first
    bench.api_keys.revoke(bench.key.id, bench.clock.wall_ms())
    second = bench.tokens.document()
    assert second.etag != first.etag
    bench.clock.advance(3599)
    assert bench.tokens.document() is second
    bench.clock.advance(1)
    assert bench.tokens.document() == first


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer a.b.c", "a.b.c"),
        ("bearer  a.b.c ", "a.b.c"),
        ("Bearer ..", ".."),
        ("Basic a.b.c", None),
        ("Bearer diem_k3v9x0ab_secret", None),
        ("Bearer a.b", None),
        ("Bearer", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_is_recognised_by_its_form(header: str | None, token: str | None) -> None:
    assert client_token(header) == token
