"""One standing link to every server of the snapshot: shows whether the server is there, and in shared mode serves."""

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from diem.links.keeper import Keeper
from proxy import said
from proxy.line import Dialler, Line
from proxy.upstream import Receiver, Upstream


class Standing:
    """Links that are pinged every 2 s and given up after 5 s of silence. Passes on what they say to ``receiver``."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler
        self.receiver: Receiver
        """What takes what servers say; to be set before :meth:`keep`."""
        self._keeper = Keeper("server")
        self._lines: dict[str, Line] = {}
        self._kept: dict[str, Upstream] = {}
        self._log = structlog.get_logger("proxy")
        self.on_changed: Callable[[], None] = lambda: None
        """Called after a link was opened or lost."""

    @property
    def open(self) -> Collection[str]:
        """The servers that can be reached."""
        return self._kept.keys()

    def keep(self, urls: Iterable[str]) -> None:
        """Have links to these servers, and to no others."""
        wanted = set(urls)
        for url in self._lines.keys() - wanted:
            self._log.info("server is no member any more", url=url)
            self._lines.pop(url).stop()
            self._forget(url)
        for url in wanted - self._lines.keys():
            line = self._lines[url] = Line(url, self._dialler, self)
            line.start()

    # Servers, of shared mode's follower

    def ask(self, url: str, known: Mapping[str, int | None]) -> int | None:
        """Over the link to a server, if it is open."""
        link = self._kept.get(url)
        return link.subscribe(known) if link is not None else None

    def drop(self, url: str, names: list[str]) -> None:
        """Over the link to a server, if it is open."""
        link = self._kept.get(url)
        if link is not None:
            link.unsubscribe(names)

    async def run(self) -> None:
        """Watch over the links until cancelled."""
        try:
            await self._keeper.run()
        finally:
            self.keep(())

    # Receiver

    def opened(self, url: str) -> None:
        """A server can be reached."""
        link = self._lines[url].link
        if link is not None:
            self._kept[url] = link
            self._keeper.add(link)
        self._log.info("server connected", url=url)
        self.receiver.opened(url)
        self.on_changed()

    def updates(self, url: str, data: bytes, frames: int) -> None:
        """Pass on."""
        self.receiver.updates(url, data, frames)

    def heard(self, url: str, message: said.Said) -> None:
        """Pass on."""
        self.receiver.heard(url, message)

    def lost(self, url: str) -> None:
        """A server cannot be reached any more."""
        self._forget(url)
        self._log.warning("server lost", url=url)
        self.receiver.lost(url)
        self.on_changed()

    def _forget(self, url: str) -> None:
        link = self._kept.pop(url, None)
        if link is not None:
            self._keeper.discard(link)
