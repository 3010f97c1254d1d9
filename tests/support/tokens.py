"""Issuers of tokens for tests: keys, JWK Sets, and tokens that PyJWT signs."""

import base64
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from diem.tokens.key_set import Algorithm, TokenKey

NOW = 1_800_000_000.0
"""Unix seconds at which tests verify."""


def base64url(data: bytes) -> str:
    """Return base64url without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


_GENERATE: dict[Algorithm, Callable[[], Any]] = {
    "EdDSA": Ed25519PrivateKey.generate,
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RS256": lambda: rsa.generate_private_key(65_537, 2048),
    "HS256": lambda: secrets.token_bytes(32),
}


class Issuer:
    """An issuer with one key."""

    def __init__(self, kid: str = "k1", algorithm: Algorithm = "EdDSA", name: str = "diem") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.name = name
        self.private: Any = _GENERATE[algorithm]()

    @property
    def public_bytes(self) -> bytes:
        """The public key as its :class:`TokenKey` has it, or the secret."""
        match self.algorithm:
            case "HS256":
                found: bytes = self.private
            case "ES256":
                found = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            case "RS256":
                found = self.private.public_key().public_numbers().n.to_bytes(256)
            case _:
                found = self.private.public_key().public_bytes_raw()
        return found

    @property
    def key(self) -> TokenKey:
        """What a verifier trusts."""
        return TokenKey(self.kid, self.algorithm, self.public_bytes)

    @property
    def jwk(self) -> dict[str, Any]:
        """The key as a member of a JWK Set."""
        if self.algorithm == "HS256":
            return {"kty": "oct", "kid": self.kid, "alg": "HS256", "k": base64url(self.public_bytes)}
        own = {"kid": self.kid, "alg": self.algorithm, "use": "sig"}
        if self.algorithm == "RS256":
            return {"kty": "RSA", **own, "n": base64url(self.public_bytes), "e": "AQAB"}
        if self.algorithm == "ES256":
            x, y = (base64url(self.public_bytes[start : start + 32]) for start in (1, 33))
            return {"kty": "EC", "crv": "P-256", **own, "x": x, "y": y}
        return {"kty": "OKP", "crv": "Ed25519", **own, "x": base64url(self.public_bytes)}

    def claims(self, now: float = NOW, **changes: Any) -> dict[str, Any]:
        """Return complete claims; a change to None removes one."""
        claims = {
            "iss": self.name,
            "aud": "diem",
            "sub": "alice",
            "key": "k3v9x0ab",
            "prefixes": ["/dam", "/load/GR"],
            "iat": int(now),
            "exp": int(now) + 1800,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self,
        now: float = NOW,
        *,
        header: dict[str, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """Return a signed token with :meth:`claims`."""
        headers = {"kid": self.kid} if header is None else header
        return jwt.encode(self.claims(now, **(changes or {}), **more), self.private, self.algorithm, headers=headers)

    def signed(self, header: dict[str, Any], payload: bytes) -> str:
        """Return a token of any header and payload, with a right signature."""
        message = f"{base64url(json.dumps(header).encode())}.{base64url(payload)}"
        algorithm = jwt.algorithms.get_default_algorithms()[self.algorithm]
        return f"{message}.{base64url(algorithm.sign(message.encode(), self.private))}"


def key_set(*issuers: Issuer, revoked: dict[str, float] | None = None) -> bytes:
    """Return the JWK Set of issuers as a document."""
    document: dict[str, Any] = {"keys": [issuer.jwk for issuer in issuers]}
    return json.dumps(document if revoked is None else {**document, "revoked": revoked}).encode()
