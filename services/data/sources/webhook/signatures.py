"""Verifies that deliveries of a webhook are from the holder of its secret. Pure."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from diem.errors import DiemError
from diem.process.auth import bearer_credential

WINDOW_S: Final = 300
"""Greatest distance of a signed time from now."""
MIN_SECRET_BYTES: Final = 16
_SYMMETRIC: Final = "whsec_"

SchemeName = Literal["standard", "github", "hmac", "bearer"]
Encoding = Literal["hex", "base64"]


@dataclass(eq=False)
class Unverified(DiemError):
    """A delivery without a valid signature; ``reason`` contains no part of a secret."""

    template = "the delivery is not signed as it must be: {reason}"

    reason: str


@dataclass(eq=False)
class BadSecret(DiemError):
    """A secret that cannot be used."""

    template = "{reason}"

    reason: str


class Signed(NamedTuple):
    """The part of a signature in header fields, known before the body.

    Attributes:
        id: of the delivery, the same each time that it is sent; empty: it has none. time_s: signed time, in Unix
        seconds; 0: none. before: signed before the body. signatures: one of these must be right; of a bearer, the
        secret itself. id_field: header field of the id.
    """

    id: str
    time_s: int
    before: bytes
    signatures: Sequence[bytes]
    id_field: str


class Scheme(NamedTuple):
    """How deliveries are signed.

    Attributes:
        name: of the scheme. header: field of the signature; of ``hmac``. encoding: of that. id_header: field of the
        delivery's id; of ``hmac`` and ``bearer``.
    """

    name: SchemeName
    header: str = ""
    encoding: Encoding = "hex"
    id_header: str = ""

    def signed(self, headers: Mapping[str, str], now_s: float) -> Signed:
        """Return the signature in header fields, whose names are in lower case.

        Raises:
            Unverified: they have none, or its time is too far from ``now_s``.
        """
        if self.name == "standard":
            return _standard(headers, now_s)
        if self.name == "bearer":
            credential = bearer_credential(headers.get("authorization"))
            if not credential:
                raise Unverified("it has no field Authorization: Bearer")
            return Signed(headers.get(self.id_header, ""), 0, b"", [credential.encode()], self.id_header)
        header, id_header = self.header, self.id_header
        if self.name == "github":
            header, id_header = "x-hub-signature-256", "x-github-delivery"
        text = _field(headers, header).removeprefix("sha256=")
        return Signed(headers.get(id_header, ""), 0, b"", [_decoded(text, self.encoding)], id_header)

    def key(self, secret: str) -> bytes:
        """Return the key of a secret's text; raises BadSecret."""
        key = secret.encode()
        if self.name == "standard":
            try:
                key = base64.b64decode(secret.removeprefix(_SYMMETRIC), validate=True)
            except (binascii.Error, ValueError):
                raise BadSecret(f"a secret of Standard Webhooks is {_SYMMETRIC} and base64") from None
        if len(key) < MIN_SECRET_BYTES:
            raise BadSecret(f"a secret has at least {MIN_SECRET_BYTES} bytes")
        return key

    def verify(self, signed: Signed, keys: Sequence[bytes], body: bytes) -> None:
        """Check a signature with each of several keys; raises Unverified."""
        right = [self._expected(signed, key, body) for key in keys]
        # Every pair, so that the time tells nothing of which one was close.
        found = [hmac.compare_digest(one, given) for one in right for given in signed.signatures]
        if not any(found):
            raise Unverified("the signature is of another secret, or of another body")

    def _expected(self, signed: Signed, key: bytes, body: bytes) -> bytes:
        if self.name == "bearer":
            return key
        digest = hmac.new(key, signed.before, hashlib.sha256)
        digest.update(body)
        return digest.digest()


def _standard(headers: Mapping[str, str], now_s: float) -> Signed:
    """Return a signature of Standard Webhooks 1.0.0; its fields may have the names of Svix, from which it derives."""
    prefix = "svix" if "svix-id" in headers else "webhook"
    id_, time, listed = (_field(headers, f"{prefix}-{name}") for name in ("id", "timestamp", "signature"))
    if not (time.isascii() and time.isdigit() and len(time) <= 15):
        raise Unverified(f"{prefix}-timestamp is no time in Unix seconds")
    if abs(now_s - int(time)) > WINDOW_S:
        raise Unverified(f"{prefix}-timestamp is more than {WINDOW_S} s from the time here: a replay, or a wrong clock")
    pairs = [each.partition(",") for each in listed.split()]
    signatures = [_decoded(text, "base64") for version, _, text in pairs if version == "v1"]
    if not signatures:
        raise Unverified(f"{prefix}-signature has none of the version v1")
    return Signed(id_, int(time), f"{id_}.{time}.".encode("latin-1"), signatures, f"{prefix}-id")


def _field(headers: Mapping[str, str], name: str) -> str:
    text = headers.get(name, "").strip()
    if not text:
        raise Unverified(f"it has no field {name}")
    return text


def _decoded(text: str, encoding: Encoding) -> bytes:
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unverified(f"the signature is not {encoding}") from None
