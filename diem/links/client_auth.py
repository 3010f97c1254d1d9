"""Authentication of an edge's clients: tokens, their deadlines, and withdrawn keys.

docs/reliability.md S3 to S6. ``edge_connection`` checks every name against the claims of the token (S7).
"""

import asyncio
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from diem.errors import DiemError
from diem.process import metrics
from diem.process.clock import Clock
from diem.process.edge_settings import Anonymous, PublicSettings
from diem.process.listeners import is_loopback
from diem.process.metrics import Sample
from diem.protocol.codes import Close
from diem.tokens.claims import Claims, covers_origin
from diem.tokens.errors import TokenExpired, TokenInvalid, TokenRevoked
from diem.tokens.key_source import KeySource, Location
from diem.tokens.verifier import Verifier, preload

AUTH_TIMEOUT_S: Final = 10.0
"""Seconds for a client to present a required token (docs/reliability.md S4)."""
EXPIRY_GRACE_S: Final = 25.0
"""Seconds after a token's expiry during which it can still be refreshed (docs/reliability.md S5)."""
BEARER: Final = "bearer."
"""Prefix of a subprotocol with a token; never selected, so never in the response."""
RETRY_AFTER_S: Final = 2
"""Retry delay in seconds of a client that connected before the token keys were loaded."""


class AuthOutcome(StrEnum):
    """Result of an authentication attempt; label of a metric."""

    ACCEPTED = "accepted"
    REFRESHED = "refreshed"
    INVALID = "invalid"
    ORIGIN = "origin"
    """The token excludes pages of the client's origin."""
    EXPIRED = "expired"
    REVOKED = "revoked"
    NO_KEYS = "no_keys"
    """The keys of tokens have not been read yet."""
    WITHDRAWN = "withdrawn"
    """The key that signed the token of an open connection is no longer trusted."""
    TIMEOUT = "timeout"
    """No token within :data:`AUTH_TIMEOUT_S`."""


@dataclass(eq=False)
class AuthRefused(DiemError):
    """A token was refused. ``code`` closes the connection; ``reason`` never contains a part of the token."""

    template = "{reason}"

    code: Close
    reason: str

    @property
    def close_reason(self) -> str:
        """Reason in the close frame: the delay before a retry, if one may help."""
        return f"retry={RETRY_AFTER_S * 1000}" if self.code is Close.OVERLOAD else "the token is not accepted"


class OriginRefused(AuthRefused):
    """A valid token was refused to a page of an origin not listed in it."""

    def __init__(self) -> None:
        super().__init__(Close.UNAUTHORISED, "the token is not for pages of this origin")


class AuthorisedConnection(Hashable, Protocol):
    """A connection. :class:`ClientAuth` alone changes these attributes."""

    claims: Claims | None
    """Rights of its latest token; None without one."""
    auth_due: int
    """Monotonic second at which to close it (without claims: for lack of a token); 0 for never."""

    def close(self, code: int, reason: str = "") -> None:
        """Close it."""
        ...


M = TypeVar("M", bound=Hashable)


class Deadlines(Generic[M]):
    """Members by the second at which each is due; at most one deadline per member.

    Entries in sets instead of timers for ten thousand connections, which may wait for hours.
    """

    def __init__(self, now: float) -> None:
        self._members: dict[int, set[M]] = {}
        self._passed = math.floor(now)

    def __len__(self) -> int:
        return sum(map(len, self._members.values()))

    def add(self, member: M, at: float) -> int:
        """Add a member due at ``at``, or in the next second if past; return its second."""
        second = max(math.ceil(at), self._passed + 1)
        self._members.setdefault(second, set()).add(member)
        return second

    def discard(self, member: M, second: int) -> None:
        """Remove a member; no-op if already due."""
        found = self._members.get(second)
        if found is not None:
            found.discard(member)
            if not found:
                del self._members[second]

    def pop_due(self, now: float) -> list[M]:
        """Remove and return the members due at ``now``."""
        seconds = range(self._passed + 1, math.floor(now) + 1)
        self._passed = max(self._passed, math.floor(now))
        return [member for second in seconds for member in self._members.pop(second, ())]


class ClientAuth:
    """Tokens and deadlines of the connections of one process; used on the event loop only.

    Args:
        clock: tokens expire by its wall clock when presented, connections by its monotonic clock.
        verifier: checks tokens; None: this process accepts none.
        key_locations: files and URLs of JWK Sets, from which :meth:`run` refreshes the verifier's keys.
    """

    def __init__(
        self, clock: Clock, verifier: Verifier | None = None, key_locations: Sequence[str | Location] = ()
    ) -> None:
        self._clock = clock
        self._verifier = verifier
        self._deadlines: Deadlines[AuthorisedConnection] = Deadlines(clock.monotonic())
        self._withdrawn = False
        """Whether keys were revoked or withdrawn since the last :meth:`pop_due`."""
        self.outcomes: Counter[AuthOutcome] = Counter()
        self.authenticated = 0
        """Open connections with a token."""
        self.pending = 0
        """Open connections that must present one."""
        self._keys: KeySource | None = None
        if verifier is not None and key_locations:
            self._keys = KeySource(key_locations, verifier, on_withdrawn=self._on_withdrawn, clock=clock)

    @classmethod
    def of(cls, settings: PublicSettings, clock: Clock) -> Self:
        """Return the authentication configured for a process.

        Raises:
            ConfigurationError: a key file cannot be used, or a URL is not secure.
        """
        if not settings.token_keys:
            return cls(clock)
        if settings.anonymous == "off" or not is_loopback(settings.host):
            # Clients will present tokens. Elsewhere, as with a local `diem up`, most have none.
            preload()
        verifier = Verifier(audience=settings.token_audience, issuers=settings.token_issuers)
        auth = cls(clock, verifier, settings.token_keys)
        # Await a file that does not exist yet: it is written by the Data Service, which `diem up` starts as well.
        if auth._keys is not None and all("://" in at or Path(at).exists() for at in settings.token_keys):
            auth._keys.load_files()
        return auth

    async def run(self) -> None:
        """Keep the keys current until cancelled."""
        if self._keys is not None:
            await self._keys.run()
        else:
            await asyncio.Event().wait()

    @property
    def accepts_tokens(self) -> bool:
        """True if clients can authenticate here."""
        return self._verifier is not None

    # Tokens

    def verify(self, token: str, origin: str | None) -> Claims:
        """Return the claims of a token.

        Args:
            token: the text.
            origin: of the page presenting it; None: the client is no page.

        Raises:
            OriginRefused: it is for pages of other origins.
            AuthRefused: it is not valid here and now.
        """
        if self._verifier is None:
            raise AuthRefused(Close.UNAUTHORISED, "this server accepts no tokens")
        try:
            claims = self._verifier.verify(token, self._clock.wall_ms() / 1000)
        except TokenExpired as error:
            self.outcomes[AuthOutcome.EXPIRED] += 1
            raise AuthRefused(Close.TOKEN_EXPIRED, str(error)) from None
        except TokenRevoked as error:
            self.outcomes[AuthOutcome.REVOKED] += 1
            raise AuthRefused(Close.LOGGED_OUT, str(error)) from None
        except TokenInvalid as error:
            if self._keys is not None and not self._keys.ready:
                self.outcomes[AuthOutcome.NO_KEYS] += 1
                raise AuthRefused(Close.OVERLOAD, "the keys of tokens have not all been read yet") from None
            self.outcomes[AuthOutcome.INVALID] += 1
            raise AuthRefused(Close.UNAUTHORISED, str(error)) from None
        if not covers_origin(claims.origins, origin):
            self.outcomes[AuthOutcome.ORIGIN] += 1
            raise OriginRefused
        return claims

    # Connections

    def wait(self, member: AuthorisedConnection) -> None:
        """Give a new connection :data:`AUTH_TIMEOUT_S` to present a token."""
        member.auth_due = self._deadlines.add(member, self._clock.monotonic() + AUTH_TIMEOUT_S)
        self.pending += 1

    def accept(self, member: AuthorisedConnection, claims: Claims) -> None:
        """Give a connection the rights of a token, until :data:`EXPIRY_GRACE_S` after its expiry."""
        first = member.claims is None
        self.outcomes[AuthOutcome.ACCEPTED if first else AuthOutcome.REFRESHED] += 1
        if first:
            self.authenticated += 1
            self.pending -= member.auth_due > 0
        self._deadlines.discard(member, member.auth_due)
        member.claims = claims
        remaining = claims.expires_at + EXPIRY_GRACE_S - self._clock.wall_ms() / 1000
        member.auth_due = self._deadlines.add(member, self._clock.monotonic() + remaining)

    def forget(self, member: AuthorisedConnection) -> None:
        """Remove a closing connection."""
        if member.claims is not None:
            self.authenticated -= 1
        elif member.auth_due:
            self.pending -= 1
        self._deadlines.discard(member, member.auth_due)
        member.claims, member.auth_due = None, 0

    def pop_due(self, members: Iterable[AuthorisedConnection]) -> Sequence[tuple[AuthorisedConnection, Close, str]]:
        """Return the connections to close now, each with code and reason; ``members`` are all open ones."""
        now, verifier = self._clock.monotonic(), self._verifier
        if self._withdrawn and verifier is not None:
            for member in members:
                claims = member.claims
                if claims is not None and (verifier.revoked(claims) or verifier.withdrawn(claims)):
                    self._deadlines.discard(member, member.auth_due)
                    member.auth_due = self._deadlines.add(member, math.floor(now))
            self._withdrawn = False
        return [(member, *self._reason(member)) for member in self._deadlines.pop_due(now)]

    def is_due(self, member: AuthorisedConnection) -> bool:
        """Return whether the deadline of a connection returned by :meth:`pop_due` still stands."""
        return member.auth_due <= self._clock.monotonic()

    def _reason(self, member: AuthorisedConnection) -> tuple[Close, str]:
        if member.claims is None:
            self.outcomes[AuthOutcome.TIMEOUT] += 1
            return Close.AUTH_TIMEOUT, f"no token within {AUTH_TIMEOUT_S:g} s"
        if self._verifier is not None and self._verifier.revoked(member.claims):
            self.outcomes[AuthOutcome.REVOKED] += 1
            return Close.LOGGED_OUT, "the API key of the token was revoked"
        if self._verifier is not None and self._verifier.withdrawn(member.claims):
            self.outcomes[AuthOutcome.WITHDRAWN] += 1
            return Close.TOKEN_EXPIRED, "the key that signed the token was withdrawn"
        return Close.TOKEN_EXPIRED, "the token has expired"

    def _on_withdrawn(self) -> None:
        self._withdrawn = True

    # Reports

    def status(self) -> dict[str, Any]:
        """Return the part of ``/status`` about tokens; empty if none are accepted."""
        return {} if self._keys is None else {"tokens": self._keys.status()}

    def samples_of_keys(self) -> Iterable[Sample]:
        """Sample the keys, and the tokens verified with them."""
        return () if self._keys is None else self._keys.samples()

    def samples(self, connections: int) -> Iterable[Sample]:
        """Sample attempts by outcome, and the open ``connections`` by kind of client."""
        yield from self.samples_of_keys()
        for outcome in AuthOutcome:
            yield metrics.AUTHENTICATIONS.sample(self.outcomes[outcome], outcome)
        for access, count in self.counts(connections).items():
            yield metrics.CLIENTS_BY_ACCESS.sample(count, access)

    def counts(self, connections: int) -> dict[str, int]:
        """Count the open ``connections`` that have a token, need none, and must present one."""
        known = {"authenticated": self.authenticated, "pending": self.pending}
        return {"anonymous": connections - sum(known.values()), **known}


def may_be_anonymous(rule: Anonymous, address: str, *, loopback_bind: bool, has_origin: bool) -> bool:
    """Return whether a client needs no token (docs/reliability.md S2 and S3).

    Args:
        rule: the setting.
        address: of the client behind trusted proxies; no loopback address if any other proxy has left a trace.
        loopback_bind: the listener is reachable from this machine only.
        has_origin: the request has an allowed Origin. Without one the client is no browser: it needs a token unless it
            is on this machine.
    """
    if rule == "auto":
        return loopback_bind and is_loopback(address)
    return rule == "on" and (has_origin or is_loopback(address))


def bearer_tokens(subprotocols: Iterable[str]) -> list[str]:
    """Return the tokens among a client's subprotocols (values of ``Sec-WebSocket-Protocol`` fields)."""
    offered = (each.strip() for field in subprotocols for each in field.split(","))
    return [each.removeprefix(BEARER) for each in offered if each.startswith(BEARER)]
