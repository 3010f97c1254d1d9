"""The token of a client: requested before dialling and before expiry, and presented on every link.

The SDK has the same rules (``client/src/sdk/tokens.ts``); ``tests/cases/tokens.json`` has the cases that both pass.
"""

import asyncio
import base64
import contextlib
import inspect
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from diem.client.backoff import Timing
from diem.errors import DiemError
from diem.process.backoff import Backoff, wait
from diem.protocol import codes

MARGIN_S: Final = 30.0
"""Time before expiry at which a token is replaced, if it lives for at least twice as long."""
AUTH_ID: Final = 0
"""The id of every ``auth``; ids of other requests start at 1."""

TokenFunction = Callable[[], str | Awaitable[str]]
"""Returns a token (a JWT, RFC 7519)."""

_VOID: Final = frozenset({codes.Close.TOKEN_EXPIRED, codes.Close.UNAUTHORISED, codes.Close.LOGGED_OUT})
"""Close codes after which the presented token is not used again."""


@dataclass(eq=False)
class NoToken(DiemError):
    """There is no token to present now; ``reason`` never contains one."""

    template = "no token: {reason}"
    retriable = True

    reason: str


class Lifetime(NamedTuple):
    """The lifetime of a token and its remainder, in seconds."""

    life_s: float
    left_s: float


def lifetime(token: str, now: float) -> Lifetime:
    """Return the lifetime of a token by its claims ``iat`` and ``exp``, at Unix time ``now``.

    A clock outside of the lifetime is wrong, or the server will refuse the token: it counts as new.

    Raises:
        NoToken: not a JWT with a lifetime.
    """
    try:
        payload = token.split(".")[1]
        claims = orjson.loads(base64.b64decode(payload + "=" * (-len(payload) % 4), altchars="-_", validate=True))
        life_s = float(claims["exp"] - claims["iat"])
        left_s = float(claims["exp"] - now)
    except (IndexError, KeyError, TypeError, ValueError):
        raise NoToken("what was returned is not a JWT with iat and exp") from None
    if not life_s > 0:
        raise NoToken("what was returned is a JWT without a life")
    return Lifetime(life_s, left_s if 0 < left_s < life_s else life_s)


def refresh_delay_s(life_s: float, left_s: float, draw: float) -> float:
    """Return the seconds until the replacement of a token with lifetime ``life_s``, of which ``left_s`` remain.

    At 80 % of its lifetime and 30 s before its end, or halfway if shorter than a minute; an older token is replaced
    after half of the remainder.

    Args:
        life_s: from issue to expiry.
        left_s: until it expires.
        draw: in [0, 1); brings the time forward by up to a quarter, so that tokens issued together are not replaced
            together.
    """
    age_s = min(0.8 * life_s, max(life_s - MARGIN_S, life_s / 2))
    delay_s = age_s - (life_s - left_s)
    return (delay_s if delay_s > 0 else left_s / 2) * (1 - draw / 4)


class RefusedTokens:
    """Counts close code 4501 (invalid token): a client retries once with a new token, overall and per server."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def accepted(self, url: str) -> None:
        """Record an accepted token."""
        del self._counts[""]
        del self._counts[url]

    def refused(self, url: str, *, held: bool) -> bool:
        """Record a refused token; return whether to give up. ``held``: there is no newer token yet."""
        self._counts[""] += held
        self._counts[url] += 1
        return max(self._counts[""], self._counts[url]) > 1


class TokenSource:
    """The token of one client, shared by its links; requested once at a time.

    Args:
        request: the application's function.
        timing: delays between failed requests.
    """

    def __init__(self, request: TokenFunction, timing: Timing) -> None:
        self.token = ""
        """The token that is held; empty: none."""
        self._request = request
        self._backoff = Backoff(timing.base_s, timing.cap_s)
        self._refusals = RefusedTokens()
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        """Set and replaced whenever there is another token."""
        self._due_at = 0.0
        """When to replace the token, or to try again, Unix time."""
        self._expires_at = 0.0

    async def ready(self) -> str:
        """Return a token that has not expired.

        Raises:
            NoToken: there is none, and the application's function fails.
        """
        try:
            await self._replace_due()
        except NoToken:
            if not self.token or time.time() >= self._expires_at:
                raise
        return self.token

    async def replaced(self, presented: str) -> str:
        """Wait for another token than ``presented``, which is replaced when due, and return it."""
        while self.token in {presented, ""}:
            if not await wait(self._changed, max(0.0, self._due_at - time.time())):
                with contextlib.suppress(NoToken):  # then it is due again after a delay
                    await self._replace_due()
        return self.token

    def accepted(self, url: str) -> None:
        """A server has accepted the token."""
        self._refusals.accepted(url)

    def closed(self, url: str, presented: str, code: int) -> bool:
        """Forget a token voided by a close code; return whether to reconnect although the code forbids it."""
        if code not in _VOID:
            return False
        held = presented == self.token
        if held:
            self.token = ""
        return code == codes.Close.UNAUTHORISED and not self._refusals.refused(url, held=held)

    async def _replace_due(self) -> None:
        """Replace the token if it is due or has expired, or there is none. Raises ``NoToken``."""
        async with self._lock:
            if self.token and time.time() < min(self._due_at, self._expires_at):
                return
            try:
                await self._replace()
            except NoToken:
                self._due_at = time.time() + self._backoff.next_delay()
                raise

    async def _replace(self) -> None:
        try:
            answer = self._request()
            token = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # the application's function may raise anything
            raise NoToken(str(error) or type(error).__name__) from error
        now = time.time()
        life = lifetime(token, now)
        if token == self.token:
            raise NoToken("what was returned is the token that is held already")
        self.token = token
        self._due_at = now + refresh_delay_s(*life, random.random())  # noqa: S311 - spreads clients, is no secret
        self._expires_at = now + life.left_s
        self._backoff.reset()
        self._changed.set()
        self._changed = asyncio.Event()
