"""A load client of mode z-client: one connection for each server that owns one of its endpoints, like the SDK.

The routing is that of the SDK.
"""

import asyncio
from collections.abc import Iterable
from math import inf
from random import Random
from time import monotonic
from typing import Any

from diem.links.client.backoff import Timing
from diem.process.backoff import Backoff
from tests.load.link import Link
from tests.load.locator import Locator
from tests.load.routes import Located, Routes, RoutingAction
from tests.load.server_session import ServerSession
from tests.load.subscriber import Subscriber
from tests.oracle.history import Kind

PATIENCE_SECONDS = 2.0
"""Longest wait of a dial for the metadata service; then the previous server is dialled."""


class PartitionedLoadClient(Subscriber):
    """One client over all its connections. It keeps the first clone that it was assigned.

    Without an answer of the metadata service, routes and servers stay the same. Implements ``SessionOwner``.
    """

    def __init__(self, name: str, address: str, locator: Locator, wants: list[str], random: Random) -> None:
        super().__init__(name, address, wants, random)
        self.clone: int | None = None
        self.sessions: dict[str, ServerSession] = {}
        self.moves = 0
        """Number of redirections by servers."""
        timing = Timing()
        self._routes = Routes(timing, random)
        self._numbers = 0
        self._locator = locator
        self._backoff = Backoff(timing.base_s, timing.cap_s, rng=random)
        self._not_before = 0.0
        self._locating: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    # Commands of the run

    def start(self, delay: float) -> None:
        for endpoint in self.wants:
            self._routes.add(endpoint.decode(), monotonic() + delay)
        self._locate_later()

    def close(self) -> None:
        if self._later:
            self._later.cancel()
        if self._locating:
            self._locating.cancel()
        for session in self.sessions.values():
            session.stop()

    def drop(self) -> None:
        for link in self.links:
            link.abort()

    def add(self, endpoint: str) -> None:
        self.wants.add(endpoint.encode())
        self._routes.add(endpoint, monotonic())
        self._locate_soon()

    def remove(self, endpoint: str) -> None:
        now = monotonic()
        self.wants.discard(endpoint.encode())
        self.record(Kind.UNSUBSCRIBE, endpoint.encode(), time=now)
        for action in self._routes.remove(endpoint, now):
            self._release(action)

    def check(self, now: float) -> None:
        for session in list(self.sessions.values()):
            session.check(now)
        self.sessions = {url: session for url, session in self.sessions.items() if not session.over}

    @property
    def links(self) -> list[Link]:
        return [session.link for session in self.sessions.values() if session.link]

    @property
    def connected(self) -> bool:
        return bool(self.wants) and all(self._routes.is_registered(endpoint.decode()) for endpoint in self.wants)

    @property
    def live(self) -> bool:
        needed = {self._routes.url(endpoint.decode()) for endpoint in self.wants}
        sessions = [self.sessions.get(url or "") for url in needed]
        links = [session.link if session else None for session in sessions]
        return all(link is not None and link.live and not link.stale & self.wants for link in links)

    # Events of the sessions

    def answered(self, session: ServerSession, message: dict[str, Any]) -> None:
        """Handle the answer to a subscribe."""
        now = monotonic()
        self._apply(self._routes.registered(session.url, message["endpoints"], now))
        for name, why in message.get("rejected", {}).items():
            if why["code"] != "not_owner":
                self.unexpected.append(f"{name}: {why}"[:300])
                continue
            session.names.discard(name.encode())  # nothing to unsubscribe
            self.moves += self._routes.url(name) == session.url
            self._apply(self._routes.not_owner(session.url, name, why.get("owner"), now))
        self._locate_later()

    def moved(self, session: ServerSession, names: list[bytes], owner: str | None) -> None:
        """Handle endpoints that the server gives up; it may serve them until they are unsubscribed."""
        moved = [name.decode() for name in names]
        self.moves += sum(self._routes.url(name) == session.url for name in moved)
        self._apply(self._routes.moved(session.url, moved, owner, monotonic()))
        self._locate_later()

    def gone(self, session: ServerSession) -> None:
        """Handle a lost connection: nothing is subscribed there."""
        if self.sessions.get(session.url) is session:
            self._apply(self._routes.lost(session.url))

    def revalidate(self, session: ServerSession) -> None:
        """Locate the endpoints of a server again."""
        self._routes.suspect(session.url, monotonic())
        self._locate_soon()

    async def wait_until_located(self) -> None:
        """Wait for a pending location, at most ``PATIENCE_SECONDS``."""
        if self._locating:
            await asyncio.wait({self._locating}, timeout=PATIENCE_SECONDS)

    # Moves

    def _apply(self, actions: Iterable[RoutingAction]) -> None:
        for action in actions:
            if action.kind == "join":
                self._session(action.url).want(action.endpoint.encode())
            elif link := self._release(action):
                self.record(Kind.MOVED, action.endpoint.encode(), time=monotonic(), link=link.number)

    def _release(self, action: RoutingAction) -> Link | None:
        """Unsubscribe at a server; return its connection if it will answer."""
        session = self.sessions.get(action.url)
        return session.link if session and session.release(action.endpoint.encode()) else None

    def _session(self, url: str) -> ServerSession:
        session = self.sessions.get(url)
        if session is None or session.over:
            session = self.sessions[url] = ServerSession(url, self, self, self._number)
        return session

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Locating

    def _locate_soon(self) -> None:
        if self._locating is None and not self.leaving:
            self._locating = asyncio.get_running_loop().create_task(self._locate_due())

    def _locate_later(self) -> None:
        if self._later:
            self._later.cancel()
            self._later = None
        due = max(self._routes.next_due, self._not_before)
        if due < inf and not self.leaving:
            self._later = asyncio.get_running_loop().call_later(max(0.0, due - monotonic()), self._locate_soon)

    async def _locate_due(self) -> None:
        """Send one request at a time, so that the first one chooses the clone."""
        try:
            while (now := monotonic()) >= self._not_before:
                names = self._routes.to_locate(now)
                if not names:
                    return
                await self._locate(names)
        finally:
            self._locating = None
            self._locate_later()

    async def _locate(self, names: list[str]) -> None:
        answer = await self._locator.locate([name.encode() for name in names], self.clone)
        now = monotonic()
        if answer is None:
            self._not_before = now + self._backoff.next_delay()
            self._routes.unanswered(names, now)
            return
        self._backoff.reset()
        self.clone = answer.clone
        owners = {name.decode(): owner for name, owner in answer.owners.items()}
        hot = frozenset(name.decode() for name in answer.hot)
        live = {url: session.link.live for url, session in self.sessions.items() if session.link}
        self._apply(self._routes.located(names, Located(owners, hot, answer.servers), live, now))
