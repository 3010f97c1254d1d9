"""Rate of a client's messages: below what each server allows its address, charged as servers charge. No I/O."""

from typing import Final

from diem.process.limits import NAMES_PER_MESSAGE, message_burst

SHARE: Final = 0.75
"""Of a server's burst: the rest is for messages that the network delivers later and closer together than they were
sent."""
INTERVAL_S: Final = 0.7
"""Seconds a message in the long run; servers take one every 0.6 s."""
ROUNDING_S: Final = 1e-9


class Pace:
    """The allowance of one client at each server, by the name that the server gives itself.

    It belongs to the client and outlives its connections, because the server's count outlives them, too. Like
    :class:`diem.process.limits.TokenBucket` it holds only when each allowance is full again: one that is full is
    forgotten, so there are never more than servers that were sent something within the last refill.
    """

    __slots__ = ("_full_at",)

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, server: str, subscriptions: int, now: float) -> float:
        """Return the seconds until ``server``, which allows so many subscriptions, may be sent a message."""
        reserve_s = INTERVAL_S * (SHARE * message_burst(subscriptions) - 1)
        wait_s = self._full_at.get(server, now) - now - reserve_s
        return wait_s if wait_s > ROUNDING_S else 0.0

    def charge(self, server: str, names: int, now: float) -> None:
        """Count a message with so many names: each 50 of them as one message more."""
        self._use(server, 1 + names // NAMES_PER_MESSAGE, now)
        self._full_at = {server: full_at for server, full_at in self._full_at.items() if full_at > now}

    def drain(self, server: str, subscriptions: int, now: float) -> None:
        """Begin with nothing: the server says that its allowance is used up, by others of this address maybe."""
        self._full_at.pop(server, None)
        self._use(server, SHARE * message_burst(subscriptions), now)

    def _use(self, server: str, tokens: float, now: float) -> None:
        self._full_at[server] = max(self._full_at.get(server, now), now) + tokens * INTERVAL_S
