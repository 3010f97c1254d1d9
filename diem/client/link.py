"""A reconnecting connection of a client, and the subscriptions to restore."""

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from operator import index
from secrets import token_hex
from typing import Any, Final, Protocol

import orjson
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.http11 import Response

from diem.client.backoff import (
    ReconnectBackoff,
    Timing,
    TokenBuckets,
    retry_after_s,
    retry_window_s,
    silence_limit_s,
)
from diem.client.polling import Fallback, MessageConnection
from diem.client.tokens import AUTH_ID, NoToken, TokenSource
from diem.errors import DiemError
from diem.process.backoff import Backoff
from diem.protocol import codes, messages
from diem.protocol.messages import MAX_FETCH_WINDOW_MS


class SubscriptionSet:
    """The subscriptions of one connection: wanted, requested, and the next message to reconcile them.

    A server processes the messages of a connection in order, so its final set follows from the messages sent, whatever
    replies are pending. Only the reply to the *latest* request for a name counts: each name keeps the id of that
    request. Pure. The SDK has the same class (``client/src/sdk/subscriptions.ts``);
    ``tests/cases/subscription_set.json`` has the cases that both pass.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, None] = {}
        self._requested: dict[str, int] = {}
        """Name -> id of the latest request that subscribes to it, on this connection."""
        self._renewed: set[str] = set()
        """Wanted names to request again."""
        self._refused: set[str] = set()
        """Wanted names that the server rejected on this connection, or has no place for."""
        self._ids = itertools.count(1)

    def add(self, names: Iterable[str]) -> None:
        """Want names; already wanted ones are requested again, with the version known then."""
        for name in names:
            # Even if the server has not unsubscribed it yet: the known version may have changed, or updates were
            # dropped meanwhile.
            if name in self._wanted or name in self._requested:
                self._renewed.add(name)
            self._refused.discard(name)
            self._wanted[name] = None

    def remove(self, names: Iterable[str]) -> None:
        """Stop wanting names."""
        for name in names:
            self._wanted.pop(name, None)
            self._renewed.discard(name)
            self._refused.discard(name)

    def reset(self) -> None:
        """Start a new connection: nothing requested or rejected yet."""
        self._requested.clear()
        self._renewed.clear()
        self._refused.clear()

    def refuse_excess(self, limit: int) -> list[str]:
        """Refuse wanted names beyond the first ``limit`` (0: no limit) without a request, and return them."""
        if not limit or len(self._wanted) <= limit:
            return []
        kept = [name for name in self._wanted if name not in self._refused]
        excess = [name for name in kept[limit:] if name not in self._requested]
        self._refused.update(excess)
        return excess

    def next(self, known: Callable[[str], int | None]) -> dict[str, Any] | None:
        """Return the next message that brings the server closer to the wanted set, None without one.

        It counts as sent. Unsubscribes go first, to free places under the server's limit.
        """
        surplus = _first(name for name in self._requested if name not in self._wanted)
        if surplus:
            for name in surplus:
                del self._requested[name]
            return {"type": "unsubscribe", "id": next(self._ids), "endpoints": surplus}
        missing = _first(name for name in self._wanted if self._is_missing(name))
        if not missing:
            return None
        request_id = next(self._ids)
        self._requested.update(dict.fromkeys(missing, request_id))
        self._renewed.difference_update(missing)
        return {"type": "subscribe", "id": request_id, "endpoints": {name: known(name) for name in missing}}

    def confirmed(self, request_id: int, names: Iterable[str]) -> list[str]:
        """Return the registered names that are wanted and whose latest request this is."""
        return [name for name in names if name in self._wanted and self._requested.get(name) == request_id]

    def rejected(self, request_id: int, names: Iterable[str]) -> list[str]:
        """Return the rejected names that are wanted and whose latest request this is.

        They are not requested again on this connection unless added again. A name about to be requested again has a
        later request. With id 0, that of ``auth``, a server drops names that the token does not cover, whatever their
        request.
        """
        latest = [
            name
            for name in names
            if (requested := self._requested.get(name)) is not None
            and request_id in {requested, AUTH_ID}
            and name not in self._renewed
        ]
        for name in latest:
            del self._requested[name]
        refused = [name for name in latest if name in self._wanted]
        self._refused.update(refused)
        return refused

    def requested_by(self, request_id: int) -> list[str]:
        """Return the names whose latest request this is: an ``error`` leaves them unregistered."""
        return [name for name, latest in self._requested.items() if latest == request_id]

    def failed(self, request_id: int) -> None:
        """Request the names of a failed request again.

        They still count as requested, as an earlier request may have registered them; those removed meanwhile are
        unsubscribed.
        """
        self._renewed.update(name for name in self.requested_by(request_id) if name in self._wanted)

    def _is_missing(self, name: str) -> bool:
        return name in self._renewed or (name not in self._requested and name not in self._refused)


def _first(names: Iterable[str]) -> list[str]:
    """Return as many names as fit into one message."""
    return list(itertools.islice(names, messages.MAX_NAMES))


_TRANSIENT: Final = frozenset({codes.ErrorCode.LIMIT, codes.ErrorCode.RATE})
"""Errors of a whole request caused by load, not by its names."""
_REFUSED_S: Final = 0.5
"""Time after an ``error`` reply to the token by which a server that accepts tokens would have closed."""
MAX_REFUSAL_CHARS: Final = 300
"""Maximum length of a displayed refusal."""
_MAX_HELD: Final = 16
"""Messages of a server before its reply to the token: a ``welcome`` and a ``status`` are usual."""

ServerSelector = Callable[[], Awaitable[str]]
"""Returns the URL to dial."""


def new_identity() -> str:
    """Return a random identity of a client, for all its connections (docs/protocol.md section 1)."""
    return token_hex(16)


def printable(text: str) -> str:
    """Return at most :data:`MAX_REFUSAL_CHARS` of a foreign text, without control characters."""
    return "".join(character for character in text[:MAX_REFUSAL_CHARS] if character.isprintable())


def _cause(error: Exception) -> str:
    """Return why there is no connection, as ``connection refused``; empty if the error does not tell."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return (error.strerror or "").lower()
    # asyncio has other words for it, with the address.
    return os.strerror(error.errno).lower() if isinstance(error, OSError) and isinstance(error.errno, int) else ""


def refusal_text(response: Response) -> str:
    """Return the reason of a refused handshake, as ``429: this address has 50 clients already``.

    Servers answer with plain text, intermediaries perhaps with a problem document (RFC 9457); of anything else, such as
    a proxy's page, the status and its phrase suffice.
    """
    kind, body = response.headers.get("Content-Type", "").partition(";")[0], bytes(response.body or b"")
    text: object = response.reason_phrase
    if kind == "text/plain":
        text = body.decode("utf-8", "replace").strip()
    elif kind == "application/problem+json":
        with contextlib.suppress(orjson.JSONDecodeError, AttributeError):
            text = orjson.loads(body).get("detail", text)
    shown = printable(str(text))
    return f"{response.status_code}: {shown}" if shown else str(response.status_code)


class _OutOfStepError(DiemError):
    """The server's set of subscriptions is unknown: reconnect to start from an empty one."""

    retriable = True


class _NoReplyError(DiemError):
    """The server has not replied to the token."""

    retriable = True


class LinkListener(Protocol):
    """Receives the events of a link."""

    def known(self, name: str) -> int | None:
        """Return the known version of an endpoint; None: none."""
        ...

    def opened(self, link: "ClientLink", url: str) -> None:
        """Handle an open connection to ``url`` whose server has accepted the token, if any."""
        ...

    def closed(self, link: "ClientLink", code: int | None, reason: str) -> None:
        """Handle a closed connection or failed attempt; ``code`` is the latter's HTTP status, None without one."""
        ...

    def on_message(self, link: "ClientLink", message: dict[str, Any]) -> None:
        """Apply a message of the server.

        Raises:
            KeyError, TypeError, AttributeError: it violates the protocol.
        """
        ...

    def protocol_error(self, link: "ClientLink") -> None:
        """Handle a message that violated the protocol; the connection is closed."""
        ...


class ClientLink:
    """One connection, redialled when lost. Subscriptions take effect now, or once it is open.

    Args:
        select: returns the server to dial, at each attempt.
        listener: receives the events.
        origin: ``Origin`` header of the handshake; None: none is sent.
        timing: delays.
        identity: of the client; None: a new one.
        buckets: of the client, shared by its links; None: new ones.
        tokens: of the client, shared by its links; None: no token is presented.
        fallback: of the client, shared by its links, opens its connections; None: a new one.
        data: ask for the data of updates.
    """

    def __init__(
        self,
        select: ServerSelector,
        listener: LinkListener,
        origin: str | None,
        timing: Timing,
        *,
        identity: str | None = None,
        buckets: TokenBuckets | None = None,
        tokens: TokenSource | None = None,
        fallback: Fallback | None = None,
        data: bool = False,
    ) -> None:
        self._select = select
        self._data = data
        self._offers_data = False
        """Whether this server takes requests for data; others refuse the member."""
        self._fallback = fallback or Fallback(timing, origin, None)
        self._tokens = tokens
        self._presented = ""
        """The token that was presented last on this connection."""
        self._url = ""
        """The server of this connection."""
        self._held: list[dict[str, Any]] = []
        """Messages that wait for the reply to the first token."""
        self._buckets = buckets or TokenBuckets()
        self._server = ""
        """The server's name, from its ``welcome``."""
        self.fetch_window_s = 0.0
        """Time over which the server asks its clients to spread their fetches."""
        self._limit = 0
        """Subscriptions that the server allows."""
        self._silence_s = timing.silence_s
        """Seconds without a frame of this server after which it counts as hung."""
        self._welcomed = asyncio.Event()
        self._ready = asyncio.Event()
        """Whether requests may be sent: after the ``welcome``, and the reply to the token if there is one."""
        self._replied = asyncio.Event()
        """Whether the server has replied to the first token, with an ``error`` perhaps."""
        self._request_backoff = Backoff(timing.base_s, timing.cap_s)
        """Of requests that failed for load."""
        self._not_before = 0.0
        """Nothing is requested before this time."""
        self.paused_until = 0.0
        """Time of the loop before which a server that refused a handshake is not to be dialled (``Retry-After``)."""
        self._identity = identity or new_identity()
        self._identifies = False
        """The identity goes with the next ``subscribe``: the server records traffic, and does not have it yet."""
        self._listener = listener
        self._origin = origin
        self._timing = timing
        self._subscriptions = SubscriptionSet()
        self._changed = asyncio.Event()
        self._backoff = ReconnectBackoff(timing)
        self._opened_at: float | None = None
        self._delay: asyncio.Timeout | None = None
        """Until the next attempt, if it may be expedited."""
        self.ended: tuple[int, str] | None = None
        """Close code and reason after which the client must not reconnect."""
        self.received_bytes = 0
        """Payload of the messages of all connections."""
        self.cause = ""
        """Why the last attempt got no answer, if the system told."""

    def subscribe(self, names: Iterable[str]) -> None:
        """Subscribe; already subscribed endpoints are requested again, with the version known now."""
        self._subscriptions.add(names)
        self._changed.set()

    def unsubscribe(self, names: Iterable[str]) -> None:
        """Unsubscribe."""
        self._subscriptions.remove(names)
        self._changed.set()

    async def run(self) -> None:
        """Keep the connection open until a close code forbids reconnecting."""
        loop = asyncio.get_running_loop()
        self._backoff.begin(loop.time())
        while True:
            close, at_least_s, status, problem, self.cause = None, 0.0, None, "", ""
            try:
                await self._connect()
            except ConnectionClosed as error:
                close = error.rcvd or error.sent
            except InvalidStatus as error:
                at_least_s = retry_after_s(error.response.headers.get("Retry-After"))
                self.paused_until = loop.time() + at_least_s
                status, problem = error.response.status_code, refusal_text(error.response)
            except NoToken as error:
                problem = str(error)
            except (OSError, InvalidHandshake, _NoReplyError, _OutOfStepError, InvalidURI, UnicodeError) as error:
                # InvalidURI, UnicodeError: a server or the metadata service announced an invalid URL.
                self.cause = _cause(error)
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
                # A broken server, or one of another protocol: the next attempt may reach a different one.
                self._listener.protocol_error(self)
            now = loop.time()
            open_s = None if self._opened_at is None else now - self._opened_at
            self._opened_at = None
            code, reason = (close.code, close.reason) if close else (None, problem)
            # Refusal texts, perhaps written by a proxy, contain no window.
            close_reason = close.reason if close else ""
            if code is not None and not self._reconnects(code):
                self.ended = code, reason
            self._listener.closed(self, code if status is None else status, reason)
            if self.ended:
                return
            if code == codes.Close.RATE:
                self._buckets.drain(self._server, self._limit, now)
            may_expedite = code == codes.Close.RESTART or (retry_window_s(close_reason) is None and not at_least_s)
            await self._wait(
                self._backoff.delay_s(now, open_s, code, close_reason, at_least_s), may_expedite=may_expedite
            )

    def expedite(self) -> bool:
        """Forget the failures and redial soon, if the next attempt is waited for; return whether it is.

        A server that asked for the delay gets it, because it may be overloaded; one that restarts has nothing to spare.
        """
        if self._delay is None or self._delay.expired():
            return False
        at = asyncio.get_running_loop().time() + self._backoff.expedite_s()
        self._delay.reschedule(min(at, self._delay.when() or at))
        return True

    async def _wait(self, delay_s: float, *, may_expedite: bool) -> None:
        """Wait for the next attempt."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s) as delay:
                self._delay = delay if may_expedite else None
                await asyncio.Event().wait()
        self._delay = None

    def _reconnects(self, code: int) -> bool:
        """Return whether to redial after a close code; forget the token if the code voids it."""
        may_try_another = self._tokens is not None and self._tokens.closed(self._url, self._presented, code)
        return may_try_another or codes.reconnects(code)

    async def _connect(self) -> None:
        """Dial, and handle the connection until it is lost, which always raises."""
        if self._tokens is not None:
            await self._tokens.ready()
        url = self._url = await self._select()
        self._welcomed.clear()
        async with self._dial(url) as connection:
            self._subscriptions.reset()
            self._ready.clear()
            self._replied.clear()
            self._held.clear()
            self._presented = ""
            self._silence_s = min(self._timing.silence_s, self._timing.welcome_s)
            self._changed.set()
            self._opened_at = asyncio.get_running_loop().time()
            tasks = [asyncio.create_task(self._write(connection))]
            if self._tokens is None:
                self._listener.opened(self, url)
            else:
                tasks.append(asyncio.create_task(self._present_tokens(connection, self._tokens)))
            try:
                while True:
                    data = await self._next(connection)
                    self.received_bytes += len(data)
                    self._receive(orjson.loads(data))
            except TimeoutError:
                # The server would not answer a close frame either.
                connection.transport.abort()
                raise
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def _dial(self, url: str) -> AbstractAsyncContextManager[MessageConnection]:
        return self._fallback.dial(url, self._welcomed)

    async def _next(self, connection: MessageConnection) -> bytes:
        """Return the next message. Raises ``TimeoutError`` if the server is silent."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._silence_s):
                return await connection.recv(decode=False)
        # The event loop may have been busy for that long, with frames waiting in the socket.
        async with asyncio.timeout(self._timing.late_s):
            return await connection.recv(decode=False)

    async def _present_tokens(self, connection: MessageConnection, tokens: TokenSource) -> None:
        """Present the token after the ``welcome``, and again whenever it is replaced."""
        await self._welcomed.wait()
        with contextlib.suppress(ConnectionClosed):
            try:
                async with asyncio.timeout(self._timing.auth_timeout_s):
                    await self._present(connection, await tokens.ready())
                    await self._replied.wait()
            except (NoToken, TimeoutError):
                connection.transport.abort()
                return
            if not self._ready.is_set():
                # A server that rejects the token closes now; one without tokens serves all the same.
                await asyncio.sleep(_REFUSED_S)
                self._open()
            while True:
                await self._present(connection, await tokens.replaced(self._presented))

    async def _present(self, connection: MessageConnection, token: str) -> None:
        self._presented = token
        self._buckets.charge(self._server, 0, asyncio.get_running_loop().time())
        await connection.send(orjson.dumps({"type": "auth", "id": AUTH_ID, "token": token}), text=True)

    async def _write(self, connection: MessageConnection) -> None:
        """Send missing requests within the server's rate; those that accumulate meanwhile become one message."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionClosed):
            await self._ready.wait()
            while True:
                await self._changed.wait()
                self._refuse_excess()
                now = loop.time()
                wait_s = max(self._buckets.wait_s(self._server, self._limit, now), self._not_before - now)
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                    continue
                message = self._subscriptions.next(self._listener.known)
                if message is None:
                    self._changed.clear()
                    continue
                self._buckets.charge(self._server, len(message["endpoints"]), now)
                if message["type"] == "subscribe":
                    if self._data and self._offers_data:
                        message["data"] = True
                    if self._identifies:
                        message["client"], self._identifies = self._identity, False
                await connection.send(orjson.dumps(message), text=True)

    def _refuse_excess(self) -> None:
        """Reject names beyond the server's limit here: its own answers would take a message per 100 names."""
        if excess := self._subscriptions.refuse_excess(self._limit):
            code, text, _ = messages.over_limit(self._limit)
            rejected = {name: {"code": code, "message": text} for name in excess}
            self._listener.on_message(self, {"type": "subscribed", "id": 0, "endpoints": {}, "rejected": rejected})

    def _receive(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "welcome":
                self._server = str(message.get("server", ""))
                self._limit = index(message.get("limits", {}).get("subscriptions", 0))
                window_ms = index(message.get("fetch_window_ms", 0))
                self.fetch_window_s = max(0, min(window_ms, MAX_FETCH_WINDOW_MS)) / 1000
                self._silence_s = silence_limit_s(index(message.get("heartbeat_ms", 0)), self._timing.silence_s)
                self._identifies = message.get("traffic") is True
                self._offers_data = message.get("data") is True
                self._welcomed.set()
                if self._tokens is None:
                    self._ready.set()
            case "authenticated" if self._tokens is not None:
                self._tokens.accepted(self._url)
                self._open()
            case "error" if message.get("id") == AUTH_ID:
                self._replied.set()
                return
        if self._tokens is None or self._ready.is_set():
            self._handle(message)
            return
        self._held.append(message)
        if len(self._held) > _MAX_HELD:
            raise _NoReplyError

    def _open(self) -> None:
        """Allow requests: the server has accepted the token, or needs none."""
        self._replied.set()
        if self._ready.is_set():
            return
        self._ready.set()
        self._listener.opened(self, self._url)
        for held in self._held:
            self._handle(held)
        self._held.clear()

    def _handle(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "subscribed":
                self._request_backoff.reset()
                message = self._relevant(message["id"], message["endpoints"], message.get("rejected", {}))
            case "error" if message.get("id") is not None:
                self._request_failed(message["id"], message["code"], message["message"])
        self._listener.on_message(self, message)

    def _relevant(
        self, request_id: int, registered: Mapping[str, int | None], rejected: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a ``subscribed`` without names that are unwanted or have a later request."""
        return {
            "type": "subscribed",
            "id": request_id,
            "endpoints": {name: registered[name] for name in self._subscriptions.confirmed(request_id, registered)},
            "rejected": {name: rejected[name] for name in self._subscriptions.rejected(request_id, rejected)},
        }

    def _request_failed(self, request_id: int, code: str, text: str) -> None:
        """Request the names of a failed request again after a delay, or reject them."""
        names = self._subscriptions.requested_by(request_id)
        if not names:
            raise _OutOfStepError(code)  # an unsubscribe failed
        if code not in _TRANSIENT:
            rejected = {name: {"code": code, "message": text} for name in names}
            self._listener.on_message(self, self._relevant(request_id, {}, rejected))
            return
        self._subscriptions.failed(request_id)
        self._not_before = asyncio.get_running_loop().time() + self._request_backoff.next_delay()
        self._changed.set()
