"""Token verification keys and revoked API keys, in JWK Sets (RFC 7517, 8037)."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from diem.tokens.errors import BadKeySet

MAX_DOCUMENT_BYTES: Final = 512 * 1024
"""Largest document: 10,000 revoked API keys take half of it."""
MAX_KEYS: Final = 100
"""Maximum number of keys in a document."""
MAX_REVOKED: Final = 10_000
"""Maximum number of revoked API keys in a document: the maximum number of API keys."""
MAX_ID: Final = 128
"""Longest key id in characters."""
MIN_SECRET_BYTES: Final = 32
"""Shortest secret of HS256 (RFC 7518 section 3.2)."""
_PUBLIC_KEY_BYTES: Final = 32

Algorithm = Literal["EdDSA", "HS256"]


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key and its only algorithm."""

    kid: str
    """Key id; empty: verifies tokens that name no key."""
    algorithm: Algorithm
    material: bytes = field(repr=False)
    """The Ed25519 public key (32 bytes), or the secret of HS256."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """Content of a document."""

    keys: tuple[TokenKey, ...] = ()
    revoked: Mapping[str, float] = field(default_factory=dict)
    """Revoked API keys by id, each with the Unix time of its revocation in seconds: for tokens of the keys above."""
    own: bool = False
    """True for a Data Service's document, whose keys alone sign for the issuer ``diem``."""


def parse_key_set(document: bytes, *, secrets: bool) -> KeySet:
    """Parse a JWK Set. Keys for other algorithms and purposes are left out (RFC 7517 section 5).

    Args:
        document: the JSON text.
        secrets: True to allow secrets of HS256, only for files that nobody else can read.

    Raises:
        BadKeySet: it is too large, no JWK Set, without a usable key, with duplicate ids, or discloses a private key.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise BadKeySet(f"it has more than {MAX_DOCUMENT_BYTES} bytes")
    try:
        found = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise BadKeySet("it is not JSON") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise BadKeySet('it has no list "keys" of objects')
    if len(listed) > MAX_KEYS:
        raise BadKeySet(f"it has more than {MAX_KEYS} keys")
    keys = tuple(key for each in listed if (key := _key(each, secrets=secrets)) is not None)
    if not keys:
        raise BadKeySet("it has no key for EdDSA (kty OKP, crv Ed25519) or HS256 (kty oct)")
    if len({key.kid for key in keys}) < len(keys):
        raise BadKeySet("two keys have the same id (kid)")
    return KeySet(keys, _revoked(found.get("revoked", {})))


def _key(jwk: Mapping[str, Any], *, secrets: bool) -> TokenKey | None:
    """Return the key; None if it is for another algorithm or purpose."""
    algorithm = _algorithm(jwk)
    if algorithm is None:
        return None
    kid = jwk.get("kid", "")
    if not isinstance(kid, str) or len(kid) > MAX_ID:
        raise BadKeySet(f"the id (kid) of a key is not text of up to {MAX_ID} characters")
    if algorithm == "EdDSA":
        if "d" in jwk:
            raise BadKeySet("it discloses a private key (d): replace the key, and publish the public half only")
        material = _bytes(jwk.get("x"))
        if len(material) != _PUBLIC_KEY_BYTES:
            raise BadKeySet(f"an Ed25519 public key has {_PUBLIC_KEY_BYTES} bytes")
    else:
        if not secrets:
            raise BadKeySet("it discloses a secret of HS256 (kty oct): secrets belong into a file of mode 0600")
        material = _bytes(jwk.get("k"))
        if len(material) < MIN_SECRET_BYTES:
            raise BadKeySet(f"a secret of HS256 has at least {MIN_SECRET_BYTES} bytes")
    return TokenKey(kid, algorithm, material)


def _algorithm(jwk: Mapping[str, Any]) -> Algorithm | None:
    """Return the algorithm of a key, by its type; None if not supported."""
    algorithm: Algorithm
    if jwk.get("kty") == "oct":
        algorithm = "HS256"
    elif jwk.get("kty") == "OKP" and jwk.get("crv") == "Ed25519":
        algorithm = "EdDSA"
    else:
        return None
    operations = jwk.get("key_ops", ["verify"])
    verifies = jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    return algorithm if verifies and jwk.get("alg", algorithm) == algorithm else None


def _bytes(text: object) -> bytes:
    """Return the bytes of a base64url text without padding."""
    if not isinstance(text, str) or "=" in text:
        raise BadKeySet("the value of a key is not base64url")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadKeySet("the value of a key is not base64url") from None


def _revoked(found: object) -> dict[str, float]:
    if not isinstance(found, dict) or len(found) > MAX_REVOKED:
        raise BadKeySet(f'"revoked" is not an object with up to {MAX_REVOKED} members')
    if not all(type(when) in {int, float} for when in found.values()):
        raise BadKeySet('"revoked" has a time that is not a number')
    return {key: float(when) for key, when in found.items()}
