"""Pool of links to servers, each dialled again for as long as an endpoint needs it."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import structlog
from websockets.exceptions import InvalidHandshake

from diem.fanout.session import DeliveryStats, Session
from diem.links.dialer import dial
from diem.links.link_monitor import LinkMonitor
from diem.process.auth import SharedKey
from diem.process.backoff import full_jitter
from proxy import upstream_messages
from proxy.upstream import ClientUpstream, Receiver, Upstream

RETRY_BASE: Final = 0.1
RETRY_CAP: Final = 2.0
"""Seconds between two attempts at most: internal links heal fast."""
STABLE_AFTER: Final = 5.0
MAX_DIALLING: Final = 64
"""Handshakes with one server under way at the same time: one that hangs takes 3 s for each, and no other's place."""


class Dialler:
    """Makes links with the shared key, to each server so many at a time."""

    def __init__(self, key: SharedKey, sockets: Path | None = None) -> None:
        self._key = key
        self._sockets = sockets
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self.lines: dict[UpstreamLink, None] = {}
        """All lines that are kept up."""

    async def link(self, line: "UpstreamLink") -> None:
        """Dial once.

        Raises:
            OSError: no connection, also after 3 s.
            InvalidHandshake: the server refuses, or is none.
        """
        slots = self._slots.get(line.url)
        if slots is None:
            slots = self._slots[line.url] = asyncio.Semaphore(MAX_DIALLING)
        async with slots:
            await dial(line.url, lambda: line.make(self._key.header), sockets=self._sockets)

    def stop(self) -> None:
        """Hang up every line."""
        for line in list(self.lines):
            line.stop()


class UpstreamLink:
    """Keeps one link up from :meth:`start` to :meth:`stop`."""

    __slots__ = ("__weakref__", "_attempt", "_dialler", "_since", "_task", "link", "receiver", "url")

    def __init__(self, url: str, dialler: Dialler, receiver: Receiver) -> None:
        self.url = url
        self.receiver = receiver
        self.link: Upstream | None = None
        """The link while it is open."""
        self._dialler = dialler
        self._attempt = 0
        self._since = 0.0
        self._task: asyncio.Task[None] | None = None

    def make(self, authorization: str) -> Upstream:
        """A link to be."""
        return Upstream(self.url, authorization, self.receiver, self)

    def start(self) -> None:
        """Dial from now on."""
        self._dialler.lines[self] = None
        self._task = asyncio.get_running_loop().create_task(self._dial(0.0))

    def stop(self) -> None:
        """Hang up, and let nobody know; a repeat does nothing."""
        self._dialler.lines.pop(self, None)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        link, self.link = self.link, None
        if link is not None:
            if link.transport.is_reading():
                link.close(1000)
            else:
                link.abort()

    def cut(self) -> None:
        """The server was given up: drop the link now, and dial again."""
        if self.link is not None:
            self.link.abort()

    # Ends

    def opened(self, link: Upstream) -> None:
        """The link is there."""
        if self not in self._dialler.lines:
            link.abort()
            return
        self.link = link
        self._since = asyncio.get_running_loop().time()
        self.receiver.opened(self.url)

    def gone(self, link: Upstream) -> None:
        """The link was lost: dial again, soon."""
        if link is not self.link:
            return
        self.link = None
        loop = asyncio.get_running_loop()
        if loop.time() - self._since > STABLE_AFTER:
            self._attempt = 0
        self._task = loop.create_task(self._dial(full_jitter(self._attempt, RETRY_BASE, RETRY_CAP)))
        self.receiver.lost(self.url)

    async def _dial(self, wait: float) -> None:
        said = False
        while True:
            await asyncio.sleep(wait)
            if self.link is not None or self._task is not asyncio.current_task():
                # It was there after all, in the very turn in which its time ran out.
                return
            self._attempt += 1
            try:
                await self._dialler.link(self)
            except (OSError, InvalidHandshake, EOFError) as error:
                if not said:
                    said = True
                    fault = f"{type(error).__name__}: {error}"
                    structlog.get_logger("proxy").debug("server unreachable, dialling on", url=self.url, error=fault)
            else:
                return
            wait = full_jitter(self._attempt, RETRY_BASE, RETRY_CAP)


class ClientUpstreamLink(UpstreamLink):
    """Of one client."""

    __slots__ = ("_accounts", "_session")

    def __init__(
        self, url: str, dialler: Dialler, receiver: Receiver, session: Session, accounts: DeliveryStats
    ) -> None:
        super().__init__(url, dialler, receiver)
        self._session = session
        self._accounts = accounts

    def make(self, authorization: str) -> Upstream:
        """A link to be."""
        return ClientUpstream(
            self.url, authorization, self.receiver, self, session=self._session, accounts=self._accounts
        )


class UpstreamPool:
    """Links that are pinged every 2 s and given up after 5 s of silence. Passes on what they say to ``receiver``."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler
        self.receiver: Receiver
        """What takes what servers say; to be set before :meth:`keep`."""
        self._keeper = LinkMonitor("server")
        self._lines: dict[str, UpstreamLink] = {}
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
            line = self._lines[url] = UpstreamLink(url, self._dialler, self)
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

    def heard(self, url: str, message: upstream_messages.Said) -> None:
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
