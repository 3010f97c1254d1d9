"""The servers that something is wanted of, each with its line, from the first dial until nothing needs it any more."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from diem.links.client.line import Line
from diem.links.client.owner import Owner
from diem.links.client.timing import Timing


class Owners:
    """Server -> :class:`Owner`. ``connect`` makes the line to a server; it is dialled at once."""

    def __init__(self, connect: Callable[[str], Line], timing: Timing) -> None:
        self._connect = connect
        self._timing = timing
        self._owners: dict[str, Owner] = {}
        self._urls: dict[Line, str] = {}

    def __iter__(self) -> Iterator[Owner]:
        """All of them, as they are now: they may change meanwhile."""
        return iter(list(self._owners.values()))

    def get(self, url: str | None) -> Owner | None:
        """The one at this URL, if it is known."""
        return self._owners.get(url or "")

    def url(self, line: Line) -> str | None:
        """The server that a line goes to; None when it was parted from."""
        return self._urls.get(line)

    def line(self, url: str) -> Line:
        """The line to a server, which may be a new one."""
        owner = self._owners.get(url)
        if owner is None:
            line = self._connect(url)
            owner = self._owners[url] = Owner(url, line, self._timing, asyncio.get_running_loop().time())
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
