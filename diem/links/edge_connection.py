"""One client connection: protocol, authorisation, limits, keepalive and slow-client handling.

docs/protocol.md section 1 has the close code of every limit, docs/reliability.md S3 to S7 and S12 to S16 the limits.
"""

import asyncio
from collections.abc import Sequence
from secrets import token_bytes
from sys import intern
from typing import Final, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.typing import Subprotocol

from diem.fanout.session import Session
from diem.links import compression, http_updates
from diem.links.admitted_client import AdmittedClient, token_refusal
from diem.links.client_auth import AuthRefused, bearer_tokens
from diem.links.compression import SHARED_DEFLATE, SharedDeflate
from diem.links.edge import MAX_PENDING_HANDSHAKES, Edge, fetch_window_ms
from diem.links.health import health_reply
from diem.links.keepalive import HEARTBEAT_S
from diem.links.listener import ServerConnection
from diem.links.refusals import NOT_READY, WRONG_PATH, Cause, RefusedClient, no_refusal
from diem.process import security_log
from diem.process.limits import ErrorWindow
from diem.process.security_log import SecurityEvent
from diem.protocol import messages
from diem.protocol.codes import Close, ErrorCode
from diem.protocol.frames import text_frame
from diem.protocol.messages import MAX_NAMES, MessageError
from diem.tokens.claims import Claims

_PING: Final = b"\x89\0"
_SUBPROTOCOLS: Final = (Subprotocol(messages.SUBPROTOCOL),)
MAX_CHUNK_BYTES: Final = 8 * 1024
PATH: Final = "/ws"
ALIVE_PATH: Final = "/livez"
KNOWN_CODES: Final = frozenset(Close) | {1005, 1006}
LEASE_TIMEOUT_S: Final = 1.0
"""Longest wait of a subscription for the first lease of its API key."""


class EdgeConnection(AdmittedClient, ServerConnection):
    """One client."""

    __slots__ = ("_begun", "_errors", "_flooded", "_postponed", *AdmittedClient.SLOTS)

    def __init__(self, edge: Edge) -> None:
        extensions = SHARED_DEFLATE if edge.rules.compression else ()
        super().__init__(subprotocols=_SUBPROTOCOLS, max_size=messages.MAX_MESSAGE_BYTES, extensions=extensions)
        self.prepare(edge)
        self._begun: bytes | None = b""
        """The first bytes of the request, too few to know what it is; None once that is known."""
        self._errors: ErrorWindow | None = None
        self._flooded = False
        self._postponed: list[messages.Request] | None = None
        """Requests that wait for the first lease of the client's API key; None while none do."""

    # Handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound the connections without a request, not yet counted by any address limit, by aborting the oldest."""
        super().connection_made(transport)
        pending = self._edge.pending_handshakes
        if len(pending) >= MAX_PENDING_HANDSHAKES:
            # A real client sends its request at once.
            oldest = next(iter(pending))
            del pending[oldest]
            self._edge.refused[0] += 1
            security_log.record(SecurityEvent.HANDSHAKE_REFUSED, address=oldest.peer, code=0, detail="no request")
            oldest.abort()
        pending[self] = asyncio.get_running_loop().time()

    def on_request(self, request: Request) -> None:
        """Admit the client, or refuse it with 400, 401, 403, 404, 429 or 503."""
        edge = self._edge
        edge.pending_handshakes.pop(self, None)
        if not self._is_handshake(request):
            return
        address, outcome = edge.admission.admit(self.peer, request.headers, asyncio.get_running_loop().time())
        if isinstance(outcome, RefusedClient):
            self._refuse(request, address, outcome)
            return
        self._address, self._allowance = address, outcome.allowance
        self._anonymous_data = outcome.anonymous_data
        origin = request.headers.get("Origin")
        # One text for all clients of a page: admitted origins are few.
        self._origin = None if origin is None else intern(origin)
        claims: Claims | None = None
        # After the address limits, because a signature costs more than everything else here.
        if tokens := bearer_tokens(request.headers.get_all("Sec-WebSocket-Protocol")):
            try:
                claims = edge.auth.verify(tokens[0], self._origin)
            except AuthRefused as error:
                self._refuse(request, address, token_refusal(error), SecurityEvent.WRONG_TOKEN)
                return
            if refused := self._count_user(claims):
                self._refuse(request, address, refused)
                return
        if not self.upgrade(request):
            edge.refused[400] += 1
            return
        self._welcome(claims, anonymous=outcome.anonymous)

    def _is_handshake(self, request: Request) -> bool:
        """Return whether a request is a handshake to decide on; any other, or one at a bad time, is answered here."""
        edge = self._edge
        path = request.path.partition("?")[0]
        if path == ALIVE_PATH:
            # A load balancer's probe before each client, not a refused client.
            self.reply(health_reply(path, lambda: None))
        elif path != PATH:
            self._refuse(request, self.peer, WRONG_PATH)
        elif "Upgrade" not in request.headers:
            self._explain(request)
        elif not edge.ready or edge.draining:
            # Not a security event: every client gets this while a server starts.
            edge.refused[503] += 1
            self.reply(NOT_READY.reply())
        else:
            return True
        return False

    def _welcome(self, claims: Claims | None, *, anonymous: bool) -> None:
        edge = self._edge
        transport = self.transport
        self._name = name = token_bytes(8)
        compressed = bool(self.protocol.extensions)
        self.session = Session(transport.write, transport.writelines, edge.fanout.stats, compressed=compressed)
        if edge.trace_sink is not None:
            self.session.trace = edge.trace_sink.connected(self.session, name, self._address or "")
        self._slot = edge.wheel.add(self)
        edge.connections.add(self)
        edge.fanout.join(self.session)
        if claims is not None:
            self._accept(claims)
        elif not anonymous:
            edge.auth.wait(self)
        edge.fanout.restrict(self.session, restricted=not anonymous if claims is None else not claims.everything)
        rules = edge.rules
        hello = messages.welcome(
            session=name.hex(),
            server=rules.server,
            mode=rules.mode,
            authenticated=claims is not None,
            subscriptions=rules.subscriptions,
            traffic=edge.trace_sink is not None,
            data=rules.data,
            fetch_window_ms=fetch_window_ms(len(edge.connections)),
            heartbeat_ms=1000 * HEARTBEAT_S,
        )
        transport.writelines([text_frame(hello), edge.status_frame])
        self.session.recently_sent = True
        edge.service.joined(self)

    def _refuse(
        self,
        request: Request,
        address: str,
        refusal: RefusedClient,
        kind: SecurityEvent = SecurityEvent.HANDSHAKE_REFUSED,
    ) -> None:
        self._record_refusal(request, address, refusal, kind)
        self.reply(refusal.reply())

    def _record_refusal(self, request: Request, address: str, refusal: RefusedClient, kind: SecurityEvent) -> None:
        self._count_refusal(address, refusal)
        origin = " ".join(request.headers.get_all("Origin"))
        code, detail = refusal.status, refusal.detail
        if refusal.cause is Cause.BAD_REQUEST:
            # Caused by port scanners, not worth a warning each.
            security_log.record(kind, address=address, origin=origin, code=code, detail=detail)
        else:
            security_log.refuse(kind, refusal.cause, address=address, origin=origin, code=code, detail=detail)

    def _explain(self, request: Request) -> None:
        """Answer a page's request for the reason of its refused handshake; it counts only beyond its rate."""
        edge = self._edge
        if not edge.ready or edge.draining:
            self.reply(NOT_READY.problem())
            return
        now = asyncio.get_running_loop().time()
        address, refusal = edge.admission.beyond_explanations(self.peer, request.headers, now)
        if refusal is not None:
            self._record_refusal(request, address, refusal, SecurityEvent.RATE_EXCEEDED)
        else:
            refusal = edge.admission.refusal(self.peer, request.headers, now)
        self.reply(no_refusal() if refusal is None else refusal.problem())

    # Messages

    def receive(self, data: bytes) -> None:
        """Handle data in chunks: a flood is detected only after the library has parsed a whole chunk."""
        if self._begun is not None:
            data = self._begun + data
            is_for_updates = http_updates.is_request(data)
            self._begun = data if is_for_updates is None else None
            if is_for_updates is not False:
                if is_for_updates:
                    self._hand_over(data)
                return
        most = compression.MAX_CHUNK_BYTES if self.protocol.extensions else MAX_CHUNK_BYTES
        if len(data) <= most:
            super().receive(data)
            return
        for start in range(0, len(data), most):
            if self._flooded or self.transport.is_closing():
                return
            super().receive(data[start : start + most])

    def _hand_over(self, data: bytes) -> None:
        """Leave the connection to requests for updates over HTTP."""
        self._cancel_deadline()
        self._edge.pending_handshakes.pop(self, None)
        successor = http_updates.UpdatesConnection(self._edge, self.lower)
        self.transport.set_protocol(successor)
        successor.connection_made(self.transport)
        successor.data_received(data)

    def on_frame(self, frame: Frame) -> None:
        """Limit pings, pongs and fragments like messages: each costs the library as much as a message."""
        # Frames arrive after the handshake only, so there is an allowance.
        if frame.opcode is not Opcode.CLOSE and (
            self._flooded or not self._allowance.admit_frame(asyncio.get_running_loop().time())
        ):
            self._stop_flood()
            return
        super().on_frame(frame)

    def on_pong(self) -> None:
        """Limit pongs that the library has not seen as the others."""
        if self._flooded or not self._allowance.admit_frame(asyncio.get_running_loop().time()):
            self._stop_flood()

    def on_text(self, data: bytes) -> None:
        """Handle one request."""
        if not self.is_open:
            return
        now = asyncio.get_running_loop().time()
        if not self._allowance.messages.take(now):
            self._send_rate_error()
            return
        try:
            request = messages.parse(data)
        except MessageError as error:
            if error.code is ErrorCode.BAD_JSON and not is_utf8(data):
                self.fail(Close.INVALID_DATA, "text must be UTF-8")
                return
            self._send_error(error)
            return
        if self._postponed is not None:
            # Reading is paused: these arrived in the same packet.
            self._postponed.append(request)
        elif isinstance(request, messages.Subscribe) and request.data and self._waits_for_lease():
            self._postponed = [request]
        else:
            self._handle(request, now)

    def _handle(self, request: messages.Request, now: float) -> None:
        edge = self._edge
        if isinstance(request, messages.Auth):
            edge.received["auth"] += 1
            self._authenticate(request)
            return
        is_subscribe = isinstance(request, messages.Subscribe)
        edge.received["subscribe" if is_subscribe else "unsubscribe"] += 1
        self._allowance.charge_names(now, len(request.endpoints))
        if self.claims is None and self.auth_due:
            self._send_error(MessageError(ErrorCode.UNAUTHORISED, "a token is needed first", request.id))
        elif isinstance(request, messages.Unsubscribe):
            edge.service.unsubscribe(self, request)
        else:
            self._subscribe(request)

    def _waits_for_lease(self) -> bool:
        """Pause reading until the client's API key has a lease, requested by its first client.

        Without one, the client would get no data and fetch it, as happens after :data:`LEASE_TIMEOUT_S`.
        """
        if not any(part.wait_for_lease(self._resume_requests) for part in self.session.meter.parts[:1]):
            return False
        self.transport.pause_reading()
        asyncio.get_running_loop().call_later(LEASE_TIMEOUT_S, self._resume_requests)
        return True

    def _resume_requests(self) -> None:
        """Handle the waiting requests; idempotent."""
        postponed, self._postponed = self._postponed, None
        if postponed is None:
            return
        if not self.session.blocked and not self.transport.is_closing():
            self.transport.resume_reading()
        for request in postponed:
            if self.is_open:
                self._handle(request, asyncio.get_running_loop().time())

    def _authenticate(self, request: messages.Auth) -> None:
        """Adopt the rights of a token: end the subscriptions it does not cover, then confirm."""
        edge = self._edge
        try:
            claims = edge.auth.verify(request.token, self._origin)
        except AuthRefused as error:
            self._send_error(MessageError(ErrorCode.UNAUTHORISED, error.reason, request.id))
            if edge.auth.accepts_tokens:
                self._record_token(error, int(error.code))
                self.close(error.code, error.close_reason)
            return
        if refused := self._count_user(claims):
            self._record_rate(Close.RATE, refused.detail)
            self.close(Close.RATE, f"retry={refused.retry_after_s * 1000}")
            return
        self._accept(claims)
        edge.fanout.restrict(self.session, restricted=not claims.everything)
        ended = [] if claims.everything else edge.service.restrict(self, claims.allows)
        for start in range(0, len(ended), MAX_NAMES):
            rejected = dict.fromkeys(ended[start : start + MAX_NAMES], messages.FORBIDDEN)
            self.respond(messages.subscribed(request.id, {}, rejected))
        self.respond(messages.authenticated(request.id, int(claims.expires_at)))

    def respond(self, reply: bytes, replay: Sequence[bytes] = ()) -> None:
        """Send the reply to a request and its consequent frames, unless the connection is closing."""
        if not self.is_open:
            self.session.drop(replay)
            return
        self.session.recently_sent = True
        if self.session.blocked:
            # The other requests of the same packet are still answered; updates are conflated.
            self.transport.write(text_frame(reply))
            self.session.send_many(replay)
        elif replay:
            self.transport.writelines([text_frame(reply), *replay])
        else:
            self.transport.write(text_frame(reply))

    # Limits

    def _stop_flood(self) -> None:
        if not self._flooded:
            self._flooded = True
            self._record_rate(Close.RATE, "pings, pongs or fragments")
            self.close(Close.RATE, "retry=1000")
            if not self.transport.is_closing() and self.transport.is_reading():
                self.transport.pause_reading()
            asyncio.get_running_loop().call_later(1.0, self.abort)

    def _send_error(self, error: MessageError) -> None:
        edge = self._edge
        edge.errors[error.code] += 1
        self.transport.write(text_frame(messages.error(error.code, error.message, error.request_id)))
        if self._errors is None:
            self._errors = ErrorWindow()
        if self._errors.add(asyncio.get_running_loop().time()):
            self._record_rate(Close.TOO_MANY_ERRORS, "errors")
            self.close(Close.TOO_MANY_ERRORS, "too many errors")

    def _send_rate_error(self) -> None:
        now = asyncio.get_running_loop().time()
        self._edge.errors[ErrorCode.RATE] += 1
        self.transport.write(text_frame(messages.error(ErrorCode.RATE, "too many messages")))
        if self._address is not None and self._edge.admission.add_violation(self._address, now):
            self._record_rate(Close.POLICY_VIOLATION, "messages")
            self.close(Close.POLICY_VIOLATION, "too many messages")
        else:
            self._record_rate(Close.RATE, "messages")
            self.close(Close.RATE, f"retry={int(self._allowance.messages.retry_after(now) * 1000) + 1000}")

    # Keepalive

    def on_ping_due(self) -> None:
        """Send a ping and the current status, every 25 s; while the client is blocked, the stall timer decides."""
        if not self.session.blocked and self.is_open:
            self.alive = False
            self.transport.writelines([_PING, self._edge.status_frame])
            self.session.recently_sent = True

    def on_heartbeat_check(self) -> None:
        """Send a heartbeat if nothing was sent since the last check; a blocked client has frames pending."""
        session = self.session
        if session.recently_sent:
            session.recently_sent = False
        elif not session.blocked and self in self._edge.connections:
            self.transport.write(self._edge.heartbeat_frame)
            session.recently_sent = True

    def on_pong_deadline(self) -> None:
        """Close with 1011 if nothing arrived since the ping 10 s ago; a blocked client's pong is not read."""
        if not self.alive and not self.session.blocked:
            self.close(Close.INTERNAL_ERROR, "no pong")

    # End

    def on_closing(self) -> None:
        """Leave the fan-out: no frame may follow a close frame."""
        for extension in self.protocol.extensions:
            cast("SharedDeflate", extension).closing = True
        if self in self._edge.connections:
            if self.session.blocked and not self.transport.is_closing():
                # To read the client's answer to the close frame.
                self.transport.resume_reading()
            sent, by_client = self.protocol.close_sent, bool(self.protocol.close_rcvd_then_sent)
            # The reason in a client's close frame is anybody's text.
            detail = "" if sent is None or by_client else sent.reason
            self._record_departure(self.close_code or 0, detail, by_client=by_client)
            self._leave()
            # Clients may send any code; as labels of a metric they would be unbounded.
            self._edge.closes[self.close_code if self.close_code in KNOWN_CODES else 0] += 1
        self._stop_stall_check()

    def on_closed(self) -> None:
        """Release the allowances of address and user."""
        self._edge.pending_handshakes.pop(self, None)
        self._release()

    # CarriedClient

    def send_frame(self, frame: bytes) -> None:
        """Send a frame beside the fan-out."""
        self.transport.write(frame)

    def resume_writing(self) -> None:
        """Send the held frames; the client was not silent, but unread."""
        self.alive = True
        super().resume_writing()

    @property
    def _logged_address(self) -> str:
        return self._address or self.peer


def is_utf8(data: bytes) -> bool:
    """Return whether ``data`` is valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
