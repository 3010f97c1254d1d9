"""One client connection: protocol, limits, keepalive and slow-client handling."""

import asyncio
from collections.abc import Sequence
from secrets import token_bytes
from typing import Final

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.typing import Subprotocol

from diem.fanout.session import Session
from diem.links.acceptor import Reply, ServerConnection
from diem.links.edge import Edge
from diem.process.limits import ErrorWindow, MessageAllowance
from diem.protocol import messages
from diem.protocol.codes import Close, ErrorCode
from diem.protocol.frames import text_frame
from diem.protocol.messages import MessageError
from diem.protocol.traffic import client_of

_SUBPROTOCOLS: Final = (Subprotocol(messages.SUBPROTOCOL),)
MAX_PART: Final = 8 * 1024
_UNCOUNTED: Final = frozenset({Opcode.PING, Opcode.PONG, Opcode.CONT})
MAX_KNOCKING: Final = 1024
"""Connections that have not sent their request yet; each has 10 s for it."""


class LimitedEdgeConnection(ServerConnection):
    """A client's connection with its limits; docs/protocol.md section 1 has the close codes of who is beyond them."""

    __slots__ = ("_address", "_allowance", "_edge", "_errors", "_flooded")

    def __init__(self, edge: Edge) -> None:
        super().__init__(subprotocols=_SUBPROTOCOLS, max_size=messages.MAX_MESSAGE_BYTES)
        self._edge = edge
        self._address: str | None = None
        """Of who was let in: it counts there until it is gone."""
        self._allowance: MessageAllowance
        """Lent to who was let in, until it is gone."""
        self._errors: ErrorWindow | None = None
        self._flooded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection; of those that wait with their requests only so many, since they count for nobody yet."""
        super().connection_made(transport)
        knocking = self._edge.knocking
        if len(knocking) >= MAX_KNOCKING:
            # The one that has been silent for longest: whoever means it sends its request at once.
            oldest = next(iter(knocking))
            del knocking[oldest]
            self._edge.refused[0] += 1
            oldest.abort()
        knocking[self] = None

    def data_received(self, data: bytes) -> None:
        """Handle what arrives in parts: the library reads all of a part before a flood in it can be noticed."""
        if len(data) <= MAX_PART:
            super().data_received(data)
            return
        for start in range(0, len(data), MAX_PART):
            if self._flooded or self.transport.is_closing():
                return
            super().data_received(data[start : start + MAX_PART])

    def _on_frame(self, frame: Frame) -> None:
        """Bound pings, pongs and fragments as messages are: each costs the library as much as a message."""
        counts = frame.opcode in _UNCOUNTED or not frame.fin
        # Frames come after the handshake only: an allowance was lent.
        if counts and (self._flooded or not self._allowance.take_frame(asyncio.get_running_loop().time())):
            self._stop_flood()
            return
        super()._on_frame(frame)

    def _stop_flood(self) -> None:
        if not self._flooded:
            self._flooded = True
            self.close(Close.RATE, "retry=1000")
            if not self.transport.is_closing() and self.transport.is_reading():
                self.transport.pause_reading()
            asyncio.get_running_loop().call_later(1.0, self.abort)

    def _error(self, error: MessageError) -> None:
        edge = self._edge
        edge.errors[error.code] += 1
        self.transport.write(text_frame(messages.error(error.code, error.message, error.request_id)))
        if self._errors is None:
            self._errors = ErrorWindow()
        if self._errors.add(asyncio.get_running_loop().time()):
            self.close(Close.TOO_MANY_ERRORS, "too many errors")

    def _too_fast(self) -> None:
        now = asyncio.get_running_loop().time()
        self._edge.errors[ErrorCode.RATE] += 1
        self.transport.write(text_frame(messages.error(ErrorCode.RATE, "too many messages")))
        if self._address is not None and self._edge.gate.strike(self._address, now):
            self.close(Close.POLICY_VIOLATION, "too many messages")
        else:
            self.close(Close.RATE, f"retry={int(self._allowance.messages.retry_after(now) * 1000) + 1000}")


PATH: Final = "/ws"
KNOWN_CODES: Final = frozenset(Close) | {1005, 1006}
SLOW_AFTER: Final = 10.0
"""Seconds that a write may stall, with nothing taken by the client, before the close with 4002.

See docs/reliability.md S15.
"""


class EdgeConnection(LimitedEdgeConnection):
    """One client."""

    __slots__ = ("_pending", "_slot", "_stall", "session")

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge)
        self._slot = -1
        self._stall: asyncio.TimerHandle | None = None
        self._pending: int | None = None
        self.session: Session

    def on_request(self, request: Request) -> None:
        """Let a client in, or refuse it (400, 403, 404, 429, 503)."""
        edge = self._edge
        edge.knocking.pop(self, None)
        if request.path.partition("?")[0] != PATH:
            self._refuse(Reply(404, b"WebSocket clients connect to /ws\n"))
            return
        if not edge.ready or edge.draining:
            self._refuse(Reply(503, b"not ready\n", headers={"Retry-After": "1"}))
            return
        address, outcome = edge.gate.enter(self.peer, request.headers, asyncio.get_running_loop().time())
        if isinstance(outcome, Reply):
            self._refuse(outcome)
            return
        self._address, self._allowance = address, outcome
        if not self.upgrade(request):
            edge.refused[400] += 1
            return
        self._joined(request.path.partition("?")[2])

    def _joined(self, query: str) -> None:
        edge = self._edge
        transport = self.transport
        name = token_bytes(8)
        self.session = Session(transport.write, transport.writelines, edge.fanout.stats)
        if edge.visitors is not None:
            self.session.visit = edge.visitors.came(client_of(query), name, self._address or "")
        self._slot = edge.wheel.add(self)
        edge.connections.add(self)
        edge.fanout.join(self.session)
        rules = edge.rules
        hello = messages.welcome(
            session=name.hex(),
            server=rules.server,
            mode=rules.mode,
            authenticated=False,
            subscriptions=rules.subscriptions,
        )
        transport.writelines([text_frame(hello), edge.status_frame])
        edge.service.joined(self)

    def on_text(self, data: bytes) -> None:
        """One request, its answer, and what follows from it."""
        edge = self._edge
        if not self.is_open:
            return
        now = asyncio.get_running_loop().time()
        if not self._allowance.messages.take(now):
            self._too_fast()
            return
        try:
            request = messages.parse(data)
        except MessageError as error:
            if error.code is ErrorCode.BAD_JSON and not _is_utf8(data):
                self.fail(Close.INVALID_DATA, "text must be UTF-8")
                return
            self._error(error)
            return
        match request:
            case messages.Subscribe():
                edge.received["subscribe"] += 1
                self._allowance.charge_names(now, len(request.endpoints))
                edge.service.subscribe(self, request)
            case messages.Unsubscribe():
                edge.received["unsubscribe"] += 1
                self._allowance.charge_names(now, len(request.endpoints))
                edge.service.unsubscribe(self, request)
            case messages.Auth():
                edge.received["auth"] += 1
                self._error(MessageError(ErrorCode.UNAUTHORISED, "this server takes no tokens", request.id))

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Answer a request: its reply, and frames that follow from it at once. Nothing after the connection's end."""
        if not self.is_open:
            return
        if self.session.blocked:
            # Requests of one packet go on being answered: what can be conflated is.
            self.transport.write(text_frame(reply))
            self.session.send_many(replay)
        elif replay:
            self.transport.writelines([text_frame(reply), *replay])
        else:
            self.transport.write(text_frame(reply))

    def turn(self, *, due: bool) -> None:
        """The wheel has come: every 25 s a ping and the status, 10 s later a look at the answer."""
        if self.session.blocked:
            # Nothing is read from it either: the stall timer decides about it.
            return
        if not due:
            if not self.alive:
                self.close(Close.INTERNAL_ERROR, "no pong")
        else:
            self.alive = False
            self.ping()
            if self._edge.status_frame:
                self.transport.write(self._edge.status_frame)

    def on_closing(self) -> None:
        """No frame may follow a close frame: leave the fan-out at once."""
        if self in self._edge.connections:
            edge = self._edge
            edge.connections.discard(self)
            edge.wheel.discard(self, self._slot)
            if self.session.blocked and not self.transport.is_closing():
                # Its answer to the close frame is to be read.
                self.transport.resume_reading()
            if self.session.visit is not None:
                # First, and once: what the client was subscribed to goes with it.
                self.session.visit.ended()
                self.session.visit = None
            edge.service.left(self)
            edge.fanout.leave(self.session)
            # Clients may invent codes; as labels of a metric they would be without bound.
            edge.closes[self.close_code if self.close_code in KNOWN_CODES else 0] += 1
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def on_closed(self) -> None:
        """Give the place free."""
        self._edge.knocking.pop(self, None)
        if self._address is not None:
            self._edge.gate.leave(self._address, self._allowance, asyncio.get_running_loop().time())
            self._address = None

    # Flow control: conflation instead of a queue

    def pause_writing(self) -> None:
        """The client is slow: hold the latest frame per endpoint, and take no requests that would need answers."""
        if self in self._edge.connections:
            self.session.block()
            self.transport.pause_reading()
            self._pending = None
            self._edge.service.blocked(self)
            # Looked at first when the requests that are being answered have been: their replies still come on top.
            self._stall = asyncio.get_running_loop().call_later(0, self._look_at_stall)

    def resume_writing(self) -> None:
        """The client takes data again: give it what was held, and the status that it may have missed."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self in self._edge.connections:
            self.alive = True
            self.transport.resume_reading()
            self.session.unblock()
            if not self.session.blocked:
                self.transport.write(self._edge.status_frame)
                self._edge.service.unblocked(self)

    def _look_at_stall(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        if self._pending is None or waiting < self._pending:
            # Slow, but it reads: conflation bounds what it costs.
            self._pending = waiting
            self._stall = asyncio.get_running_loop().call_later(SLOW_AFTER, self._look_at_stall)
            return
        self._stall = None
        self.close(Close.SLOW, "retry=1000")
        # The close frame waits behind what the client does not read.
        asyncio.get_running_loop().call_later(1.0, self.abort)

    # Refusals

    def _refuse(self, reply: Reply) -> None:
        self._edge.refused[reply.status] += 1
        self.reply(reply)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
