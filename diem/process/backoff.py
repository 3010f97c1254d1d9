"""Delays between attempts that fail: none at first, then random ones under a growing bound (full jitter)."""

import random
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

MAX_DOUBLINGS: Final = 16


def full_jitter(attempt: int, base_s: float, cap_s: float, rng: random.Random | None = None) -> float:
    """Return random seconds below `base_s` doubled `attempt` times, and below `cap_s`.

    Full jitter keeps clients that lost the same server from dialling the next one in step.
    """
    uniform = rng.uniform if rng is not None else random.uniform
    return uniform(0.0, min(cap_s, base_s * 2 ** min(attempt, MAX_DOUBLINGS)))


class Outage:
    """For how long a connection has been gone: no wait for the next attempt needs to be longer than that.

    So whoever lost it is back within about twice the time that the other side was away, however often that has happened
    before. A connection that did not hold for `held_s` belongs to the outage: who is let in and put out again, over
    and over, comes less and less often.
    """

    __slots__ = ("_held_s", "_since")

    def __init__(self, now: float, held_s: float = 10.0) -> None:
        self._since = now
        self._held_s = held_s

    def lost(self, now: float, lasted_s: float) -> None:
        """A connection has ended."""
        if lasted_s >= self._held_s:
            self._since = now

    def seconds(self, now: float) -> float:
        """Return for how long it has been going on."""
        return now - self._since


class Backoff:
    """Delays before the restarts of one thing: the first at once, later ones full-jitter up to `cap_s`.

    What ran for `stable_s` before it failed is forgiven: its next restart is a first one again.
    """

    __slots__ = ("_attempts", "_base_s", "_cap_s", "_rng", "_stable_s")

    def __init__(self, rng: random.Random, base_s: float = 0.25, cap_s: float = 5.0, stable_s: float = 10.0) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self._stable_s = stable_s
        self._attempts = 0

    def next_delay(self, uptime_s: float) -> float:
        """Return the seconds to wait after a failure that followed `uptime_s` of running."""
        if uptime_s >= self._stable_s:
            self._attempts = 0
        attempt = self._attempts
        self._attempts = min(attempt + 1, MAX_DOUBLINGS)
        if attempt == 0:
            return 0.0
        return full_jitter(attempt, self._base_s, self._cap_s, self._rng)


def retry_after_s(header: str, now_s: float) -> float:
    """Return the seconds of a ``Retry-After`` header in either form (RFC 9110 section 10.2.3); ``now_s`` is Unix time.

    0 for what is neither form. There is no upper bound: whoever waits has its own.
    """
    text = header.strip()[:64]
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
