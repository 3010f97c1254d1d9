import json
import subprocess
import sys
import tracemalloc
from typing import Any, get_args

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.tokens.claims import Claims
from diem.tokens.errors import TokenExpired, TokenInvalid, TokenRevoked
from diem.tokens.key_set import Algorithm, KeySet, TokenKey, parse_key_set
from diem.tokens.verifier import (
    BYTES_PER_BYTE,
    ENTRY_BYTES,
    EXPIRY_STEP_S,
    MAX_AHEAD_S,
    MAX_OWN_AHEAD_S,
    MAX_TOKEN_BYTES,
    Verifier,
)
from tests.support.tokens import NOW, Issuer, base64url, key_set

ISSUERS = {name: Issuer(name.lower(), name) for name in get_args(Algorithm)}


@pytest.fixture(params=[*ISSUERS])
def issuer(request: pytest.FixtureRequest) -> Issuer:
    found: Issuer = ISSUERS[request.param]
    return found


def refused(verifier: Verifier, token: str, reason: str | None, now: float = NOW) -> None:
    with pytest.raises(TokenInvalid, match=reason) as raised:
        verifier.verify(token, now)
    assert not token or token not in str(raised.value)
    assert type(raised.value) is TokenInvalid
    assert verifier.cached == 0


def test_a_token_of_a_trusted_key_has_its_claims(issuer: Issuer) -> None:
    claims = Verifier([issuer.key]).verify(issuer.token(), NOW)
    assert claims == Claims("alice", "k3v9x0ab", ("/dam", "/load/GR"), NOW, NOW + 1800)
    assert claims.allows("/dam/prices/GR")
    assert not claims.allows("/load")


def test_the_id_of_an_api_key_is_optional(issuer: Issuer) -> None:
    assert Verifier([issuer.key]).verify(issuer.token(key=None), NOW).key is None


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", "EdDSA", None])
def test_unsigned_tokens_are_refused(issuer: Issuer, algorithm: str | None) -> None:
    verifier = Verifier([issuer.key])
    header = {"typ": "JWT", "alg": algorithm, "kid": issuer.kid}
    start = f"{base64url(json.dumps(header).encode())}.{base64url(json.dumps(issuer.claims()).encode())}"
    refused(verifier, f"{start}.", "compact form")
    refused(verifier, f"{start}.AAAA", None)
    refused(verifier, start, "compact form")


def test_a_public_key_is_no_secret_of_hs256() -> None:
    issuer = ISSUERS["EdDSA"]
    public = issuer.private.public_key()
    swapped = Issuer("eddsa", "HS256")
    spellings = [issuer.public_bytes, base64url(issuer.public_bytes).encode(), issuer.public_bytes.hex().encode()]
    for secret in (*spellings, jwt.algorithms.OKPAlgorithm.to_jwk(public).encode()):
        swapped.private = secret
        forged = swapped.signed({"alg": "HS256", "kid": "eddsa"}, json.dumps(issuer.claims()).encode())
        refused(Verifier([issuer.key]), forged, "no trusted key")
        refused(Verifier([issuer.key, ISSUERS["HS256"].key]), forged, "no trusted key")


def test_a_secret_verifies_no_eddsa_token() -> None:
    issuer = ISSUERS["HS256"]
    forged = issuer.signed({"alg": "EdDSA", "kid": "hs256"}, json.dumps(issuer.claims()).encode())
    refused(Verifier([issuer.key]), forged, "no trusted key")


@pytest.mark.parametrize("name", ["ES256", "RS256"])
def test_a_public_key_of_a_login_is_no_secret_either(name: str) -> None:
    issuer = ISSUERS[name]
    swapped = Issuer(issuer.kid, "HS256")
    swapped.private = issuer.public_bytes
    forged = swapped.signed({"alg": "HS256", "kid": issuer.kid}, json.dumps(issuer.claims()).encode())
    refused(Verifier([issuer.key]), forged, "no trusted key")
    forged = swapped.signed({"alg": name, "kid": issuer.kid}, json.dumps(issuer.claims()).encode())
    refused(Verifier([issuer.key]), forged, "signature is wrong")


def test_a_point_that_is_not_on_the_curve_verifies_nothing() -> None:
    key = TokenKey("es256", "ES256", b"\x04" + bytes(63) + b"\x01")
    refused(Verifier([key]), ISSUERS["ES256"].token(), "key is not usable")


def test_keys_of_a_published_set_verify_its_tokens(issuer: Issuer) -> None:
    found = parse_key_set(key_set(issuer), secrets=issuer.algorithm == "HS256")
    assert found.keys == (issuer.key,)
    assert Verifier(found.keys).verify(issuer.token(), NOW).subject == "alice"


@pytest.mark.parametrize("algorithm", ["HS384", "HS512", "RS384", "ES384", "Ed448", "PS256", "eddsa", ["EdDSA"], 7])
def test_other_algorithms_are_refused_also_with_a_right_signature(issuer: Issuer, algorithm: object) -> None:
    forged = issuer.signed({"alg": algorithm, "kid": issuer.kid}, json.dumps(issuer.claims()).encode())
    refused(Verifier([issuer.key]), forged, "algorithm")


@pytest.mark.parametrize("crit", [["exp"], ["b64"], [], "exp", None, ["unknown"]])
def test_critical_extensions_are_refused(issuer: Issuer, crit: object) -> None:
    header = {"alg": issuer.algorithm, "kid": issuer.kid, "crit": crit, "b64": True, "unknown": 1}
    refused(Verifier([issuer.key]), issuer.signed(header, json.dumps(issuer.claims()).encode()), "crit")


def test_keys_and_urls_in_the_header_are_not_followed(issuer: Issuer) -> None:
    attacker = Issuer("evil", issuer.algorithm)
    header = {"alg": issuer.algorithm, "kid": "evil", "jwk": attacker.jwk, "jku": "https://evil.example", "x5u": "a"}
    payload = json.dumps(issuer.claims()).encode()
    refused(Verifier([issuer.key]), attacker.signed(header, payload), "no trusted key")
    refused(Verifier([issuer.key]), attacker.signed({**header, "kid": issuer.kid}, payload), "signature is wrong")


@pytest.mark.parametrize("kid", ["other", "", None, 7, ["ed"], {}, "ED", "ed ", "../ed", "k" * 1000])
def test_an_unknown_key_id_is_refused(issuer: Issuer, kid: object) -> None:
    header = {"alg": issuer.algorithm, "kid": kid}
    refused(Verifier([issuer.key]), issuer.signed(header, json.dumps(issuer.claims()).encode()), "key id")


def test_a_token_without_a_key_id_needs_a_key_without_one(issuer: Issuer) -> None:
    anonymous = Issuer("", issuer.algorithm)
    assert Verifier([anonymous.key]).verify(anonymous.token(header={}), NOW).subject == "alice"
    refused(Verifier([issuer.key]), issuer.token(header={}), "no trusted key")


def test_issuers_with_the_same_key_id_do_not_exclude_each_other() -> None:
    issuers = [Issuer("same"), Issuer("same"), Issuer("same", "HS256"), Issuer("same", "HS256")]
    verifier = Verifier([each.key for each in issuers])
    for number, each in enumerate(issuers):
        assert verifier.verify(each.token(sub=f"s{number}"), NOW).subject == f"s{number}"
    refused(Verifier([each.key for each in issuers[:3]]), issuers[3].token(), "signature is wrong")


@pytest.mark.parametrize("name", ["exp", "iat", "sub", "aud", "iss", "prefixes"])
def test_a_missing_claim_is_named(issuer: Issuer, name: str) -> None:
    refused(Verifier([issuer.key]), issuer.token(changes={name: None}), name)


def signed_claims(issuer: Issuer, text: str) -> str:
    return issuer.signed({"alg": issuer.algorithm, "kid": issuer.kid}, text.encode())


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize(
    "value", ['"1800000000"', "true", "null", "[]", "NaN", "Infinity", "1e999", "-1e999", "9" * 400, "{}"]
)
def test_a_time_is_a_finite_number(issuer: Issuer, name: str, value: str) -> None:
    claims = json.dumps({**issuer.claims(), name: "@"}).replace('"@"', value)
    refused(Verifier([issuer.key]), signed_claims(issuer, claims), None)


def test_times_may_have_fractions(issuer: Issuer) -> None:
    claims = Verifier([issuer.key]).verify(issuer.token(exp=NOW + 60.5, iat=NOW - 0.5, nbf=NOW - 0.25), NOW)
    assert (claims.issued_at, claims.expires_at) == (NOW - 0.5, NOW + 60.5)


def test_an_expired_token_is_told_apart(issuer: Issuer) -> None:
    verifier, token = Verifier([issuer.key], leeway_s=30), issuer.token(exp=int(NOW))
    verifier.verify(token, NOW + 29.9)
    for _ in range(2):
        with pytest.raises(TokenExpired):
            verifier.verify(token, NOW + 30)
        assert verifier.cached == 0
    with pytest.raises(TokenExpired):
        Verifier([issuer.key], leeway_s=0).verify(token, NOW)


def test_an_expired_token_with_another_fault_is_invalid(issuer: Issuer) -> None:
    refused(Verifier([issuer.key]), issuer.token(exp=int(NOW) - 999, aud="other"), "audience")
    refused(Verifier([issuer.key]), Issuer(issuer.kid, issuer.algorithm).token(exp=1), "signature")


def test_an_issuer_whose_clock_is_ahead_is_the_named_cause_whatever_else_follows_from_it(issuer: Issuer) -> None:
    token = issuer.token(iat=NOW + 3600, exp=NOW + 3600 + 1800)
    with pytest.raises(TokenInvalid, match=r"\(iat\) 3600 s in the future: the clocks of its issuer and of this host"):
        Verifier([issuer.key]).verify(token, NOW)


@pytest.mark.parametrize("name", ["iat", "nbf"])
def test_a_token_of_the_future_is_refused_beyond_the_leeway(issuer: Issuer, name: str) -> None:
    refused(Verifier([issuer.key]), issuer.token(changes={name: NOW + 31}), name)
    Verifier([issuer.key]).verify(issuer.token(changes={name: NOW + 30}), NOW)


@pytest.mark.parametrize(("name", "ahead_s"), [("diem", MAX_OWN_AHEAD_S), ("https://own.example", MAX_AHEAD_S)])
def test_a_token_is_valid_for_half_an_hour_and_of_another_issuer_for_a_day_at_most(name: str, ahead_s: float) -> None:
    issuer = Issuer(name=name)
    verifier = Verifier([issuer.key], issuers=["diem", "https://own.example"])
    refused(verifier, issuer.token(exp=NOW + ahead_s + 31), "ahead")
    assert verifier.verify(issuer.token(exp=NOW + ahead_s + 30), NOW).issuer == name


@pytest.mark.parametrize(
    "audience", ["other", "diem2", "die", "", ["other"], [], ["diem2"], 7, {"diem": 1}, [["diem"]]]
)
def test_another_audience_is_refused(issuer: Issuer, audience: object) -> None:
    refused(Verifier([issuer.key]), issuer.token(aud=audience), "audience")


def test_an_audience_may_be_one_of_several(issuer: Issuer) -> None:
    Verifier([issuer.key]).verify(issuer.token(aud=["other", "diem"]), NOW)
    Verifier([issuer.key], audience="grid").verify(issuer.token(aud="grid"), NOW)
    refused(Verifier([issuer.key], audience="grid"), issuer.token(), "audience")


@pytest.mark.parametrize("name", ["other", "diem2", "", "die", 7, ["diem"], {"diem": 1}])
def test_another_issuer_is_refused(issuer: Issuer, name: object) -> None:
    claims = json.dumps({**issuer.claims(), "iss": name})
    refused(Verifier([issuer.key]), signed_claims(issuer, claims), "issuer")


def test_trusted_issuers_replace_the_default(issuer: Issuer) -> None:
    verifier = Verifier([issuer.key], issuers=["https://login.example"])
    verifier.verify(issuer.token(iss="https://login.example"), NOW)
    with pytest.raises(TokenInvalid, match="issuer"):
        verifier.verify(issuer.token(), NOW)


def test_origins_are_optional_and_a_list_of_text(issuer: Issuer) -> None:
    verifier = Verifier([issuer.key])
    assert verifier.verify(issuer.token(), NOW).origins is None
    for origins in ([], ["https://app.example", "http://localhost:8080"]):
        assert verifier.verify(issuer.token(origins=origins), NOW).origins == tuple(origins)
    wrong: object
    for wrong in ("https://app.example", {}, [7], [""], ["x" * 257], ["https://a.example"] * 21):
        with pytest.raises(TokenInvalid, match="origins"):
            verifier.verify(issuer.token(origins=wrong), NOW)


@pytest.mark.parametrize("prefixes", ["/dam", {}, [7], ["dam"], ["/dam/"], [""], ["//"], ["/a/../b"], ["/a"] * 101])
def test_prefixes_are_endpoints(issuer: Issuer, prefixes: object) -> None:
    refused(Verifier([issuer.key]), issuer.token(prefixes=prefixes), "prefixes")


@pytest.mark.parametrize("name", ["sub", "key"])
@pytest.mark.parametrize("value", ["", 7, ["a"], "a\nb", "s" * 300, False])
def test_names_are_short_and_printable(issuer: Issuer, name: str, value: object) -> None:
    claims = json.dumps({**issuer.claims(), name: value})
    refused(Verifier([issuer.key]), signed_claims(issuer, claims), name)


def test_an_oversized_token_is_refused_unread(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = Verifier([issuer.key])
    fits = issuer.token(padding="p" * 2600)
    assert len(fits) <= MAX_TOKEN_BYTES
    verifier.verify(fits, NOW)
    refused(Verifier([issuer.key]), issuer.token(padding="p" * 3000), "4096 bytes")
    refused(Verifier([issuer.key]), "." * 50_000_000, "4096 bytes")
    monkeypatch.setattr("diem.tokens.verifier.MAX_TOKEN_BYTES", len(fits))
    Verifier([issuer.key]).verify(fits, NOW)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c.d",
        "é.é.é",
        "\ud800.a.b",
        "\0.\0.\0",
        "e30.e30.e30",
        "W10.e30.AAAA",
        "a.b.c\n",
    ],
)
def test_what_is_no_token_is_refused(issuer: Issuer, token: str) -> None:
    refused(Verifier([issuer.key]), token, None)


@pytest.mark.parametrize("payload", [b"", b"[]", b"7", b"null", b"{", b"\xff", b"[" * 1500, b'{"exp":1}x'])
def test_a_signed_payload_is_an_object(issuer: Issuer, payload: bytes) -> None:
    header = {"alg": issuer.algorithm, "kid": issuer.kid}
    refused(Verifier([issuer.key]), issuer.signed(header, payload), None)


MUTANTS = {name: (each.token(), Verifier([each.key])) for name, each in ISSUERS.items()}


@given(name=st.sampled_from(sorted(ISSUERS)), data=st.data())
def test_no_mutation_of_a_token_verifies(name: str, data: st.DataObject) -> None:
    token, verifier = MUTANTS[name]
    at = data.draw(st.integers(0, len(token)))
    replaced = data.draw(st.integers(0, 3))
    by = data.draw(st.text(alphabet=st.characters(max_codepoint=0x250), max_size=3))
    mutant = token[:at] + by + token[at + replaced :]
    if mutant != token:
        with pytest.raises(TokenInvalid):
            verifier.verify(mutant, NOW)


@pytest.mark.parametrize("name", sorted(ISSUERS))
def test_no_change_of_one_character_verifies(name: str) -> None:
    token, verifier = MUTANTS[name]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # All of the last place, where bits are unused and several characters decode to the same signature.
    last = [token[:-1] + other for other in alphabet if other != token[-1]]
    flips = [f"{token[:at]}{'A' if token[at] != 'A' else 'B'}{token[at + 1 :]}" for at in range(len(token))]
    padded = [token + more for more in ("=", "==", " ", "\n", "A", "\0", ".")] + [
        f" {token}",
        token.replace(".", "=.", 1),
    ]
    for mutant in (*last, *flips, *padded, *(token[:at] for at in range(len(token)))):
        with pytest.raises(TokenInvalid):
            verifier.verify(mutant, NOW)


@given(
    claims=st.fixed_dictionaries(
        {},
        optional={
            "exp": st.one_of(st.integers(-10, 10).map(lambda n: int(NOW) + n), st.sampled_from(["1", None, 1e300])),
            "iat": st.one_of(st.integers(-10, 10).map(lambda n: int(NOW) + n), st.sampled_from(["1", None])),
            "nbf": st.one_of(st.integers(-10, 10).map(lambda n: int(NOW) + n), st.sampled_from(["1", None])),
            "aud": st.sampled_from(["diem", "x", ["diem"], ["x", "diem"], [], 7, None]),
            "iss": st.sampled_from(["diem", "x", "", 7, None]),
        },
    ),
    name=st.sampled_from(sorted(ISSUERS)),
)
def test_pyjwt_accepts_every_token_that_is_accepted(name: str, claims: dict[str, Any]) -> None:
    issuer = ISSUERS[name]
    token = signed_claims(issuer, json.dumps({**issuer.claims(), **claims}))
    try:
        Verifier([issuer.key], leeway_s=0).verify(token, NOW)
    except TokenInvalid:
        return
    public = issuer.private if name == "HS256" else issuer.private.public_key()
    # PyJWT has no parameter for the time: its checks of times are compared by the unit tests above.
    options: Any = {
        "require": ["exp", "iat", "aud", "iss", "sub"],
        **dict.fromkeys(["verify_exp", "verify_iat", "verify_nbf"], False),
    }
    jwt.decode(token, public, [name], audience="diem", issuer="diem", options=options)


def test_a_known_token_is_verified_once(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier, token = Verifier([issuer.key]), issuer.token()
    first = verifier.verify(token, NOW)
    monkeypatch.setattr(verifier, "_signed_payload", None)
    assert verifier.verify(token, NOW + 1) is first
    assert verifier.cached == 1


def test_the_cache_is_bounded_and_evicts_the_least_recently_used(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [issuer.token(sub=f"s{number}") for number in range(4)]
    verifier = Verifier([issuer.key], max_cached_bytes=int(3.5 * (ENTRY_BYTES + BYTES_PER_BYTE * len(tokens[0]))))
    for token in (*tokens[:3], tokens[0], tokens[3]):
        verifier.verify(token, NOW)
    assert verifier.cached == 3
    monkeypatch.setattr(verifier, "_signed_payload", None)
    for number in (0, 2, 3):
        assert verifier.verify(tokens[number], NOW).subject == f"s{number}"
    with pytest.raises(TypeError):
        verifier.verify(tokens[1], NOW)


def test_the_memory_of_the_cache_is_bounded_whatever_the_tokens_have() -> None:
    issuer = ISSUERS["HS256"]  # to sign thousands of tokens by another takes seconds

    def kept(prefixes: int, tokens: int) -> tuple[int, int]:
        """Return the remembered tokens, and the bytes that they take."""
        verifier = Verifier([issuer.key], max_cached_bytes=1 << 20)
        names = [f"/dam/prices/{number}" for number in range(prefixes)]
        made = [issuer.token(sub=f"s{number}", prefixes=names) for number in range(tokens)]
        verifier.verify(made[0], NOW)
        tracemalloc.start()
        for token in made:
            verifier.verify(token, NOW)
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return verifier.cached, taken

    few, of_few = kept(1, 2000)
    many, of_many = kept(100, 300)
    assert many < 200
    assert 500 < few < 2000
    assert max(of_few, of_many) < 1.5 * (1 << 20)


def test_expired_tokens_are_forgotten(issuer: Issuer) -> None:
    verifier = Verifier([issuer.key])
    for number in range(10):
        verifier.verify(issuer.token(sub=f"s{number}"), NOW)
    other = issuer.token(NOW + 1700)
    verifier.verify(other, NOW + 1700)
    assert verifier.cached == 11
    verifier.verify(other, NOW + 1800 + 30 + EXPIRY_STEP_S)
    assert verifier.cached == 1


def test_only_a_data_service_signs_as_diem_where_there_is_one_and_only_as_that() -> None:
    own, provider = Issuer("own"), Issuer("theirs", name="https://login.example")
    verifier = Verifier(issuers=["diem", "https://login.example"])
    verifier.replace_sets([KeySet((own.key,), own=True), KeySet((provider.key,))])
    assert verifier.verify(own.token(), NOW).key == "k3v9x0ab"
    assert verifier.verify(provider.token(), NOW).issuer == "https://login.example"
    for forged in (provider.token(iss="diem"), own.token(iss="https://login.example")):
        with pytest.raises(TokenInvalid, match="does not sign for its issuer"):
            verifier.verify(forged, NOW)
    # Without one, as where tokens are from elsewhere only, every key is for every issuer.
    verifier.replace_sets([KeySet((provider.key,))])
    claims = verifier.verify(provider.token(iss="diem"), NOW)
    verifier.replace_sets([KeySet((own.key,), own=True), KeySet((provider.key,))])
    assert verifier.withdrawn(claims)
    with pytest.raises(TokenInvalid):
        verifier.verify(provider.token(iss="diem"), NOW)


def test_a_set_revokes_tokens_of_its_own_keys_only() -> None:
    own, provider = Issuer("own"), Issuer("theirs", name="https://login.example")
    verifier = Verifier(issuers=["diem", "https://login.example"])
    # It may contain the public key of another, too.
    theirs = KeySet((provider.key, own.key), {"k3v9x0ab": NOW})
    verifier.replace_sets([KeySet((own.key,), own=True), theirs])
    verifier.verify(own.token(), NOW)
    with pytest.raises(TokenRevoked):
        verifier.verify(provider.token(), NOW)
    verifier.replace_sets([KeySet((own.key,), {"k3v9x0ab": NOW}, own=True), KeySet((provider.key,))])
    verifier.verify(provider.token(), NOW)
    with pytest.raises(TokenRevoked):
        verifier.verify(own.token(), NOW)


def test_both_keys_of_a_rotation_are_valid_until_the_old_one_is_removed() -> None:
    old, new = Issuer("2026-01"), Issuer("2026-02")
    verifier = Verifier([old.key])
    first, second = old.token(), new.token()
    verifier.verify(first, NOW)
    with pytest.raises(TokenInvalid, match="no trusted key"):
        verifier.verify(second, NOW)
    verifier.replace_keys([old.key, new.key])
    assert verifier.verify(first, NOW) == verifier.verify(second, NOW)
    verifier.replace_keys([new.key])
    assert verifier.cached == 1
    with pytest.raises(TokenInvalid, match="no trusted key"):
        verifier.verify(first, NOW)
    verifier.verify(second, NOW)


def test_claims_are_withdrawn_with_the_key_that_signed_them_and_with_no_other() -> None:
    # The same id, as of an issuer who replaces a key without another name for it.
    old, new, other = Issuer("k1"), Issuer("k1"), Issuer("k2")
    verifier = Verifier([old.key, other.key])
    withdrawn, kept = verifier.verify(old.token(), NOW), verifier.verify(other.token(), NOW)
    verifier.replace_keys([old.key, new.key, other.key])
    assert not verifier.withdrawn(withdrawn)
    assert verifier.cached == 2
    verifier.replace_keys([new.key, other.key])
    assert verifier.withdrawn(withdrawn)
    assert not verifier.withdrawn(kept)
    assert verifier.cached == 1
    with pytest.raises(TokenInvalid, match="signature"):
        verifier.verify(old.token(), NOW)


def test_the_cache_is_kept_while_the_keys_are_the_same(issuer: Issuer) -> None:
    verifier = Verifier([issuer.key])
    verifier.verify(issuer.token(), NOW)
    verifier.replace_keys([issuer.key], {"another0": NOW})
    assert verifier.cached == 1


def test_tokens_of_a_revoked_api_key_are_refused_also_known_ones(issuer: Issuer) -> None:
    verifier, token = Verifier([issuer.key]), issuer.token()
    claims = verifier.verify(token, NOW)
    assert not verifier.revoked(claims)
    verifier.replace_keys([issuer.key], {"k3v9x0ab": NOW})
    assert verifier.revoked(claims)
    for of_key in (token, issuer.token(sub="bob")):
        with pytest.raises(TokenRevoked):
            verifier.verify(of_key, NOW)
    verifier.verify(issuer.token(key="other000"), NOW)
    verifier.verify(issuer.token(key=None), NOW)


def test_a_key_that_the_library_refuses_makes_a_bad_token() -> None:
    # It takes a secret that looks like a public key for a mistake.
    suspect = Issuer("hs256", "HS256")
    suspect.private = b'{"kty":"oct","k":"a secret that looks like a key"}'
    refused(Verifier([suspect.key]), suspect.signed({"alg": "HS256", "kid": "hs256"}, b"{}"), "not usable")


def test_without_keys_every_token_is_refused(issuer: Issuer) -> None:
    refused(Verifier(), issuer.token(), "no trusted key")


def test_processes_without_tokens_do_not_load_the_libraries() -> None:
    script = (
        "import sys; from diem.tokens.verifier import Verifier; from diem.tokens.key_set import TokenKey;"
        "Verifier([TokenKey('a', 'EdDSA', bytes(32))]);"
        "sys.exit(bool({'jwt', 'cryptography'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
