"""The internal end of a server for proxies: the client protocol without the limits, which act where the clients are."""

import socket
from secrets import token_hex
from typing import Final

from diem.fanout.feed_hub import FeedHub
from diem.fanout.session import Session
from diem.links.edge import Edge
from diem.links.internal import InternalConnection
from diem.links.keepalive import LinkMonitor
from diem.protocol import messages
from diem.protocol.codes import Close, ErrorCode
from diem.protocol.frames import text_frame
from diem.protocol.messages import MessageError

PATH: Final = "/ws"
SILENCE_TIMEOUT_S: Final = 75.0
"""Seconds without anything from a proxy, which pings each of its links at least every 25 s."""

SEND_BUFFER_BYTES: Final = 64 * 1024
"""Of the kernel, as for clients: what is in it cannot be conflated when a proxy, or a client behind it, is slow.

Written one by one, 1,300 frames of 100 bytes fit over TCP, 170 into a Unix socket, which counts its bookkeeping, too.
"""


class ProxyPort:
    """Takes the links of proxies (an ``End``), each a session of the server's hub like those of its own clients.

    A proxy may subscribe for many clients on one link, so names in a message are not limited, nor are subscriptions
    (of a hub whose limit is that of a client, sessions of proxies are exempt) or messages.
    """

    subprotocol = messages.SUBPROTOCOL

    def __init__(self, edge: Edge, hub: FeedHub) -> None:
        self._edge = edge
        self._hub = hub
        self._sessions: dict[InternalConnection, Session] = {}
        self._monitor = LinkMonitor("proxy", ping_every_s=25.0, silence_timeout_s=SILENCE_TIMEOUT_S)

    def __len__(self) -> int:
        """Links that are open."""
        return len(self._sessions)

    @property
    def accepting(self) -> bool:
        """Whether the server takes clients."""
        return self._edge.ready and not self._edge.draining

    async def run(self) -> None:
        """Watch over the links until cancelled."""
        await self._monitor.run()

    def close(self, code: int = Close.RESTART, reason: str = "") -> None:
        """Send every proxy away: it subscribes elsewhere, and its clients notice nothing but a moment's staleness."""
        for connection in list(self._sessions):
            connection.close(code, reason)

    # End

    def opened(self, connection: InternalConnection) -> None:
        """A proxy has connected: it gets the welcome and the status as every client does."""
        edge, transport = self._edge, connection.transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        session = Session(transport.write, transport.writelines, edge.fanout.stats, exempt=True)
        self._sessions[connection] = session
        self._monitor.add(connection)
        edge.fanout.join(session)
        rules = edge.rules
        hello = messages.welcome(
            session=token_hex(8), server=rules.server, mode=rules.mode, authenticated=True, subscriptions=0
        )
        transport.writelines([text_frame(hello), edge.status_frame])

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Answer a request."""
        session = self._sessions.get(connection)
        if session is None or not connection.is_open:
            return
        try:
            request = messages.parse(data, limit=None)
        except MessageError as error:
            connection.send_text(messages.error(error.code, error.message, error.request_id))
            return
        hub = self._hub
        match request:
            case messages.Subscribe():
                answer = hub.subscribe(session, request.endpoints)
                connection.send_text(messages.subscribed(request.id, answer.endpoints, answer.rejected))
                session.send_many(answer.replay)
            case messages.Unsubscribe():
                hub.fanout.unsubscribe(session, request.endpoints)
                connection.send_text(messages.unsubscribed(request.id, request.endpoints))
            case messages.Auth():
                connection.send_text(messages.error(ErrorCode.UNAUTHORISED, "the key has said it all", request.id))

    def blocked(self, connection: InternalConnection) -> None:
        """The proxy is slow: hold the latest frame per endpoint, and take no more requests meanwhile."""
        session = self._sessions.get(connection)
        if session is not None:
            session.block()
            connection.transport.pause_reading()

    def resumed(self, connection: InternalConnection) -> None:
        """The proxy takes data again: what was held, and the status that it may have missed."""
        session = self._sessions.get(connection)
        if session is not None:
            connection.transport.resume_reading()
            session.unblock()
            if not session.blocked:
                connection.transport.write(self._edge.status_frame)

    def closed(self, connection: InternalConnection) -> None:
        """A proxy is gone."""
        self._monitor.discard(connection)
        session = self._sessions.pop(connection, None)
        if session is not None:
            self._edge.fanout.leave(session)
