"""Channel of a server for proxies: the client protocol without limits, which the proxies enforce."""

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
"""Seconds of silence of a proxy, which pings each link at least every 25 s."""

SEND_BUFFER_BYTES: Final = 64 * 1024
"""Kernel send buffer, as for clients: its content for a slow proxy, or a slow client behind one, is not conflated.

Written one by one, 1,300 frames of 100 bytes fit with TCP, 170 with a Unix socket, which counts overhead, too.
"""


class ProxyPort:
    """Channel handler of ``/ws``: each proxy link is a session of the server's hub, like a client's.

    A proxy subscribes for many clients on one link, so names per message, messages and subscriptions are unlimited (its
    sessions are exempt from the hub's limit per client).
    """

    subprotocol = messages.SUBPROTOCOL

    def __init__(self, edge: Edge, hub: FeedHub) -> None:
        self._edge = edge
        self._hub = hub
        self._sessions: dict[InternalConnection, Session] = {}
        self._monitor = LinkMonitor("proxy", ping_every_s=25.0, silence_timeout_s=SILENCE_TIMEOUT_S)

    def __len__(self) -> int:
        """Return the number of open links."""
        return len(self._sessions)

    @property
    def accepting(self) -> bool:
        """True if the server accepts clients."""
        return self._edge.ready and not self._edge.draining

    async def run(self) -> None:
        """Monitor the links until cancelled."""
        await self._monitor.run()

    def close(self, code: int = Close.RESTART, reason: str = "") -> None:
        """Close every link: the proxies subscribe elsewhere, at most a moment of staleness for their clients."""
        for connection in list(self._sessions):
            connection.close(code, reason)

    # ChannelHandler

    def opened(self, connection: InternalConnection) -> None:
        """Add a session for a proxy, and send it ``welcome`` and ``status`` like every client."""
        edge, transport = self._edge, connection.transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        session = Session(transport.write, transport.writelines, edge.fanout.stats, exempt=True)
        self._sessions[connection] = session
        self._monitor.add(connection)
        edge.fanout.join(session)
        rules = edge.rules
        hello = messages.welcome(
            session=token_hex(8),
            server=rules.server,
            mode=rules.mode,
            authenticated=True,
            subscriptions=0,
            data=rules.data,
        )
        transport.writelines([text_frame(hello), edge.status_frame])

    def received(self, connection: InternalConnection, data: bytes) -> None:
        """Handle a request."""
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
                answer = hub.subscribe(session, request.endpoints, with_data=request.data)
                connection.send_text(messages.subscribed(request.id, answer.endpoints, answer.rejected))
                session.send_many(answer.replay)
            case messages.Unsubscribe():
                hub.fanout.unsubscribe(session, request.endpoints)
                connection.send_text(messages.unsubscribed(request.id, request.endpoints))
            case messages.Auth():
                connection.send_text(
                    messages.error(ErrorCode.UNAUTHORISED, "links are authenticated by the shared key", request.id)
                )

    def blocked(self, connection: InternalConnection) -> None:
        """Conflate for a slow proxy: hold the latest frame of each endpoint, and stop reading requests."""
        session = self._sessions.get(connection)
        if session is not None:
            session.block()
            connection.transport.pause_reading()

    def resumed(self, connection: InternalConnection) -> None:
        """Send the held frames, then the current status, possibly missed by the proxy."""
        session = self._sessions.get(connection)
        if session is not None:
            connection.transport.resume_reading()
            session.unblock()
            if not session.blocked:
                connection.transport.write(self._edge.status_frame)

    def closed(self, connection: InternalConnection) -> None:
        """Remove the session of a disconnected proxy."""
        self._monitor.discard(connection)
        session = self._sessions.pop(connection, None)
        if session is not None:
            self._edge.fanout.leave(session)
