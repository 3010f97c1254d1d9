"""Client tokens: issued for API keys, verified in requests, with published public keys.

PyJWT is imported in a thread, for the first token issued or presented: 0.2 s of CPU.
"""

import asyncio
import base64
from collections.abc import Callable, Iterable
from hashlib import blake2b
from types import ModuleType
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.process import metrics
from diem.process.auth import bearer_credential
from diem.process.clock import Clock
from diem.tokens.claims import EVERYTHING, Claims
from diem.tokens.errors import TokenRevoked
from diem.tokens.key_set import TokenKey
from diem.tokens.key_source import verified_samples
from diem.tokens.verifier import AUDIENCE, ISSUER, MAX_TOKEN_BYTES, Verifier
from services.data.access.keys import ApiKeys, Key
from services.data.access.plans import AccessPlan
from services.data.access.signing import SigningKey, SigningKeys

REVOKED_FOR_MS: Final = 3600 * 1000
"""Time that revoked API keys are published, twice the longest lifetime of a token."""


class TokenTooLarge(DiemError):
    """The prefixes make a token too large for verifiers."""

    def __str__(self) -> str:
        return f"the token would have more than {MAX_TOKEN_BYTES} bytes: request it with fewer prefixes"


class PrefixNotInPlan(DiemError):
    """Requested prefixes beyond the plan of the API key."""

    def __str__(self) -> str:
        return "the plan does not cover all requested prefixes"


class TokenRequest(NamedTuple):
    """Request for a token."""

    subject: str = ""
    """The user, in the key holder's own terms; empty: the API key itself."""
    prefixes: tuple[str, ...] = ()
    """Rights, within the plan's; empty: all of the plan."""
    seconds: int | None = None
    """Lifetime, within the plan's; None: the plan's."""


class IssuedToken(NamedTuple):
    """A new token."""

    token: str
    expires: int
    """Unix time in seconds."""


class KeyDocument(NamedTuple):
    """The published JWK Set."""

    body: bytes
    etag: str


class _BuiltDocument(NamedTuple):
    """A key document and its inputs; times are Unix milliseconds."""

    document: KeyDocument
    published: tuple[SigningKey, ...]
    revision: int
    """Of the API keys."""
    since_ms: int
    until_ms: int | None
    """Time at which its oldest revocation is dropped; None without one."""

    def is_current(self, published: tuple[SigningKey, ...], revision: int, now_ms: int) -> bool:
        """Return whether a document built now would have the same content."""
        if published is not self.published or revision != self.revision:
            return False
        # Setting the clock back makes older revocations recent again.
        return self.since_ms <= now_ms and (self.until_ms is None or now_ms < self.until_ms)


class Tokens:
    """Tokens of one Data Service.

    Args:
        api_keys: the API keys.
        signing: the keys that sign.
        clock: of ``iat`` and ``exp``.
    """

    def __init__(self, api_keys: ApiKeys, signing: SigningKeys, clock: Clock) -> None:
        self._api_keys = api_keys
        self._signing = signing
        self._clock = clock
        self._verifier = Verifier()
        self._trusted: tuple[SigningKey, ...] = ()
        """The keys of the verifier."""
        self._built: _BuiltDocument | None = None
        self._jwt: ModuleType | None = None
        self.issued = 0

    async def mint(self, key: Key, plan: AccessPlan, wanted: TokenRequest) -> IssuedToken:
        """Issue a token for a valid key.

        Raises:
            PrefixNotInPlan: it would exceed the key's rights.
            TokenTooLarge: it would be too large for verifiers.
        """
        prefixes = _granted(plan, wanted.prefixes)
        jwt = await self._loaded()
        now_s = self._clock.wall_ms() // 1000
        expires = now_s + min(wanted.seconds or plan.token_s, plan.token_s)
        if key.expires_ms is not None:
            expires = min(expires, key.expires_ms // 1000)
        signing = self._signing.signing()
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": f"{key.id}/{wanted.subject}" if wanted.subject else key.id,
            "key": key.id,
            "prefixes": prefixes,
            "iat": now_s,
            "exp": expires,
        }
        if key.origins:
            claims["origins"] = key.origins
        token: str = jwt.encode(claims, signing.private, "EdDSA", headers={"kid": signing.kid})
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenTooLarge
        self.issued += 1
        return IssuedToken(token, expires)

    async def verify(self, token: str, before_check: Callable[[], None] | None = None) -> tuple[Claims, Key]:
        """Return the claims of a token issued by this service, and its API key, valid or not.

        ``before_check`` is called before a signature check; its errors are propagated.

        Raises:
            TokenInvalid: it is invalid, or its key is gone.
        """
        await self._loaded()
        published = self._signing.published()
        if published is not self._trusted:
            self._verifier.replace_keys(key.public for key in published)
            self._trusted = published
        claims = self._verifier.verify(token, self._clock.wall_ms() / 1000, before_check)
        key = self._api_keys.get(claims.key or "")
        if key is None:
            raise TokenRevoked
        return claims, key

    @property
    def signing(self) -> SigningKeys:
        """The keys that sign."""
        return self._signing

    def document(self) -> KeyDocument:
        """Return the public keys, and the API keys revoked within the last hour.

        Rebuilt only on changes; until then the same object is returned.
        """
        published, revision, now_ms = self._signing.published(), self._api_keys.revision, self._clock.wall_ms()
        built = self._built
        if built is None or not built.is_current(published, revision, now_ms):
            built = self._built = self._build(published, revision, now_ms)
        return built.document

    def _build(self, published: tuple[SigningKey, ...], revision: int, now_ms: int) -> "_BuiltDocument":
        revoked_ms = dict(self._api_keys.revoked_since(now_ms - REVOKED_FOR_MS))
        revoked = {key_id: at_ms // 1000 for key_id, at_ms in revoked_ms.items()}
        body = orjson.dumps({"keys": [_jwk(key.public) for key in published], "revoked": revoked})
        document = KeyDocument(body, f'"{blake2b(body, digest_size=12).hexdigest()}"')
        until_ms = min(revoked_ms.values()) + REVOKED_FOR_MS if revoked_ms else None
        return _BuiltDocument(document, published, revision, now_ms, until_ms)

    async def _loaded(self) -> ModuleType:
        if self._jwt is None:
            self._jwt = await asyncio.to_thread(_pyjwt)
        return self._jwt

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the metrics."""
        yield metrics.TOKENS_ISSUED.sample(self.issued)
        yield from verified_samples(self._verifier)


def client_token(header: str | None) -> str | None:
    """Return the token in an Authorization header, valid or not; None for anything else, such as an API key."""
    credential = bearer_credential(header)
    return credential if credential is not None and credential.count(".") == 2 else None


def _granted(plan: AccessPlan, wanted: tuple[str, ...]) -> list[str]:
    """Return the prefixes of a token."""
    of_plan = plan.prefixes or (EVERYTHING,)
    rights = Claims("", None, of_plan, 0.0, 0.0)
    if not all(rights.everything if prefix == EVERYTHING else rights.allows(prefix) for prefix in wanted):
        raise PrefixNotInPlan
    return list(wanted or of_plan)


def _jwk(key: TokenKey) -> dict[str, Any]:
    x = base64.urlsafe_b64encode(key.material).rstrip(b"=").decode("ascii")
    return {"kty": "OKP", "crv": "Ed25519", "kid": key.kid, "x": x, "alg": key.algorithm, "use": "sig"}


def _pyjwt() -> ModuleType:
    import jwt  # noqa: PLC0415

    return jwt
