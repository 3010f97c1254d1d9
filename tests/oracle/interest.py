"""Subscriptions and known versions of one client over time: its events folded into one timeline per endpoint."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.oracle.history import LEFT, Event, Kind
from tests.oracle.ledger import Ledger
from tests.oracle.windows import Window


@dataclass(slots=True)
class Interest:
    """One client's interest in one endpoint, from its first ``subscribed`` over reconnects until it ends."""

    endpoint: str
    since: float
    level: int
    """The version that the client knows now."""
    steps: list[tuple[float, int]] = field(default_factory=list)
    """(time, version) of each growth of the known version, beginning with the initial one."""
    barriers: list[tuple[float, int]] = field(default_factory=list)
    """(time, stated version) of every ``subscribed``."""
    suspended: list[Window] = field(default_factory=list)
    """Windows in which all connections with the endpoint were disconnected or not live, in order."""
    until: float = 0.0
    away_since: float | None = None
    attached: set[int] = field(default_factory=set)
    """The open connections on which it is subscribed."""
    at_end: bool = False
    """Whether the client was subscribed and connected at the end of the observation."""

    def learn(self, time: float, version: int) -> None:
        """Record that the client knows ``version``; versions that are not greater have no effect."""
        if version > self.level:
            self.level = version
            self.steps.append((time, version))

    def suspend(self, time: float) -> None:
        """Suspend the promise from ``time``."""
        if self.away_since is None:
            self.away_since = time

    def resume(self, time: float) -> None:
        """Resume the promise."""
        if self.away_since is not None:
            self.suspended.append((self.away_since, time))
            self.away_since = None


class Timeline:
    """Folds the events of one client; used by :func:`interests`."""

    def __init__(self, ledger: Ledger) -> None:
        self.finished: list[Interest] = []
        self._ledger = ledger
        self._active: dict[str, Interest] = {}
        self._known: dict[str, int] = defaultdict(int)
        self._silent: set[tuple[int, str]] = set()
        """Connections and endpoints that are not live; "" means all."""

    def take(self, event: Event) -> None:
        """Apply the next event."""
        time, kind, endpoint, version, code, link = event
        if kind in (Kind.UPDATE, Kind.HELD):
            self._learn(endpoint, time, version)
        elif kind == Kind.RESYNC:
            # The client fetches now, and so gets at least what is accepted now.
            self._learn(endpoint, time, self._ledger[endpoint].latest_at(time))
        elif kind == Kind.SUBSCRIBE:
            self._learn(endpoint, time, version)
        elif kind == Kind.SUBSCRIBED:
            self._subscribed(endpoint, time, version, link)
        elif kind in (Kind.UNSUBSCRIBE, Kind.UNSUBSCRIBED, Kind.MOVED):
            self._detach(endpoint, time, link, kind)
        elif kind == Kind.STATUS:
            self._status(endpoint, time, link, live=bool(code))
        elif kind == Kind.CLOSE:
            self._close(time, link, code)

    def end(self, time: float) -> None:
        """End the observation."""
        for interest in self._active.values():
            interest.at_end = interest.away_since is None
            self._finish(interest, time)

    def _learn(self, endpoint: str, time: float, version: int) -> None:
        self._known[endpoint] = max(version, self._known[endpoint])
        if interest := self._active.get(endpoint):
            interest.learn(time, version)

    def _subscribed(self, endpoint: str, time: float, stated: int, link: int) -> None:
        interest = self._active.get(endpoint)
        if interest is None:
            known = self._known[endpoint]
            interest = self._active[endpoint] = Interest(endpoint, time, known, steps=[(time, known)])
        interest.barriers.append((time, stated))
        interest.attached.add(link)
        if self._is_heard(endpoint, link):
            interest.resume(time)

    def _detach(self, endpoint: str, time: float, link: int, kind: str) -> None:
        interest = self._active.get(endpoint)
        if interest is None:
            return
        if kind == Kind.MOVED:
            interest.attached.discard(link)
        elif kind == Kind.UNSUBSCRIBE or link in interest.attached:
            # The reply of a connection that was left for another one ends nothing.
            self._finish(self._active.pop(endpoint), time)

    def _status(self, endpoint: str, time: float, link: int, *, live: bool) -> None:
        if not live:
            self._silent.add((link, endpoint))
        elif endpoint:
            self._silent.discard((link, endpoint))
        else:
            self._forget_silence(link)
        for interest in self._active.values():
            if link in interest.attached and endpoint in ("", interest.endpoint):
                if live:
                    interest.resume(time)
                else:
                    self._rest(interest, time)

    def _close(self, time: float, link: int, code: int) -> None:
        self._forget_silence(link)
        if code == LEFT:
            for interest in self._active.values():
                self._finish(interest, time)
            self._active.clear()
        for interest in self._active.values():
            # One that is not subscribed there, because it has moved, is owed to the client as before.
            if link in interest.attached:
                interest.attached.discard(link)
                self._rest(interest, time)

    def _rest(self, interest: Interest, time: float) -> None:
        """Suspend the promise, unless the client has the endpoint on another connection, too."""
        if not any(self._is_heard(interest.endpoint, link) for link in interest.attached):
            interest.suspend(time)

    def _is_heard(self, endpoint: str, link: int) -> bool:
        return not self._silent & {(link, ""), (link, endpoint)}

    def _forget_silence(self, link: int) -> None:
        self._silent = {silence for silence in self._silent if silence[0] != link}

    def _finish(self, interest: Interest | None, time: float) -> None:
        if interest is not None:
            interest.resume(time)
            interest.until = time
            self.finished.append(interest)


def interests(events: Iterable[Event], ledger: Ledger, end: float) -> list[Interest]:
    """Return every interest of the client with these events; ``end`` is the end of the observation."""
    timeline = Timeline(ledger)
    for event in events:
        timeline.take(event)
    timeline.end(end)
    return timeline.finished
