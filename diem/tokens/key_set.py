"""Token verification keys and revoked API keys, in JWK Sets (RFC 7517, 7518, 8037)."""

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
MIN_MODULUS_BYTES, MAX_MODULUS_BYTES = 256, 512
"""Lengths of RSA keys (RFC 7518 section 3.3): 2048 bits at least; longer ones make a check slow."""
_COORDINATE_BYTES: Final = 32
"""Length of an Ed25519 public key, and of a coordinate of P-256."""
_EXPONENT: Final = "AQAB"

Algorithm = Literal["EdDSA", "ES256", "RS256", "HS256"]
_TYPES: Final[Mapping[tuple[object, object], Algorithm]] = {
    ("oct", None): "HS256",
    ("OKP", "Ed25519"): "EdDSA",
    ("EC", "P-256"): "ES256",
    ("RSA", None): "RS256",
}
"""Algorithms by type and curve."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key and its only algorithm."""

    kid: str
    """Key id; empty: verifies tokens that name no key."""
    algorithm: Algorithm
    material: bytes = field(repr=False)
    """The Ed25519 public key (32 bytes), the point of P-256 (65 bytes, uncompressed), the modulus of an RSA key whose
    exponent is 65537, or the secret of HS256."""


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
        raise BadKeySet("it has no key for EdDSA (crv Ed25519), ES256 (crv P-256), RS256 (kty RSA) or HS256 (kty oct)")
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
    if algorithm != "HS256" and "d" in jwk:
        raise BadKeySet("it discloses a private key (d): replace the key, and publish the public half only")
    if algorithm == "HS256" and not secrets:
        raise BadKeySet("it discloses a secret of HS256 (kty oct): secrets belong into a file of mode 0600")
    material = _material(jwk, algorithm)
    return None if material is None else TokenKey(kid, algorithm, material)


def _material(jwk: Mapping[str, Any], algorithm: Algorithm) -> bytes | None:
    """Return the bytes of a key; None for an RSA key of another length or exponent, which is left out."""
    match algorithm:
        case "EdDSA":
            return _coordinate(jwk.get("x"), "an Ed25519 public key")
        case "ES256":
            x, y = (_coordinate(jwk.get(name), "a coordinate of P-256") for name in "xy")
            return b"\x04" + x + y
        case "RS256":
            modulus = _bytes(jwk.get("n"))
            is_usual = MIN_MODULUS_BYTES <= len(modulus) <= MAX_MODULUS_BYTES and jwk.get("e") == _EXPONENT
            return modulus if is_usual else None
        case _:
            secret = _bytes(jwk.get("k"))
            if len(secret) < MIN_SECRET_BYTES:
                raise BadKeySet(f"a secret of HS256 has at least {MIN_SECRET_BYTES} bytes")
            return secret


def _coordinate(text: object, noun: str) -> bytes:
    found = _bytes(text)
    if len(found) != _COORDINATE_BYTES:
        raise BadKeySet(f"{noun} has {_COORDINATE_BYTES} bytes")
    return found


def _algorithm(jwk: Mapping[str, Any]) -> Algorithm | None:
    """Return the algorithm of a key, by its type; None if not supported."""
    kind, curve = jwk.get("kty"), jwk.get("crv")
    algorithm = _TYPES.get((kind, curve)) if isinstance(kind, str) and isinstance(curve, str | None) else None
    if algorithm is None:
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
