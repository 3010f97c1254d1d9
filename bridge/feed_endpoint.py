"""The serving end of a bridge: exactly one reader has the link (docs/protocol.md section 2)."""

import asyncio
import contextlib
import time
from typing import Final

import structlog

from bridge.link import BridgeLink
from bridge.session import FeedSession
from bridge.state import BridgeState
from diem.links.feed_server import read_resume
from diem.links.internal import InternalConnection
from diem.links.link_monitor import LinkMonitor
from diem.protocol import feed
from diem.protocol.codes import Close

LOOK_EVERY: Final = 1.0
LIVE_WITHIN: Final = 3.0
"""Seconds after a beat in which a bridge is called live."""


class FeedEndpoint:
    """Takes readers (an ``End``): the last that has come has the link, and is served by a session."""

    subprotocol = feed.SUBPROTOCOL

    def __init__(self, shared: BridgeState) -> None:
        self.link: BridgeLink | None = None
        self.session: FeedSession | None = None
        self._shared = shared
        self._keeper = LinkMonitor("feed reader")
        self._source: str | None = None
        """The one that was there last."""
        self._stopping = asyncio.Event()
        self._sessions: asyncio.TaskGroup | None = None
        self._log = structlog.get_logger("bridge")

    @property
    def accepting(self) -> bool:
        """Whether readers are taken now: the topic is known."""
        return not self._stopping.is_set() and self._sessions is not None and self._shared.watch.source is not None

    @property
    def live(self) -> bool:
        """Whether the reader hears beats."""
        return self.link is not None and time.monotonic() - self._shared.beaten < LIVE_WITHIN

    async def run(self) -> None:
        """Run the sessions and give up silent readers, until stopped; sessions take leave of Kafka within 5 s."""
        async with asyncio.TaskGroup() as self._sessions:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await self._stopping.wait()
                self._keeper.look()

    def source_changed(self) -> None:
        """A topic is another one, or has more partitions: a reader of another one is sent away."""
        source = self._shared.watch.source
        if self.session is not None and self.session.source != source:
            self._send_away(Close.RESTART, "the topic is another one")
        elif self.session is not None:
            self.session.names_changed()
        if source is not None:
            self._have_shared_out(source)
            self._source = source

    def _have_shared_out(self, source: str) -> None:
        """Tell the group what it gives out now: it would find out by itself, minutes later."""
        group = self._shared.group
        if group is None or self._sessions is None or self._source is None:
            return
        if source != self._source:
            group.membership.begin_again()
        else:
            self._sessions.create_task(group.membership.share_out())

    def assigned(self) -> None:
        """The group has given out partitions."""
        if self.session is not None:
            self.session.names_changed()

    def map_changed(self) -> None:
        """The partition map is another one."""
        if self.session is not None:
            self.session.map_changed()

    def stop(self) -> None:
        """Take no more readers and close the link."""
        self._stopping.set()
        self._send_away(Close.GOING_AWAY)

    # End

    def opened(self, connection: InternalConnection) -> None:
        """A reader has connected: it gets the link, and speaks first."""
        self._keeper.add(connection)
        if self.link is not None:
            self._log.warning("another reader has dialled, the first is sent away", peer=connection.peer)
            self._send_away(Close.BAD_REQUEST, "replaced")
        self.link = BridgeLink(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Take the reader's ``resume``; anything else is an error."""
        link, source = self.link, self._shared.watch.source
        if link is None or link.connection is not connection or self._sessions is None:
            return
        if source is None:
            connection.close(Close.RESTART, "the topic is gone")
            return
        message = read_resume(connection, data, first=link.session is None)
        if message is None:
            return
        if self._shared.group is not None:
            self._shared.group.membership.hold()
        self.session = FeedSession(link, source, message, self._shared)
        link.session = self._sessions.create_task(self.session.run())
        # However it ends: a reader that nobody serves must dial again.
        link.session.add_done_callback(lambda _: connection.close(Close.RESTART, "not served any more"))

    def blocked(self, connection: InternalConnection) -> None:
        """Nothing: whoever writes looks at the connection first."""

    def resumed(self, connection: InternalConnection) -> None:
        """The reader takes data again."""
        if self.link is not None and self.link.connection is connection:
            self.link.resumed()

    def closed(self, connection: InternalConnection) -> None:
        """A reader is gone."""
        self._keeper.discard(connection)
        if self.link is not None and self.link.connection is connection:
            self._forget(self.link)

    def _send_away(self, code: int, reason: str = "") -> None:
        link = self.link
        if link is not None:
            link.connection.close(code, reason)
            # Closing says so by itself, unless the connection was over already.
            if self.link is link:
                self._forget(link)

    def _forget(self, link: BridgeLink) -> None:
        link.end()
        self.link = self.session = None
        self._shared.fault = None
        if self._shared.group is not None:
            self._shared.group.membership.release()
