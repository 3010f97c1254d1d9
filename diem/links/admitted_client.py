"""An admitted client of an edge, whatever carries its messages: rights, allowances, slow reading and its end.

Its carriers are ``edge_connection`` (WebSocket) and ``http_updates`` (long polls and event streams).
"""

import asyncio
import math
from typing import Any, Final, Protocol, cast

from diem.fanout.session import Session
from diem.links.client_auth import RETRY_AFTER_S, AuthRefused, OriginRefused
from diem.links.departures import Departure
from diem.links.edge import Edge, EdgeClient, Subscriber
from diem.links.refusals import Cause, RefusedClient
from diem.process import security_log
from diem.process.limits import AdmissionResult, MessageAllowance
from diem.process.security_log import SecurityEvent
from diem.protocol import endpoints, messages
from diem.protocol.codes import Close, ErrorCode
from diem.tokens.claims import Claims

USER_RETRY_AFTER_S: Final = 30
"""Retry delay: a user's connection lost without a close is noticed within 35 s, which may make room."""
STALL_TIMEOUT_S: Final = 10.0
"""Seconds without progress after which a blocked client is closed with 4002 (docs/reliability.md S15)."""


class CarriedClient(EdgeClient, Subscriber, Protocol):
    """A client with its carrier."""

    def send_frame(self, frame: bytes) -> None:
        """Send a frame, a status for example, beside the fan-out."""
        ...

    def unsent(self) -> int:
        """Return the unsent bytes buffered in user space."""
        ...

    def abort(self) -> None:
        """Close the connection at once; idempotent."""
        ...


class AdmittedClient:
    """The part of a client that is the same for all carriers, which inherit it before their own bases.

    The carrier calls :meth:`prepare` first, and has the methods of :class:`CarriedClient`.
    """

    # Its attributes are slots of the carriers: several bases with slots cannot be combined.
    __slots__ = tuple[str, ...]()
    SLOTS: Final = (
        "_address",
        "_allowance",
        "_anonymous_data",
        "_edge",
        "_name",
        "_origin",
        "_slot",
        "_stall",
        "_unsent",
        "_user",
        "_user_allowance",
        "auth_due",
        "claims",
        "session",
    )

    transport: asyncio.Transport
    session: Session
    claims: Claims | None
    auth_due: int
    _edge: Edge
    _address: str | None
    """Address to whose limits the client counts, from its admission to its end."""
    _allowance: MessageAllowance
    """Message allowance of that address, held for the same time."""
    _anonymous_data: bool
    """It may be sent data without a token."""
    _name: bytes
    """Its session in ``welcome``; empty if that stands for no connection."""
    _origin: str | None
    """Origin of the client's page; None: it is no page."""
    _slot: int
    """Its slot in the timer wheel, less than 0 before it is in it."""
    _stall: asyncio.TimerHandle | None
    _unsent: int | None
    """Bytes in the write buffer at the last check of a blocked client."""
    _user: str | None
    """User to whose clients it counts, from the first token to its end."""
    _user_allowance: MessageAllowance
    """Message allowance of that user, held for the same time."""

    def prepare(self, edge: Edge) -> None:
        """Set the state of a client that is not admitted yet."""
        self._edge = edge
        self._anonymous_data = False
        self._address = self._origin = self._user = None
        self._name = b""
        self._slot = -1
        self._stall = self._unsent = None
        self.claims = None
        self.auth_due = 0

    @property
    def _client(self) -> "CarriedClient":
        return cast("CarriedClient", self)

    @property
    def _logged_address(self) -> str:
        return self._address or ""

    # Rights

    def _subscribe(self, request: messages.Subscribe) -> None:
        """Subscribe to the endpoints that the client may read, with their data where it may have that."""
        session = self.session
        if request.client is not None and session.trace is not None:
            session.trace.identified(request.client)
        request = self._permitted(request)
        if request.data and session.admit_data is None:
            session.admit_data = self._admit_data
        self._edge.service.subscribe(self._client, request)

    def _permitted(self, request: messages.Subscribe) -> messages.Subscribe:
        """Return the part of a request that the client may have; other names are rejected."""
        if self.claims is None:
            if request.data and not self._anonymous_data:
                # Subscribed without data, which the client fetches by the rules of the Data Service.
                request = request._replace(data=False)
        elif not self.claims.everything:
            request = self._permit(request, self.claims)
        if wildcards := [name for name in request.endpoints if name.endswith("/*")]:
            known = {name: version for name, version in request.endpoints.items() if not name.endswith("/*")}
            rejected = {**request.rejected, **dict.fromkeys(wildcards, messages.NO_WILDCARDS)}
            request = request._replace(endpoints=known, rejected=rejected)
        return request

    def _admit_data(self, size: int) -> bool:
        return self._allowance.take_data(asyncio.get_running_loop().time(), size)

    def _permit(self, request: messages.Subscribe, claims: Claims) -> messages.Subscribe:
        """Return the request with the names covered by the token; others are rejected, existing or not."""
        covered = {name: known for name, known in request.endpoints.items() if claims.allows(name)}
        if len(covered) == len(request.endpoints):
            return request
        rejected = {
            name: messages.FORBIDDEN if endpoints.is_valid(name) else messages.BAD_NAME
            for name in request.endpoints
            if name not in covered
        }
        if messages.FORBIDDEN in rejected.values():
            security_log.record(
                SecurityEvent.FORBIDDEN,
                address=self._logged_address,
                key_name=claims.subject,
                code=ErrorCode.FORBIDDEN,
                detail="subscribe",
            )
        return request._replace(endpoints=covered, rejected=rejected)

    def _accept(self, claims: Claims) -> None:
        """Give the connection the rights of a token, and count its data for the token's API key."""
        edge = self._edge
        edge.auth.accept(self._client, claims)
        edge.fanout.set_meter(self.session, edge.meter_of(claims))

    def _count_user(self, claims: Claims) -> RefusedClient | None:
        """Count the connection for a token's user, once; beyond the user's limits return the refusal."""
        user = claims.user
        if user == self._user:
            return None
        users, now = self._edge.admission.users, asyncio.get_running_loop().time()
        lent = None if user is None else users.admit(user, now)
        if user is not None and isinstance(lent, AdmissionResult):
            used_up = lent is AdmissionResult.USER_USED_UP
            wait_s = max(1, math.ceil(users.retry_after(user, now))) if used_up else USER_RETRY_AFTER_S
            return self._edge.admission.user_refusal(lent, wait_s)
        self._release_user(now)
        if isinstance(lent, MessageAllowance):
            self._user, self._user_allowance = user, lent
            self._allowance.drain_to(lent)
        return None

    def _release_user(self, now: float) -> None:
        if self._user is not None:
            self._edge.admission.users.release(self._user, self._user_allowance, self._allowance, now)
            self._user = None

    def _record_token(self, error: AuthRefused, code: int) -> None:
        security_log.record(SecurityEvent.WRONG_TOKEN, address=self._logged_address, code=code, detail=error.reason)

    def _record_rate(self, code: Close, detail: str) -> None:
        security_log.record(SecurityEvent.RATE_EXCEEDED, address=self._logged_address, code=int(code), detail=detail)

    # Reports

    def names(self) -> tuple[str, ...]:
        """Return the names of the client: its session, address and user, as far as it has them."""
        user = "" if self.claims is None else self.claims.subject
        return tuple(filter(None, (self._name.hex(), self._address, user)))

    def describe(self, endpoint: bytes, *, named: bool) -> dict[str, Any]:
        """Return the state of the client for an endpoint as JSON values, if ``named`` with its subscriptions."""
        claims, session = self.claims, self.session
        return {
            "session": self._name.hex(),
            "address": self._address,
            "user": None if claims is None else claims.subject,
            "subscribed": endpoint in session.endpoints,
            "subscriptions": len(session.endpoints),
            "allowed": not self.auth_due if claims is None else claims.allows(endpoint.decode()),
            "unsent": session.held,
            "blocked": session.blocked,
            "names": [name.decode() for name in session.endpoints] if named else [],
        }

    def _count_refusal(self, address: str, refusal: RefusedClient) -> None:
        self._edge.refused[refusal.status] += 1
        now_s = asyncio.get_running_loop().time()
        self._edge.departures.add(Departure(now_s, "", address, "", refusal.status, 0, refusal.detail))

    def _record_departure(self, close: int, detail: str, *, by_client: bool = False) -> None:
        user = "" if self.claims is None else self.claims.subject
        now_s = asyncio.get_running_loop().time()
        left = Departure(now_s, self._name.hex(), self._logged_address, user, 0, close, detail, by_client)
        self._edge.departures.add(left)

    # End

    def _leave(self) -> None:
        """Leave the fan-out; the limits are released later, by :meth:`_release`."""
        edge = self._edge
        edge.connections.discard(self._client)
        if self._slot >= 0:
            edge.wheel.discard(self._client, self._slot)
        if self.session.trace is not None:
            # Before the hub forgets the subscriptions to be recorded.
            self.session.trace.ended()
            self.session.trace = None
        edge.service.left(self._client)
        edge.fanout.leave(self.session)
        edge.auth.forget(self._client)

    def _stop_stall_check(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _release(self) -> None:
        """Release the allowances of address and user."""
        now = asyncio.get_running_loop().time()
        self._release_user(now)
        if self._address is not None:
            self._edge.admission.release(self._address, self._allowance, now)
            self._address = None

    # Flow control: conflation instead of a queue

    def pause_writing(self) -> None:
        """Conflate: hold the latest frame of each endpoint, and stop reading requests."""
        if self._client in self._edge.connections:
            self.session.block()
            self.transport.pause_reading()
            self._unsent = None
            # First check in the next turn of the loop: replies to requests already read are still being added.
            self._stall = asyncio.get_running_loop().call_later(0, self._check_stall)

    def resume_writing(self) -> None:
        """Send the held frames, then the current status, possibly missed by the client."""
        self._stop_stall_check()
        if self._client in self._edge.connections:
            self.transport.resume_reading()
            self.session.unblock()
            if not self.session.blocked:
                self._client.send_frame(self._edge.status_frame)
                self._edge.service.unblocked(self._client)

    def _check_stall(self) -> None:
        waiting = self._client.unsent()
        if self._unsent is None or waiting < self._unsent:
            # Slow, but reading: conflation bounds its cost.
            self._unsent = waiting
            self._stall = asyncio.get_running_loop().call_later(STALL_TIMEOUT_S, self._check_stall)
            return
        self._stall = None
        self._client.close(Close.SLOW, "retry=1000")
        # The close frame is queued after data that the client does not read.
        asyncio.get_running_loop().call_later(1.0, self._client.abort)


def token_refusal(error: AuthRefused) -> RefusedClient:
    """Return the refusal of a request for its token."""
    if error.code is Close.OVERLOAD:
        return RefusedClient(503, Cause.NOT_READY, error.reason, RETRY_AFTER_S)
    cause = Cause.ORIGIN if isinstance(error, OriginRefused) else Cause.UNAUTHORISED
    return RefusedClient(403 if cause is Cause.ORIGIN else 401, cause, error.reason)
