"""Feed endpoint of a bridge: serves one reader at a time (docs/internals.md section 2.3)."""

import asyncio
import time
from typing import Final

import structlog

from bridge.link import BridgeLink
from bridge.session import BridgeState, FeedSession
from diem.links.feed_server import read_resume
from diem.links.internal import InternalConnection
from diem.links.keepalive import LinkMonitor
from diem.process.backoff import wait
from diem.protocol import feed
from diem.protocol.codes import Close

TICK_S: Final = 1.0
LIVE_WITHIN_S: Final = 3.0
"""Time after a heartbeat during which a bridge reports itself live."""


_LEAVE: Final = feed.encode(feed.Leave())


class FeedEndpoint:
    """Channel handler of ``/feed``: a new reader replaces the one before; a session serves it from its ``resume``."""

    subprotocol = feed.SUBPROTOCOL

    def __init__(self, bridge: BridgeState) -> None:
        self.link: BridgeLink | None = None
        self.session: FeedSession | None = None
        self._bridge = bridge
        self._monitor = LinkMonitor("feed reader")
        self._source: str | None = None
        """The last source that was not None."""
        self._stopping = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._log = structlog.get_logger("bridge")

    @property
    def accepting(self) -> bool:
        """True if readers are accepted: the endpoint runs, and the topics are known."""
        return not self._stopping.is_set() and self._tasks is not None and self._bridge.watcher.source is not None

    @property
    def live(self) -> bool:
        """True while the reader is sent heartbeats."""
        return self.link is not None and time.monotonic() - self._bridge.heartbeat_at < LIVE_WITHIN_S

    async def run(self) -> None:
        """Run sessions and cut silent links until stopped; then sessions close their consumers within 5 s."""
        async with asyncio.TaskGroup() as self._tasks:
            while not self._stopping.is_set():
                await wait(self._stopping, TICK_S)
                self._monitor.tick()

    def on_source_change(self) -> None:
        """Handle a topic that was replaced or deleted, or has gained partitions."""
        source, names = self._bridge.watcher.source, self._bridge.names
        if self.session is not None and self.session.source != source:
            self._disconnect(Close.RESTART, "topic replaced")
        elif self.session is not None and names is not None:
            self.session.on_assignment(names)
        if source is not None:
            self._rebalance(source)
            self._source = source

    def _rebalance(self, source: str) -> None:
        """Make the group assign the partitions of the new topic, which it would otherwise notice minutes later."""
        group = self._bridge.group
        if group is None or self._tasks is None or self._source is None:
            return
        if source != self._source:
            group.membership.rejoin()
        else:
            self._tasks.create_task(group.membership.trigger_rebalance())

    def stop(self) -> None:
        """Accept no more readers and close the link."""
        self._stopping.set()
        self._disconnect(Close.GOING_AWAY)

    # ChannelHandler

    def opened(self, connection: InternalConnection) -> None:
        """Give the link to a new reader, which sends the first message."""
        self._monitor.add(connection)
        if self.link is not None:
            self._log.warning("a second reader connected, the first is disconnected", peer=connection.peer)
            self._disconnect(Close.BAD_REQUEST, "replaced")
        self.link = BridgeLink(connection)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Start a session with the reader's ``resume``; after it, any message but ``leave`` closes the link."""
        link, source = self.link, self._bridge.watcher.source
        if link is None or link.connection is not connection or self._tasks is None:
            return
        if source is None:
            connection.close(Close.RESTART, "topic deleted")
            return
        if self.session is not None and data == _LEAVE:
            self.session.leave()
            return
        message = read_resume(connection, data, first=link.task is None)
        if message is None:
            return
        self.session = FeedSession(link, source, message, self._bridge)
        if self._bridge.group is not None:
            self._bridge.group.membership.acquire(self.session.on_assignment)
        link.task = self._tasks.create_task(self.session.run())
        # However the session ends, its reader must reconnect.
        link.task.add_done_callback(lambda _: connection.close(Close.RESTART, "session ended"))

    def blocked(self, connection: InternalConnection) -> None:
        """Do nothing: writers check the connection before each frame."""

    def resumed(self, connection: InternalConnection) -> None:
        """Wake the session's writers."""
        if self.link is not None and self.link.connection is connection:
            self.link.on_resume()

    def closed(self, connection: InternalConnection) -> None:
        """End the session: its reader is gone."""
        self._monitor.discard(connection)
        if self.link is not None and self.link.connection is connection:
            self._end_session(self.link)

    def _disconnect(self, code: int, reason: str = "") -> None:
        link = self.link
        if link is not None:
            link.connection.close(code, reason)
            # Closing calls ``closed``, unless the connection is closed already.
            if self.link is link:
                self._end_session(link)

    def _end_session(self, link: BridgeLink) -> None:
        link.end()
        self.link = self.session = None
        self._bridge.fault = None
        if self._bridge.group is not None:
            self._bridge.group.membership.release()
