"""Servers that own something wanted: a connection to each, its liveness, and when to leave it."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from diem.links.client.base import Timing
from diem.links.client.line import ClientLink


class OwnerConnection:
    """A server by its URL; the line to it is dialled at once. ``now`` is the time of the running loop."""

    def __init__(self, url: str, line: ClientLink, timing: Timing, now: float) -> None:
        self.url = url
        self.line = line
        self.task = asyncio.create_task(line.run())
        self.named = True
        """It is about to be dialled because it was named."""
        self.live = False
        self.stale: frozenset[str] = frozenset()
        """Endpoints that the server itself says are not live."""
        self._timing = timing
        self._empty_at = math.inf
        self._suspect_at = math.inf
        self._suspect_later(now)

    @property
    def poll_at(self) -> float:
        """When it is to be looked at."""
        return min(self._suspect_at, self._empty_at)

    def is_named(self, *, named: bool) -> None:
        """The metadata service was asked about this server: whether it answered, and named it."""
        self.line.cap = self._timing.named_cap if named else self._timing.cap
        if named and self.line.expedite():
            self.named = True

    def set_status(self, *, live: bool, part: Sequence[str] | None, now: float) -> None:
        """Take a status: without ``part`` it speaks for all, with it for these endpoints alone."""
        if part is not None:
            self.stale = self.stale - set(part) if live else self.stale | set(part)
            return
        if live:
            self._suspect_at = math.inf
        elif self.live:
            self._suspect_later(now)
        self.live, self.stale = live, frozenset()

    def is_suspect(self, now: float) -> bool:
        """Whether it has not been live for a while; once more after another while."""
        is_due = self._suspect_at <= now
        if is_due:
            self._suspect_later(now)
        return is_due

    def is_over(self, *, used: bool, now: float) -> bool:
        """Whether nothing has needed it for a while."""
        if used:
            self._empty_at = math.inf
        elif self._empty_at == math.inf:
            self._empty_at = now + self._timing.empty_after
        return self._empty_at <= now

    def _suspect_later(self, now: float) -> None:
        after = self._timing.suspect_after_s
        self._suspect_at = now + after + random.uniform(0, after)  # noqa: S311 - spreads clients, is no secret


class OwnerPool:
    """Server -> :class:`OwnerConnection`. ``connect`` makes the line to a server; it is dialled at once."""

    def __init__(self, connect: Callable[[str], ClientLink], timing: Timing) -> None:
        self._connect = connect
        self._timing = timing
        self._owners: dict[str, OwnerConnection] = {}
        self._urls: dict[ClientLink, str] = {}

    def __iter__(self) -> Iterator[OwnerConnection]:
        """All of them, as they are now: they may change meanwhile."""
        return iter(list(self._owners.values()))

    def get(self, url: str | None) -> OwnerConnection | None:
        """The one at this URL, if it is known."""
        return self._owners.get(url or "")

    def url(self, line: ClientLink) -> str | None:
        """The server that a line goes to; None when it was parted from."""
        return self._urls.get(line)

    def line(self, url: str) -> ClientLink:
        """The line to a server, which may be a new one."""
        owner = self._owners.get(url)
        if owner is None:
            line = self._connect(url)
            owner = self._owners[url] = OwnerConnection(url, line, self._timing, asyncio.get_running_loop().time())
            self._urls[line] = url
        return owner.line

    def part(self, url: str) -> None:
        """Hang up."""
        owner = self._owners.pop(url)
        del self._urls[owner.line]
        owner.task.cancel()

    @property
    def live(self) -> dict[str, bool]:
        """Servers with an open connection, and whether they are live."""
        return {url: owner.live for url, owner in self._owners.items() if owner.line.is_open}

    def named(self, servers: Mapping[str, bool]) -> None:
        """The metadata service was asked about these: whether it answered, and named each."""
        for url, named in servers.items():
            if (owner := self._owners.get(url)) is not None:
                owner.is_named(named=named)

    def take_named(self, url: str) -> bool:
        """Whether the dial that begins now is due to the server having been named: the next one is not."""
        owner = self._owners[url]
        named, owner.named = owner.named, False
        return named

    async def end(self) -> None:
        """Hang up everywhere."""
        tasks = [owner.task for owner in self._owners.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
