"""Delays and rates of a client: reconnect back-off, delays requested by servers, and the rate of messages. No I/O.

The SDK has the same rules (``client/src/sdk/backoff.ts``, ``codes.ts`` and ``http.ts``); ``tests/cases`` has the cases
that both pass.
"""

import math
import random
import re
import time
from dataclasses import dataclass
from typing import Final

from diem.process import backoff
from diem.process.backoff import Outage, full_jitter
from diem.process.limits import NAMES_PER_MESSAGE, message_burst
from diem.protocol import codes

MAX_RETRY_WINDOW_S: Final = 600.0
MAX_RETRY_AFTER_S: Final = 300.0
BURST_SHARE: Final = 0.75
"""Share of a server's burst in use: the rest is for messages that the network delays and bunches up."""
INTERVAL_S: Final = 0.7
"""Seconds per message in the long run; servers accept one every 0.6 s."""
ROUNDING_S: Final = 1e-9
MIN_HEARTBEAT_S: Final = 1.0
"""Minimum of a server's announced interval: networks delay by more than anything shorter."""

_RETRY: Final = re.compile(r"\bretry=(\d{1,9})\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays of a client in seconds; the defaults are the protocol's (docs/protocol.md 1.4), tests use shorter ones."""

    base_s: float = 0.5
    """The first back-off window; it doubles with every failure."""
    cap_s: float = 30.0
    """The longest back-off window."""
    stable_after_s: float = 60.0
    """Age at which an open connection resets the back-off."""
    held_after_s: float = 10.0
    """Age at which an open connection ends the preceding outage."""
    silence_s: float = 60.0
    """Time without a frame after which a server counts as hung, unless it announces more frequent ones."""
    welcome_s: float = 10.0
    """Time without a ``welcome`` after which a dial has failed."""
    late_s: float = 0.5
    """Extra time for frames received but not handled yet: a late timer is no silence."""
    suspect_after_s: float = 5.0
    """A server that is not live is suspected after this plus up to as much again, and then once more."""
    idle_after_s: float = 5.0
    """Time to keep an unused connection."""
    stayed_after_s: float = 1.0
    """Length of a stay at a server that resets the count of hops."""
    auth_timeout_s: float = 10.0
    """Time without a reply to the first token after which a server counts as hung."""


def silence_limit_s(heartbeat_ms: float, usual_s: float) -> float:
    """Return the time without a frame after which a server counts as hung: two of its announced intervals.

    ``heartbeat_ms`` is 0 if it announces none; then, and at most, it is ``usual_s``.
    """
    return min(2 * max(heartbeat_ms / 1000, MIN_HEARTBEAT_S), usual_s) if heartbeat_ms > 0 else usual_s


class ReconnectBackoff:
    """Delays before a client's attempts to connect: full jitter in a window that doubles with every failure.

    The window is never longer than the outage has lasted, but at least ``base_s``, so clients reconnect quickly after a
    short outage, however many they had before. All times are seconds of a monotonic clock.
    """

    __slots__ = ("_failures", "_outage", "_rng", "_timing")

    def __init__(self, timing: Timing, rng: random.Random | None = None) -> None:
        self._timing = timing
        self._rng = rng
        self._outage = Outage(-math.inf, timing.held_after_s)
        self._failures = 0

    def begin(self, now: float) -> None:
        """Start with an outage: the client is about to dial for the first time."""
        self._outage = Outage(now, self._timing.held_after_s)

    def delay_s(
        self, now: float, open_s: float | None, code: int | None, reason: str, at_least_s: float = 0.0
    ) -> float:
        """Return the seconds to wait after the end of a connection, or a failed attempt.

        Args:
            now: monotonic seconds.
            open_s: time that the connection was open; None: never.
            code: its close code; None: there was no close frame.
            reason: the close reason; its ``retry=<ms>`` replaces the window.
            at_least_s: ``Retry-After`` of a refused handshake; the random delay comes on top of it.
        """
        if open_s is not None:
            self._outage.lost(now, open_s)
            if open_s >= self._timing.stable_after_s:
                self.reset()
        window_s = retry_window_s(reason)
        if window_s is not None:
            delay_s = full_jitter(0, window_s, MAX_RETRY_WINDOW_S, self._rng)
        else:
            cap_s = min(self._timing.cap_s, max(self._timing.base_s, self._outage.seconds(now)))
            delay_s = full_jitter(self._failures, self._timing.base_s, cap_s, self._rng)
        self._failures += code != codes.Close.RESTART  # a restart is intended, and no failure
        return at_least_s + delay_s

    def expedite_s(self) -> float:
        """Forget all failures, and return a delay of the first window: the server may be back."""
        self.reset()
        return full_jitter(0, self._timing.base_s, self._timing.base_s, self._rng)

    def reset(self) -> None:
        """Forget all failures."""
        self._failures = 0


def retry_window_s(reason: str) -> float | None:
    """Return the window requested by a close reason (``retry=<ms>``), in seconds, at most ten minutes; None: none.

    It is the upper bound of a random delay, whatever the close code.
    """
    found = _RETRY.search(reason)
    return None if found is None else min(int(found[1]) / 1000, MAX_RETRY_WINDOW_S)


def retry_after_s(header: str | None) -> float:
    """Return the delay requested by a ``Retry-After`` header in seconds, at most five minutes; 0 without one."""
    return 0.0 if header is None else min(backoff.retry_after_s(header, time.time()), MAX_RETRY_AFTER_S)


class TokenBuckets:
    """One client's allowance of messages to each server, by the name in its ``welcome``, charged like the servers' own.

    They outlive the client's connections, because the server's count does. Like
    :class:`diem.process.limits.TokenBucket` each is one number, the time at which it is full again; full ones are
    dropped, so there is at most one per server that was sent something within the last refill.
    """

    __slots__ = ("_full_at",)

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, server: str, subscriptions: int, now: float) -> float:
        """Return the seconds until ``server``, with its limit of subscriptions, may be sent a message."""
        reserve_s = INTERVAL_S * (BURST_SHARE * message_burst(subscriptions) - 1)
        wait_s = self._full_at.get(server, now) - now - reserve_s
        return wait_s if wait_s > ROUNDING_S else 0.0

    def charge(self, server: str, names: int, now: float) -> None:
        """Count a message with this many names; every 50 names count as one more message."""
        self._use(server, 1 + names // NAMES_PER_MESSAGE, now)
        self._full_at = {server: full_at for server, full_at in self._full_at.items() if full_at > now}

    def drain(self, server: str, subscriptions: int, now: float) -> None:
        """Empty the bucket after a close with 4003: other clients of the address may have used it up."""
        self._full_at.pop(server, None)
        self._use(server, BURST_SHARE * message_burst(subscriptions), now)

    def _use(self, server: str, tokens: float, now: float) -> None:
        self._full_at[server] = max(self._full_at.get(server, now), now) + tokens * INTERVAL_S
