"""Delays between failed attempts, random under a growing bound (full jitter), and an interruptible wait."""

import asyncio
import math
import random
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

MAX_DOUBLINGS: Final = 16


def full_jitter(attempt: int, base_s: float, cap_s: float, rng: random.Random | None = None) -> float:
    """Return random seconds below ``base_s`` doubled ``attempt`` times, and below ``cap_s``.

    Full jitter keeps clients that lost the same server from dialling the next one in step. Loops that only retry use
    :class:`Backoff`, which counts the attempts.
    """
    uniform = rng.uniform if rng is not None else random.uniform
    return uniform(0.0, min(cap_s, base_s * 2 ** min(attempt, MAX_DOUBLINGS)))


class Outage:
    """Duration of an outage, the bound of a reconnecting client's next delay.

    A client is thus back within about twice its server's downtime, regardless of earlier outages. A connection shorter
    than ``held_s`` is part of the outage: a client repeatedly admitted and disconnected reconnects ever more slowly.
    """

    __slots__ = ("_held_s", "_since")

    def __init__(self, now: float, held_s: float = 10.0) -> None:
        self._since = now
        self._held_s = held_s

    def lost(self, now: float, lasted_s: float) -> None:
        """Record the end of a connection that lasted ``lasted_s``."""
        if lasted_s >= self._held_s:
            self._since = now

    def seconds(self, now: float) -> float:
        """Return the duration so far."""
        return now - self._since


class Backoff:
    """Delays between attempts at one thing: full jitter under a bound that doubles from ``base_s`` up to ``cap_s``.

    Owns the count of consecutive failures, cleared by :meth:`reset` and by a failure after ``stable_s`` of running.
    With ``immediate``, the first delay is 0.
    """

    __slots__ = ("_attempts", "_base_s", "_cap_s", "_immediate", "_rng", "_stable_s")

    def __init__(
        self,
        base_s: float,
        cap_s: float,
        *,
        stable_s: float = math.inf,
        immediate: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._stable_s = stable_s
        self._immediate = immediate
        self._rng = rng
        self._attempts = 0

    def reset(self) -> None:
        """Start over: the attempt succeeded."""
        self._attempts = 0

    def next_delay(self, uptime_s: float = 0.0) -> float:
        """Return the seconds to wait after a failure that followed ``uptime_s`` of running."""
        if uptime_s >= self._stable_s:
            self._attempts = 0
        attempt = self._attempts
        self._attempts = min(attempt + 1, MAX_DOUBLINGS)
        if self._immediate and attempt == 0:
            return 0.0
        return full_jitter(attempt, self._base_s, self._cap_s, self._rng)


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait until ``event`` is set, at most ``seconds``, which may be infinite; return whether it is set."""
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()


def retry_after_s(header: str, now_s: float) -> float:
    """Return the seconds of a ``Retry-After`` header in either form (RFC 9110 section 10.2.3); ``now_s`` is Unix time.

    0 if it has neither form. Unbounded: bounding it is up to the caller.
    """
    text = header.strip()[:64]
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
