"""The servers that a partitioned client is connected to; the SDK's counterpart is ``client/src/sdk/pool.ts``."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from diem.links.client.backoff import Timing
from diem.links.client.link import ClientLink


class PooledServer:
    """One server: its link, which dials at once, and its liveness. ``now`` is the time of the running loop."""

    def __init__(self, url: str, link: ClientLink, timing: Timing, now: float) -> None:
        self.url = url
        self.link = link
        self.task = asyncio.create_task(link.run())
        self._was_listed = True
        """Whether the metadata service listed it since the last attempt."""
        self.live = False
        self.stale: frozenset[str] = frozenset()
        """Endpoints that the server itself reports stale."""
        self._timing = timing
        self._close_at = math.inf
        self._suspect_at = math.inf
        self._suspect_later(now)

    @property
    def poll_at(self) -> float:
        """When to check it next."""
        return min(self._suspect_at, self._close_at)

    def set_listed(self, *, listed: bool) -> None:
        """The metadata service listed this server for its endpoints, or did not, or gave no answer."""
        self.link.cap(self._timing.listed_cap_s if listed else self._timing.cap_s)
        if listed and self.link.expedite():
            self._was_listed = True

    def pop_listed(self) -> bool:
        """Return whether it was listed since the last attempt: the one that begins now need not locate first."""
        was_listed, self._was_listed = self._was_listed, False
        return was_listed

    def set_status(self, *, live: bool, endpoints: Sequence[str] | None, now: float) -> None:
        """Apply a ``status``: without ``endpoints`` it applies to all, also to those that an earlier one named."""
        if endpoints is not None:
            self.stale = self.stale - set(endpoints) if live else self.stale | set(endpoints)
            return
        if live:
            self._suspect_at = math.inf
        elif self.live:
            self._suspect_later(now)
        self.live, self.stale = live, frozenset()

    def is_suspect(self, now: float) -> bool:
        """Return whether it has not been live for a while; then again after another while."""
        is_due = self._suspect_at <= now
        if is_due:
            self._suspect_later(now)
        return is_due

    def is_idle(self, *, used: bool, now: float) -> bool:
        """Return whether nothing has used it for ``idle_after_s``."""
        if used:
            self._close_at = math.inf
        elif self._close_at == math.inf:
            self._close_at = now + self._timing.idle_after_s
        return self._close_at <= now

    def _suspect_later(self, now: float) -> None:
        after = self._timing.suspect_after_s
        self._suspect_at = now + after + random.uniform(0, after)  # noqa: S311 - spreads clients, is no secret


class ServerPool:
    """URL -> :class:`PooledServer`. ``connect`` makes the link to a server, which dials at once."""

    def __init__(self, connect: Callable[[str], ClientLink], timing: Timing) -> None:
        self._connect = connect
        self._timing = timing
        self._servers: dict[str, PooledServer] = {}
        self._urls: dict[ClientLink, str] = {}
        self._dropped_bytes = 0
        """Received from servers that were dropped."""

    def __iter__(self) -> Iterator[PooledServer]:
        """Iterate over a copy: servers may be dropped meanwhile."""
        return iter(list(self._servers.values()))

    def get(self, url: str | None) -> PooledServer | None:
        """Return the server at a URL, if it is in the pool."""
        return self._servers.get(url or "")

    def url(self, link: ClientLink) -> str | None:
        """Return the URL of the server that a link goes to; None once it was dropped."""
        return self._urls.get(link)

    def link(self, url: str) -> ClientLink:
        """Return the link to a server, which may be a new one."""
        server = self._servers.get(url)
        if server is None:
            link = self._connect(url)
            server = self._servers[url] = PooledServer(url, link, self._timing, asyncio.get_running_loop().time())
            self._urls[link] = url
        return server.link

    def drop(self, url: str) -> None:
        """Close the connection to a server."""
        server = self._servers.pop(url)
        del self._urls[server.link]
        self._dropped_bytes += server.link.received_bytes
        server.task.cancel()

    @property
    def received_bytes(self) -> int:
        """Return the payload bytes of all messages that servers have sent."""
        return self._dropped_bytes + sum(server.link.received_bytes for server in self._servers.values())

    @property
    def live(self) -> dict[str, bool]:
        """Servers with an open connection, and whether they are live."""
        return {url: server.live for url, server in self._servers.items() if server.link.is_open}

    def set_listed(self, servers: Mapping[str, bool]) -> None:
        """Pass on which servers the metadata service lists for their endpoints."""
        for url, listed in servers.items():
            if (server := self._servers.get(url)) is not None:
                server.set_listed(listed=listed)

    async def close(self) -> None:
        """Close all connections, and wait until they are."""
        tasks = [server.task for server in self._servers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
