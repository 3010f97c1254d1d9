"""Channel on which servers report what is watched at them (docs/internals.md section 2.4): sources poll it."""

import asyncio
from collections.abc import Iterable
from typing import Final

from diem.links.internal import InternalConnection
from diem.links.keepalive import CHECK_EVERY_S, LinkMonitor
from diem.process.clock import until_next
from diem.protocol import endpoints, interest
from diem.protocol.codes import Close
from services.data.sources.source import InterestSource

READMIT_TICKS: Final = 10
"""Seconds between two announcements because of room for refused endpoints."""


class InterestPort:
    """Channel handler of ``/interest``. An endpoint is watched as long as the link on which it was reported is open.

    A link is cut after 5 s of silence. Names that no source may poll are ignored, and those that a source refuses are
    not kept: once there is room, all servers report again.
    """

    subprotocol = interest.SUBPROTOCOL

    def __init__(self, sources: Iterable[InterestSource]) -> None:
        self._sources = {source.prefix: source for source in sources}
        self._servers: dict[InternalConnection, set[str]] = {}
        """The endpoints that are polled for each link."""
        self._monitor = LinkMonitor("interest")
        self._prefixes = interest.prefixes_message([*self._sources])
        self.accepting = True

    async def run(self) -> None:
        """Monitor the links, and announce room for refused endpoints; when cancelled, close them and accept no more."""
        ticks = 0
        try:
            while True:
                await asyncio.sleep(until_next(asyncio.get_running_loop().time(), CHECK_EVERY_S))
                self._monitor.tick()
                ticks += 1
                if ticks % READMIT_TICKS == 0 and sum(source.readmit() for source in self._sources.values()):
                    for connection in self._servers:
                        connection.send_text(self._prefixes)
        finally:
            self.accepting = False
            for connection in list(self._servers):
                connection.close(Close.GOING_AWAY)

    # ChannelHandler

    def opened(self, connection: InternalConnection) -> None:
        """Send a server the prefixes."""
        self._servers[connection] = set()
        self._monitor.add(connection)
        connection.send_text(self._prefixes)

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Apply what is watched at a server from now on."""
        names = self._servers.get(connection)
        if names is None or not connection.is_open:
            return
        try:
            message = interest.decode(data)
        except interest.InterestError as error:
            connection.close(Close.BAD_REQUEST, str(error)[:100])
            return
        if isinstance(message, interest.Watched):
            for name in message.removed:
                if name in names:
                    names.discard(name)
                    self._unwatch(name)
            for name in message.added:
                source = None if name in names else self._source_of(name)
                if source is not None and source.watch(name):
                    names.add(name)

    def blocked(self, connection: InternalConnection) -> None:
        """Do nothing: little is sent."""

    def resumed(self, connection: InternalConnection) -> None:
        """Do nothing."""

    def closed(self, connection: InternalConnection) -> None:
        """Forget what was watched at a server."""
        self._monitor.discard(connection)
        for name in self._servers.pop(connection, ()):
            self._unwatch(name)

    def _unwatch(self, name: str) -> None:
        source = self._source_of(name)
        if source is not None:
            source.unwatch(name)

    def _source_of(self, name: str) -> InterestSource | None:
        """Return the source of an endpoint; None for a name that is none, or of a collection."""
        if not endpoints.is_prefix(name):
            return None
        return next(filter(None, map(self._sources.get, endpoints.ancestors(name))), None)
