"""Subscriptions of long polls that outlive them, and which of them a poll may share; pure: callers pass the time."""

from typing import Final, Generic, Protocol, TypeVar

from diem.protocol.messages import Subscribe

KEPT_S: Final = 3.0
"""Time for which a subscription without a poll is kept: a client is back after a round trip."""
MAX_KEPT_NAMES: Final = 8192
"""Names in the subscriptions without a poll; beyond, the oldest ones end."""

Key = tuple[bool, *tuple[str, ...]]
"""With data or without, and the names."""


class PollSubscription(Protocol):
    """A subscription that polls may share."""

    versions: dict[str, int]
    """Endpoint -> its version at the subscription, or of the latest update since; 0: none yet."""

    @property
    def key(self) -> Key:
        """What it is of."""
        ...

    @property
    def is_open(self) -> bool:
        """True while a further poll may wait here: there is no news for those that wait already."""
        ...

    def end(self) -> None:
        """Unsubscribe."""
        ...


S = TypeVar("S", bound=PollSubscription)


class SharedPolls(Generic[S]):
    """The subscriptions that polls may share, at most one of each :data:`Key`."""

    def __init__(self) -> None:
        self._by_key: dict[Key, S] = {}
        self._idle: dict[S, float] = {}
        """Those without a poll, and since when, the oldest first."""
        self._lingering: dict[Key, S] = {}
        """Those among them that no poll may share."""
        self._idle_names = 0
        self.is_expiring = False
        """The caller has a timer for :meth:`expire`."""

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def idle(self) -> int:
        """Number of subscriptions without a poll."""
        return len(self._idle)

    def find(self, request: Subscribe) -> S | None:
        """Return the subscription at which a poll may wait: it holds the very versions of the poll.

        With any other version, the poll is to be answered as a new subscriber is.
        """
        found = self._by_key.get(key_of(request))
        return found if found is not None and found.is_open and found.versions == request.endpoints else None

    def add(self, subscription: S) -> bool:
        """Let polls share a subscription; return False if there is another one of the same."""
        return self._by_key.setdefault(subscription.key, subscription) is subscription

    def discard(self, subscription: S) -> None:
        """Let no further poll share a subscription."""
        self.set_busy(subscription)
        if self._by_key.get(subscription.key) is subscription:
            del self._by_key[subscription.key]

    def set_busy(self, subscription: S) -> None:
        """Keep a subscription as long as its polls."""
        if self._idle.pop(subscription, None) is not None:
            self._idle_names -= len(subscription.versions)

    def set_idle(self, subscription: S, now: float) -> None:
        """Keep a subscription without a poll until :meth:`expire`; beyond the bound, end the oldest ones."""
        self._idle[subscription] = now
        self._idle_names += len(subscription.versions)
        while self._idle_names > MAX_KEPT_NAMES:
            self._end(next(iter(self._idle)))

    def linger(self, subscription: S, now: float) -> None:
        """Keep a subscription that no poll may share, at most one of each key, until the client is back.

        Otherwise a proxy would subscribe anew with each poll, and be sent again what the client has.
        """
        if subscription.key in self._by_key:
            subscription.end()
            return
        if (before := self._lingering.pop(subscription.key, None)) is not None:
            self._end(before)
        self._lingering[subscription.key] = subscription
        self.set_idle(subscription, now)

    def expire(self, now: float) -> float | None:
        """End what was kept long enough; return the seconds until the next one is, None if there is none."""
        for subscription, since in list(self._idle.items()):
            if since + KEPT_S > now:
                return since + KEPT_S - now
            self._end(subscription)
        return None

    def _end(self, subscription: S) -> None:
        self.discard(subscription)
        if self._lingering.get(subscription.key) is subscription:
            del self._lingering[subscription.key]
        subscription.end()


def key_of(request: Subscribe) -> Key:
    """Return the key of a request."""
    return (request.data, *request.endpoints)
