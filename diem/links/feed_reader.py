"""Reads a feed (docs/protocol.md section 2): one link at a time, resumed at the reader's own positions."""

import asyncio
import contextlib
from pathlib import Path
from typing import Final, Protocol

import structlog
from websockets.exceptions import InvalidHandshake

from diem.errors import DiemError
from diem.links.dialer import ClientConnection, dial
from diem.links.keepalive import CHECK_EVERY_S, LinkMonitor
from diem.process.auth import SharedKey
from diem.process.backoff import full_jitter
from diem.protocol import feed
from diem.protocol.codes import Close

RETRY_BASE_S: Final = 0.1
RETRY_CAP_S: Final = 2.0
STABLE_AFTER_S: Final = 5.0
"""Seconds between two attempts to dial: internal links heal fast."""
REPLACED_DELAY_S: Final = 30.0
"""Seconds before a reader dials again that was told that another one took its place (close code 4500)."""


class FeedSink(Protocol):
    """What takes what a feed says. Everything is called on the event loop and must not block."""

    def resume(self) -> feed.Resume:
        """A link was opened: where to go on."""
        ...

    def hello(self, message: feed.Hello) -> None:
        """The source and the full set of names."""
        ...

    def batch(self, batch: feed.Batch) -> None:
        """Updates of one name."""
        ...

    def caught_up(self, name: str) -> None:
        """Everything that was there when the link was opened has been sent."""
        ...

    def resync(self, message: feed.Resync) -> None:
        """Records with these keys were no updates: whoever looks at them must fetch them again."""
        ...

    def owners(self, message: feed.Owners) -> None:
        """Who owns each name, where names are shared out among the servers of a group."""
        ...

    def heartbeat(self) -> None:
        """The source behind the feed is alive."""
        ...


class FeedLink(ClientConnection):
    """One link to a feed."""

    __slots__ = ("_sink", "lost")

    def __init__(self, url: str, authorization: str, sink: FeedSink) -> None:
        super().__init__(url, authorization)
        self._sink = sink
        self.lost = asyncio.Event()

    @property
    def sent_away(self) -> bool:
        """Whether the feed closed the link with 4500: another reader has taken this one's place."""
        return self.close_code == Close.BAD_REQUEST and bool(self.protocol.close_rcvd_then_sent)

    def on_text(self, data: bytes) -> None:
        """A control message."""
        if not self.is_open:
            # What follows a refused frame in the same packet must not move the position past it.
            return
        try:
            match feed.decode(data):
                case feed.Heartbeat():
                    self._sink.heartbeat()
                case feed.CaughtUp(name):
                    self._sink.caught_up(name)
                case feed.Hello() as message:
                    self._sink.hello(message)
                case feed.Resync() as message:
                    self._sink.resync(message)
                case feed.Owners() as message:
                    self._sink.owners(message)
                case feed.Resume():
                    self.close(Close.BAD_REQUEST, "resume is the reader's")
        except DiemError as error:
            self.close(Close.BAD_REQUEST, str(error)[:100])

    def on_binary(self, data: bytes) -> None:
        """A batch."""
        if not self.is_open:
            return
        try:
            self._sink.batch(feed.decode_batch(data))
        except DiemError as error:
            # The positions did not move: the next link begins where this batch began.
            self.close(Close.BAD_REQUEST, str(error)[:100])

    def on_closed(self) -> None:
        """Let the reader dial again."""
        super().on_closed()
        self.lost.set()


class FeedReader:
    """Keeps one link to the feed at ``url`` and hands what it says to ``sink``."""

    def __init__(self, url: str, key: SharedKey, sink: FeedSink, *, sockets: Path | None = None) -> None:
        self._url = url
        self._sockets = sockets
        self._key = key
        self._sink = sink
        self._log = structlog.get_logger("feed")
        self.connected = False
        self.connects = 0

    async def run(self) -> None:
        """Read until cancelled. A lost link is dialled again with full jitter, at most 2 s apart."""
        attempt = 0
        last_error: str | None = None
        while True:
            try:
                link = await dial(self._url, self._link, sockets=self._sockets)
            except (OSError, InvalidHandshake, EOFError) as error:
                if last_error is None:
                    last_error = f"{type(error).__name__}: {error}"
                    self._log.warning("feed unreachable, dialling on", url=self._url, error=last_error)
            else:
                self._log.info("feed connected", url=self._url)
                last_error, opened = None, asyncio.get_running_loop().time()
                await self._read(link)
                if asyncio.get_running_loop().time() - opened > STABLE_AFTER_S:
                    attempt = 0
                self._log.warning("feed link lost", url=self._url, code=link.close_code)
                if link.sent_away:
                    await asyncio.sleep(REPLACED_DELAY_S)
            await asyncio.sleep(full_jitter(attempt, RETRY_BASE_S, RETRY_CAP_S))
            attempt += 1

    def _link(self) -> FeedLink:
        return FeedLink(self._url, self._key.header, self._sink)

    async def _read(self, link: FeedLink) -> None:
        self.connected = True
        self.connects += 1
        try:
            link.send_text(feed.encode(self._sink.resume()))
            await self._watch(link)
        finally:
            self.connected = False
            link.abort()

    async def _watch(self, link: FeedLink) -> None:
        """Until it is lost, or was silent for too long."""
        monitor = LinkMonitor("feed")
        monitor.add(link)
        while not link.lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_EVERY_S):
                    await link.lost.wait()
                    return
            monitor.tick()
