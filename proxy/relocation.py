"""Relocation of endpoints: which server serves each, where it is subscribed, and whether that is current. Pure.

In shared mode one follower follows for all clients, in passthrough mode each client has its own.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from diem.process.backoff import full_jitter
from proxy.routing import Router

AWAY: Final = -1
"""Instead of a request's id: not asked yet, because the link is down. It is asked when the link opens."""
ANSWERED: Final = 0
LEFT: Final = -2
"""Refused there, or moved away; what it may still deliver is taken until the new server has answered."""


class EndpointRoute:
    """One endpoint."""

    __slots__ = ("attempt", "behind", "due", "home", "hops", "places", "since", "stale")

    def __init__(self, home: str | None) -> None:
        self.home = home
        """Where it belongs."""
        self.places: dict[str, int] = {}
        """Server -> the request that it has not answered yet, or one of the states above."""
        self.stale = False
        self.behind = False
        """The server says that it is current but for this one."""
        self.hops = 0
        self.attempt = 0
        self.due: float | None = None
        """When to look for its server again."""
        self.since: float | None = None
        """Since when no server that is current answers for it."""

    def serves(self, dead: Collection[str]) -> bool:
        """Whether a server that is current answers for it."""
        return not self.behind and any(state == ANSWERED and url not in dead for url, state in self.places.items())


class Handle(Protocol):
    """A timer."""

    def cancel(self) -> None:
        """Do not call."""
        ...


Later = Callable[[float, Callable[[], None]], Handle]
"""``loop.call_later``, or what stands for it in a test."""


class Servers(Protocol):
    """The links of a follower."""

    def ask(self, url: str, known: Mapping[str, int | None]) -> int | None:
        """Ask a server; returns the request's id, from 1. None: there is no open link now, ``opened`` follows."""
        ...

    def drop(self, url: str, names: list[str]) -> None:
        """Tell a server that these are not wanted, if there is an open link.

        A server that nothing is wanted of any more need not be dialled any more.
        """
        ...


class Audience(Protocol):
    """Whom a follower follows for."""

    def known(self, name: str) -> int | None:
        """The version to subscribe with."""
        ...

    def answered(self, versions: Mapping[str, int | None]) -> None:
        """A server has registered these, with the versions that it holds."""
        ...

    def stale(self, names: list[str]) -> None:
        """Nobody who is current answers for these now."""
        ...

    def fresh(self, names: list[str]) -> None:
        """Somebody does again."""
        ...


PATIENCE: Final = 3.0
"""Seconds without a server's answer after which an endpoint counts as stale; at once when a link is lost."""
LOOK_EVERY: Final = 0.5


class StalenessTracker:
    """Judges the endpoints of one follower, those in trouble again and again.

    Args:
        followed: the follower's endpoints.
        audience: hears what has become stale or fresh.
        later: the timer.
        now: monotonic seconds.
        look: called with what is in trouble (not served, or to be asked for again), twice a second, before it is
            judged again.
    """

    def __init__(
        self,
        followed: Mapping[str, EndpointRoute],
        audience: Audience,
        later: Later,
        now: Callable[[], float],
        look: Callable[[Iterable[str]], None],
    ) -> None:
        self._followed = followed
        self._audience = audience
        self._later = later
        self._now = now
        self._look = look
        self._troubled: dict[str, None] = {}
        self._timer: Handle | None = None
        self.dead: set[str] = set()
        """Servers that are not current, or not there."""

    def look_at(self, names: Iterable[str], *, at_once: bool = False) -> None:
        """Tell the audience what has become stale or fresh; watch what nobody answers for."""
        stale, fresh = [], []
        now = self._now()
        for name in names:
            followed = self._followed[name]
            if followed.serves(self.dead):
                followed.since = None
                if followed.due is None:
                    self._troubled.pop(name, None)
                else:
                    # Its home has refused it: another server serves it meanwhile.
                    self._troubled[name] = None
                if followed.stale:
                    followed.stale = False
                    fresh.append(name)
                continue
            if followed.since is None:
                followed.since = now
            self._troubled[name] = None
            if not followed.stale and (at_once or now - followed.since >= PATIENCE):
                followed.stale = True
                stale.append(name)
        if self._troubled and self._timer is None:
            self._timer = self._later(LOOK_EVERY, self._again)
        if stale:
            self._audience.stale(stale)
        if fresh:
            self._audience.fresh(fresh)

    def forget(self, name: str) -> None:
        """It is followed no more."""
        self._troubled.pop(name, None)

    def close(self) -> None:
        """Nothing is followed any more."""
        self._troubled.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = None
        self._look(self._troubled)
        self.look_at(list(self._troubled))


MAX_NAMES: Final = 1000
"""Endpoints in one message to a server, which refuses messages over 1 MiB."""
MAX_HOPS: Final = 3
"""Hints followed one after the other before an endpoint waits."""
RETRY_BASE: Final = 0.5
RETRY_CAP: Final = 5.0
LEAVE_AFTER: Final = 5.0
"""Seconds, and up to as many more, for which a server is not live before its endpoints go where the snapshot says."""


class Relocator:
    """Keeps endpoints subscribed where the router says, at the new server before the old one is dropped."""

    def __init__(
        self, router: Router, servers: Servers, audience: Audience, later: Later, now: Callable[[], float]
    ) -> None:
        self._router = router
        self._servers = servers
        self._audience = audience
        self._later = later
        self._now = now
        self._followed: dict[str, EndpointRoute] = {}
        self._judge = StalenessTracker(self._followed, audience, later, now, self._look)
        self.used: Counter[str] = Counter()
        """Server -> endpoints that have a place there; servers without any are not in it."""

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._followed)

    def __contains__(self, name: str) -> bool:
        return name in self._followed

    def is_answered(self, name: str) -> bool:
        """Whether a server has registered it and has not sent it away."""
        followed = self._followed.get(name)
        return followed is not None and ANSWERED in followed.places.values()

    def is_stale(self, name: str) -> bool:
        """Whether the audience was told that it is."""
        followed = self._followed.get(name)
        return followed is not None and followed.stale

    @property
    def stale(self) -> int:
        """Endpoints that are stale."""
        return sum(followed.stale for followed in self._followed.values())

    # What the audience wants

    def follow(self, names: Iterable[str]) -> None:
        """Subscribe; what is followed already is asked for again, with what the audience knows now."""
        for name in (names := list(names)):
            if name not in self._followed:
                self._followed[name] = EndpointRoute(self._route(name, None))
        self._ask(names)

    def unfollow(self, names: Iterable[str]) -> None:
        """Unsubscribe."""
        leaving: dict[str, list[str]] = {}
        for name in names:
            followed = self._followed.pop(name, None)
            self._judge.forget(name)
            for url in tuple(followed.places) if followed is not None else ():
                if self._remove(followed, url) != AWAY:
                    leaving.setdefault(url, []).append(name)
        self._drop(leaving)

    def suspect(self, names: Iterable[str]) -> None:
        """Somebody has waited long enough for these: what has no answer is stale."""
        self._judge.look_at([n for n in names if n in self._followed and not self.is_answered(n)], at_once=True)

    def close(self) -> None:
        """Nobody is followed any more."""
        self._followed.clear()
        self._judge.close()
        self.used.clear()

    # What servers say

    def opened(self, url: str) -> None:
        """A link is open: ask for everything that belongs there."""
        self._judge.dead.discard(url)
        self._ask([n for n, f in self._followed.items() if f.places.get(url) == AWAY], at=url)

    def lost(self, url: str) -> None:
        """A link is gone. What has its home there waits for it, and is stale; what is hot goes elsewhere."""
        self._died(url)
        here = [name for name, followed in self._followed.items() if url in followed.places]
        moving = []
        for name in here:
            followed = self._followed[name]
            if followed.home == url:
                followed.places[url] = AWAY
                if self._route(name, followed) != url and self._is_hot(name):
                    moving.append(name)
            else:
                self._remove(followed, url)
        self._judge.look_at(here, at_once=True)
        self._rehome(moving)

    def subscribed(self, url: str, request_id: int, versions: Mapping[str, int | None]) -> None:
        """A server has registered endpoints; what another request has asked for since is not answered by this."""
        answered: dict[str, int | None] = {}
        dropped: dict[str, list[str]] = {}
        for name, version in versions.items():
            followed = self._asked(name, url, request_id)
            if followed is None:
                continue
            followed.places[url] = ANSWERED
            followed.behind = False
            if followed.home == url:
                # The answer of another server says nothing about the home, which may have to be asked again.
                followed.hops = followed.attempt = 0
                followed.due = None
            answered[name] = version
            for other in [place for place in followed.places if place != url and followed.home == url]:
                self._remove(followed, other)
                dropped.setdefault(other, []).append(name)
        self._drop(dropped)
        if answered:
            self._audience.answered(answered)
            self._judge.look_at(answered)

    def refused(self, url: str, request_id: int, elsewhere: Mapping[str, str | None]) -> None:
        """A server has not registered endpoints; it may know who has each."""
        self._leave(url, {n: hint for n, hint in elsewhere.items() if self._asked(n, url, request_id) is not None})

    def failed(self, url: str, request_id: int) -> None:
        """A server has refused a request as a whole."""
        self._leave(url, {n: None for n in self._followed if self._asked(n, url, request_id) is not None})

    def moved(self, url: str, names: Iterable[str], hint: str | None) -> None:
        """A server sends endpoints away."""
        self._leave(url, {n: hint for n in names if n in self._followed and url in self._followed[n].places})

    def status(self, url: str, names: Iterable[str] | None, *, live: bool) -> None:
        """A server says whether it is current, as a whole or in some endpoints."""
        if names is None:
            if live == (url not in self._judge.dead):
                return
            if live:
                self._judge.dead.discard(url)
            else:
                self._died(url)
            self._judge.look_at([n for n, f in self._followed.items() if url in f.places], at_once=True)
            return
        here = [name for name in names if self.is_answered(name) and url in self._followed[name].places]
        for name in here:
            self._followed[name].behind = not live
        self._judge.look_at(here, at_once=True)

    def rerouted(self) -> None:
        """There is another snapshot: what is elsewhere now moves; what nobody owns stays where it is."""
        self._rehome(list(self._followed))

    # How it goes on

    def _route(self, name: str, followed: EndpointRoute | None) -> str | None:
        current = followed.home if followed is not None else None
        return self._router.owner(name, current=current, used=self.used, dead=self._judge.dead)

    def _is_hot(self, name: str) -> bool:
        return self._router.is_hot(name)

    def _rehome(self, names: Iterable[str]) -> None:
        """Go where the router says, hints or not."""
        moving = []
        for name in names:
            followed = self._followed[name]
            home = self._route(name, followed)
            if home is not None and (home != followed.home or home not in followed.places):
                followed.home = home
                moving.append(name)
        self._settle_in(moving)

    def _settle_in(self, names: Iterable[str]) -> None:
        """Ask at new homes; one where it is subscribed already needs no answer any more."""
        asking = []
        dropped: dict[str, list[str]] = {}
        for name in names:
            followed = self._followed[name]
            state = followed.places.get(followed.home or "", LEFT)
            if state == LEFT:
                asking.append(name)
            elif state == ANSWERED:
                for other in [place for place in followed.places if place != followed.home]:
                    self._remove(followed, other)
                    dropped.setdefault(other, []).append(name)
        self._drop(dropped)
        self._ask(asking)

    def _ask(self, names: Iterable[str], *, at: str | None = None) -> None:
        by_home: dict[str, list[str]] = {}
        for name in (names := list(names)):
            url = at or self._followed[name].home
            if url is not None:
                by_home.setdefault(url, []).append(name)
        for url, asked in by_home.items():
            for part in _parts(asked):
                request_id = self._servers.ask(url, {name: self._audience.known(name) for name in part})
                for name in part:
                    followed = self._followed[name]
                    self.used[url] += url not in followed.places
                    followed.places[url] = AWAY if request_id is None else request_id
        self._judge.look_at(names)

    def _drop(self, leaving: Mapping[str, list[str]]) -> None:
        """Unsubscribe from endpoints at servers."""
        for url, names in leaving.items():
            for part in _parts(names):
                self._servers.drop(url, part)

    def _asked(self, name: str, url: str, request_id: int) -> EndpointRoute | None:
        """The endpoint, if this is the newest request for it there."""
        followed = self._followed.get(name)
        return followed if followed is not None and followed.places.get(url) == request_id else None

    def _leave(self, url: str, hints: Mapping[str, str | None]) -> None:
        """Endpoints are not at a server: follow its hint, or the snapshot if it knows another, or wait."""
        moving = []
        for name, hint in hints.items():
            followed = self._followed[name]
            followed.places[url] = LEFT
            if followed.home != url:
                continue
            followed.hops += 1
            targets = (self._router.hinted(hint), self._route(name, followed)) if followed.hops <= MAX_HOPS else ()
            target = next((target for target in targets if target not in {None, url}), None)
            if target is not None:
                followed.home = target
                moving.append(name)
            else:
                self._postpone(followed)
        self._settle_in(moving)
        self._judge.look_at(hints)

    def _postpone(self, followed: EndpointRoute) -> None:
        followed.due = self._now() + full_jitter(followed.attempt, RETRY_BASE, RETRY_CAP)
        followed.attempt += 1

    def _remove(self, followed: EndpointRoute | None, url: str) -> int:
        """Take an endpoint's place at a server away; returns its state."""
        assert followed is not None  # noqa: S101 - it has places
        self.used[url] -= 1
        if not self.used[url]:
            del self.used[url]
        return followed.places.pop(url)

    def _died(self, url: str) -> None:
        if url not in self._judge.dead:
            self._judge.dead.add(url)
            wait = LEAVE_AFTER * (1 + random.random())  # noqa: S311 - spreads proxies, is no secret
            self._later(wait, lambda: self._abandon(url))

    def _abandon(self, url: str) -> None:
        if url in self._judge.dead:
            self._rehome([name for name, followed in self._followed.items() if followed.home == url])

    def _look(self, troubled: Iterable[str]) -> None:
        """Look for servers again where it is time."""
        now = self._now()
        due = []
        for name in troubled:
            followed = self._followed[name]
            if followed.home is None and followed.due is None:
                self._postpone(followed)
            elif followed.due is not None and followed.due <= now:
                followed.due = None
                followed.hops = 0
                followed.home = self._route(name, followed) or followed.home
                due.append(name)
        self._settle_in(due)


def _parts(names: list[str]) -> Iterator[list[str]]:
    """Cut the names of one server into as many messages as they take."""
    return (names[start : start + MAX_NAMES] for start in range(0, len(names), MAX_NAMES))
