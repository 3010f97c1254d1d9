"""Verifies JSON Web Tokens offline (RFC 7519), by the rules of RFC 8725, with a cache of verified ones.

PyJWT checks headers and signatures. Its import takes 0.2 s of CPU and 6 MB, and many edges never see a token:
:func:`preload` imports it where tokens are expected, otherwise the first token does. Claims are checked here, because
PyJWT reads the clock itself and has no prefixes. So is the spelling of signatures: PyJWT accepts padding and unused
bits, which would give one token many cache entries; of ES256, whose signatures have a second form, it has two.
"""

import base64
import importlib
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from diem.protocol import endpoints
from diem.tokens.claims import EVERYTHING, MAX_ORIGIN, MAX_ORIGINS, MAX_PREFIXES, Claims
from diem.tokens.errors import TokenExpired, TokenInvalid, TokenRevoked
from diem.tokens.key_set import MAX_ID, KeySet, TokenKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey

AUDIENCE: Final = "diem"
ISSUER: Final = "diem"
"""``iss`` of the Data Service's own tokens."""
LEEWAY_S: Final = 30.0
"""Tolerated difference between the clocks of issuer and verifier (docs/reliability.md S6)."""
MAX_TOKEN_BYTES: Final = 4096
MAX_AHEAD_S: Final = 86_400.0
"""Longest accepted lifetime of a token: withdrawn rights must end some time."""
MAX_OWN_AHEAD_S: Final = 1800.0
"""The same for tokens of :data:`ISSUER`, never issued for longer: the time for a plan's change to take effect."""
MAX_CACHED_BYTES: Final = 10 << 20
"""Maximum size of the cache in bytes, about 10,000 usual tokens; the least recently used is evicted."""
ENTRY_BYTES: Final = 300
BYTES_PER_BYTE: Final = 2.7
"""Memory of a cached token, fixed and per byte of its text, measured with 1 and 100 prefixes."""
EXPIRY_STEP_S: Final = 60
"""Maximum time after expiry until cached tokens are dropped, at the next verification."""
MAX_SUBJECT: Final = 256

# Base64url without padding (RFC 7515 section 2); decoders that skip other characters accept several spellings.
_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)", re.ASCII)
_MISSING: Final = object()
_OUTCOMES: Final = {TokenExpired: "expired", TokenRevoked: "revoked"}


def preload() -> None:
    """Import PyJWT now; importing it for the first token would block the event loop for 0.2 s."""
    importlib.import_module("jwt")


class _Cached(NamedTuple):
    """A cached token."""

    claims: Claims
    size: int
    """Estimated bytes."""


class Verifier:
    """Verifies tokens of the issuers' current keys. Owns the cache; :meth:`replace_keys` changes the trusted keys.

    Args:
        keys: the trusted keys; each may sign for every issuer, but see :meth:`replace_sets`.
        audience: required in ``aud``.
        issuers: the accepted values of ``iss``.
        leeway_s: tolerated difference between the clocks, in seconds.
        max_cached_bytes: bound of the cache.
    """

    def __init__(
        self,
        keys: Iterable[TokenKey] = (),
        *,
        audience: str = AUDIENCE,
        issuers: Collection[str] = (ISSUER,),
        leeway_s: float = LEEWAY_S,
        max_cached_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        self._audience = audience
        self._issuers = frozenset(issuers)
        self._leeway_s = leeway_s
        self._max_cached_bytes = max_cached_bytes
        self._keys: frozenset[TokenKey] = frozenset()
        self._by_id: dict[tuple[str, str], list[TokenKey]] = {}
        """By key id and algorithm; several only if issuers chose the same id."""
        self._prepared: dict[TokenKey, PublicKey | bytes] = {}
        """Keys that have been used, in the form that PyJWT takes."""
        self._revoked: dict[TokenKey, frozenset[str]] = {}
        """Key -> the revoked API keys of its sets."""
        self._own: frozenset[TokenKey] = frozenset()
        """Those of the Data Service."""
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()
        self._cached_bytes = 0
        self._expiring: dict[int, set[bytes]] = {}
        """Minute -> remembered tokens that expire in it."""
        self._expired_until = 0
        """Earlier minutes have none."""
        self.outcomes = {"new": 0, "known": 0, "expired": 0, "revoked": 0, "invalid": 0}
        """Verifications by outcome, for metrics."""
        self.replace_keys(keys)

    def verify(self, token: str, now: float, before_check: Callable[[], None] | None = None) -> Claims:
        """Return the claims of a token.

        Args:
            token: the text.
            now: Unix time in seconds.
            before_check: called before a signature check, a hundred times as expensive as a cache hit; its errors are
                propagated.

        Raises:
            TokenExpired: valid but expired. TokenRevoked: valid, but its API key was revoked. TokenInvalid: anything
                else.
        """
        try:
            return self._verify(token, now, before_check)
        except TokenInvalid as error:
            self.outcomes[_OUTCOMES.get(type(error), "invalid")] += 1
            raise

    def revoked(self, claims: Claims) -> bool:
        """Return whether the API key of verified claims was revoked since, in a set with their signing key."""
        return claims.signed_by is not None and claims.key in self._revoked.get(claims.signed_by, ())

    def withdrawn(self, claims: Claims) -> bool:
        """Return whether the signing key of verified claims is no longer trusted, or no longer for their issuer."""
        return claims.signed_by is not None and not self._trusts(claims)

    def replace_keys(self, keys: Iterable[TokenKey], revoked: Mapping[str, float] | None = None) -> None:
        """Trust these keys only, as :meth:`replace_sets` does; ``revoked`` has the ids of revoked API keys."""
        self.replace_sets([KeySet(tuple(keys), revoked or {})])

    def replace_sets(self, sets: Iterable[KeySet]) -> None:
        """Trust the keys of these sets only; tokens signed by others become invalid.

        The revocations of a set apply to tokens signed by its own keys. If one is a Data Service's, only its keys sign
        for :data:`ISSUER`.
        """
        sets = list(sets)
        self._own = frozenset(key for each in sets if each.own for key in each.keys)
        revoked: dict[TokenKey, set[str]] = {}
        for each in sets:
            for key in each.keys if each.revoked else ():
                if each.own or key not in self._own:
                    revoked.setdefault(key, set()).update(each.revoked)
        self._revoked = {key: frozenset(ids) for key, ids in revoked.items()}
        now = frozenset(key for each in sets for key in each.keys)
        if now == self._keys:
            return
        self._keys = now
        self._by_id = {}
        self._prepared = {}
        for key in now:
            self._by_id.setdefault((key.kid, key.algorithm), []).append(key)
        for digest in [digest for digest, cached in self._cache.items() if not self._trusts(cached.claims)]:
            self._forget(digest)

    @property
    def cached(self) -> int:
        """Number of cached tokens."""
        return len(self._cache)

    def _verify(self, token: str, now: float, before_check: Callable[[], None] | None) -> Claims:
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenInvalid(f"it has more than {MAX_TOKEN_BYTES} bytes")
        # Its text is not kept: memory dumps of the cache would disclose usable tokens.
        digest = sha256(token.encode("utf-8", "replace")).digest()
        cached = self._cache.get(digest)
        if cached is not None and cached.claims.expires_at + self._leeway_s <= now:
            self._forget(digest)
            raise TokenExpired
        self._drop_expired(now)
        if cached is None:
            if before_check is not None:
                before_check()
            claims, outcome = self._claims(*self._signed_payload(token), now), "new"
            self._remember(digest, claims, len(token))
        else:
            claims, outcome = cached.claims, "known"
            self._cache.move_to_end(digest)
        if self._revoked and self.revoked(claims):
            raise TokenRevoked
        self.outcomes[outcome] += 1
        return claims

    def _remember(self, digest: bytes, claims: Claims, token_bytes: int) -> None:
        size = int(ENTRY_BYTES + BYTES_PER_BYTE * token_bytes)
        self._cache[digest] = _Cached(claims, size)
        self._cached_bytes += size
        self._expiring.setdefault(self._minute(claims), set()).add(digest)
        while self._cached_bytes > self._max_cached_bytes:
            self._forget(next(iter(self._cache)))

    def _forget(self, digest: bytes) -> None:
        claims, size = self._cache.pop(digest)
        self._cached_bytes -= size
        expiring = self._expiring[self._minute(claims)]
        expiring.discard(digest)
        if not expiring:
            del self._expiring[self._minute(claims)]

    def _drop_expired(self, now: float) -> None:
        """Once a minute, drop the tokens expired before it."""
        minute = int(now // EXPIRY_STEP_S)
        if minute == self._expired_until:
            return
        self._expired_until = minute
        for expired in [each for each in self._expiring if each < minute]:
            for digest in list(self._expiring[expired]):
                self._forget(digest)

    def _minute(self, claims: Claims) -> int:
        return int((claims.expires_at + self._leeway_s) // EXPIRY_STEP_S)

    def _trusts(self, claims: Claims) -> bool:
        """Return whether the signing key of claims is trusted for their issuer."""
        key = claims.signed_by
        return key in self._keys and (not self._own or (key in self._own) == (claims.issuer == ISSUER))

    def _signed_payload(self, token: str) -> tuple[dict[str, Any], TokenKey]:
        """Verify a token's signature; return its payload and the verifying key."""
        match = _COMPACT.fullmatch(token)
        if match is None or not _is_canonical(match[2]):
            raise TokenInvalid("it is not a signed token in compact form (JWS)")
        header = _object(_decoded(match[1]), "header")
        if "crit" in header:
            raise TokenInvalid("its header has critical extensions (crit)")
        kid, algorithm = header.get("kid", ""), header.get("alg")
        if not isinstance(kid, str) or not isinstance(algorithm, str):
            raise TokenInvalid("its header has no algorithm, or a key id that is no text")
        # The algorithm is the key's: a header can only agree with it (RFC 8725 section 3.1).
        keys = self._by_id.get((kid, algorithm))
        if keys is None:
            raise TokenInvalid("no trusted key has its key id (kid) and algorithm")
        import jwt  # noqa: PLC0415 - see the module's docstring

        for key in keys:
            try:
                found = jwt.api_jws.decode_complete(token, self._key(key), algorithms=[key.algorithm])
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ValueError):
                raise TokenInvalid("its header is not valid, or its key is not usable") from None
            return _object(found["payload"], "payload"), key
        raise TokenInvalid("its signature is wrong")

    def _key(self, key: TokenKey) -> "PublicKey | bytes":
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = key.material if key.algorithm == "HS256" else _public_key(key)
        return prepared

    def _claims(self, payload: Mapping[str, Any], key: TokenKey, now: float) -> Claims:
        """Return the claims of a payload that a trusted issuer signed with ``key``."""
        expires_at, issued_at = _time(payload, "exp"), _time(payload, "iat")
        audience = payload.get("aud")
        if audience != self._audience and not (isinstance(audience, list) and self._audience in audience):
            raise TokenInvalid("it is for another audience (aud)")
        issuer = payload.get("iss")
        if not isinstance(issuer, str) or issuer not in self._issuers:
            raise TokenInvalid("its issuer (iss) is not trusted")
        if self._own and (key in self._own) != (issuer == ISSUER):
            raise TokenInvalid("its key does not sign for its issuer (iss)")
        if expires_at + self._leeway_s <= now:
            raise TokenExpired
        # First, because a clock ahead also puts the expiry too far ahead.
        if issued_at > now + self._leeway_s:
            ahead = f"{issued_at - now:.0f} s in the future"
            raise TokenInvalid(f"it was issued (iat) {ahead}: the clocks of its issuer and of this host differ")
        ahead_s = MAX_OWN_AHEAD_S if issuer == ISSUER else MAX_AHEAD_S
        if expires_at > now + ahead_s + self._leeway_s:
            raise TokenInvalid(f"it expires (exp) more than {ahead_s / 3600:g} hours ahead")
        if "nbf" in payload and _time(payload, "nbf") > now + self._leeway_s:
            raise TokenInvalid("it is not valid yet (nbf)")
        return Claims(
            subject=_text(payload.get("sub"), "sub", MAX_SUBJECT),
            key=_text(payload["key"], "key", MAX_ID) if payload.get("key") is not None else None,
            prefixes=_prefixes(payload.get("prefixes")),
            issued_at=issued_at,
            expires_at=expires_at,
            origins=_origins(payload["origins"]) if "origins" in payload else None,
            issuer=issuer,
            signed_by=key,
        )


def _public_key(key: TokenKey) -> "PublicKey":
    """Return a public key; raises ValueError if it is none."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415 - as PyJWT

    match key.algorithm:
        case "ES256":
            return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), key.material)
        case "RS256":
            return rsa.RSAPublicNumbers(65_537, int.from_bytes(key.material)).public_key()
        case _:
            return ed25519.Ed25519PublicKey.from_public_bytes(key.material)


def _decoded(segment: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except ValueError:
        raise TokenInvalid("it is not base64url") from None


def _is_canonical(segment: str) -> bool:
    """Return whether base64url has no other spelling: unused bits at its end are zero."""
    return base64.urlsafe_b64encode(_decoded(segment)).rstrip(b"=") == segment.encode("ascii")


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise TokenInvalid(f"its {what} is not JSON") from None
    if not isinstance(found, dict):
        raise TokenInvalid(f"its {what} is not an object")
    return found


def _time(payload: Mapping[str, Any], name: str) -> float:
    """Return a NumericDate (RFC 7519 section 2)."""
    found = payload.get(name, _MISSING)
    if found is _MISSING:
        raise TokenInvalid(f"it has no {name}")
    if type(found) not in {int, float} or not math.isfinite(found):
        raise TokenInvalid(f"its {name} is not a time in seconds")
    return float(found)


def _text(found: object, name: str, most: int) -> str:
    if not isinstance(found, str) or not 1 <= len(found) <= most or not found.isprintable():
        raise TokenInvalid(f"its {name} is not printable text of 1 to {most} characters")
    return found


def _prefixes(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or len(found) > MAX_PREFIXES:
        raise TokenInvalid(f"its prefixes are not a list of up to {MAX_PREFIXES} endpoints")
    for prefix in found:
        if not isinstance(prefix, str) or (prefix != EVERYTHING and not endpoints.is_prefix(prefix)):
            raise TokenInvalid('one of its prefixes is neither "/" nor an endpoint')
    return tuple(found)


def _origins(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or len(found) > MAX_ORIGINS:
        raise TokenInvalid(f"its origins are not a list of up to {MAX_ORIGINS} origins")
    return tuple(_text(origin, "origins", MAX_ORIGIN) for origin in found)
