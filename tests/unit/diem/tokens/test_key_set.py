import json
from typing import Any

import pytest

from diem.tokens.errors import BadKeySet
from diem.tokens.key_set import MAX_DOCUMENT_BYTES, MAX_KEYS, MAX_REVOKED, KeySet, parse_key_set
from tests.support.tokens import Issuer, base64url, key_set


def parse(document: object, *, secrets: bool = False) -> KeySet:
    return parse_key_set(json.dumps(document).encode(), secrets=secrets)


def test_a_set_has_its_keys_and_revoked_api_keys() -> None:
    first, second = Issuer("a"), Issuer("b")
    found = parse_key_set(key_set(first, second, revoked={"k3v9x0ab": 12.5}), secrets=False)
    assert found.keys == (first.key, second.key)
    assert found.revoked == {"k3v9x0ab": 12.5}
    assert parse_key_set(key_set(first), secrets=False).revoked == {}


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "RSA", "kid": "r", "n": "AQ", "e": "AQAB"},
        {"kty": "RSA", "kid": "r", "n": base64url(bytes(256)), "e": "Aw"},
        {"kty": "RSA", "kid": "r", "n": base64url(bytes(513)), "e": "AQAB"},
        {"kty": "EC", "crv": "P-384", "kid": "e", "x": "AQ", "y": "AQ"},
        {"kty": "EC", "crv": ["P-256"], "kid": "e", "x": "AQ", "y": "AQ"},
        {"kty": "OKP", "crv": "X25519", "kid": "x", "x": base64url(bytes(32))},
        {**Issuer("enc").jwk, "use": "enc"},
        {**Issuer("sign").jwk, "key_ops": ["sign"]},
        {**Issuer("alg").jwk, "alg": "ES256"},
        {},
    ],
)
def test_keys_for_other_algorithms_and_purposes_are_left_out(other: dict[str, Any]) -> None:
    issuer = Issuer()
    assert parse({"keys": [other, issuer.jwk]}).keys == (issuer.key,)
    with pytest.raises(BadKeySet, match="no key for EdDSA"):
        parse({"keys": [other]})


def test_a_secret_is_accepted_only_where_secrets_may_be() -> None:
    issuer = Issuer(algorithm="HS256")
    assert parse({"keys": [issuer.jwk]}, secrets=True).keys == (issuer.key,)
    with pytest.raises(BadKeySet, match="file of mode 0600"):
        parse({"keys": [issuer.jwk]})


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(BadKeySet, match="at least 32 bytes"):
        parse({"keys": [{"kty": "oct", "k": base64url(bytes(31))}]}, secrets=True)


def test_a_document_that_discloses_a_private_key_is_refused() -> None:
    with pytest.raises(BadKeySet, match="discloses a private key"):
        parse({"keys": [{**Issuer().jwk, "d": base64url(bytes(32))}]})


def test_two_keys_of_one_id_are_refused() -> None:
    with pytest.raises(BadKeySet, match="same id"):
        parse({"keys": [Issuer("a").jwk, Issuer("a").jwk]})
    with pytest.raises(BadKeySet, match="same id"):
        parse({"keys": [Issuer("a").jwk, Issuer("a", "HS256").jwk]}, secrets=True)


@pytest.mark.parametrize(
    "value", ["", "AQ", base64url(bytes(33)), base64url(bytes(32)) + "=", "!" * 43, "A" * 41, 7, None, "é" * 43]
)
def test_a_public_key_has_32_bytes_in_base64url(value: object) -> None:
    with pytest.raises(BadKeySet):
        parse({"keys": [{**Issuer().jwk, "x": value}]})


@pytest.mark.parametrize("kid", [7, None, ["a"], "k" * 129])
def test_a_key_id_is_short_text(kid: object) -> None:
    with pytest.raises(BadKeySet, match="kid"):
        parse({"keys": [{**Issuer().jwk, "kid": kid}]})


def test_a_key_without_an_id_has_the_empty_one() -> None:
    jwk = Issuer().jwk
    del jwk["kid"]
    (key,) = parse({"keys": [jwk]}).keys
    assert key.kid == ""


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[]", b"7", b'{"keys":{}}', b'{"keys":[7]}', b"{}", b"\xff", b'{"keys":[]}', b"[" * 2000]
)
def test_what_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(BadKeySet):
        parse_key_set(document, secrets=True)


@pytest.mark.parametrize("revoked", [[], 7, {"a": "1"}, {"a": True}, {"a": None}])
def test_revoked_keys_have_times(revoked: object) -> None:
    with pytest.raises(BadKeySet, match="revoked"):
        parse({"keys": [Issuer().jwk], "revoked": revoked})


def test_documents_keys_and_revocations_are_bounded() -> None:
    jwk = Issuer().jwk
    with pytest.raises(BadKeySet, match="bytes"):
        parse_key_set(key_set(Issuer()) + b" " * MAX_DOCUMENT_BYTES, secrets=False)
    with pytest.raises(BadKeySet, match="keys"):
        parse({"keys": [{**jwk, "kid": str(n)} for n in range(MAX_KEYS + 1)]})
    with pytest.raises(BadKeySet, match="members"):
        parse({"keys": [jwk], "revoked": {str(n): 1 for n in range(MAX_REVOKED + 1)}})
    revoked = {f"{n:08}": 1_800_000_000.123 for n in range(MAX_REVOKED)}
    full = json.dumps({"keys": [{**jwk, "kid": f"{n:0128}"} for n in range(MAX_KEYS)], "revoked": revoked}).encode()
    assert len(parse_key_set(full, secrets=False).revoked) == MAX_REVOKED


def test_neither_texts_of_keys_nor_of_faults_contain_a_secret() -> None:
    issuer = Issuer(algorithm="HS256")
    assert repr(issuer.public_bytes)[2:-1] not in repr(issuer.key)
    with pytest.raises(BadKeySet) as raised:
        parse({"keys": [issuer.jwk]})
    assert issuer.jwk["k"] not in str(raised.value)
