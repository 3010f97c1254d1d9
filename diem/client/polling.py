"""Updates over HTTP (docs/protocol.md section 1.8), where requests reach a server and WebSocket does not.

An event stream costs a server about as much as a WebSocket; polls, which cost several times as much, are for networks
that hold streams back. The SDK has the same rules (``client/src/sdk/polling.ts`` and ``refusals.ts``).
"""

import asyncio
import contextlib
import math
import random
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, Self
from urllib.parse import urlsplit, urlunsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.typing import Subprotocol

from diem.client.backoff import Timing, TokenBuckets, retry_after_s
from diem.client.http import MAX_BODY_BYTES, OpenAnswer, Unreachable, open_answer, request
from diem.client.tokens import AUTH_ID
from diem.process.tasks import run_until
from diem.protocol import codes, messages

RETRY_S: Final = (5.0, 60.0, 300.0, 900.0)
"""WebSocket is tried again after these times, the last one repeated."""
TRIAL_S: Final = 10.0
"""Time for a WebSocket that is tried to deliver a frame."""
CONFIRM_S: Final = 1.0
"""Time from one sign of an obstacle to the second: a server that restarts may refuse a dial, and accept the next."""
OUTAGE_S: Final = 60.0
"""Time for which a server is sent requests that do not reach it, if earlier ones have."""
PROBE_TIMEOUT_S: Final = 3.0
WAIT_S: Final = 25
LATE_S: Final = 15.0
"""Time for which a poll waits, and by which its answer may be late."""
FIRST_EVENT_S: Final = 3.0
SILENCE_S: Final = 10.0
"""Time without the beginning of a stream, or without a heartbeat later, after which it is being held back."""
CLOSE_TIMEOUT_S: Final = 2.0
"""Timeout of the closing handshake: a hung server does not answer."""
MAX_QUEUED: Final = 256
"""Messages received and not read yet, beyond which a stream is not read."""

Message = dict[str, Any]


class Transport(Protocol):
    """A connection, as far as links end it."""

    def abort(self) -> None:
        """Close the connection at once."""
        ...


class MessageConnection(Protocol):
    """The part of a WebSocket that links use."""

    @property
    def transport(self) -> Transport:
        """Return what is below the connection."""
        ...

    async def send(self, message: bytes, *, text: bool | None = None) -> None:
        """Send a message."""
        ...

    async def recv(self, decode: Literal[False]) -> bytes:
        """Return the next message. Raises ``ConnectionClosed``."""
        ...


class Fallback:
    """Opens the connections of a client: WebSockets, or requests where no WebSocket gets through.

    Requests take over once a server has answered one that asks whether it would accept a handshake, after a handshake
    whose ``Upgrade`` was stripped, after one without an answer or a frame, or after the second failure. Beside them a
    WebSocket is tried again; when one delivers a frame, all connections are dialled again.

    Args:
        timing: delays.
        origin: ``Origin`` header; None: none is sent.
        tls: context for ``wss`` URLs; None: the system's authorities decide.
        local_address: address of this machine from which WebSockets are dialled; None: the system chooses.
    """

    def __init__(
        self, timing: Timing, origin: str | None, tls: ssl.SSLContext | None, local_address: str | None = None
    ) -> None:
        self._timing = timing
        self._local = None if local_address is None else (local_address, 0)
        self._origin = origin
        self._tls = tls
        self._is_used = False
        self._suspected_at = math.inf
        self._retries = 0
        self._reached_at = -math.inf
        self._polls: set[HttpConnection] = set()
        self._trying: asyncio.Task[None] | None = None

    @property
    def is_used(self) -> bool:
        """Whether connections that are dialled now are requests."""
        return self._is_used

    @contextlib.asynccontextmanager
    async def dial(self, url: str, welcomed: asyncio.Event) -> AsyncIterator[MessageConnection]:
        """Open a connection to ``url``; ``welcomed`` is set once its server has sent ``welcome``."""
        if self._is_used:
            async with self._polled(url) as polled:
                yield polled
            return
        try:
            async with self._websocket(url) as websocket:
                yield websocket
        except Exception as error:
            if not welcomed.is_set():
                await self._inspect(url, error)
            raise

    @contextlib.asynccontextmanager
    async def _polled(self, url: str) -> AsyncIterator["HttpConnection"]:
        loop = asyncio.get_running_loop()
        connection = HttpConnection(url, self._origin, self._tls)
        try:
            await connection.open()
        except Exception:
            # Where nothing reaches the server a WebSocket is as good. One that requests have reached is perhaps down.
            self._is_used = loop.time() < self._reached_at + OUTAGE_S
            raise
        self._polls.add(connection)
        if self._trying is None:
            self._trying = asyncio.create_task(self._try_websocket())
        try:
            yield connection
        finally:
            self._reached_at = loop.time()
            self._polls.discard(connection)
            if not self._polls and self._trying is not None:
                self._trying.cancel()
                self._trying = None
            await connection.close()

    async def _inspect(self, url: str, error: Exception) -> None:
        """Decide after a failed dial whether the next one is a request."""
        response = error.response if isinstance(error, InvalidStatus) else None
        is_closed = isinstance(error, ConnectionClosed) and error.rcvd is not None
        if isinstance(error, ConnectionRefusedError) or is_closed or (response and "Retry-After" in response.headers):
            return
        is_stripped = response is not None and _would_accept(response.status_code, response.body or b"")
        if not is_stripped:
            fields = {} if self._origin is None else {"Origin": self._origin}
            try:
                target = _http_url(url, "/ws")
                answer = await request("GET", target, headers=fields, tls=self._tls, timeout_s=PROBE_TIMEOUT_S)
            except (Unreachable, ValueError):
                return
            if not _would_accept(answer.status, answer.body):
                self._suspected_at = math.inf
                return
        now = asyncio.get_running_loop().time()
        self._is_used = is_stripped or isinstance(error, TimeoutError) or now >= self._suspected_at + CONFIRM_S
        self._suspected_at = math.inf if self._is_used else min(self._suspected_at, now)

    async def _try_websocket(self) -> None:
        """Try WebSockets until one delivers a frame; then have all connections dialled again."""
        while True:
            delay_s = RETRY_S[min(self._retries, len(RETRY_S) - 1)]
            await asyncio.sleep(delay_s * random.uniform(0.75, 1.25))  # noqa: S311 - spreads clients, is no secret
            self._retries += 1
            url = next(iter(self._polls)).server
            with contextlib.suppress(Exception):  # whatever a network does to it
                async with asyncio.timeout(TRIAL_S), self._websocket(url) as websocket:
                    await websocket.recv()
                    break
        self._retries, self._is_used = 0, False
        for connection in self._polls:
            # As if the server restarted: no failure, and no delay.
            connection.end(Close(codes.Close.RESTART, "retry=0"))

    def _websocket(self, url: str) -> AbstractAsyncContextManager[ClientConnection]:
        tls = {"ssl": self._tls} if self._tls is not None and url.startswith("wss:") else {}
        return connect(
            url,
            subprotocols=[Subprotocol(messages.SUBPROTOCOL)],
            origin=self._origin,  # type: ignore[arg-type] # a plain string is an Origin
            compression=None,
            proxy=None,
            ping_interval=None,
            open_timeout=self._timing.welcome_s,
            close_timeout=CLOSE_TIMEOUT_S,
            local_addr=self._local,
            **tls,  # type: ignore[arg-type] # any keyword is an argument of the connection
        )


class HttpConnection:
    """A client of one server by requests: what it is sent and delivers are the messages of a WebSocket.

    Between two requests nothing is lost: each names the greatest known version of each endpoint.
    """

    def __init__(self, url: str, origin: str | None, tls: ssl.SSLContext | None) -> None:
        self.server = url
        self._url = _http_url(url, "/v1/updates")
        self._tls = tls
        self._headers = {"Content-Type": "application/json"} | ({} if origin is None else {"Origin": origin})
        self._known: dict[str, int] = {}
        """Endpoint -> the version that a server stated or sent last; 0 = none."""
        self._ids: dict[str, int] = {}
        """Endpoint -> the id of its latest request."""
        self._fresh: dict[str, int] = {}
        """Those whose latest request has no answer."""
        self._resynced: set[str] = set()
        self._live: bool | None = None
        self._stale: set[str] = set()
        self._is_unanswered = False
        """The token has no answer."""
        self._token: str | None = None
        self._client: str | None = None
        self._data = False
        self._not_before = 0.0
        """No request is made before this time."""
        self._is_open = False
        self._streams = True
        """Nothing in the way is known to hold streams back."""
        self._buckets = TokenBuckets()
        self._changed = asyncio.Event()
        """There is something to send."""
        self._messages: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._read = asyncio.Event()
        self._ended = False
        self._close: Close | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def transport(self) -> Self:
        """Return the connection itself, to abort it."""
        return self

    async def open(self) -> None:
        """Make the first request. Raises ``OSError``, ``ConnectionClosed``."""
        try:
            async with asyncio.timeout(LATE_S):
                await self._poll(0)
        except (Unreachable, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConnectionResetError(str(error)) from error
        if self._ended:
            raise ConnectionClosedError(self._close, None)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the requests."""
        self.end(None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def abort(self) -> None:
        """End as a lost connection does."""
        self.end(None)

    def end(self, close: Close | None) -> None:
        """End as if the server had closed; None: as a lost connection does."""
        if not self._ended:
            self._ended, self._close = True, close
            self._arrived.set()
            if self._task is not None:
                self._task.cancel()

    async def send(self, message: bytes, *, text: bool | None = None) -> None:  # noqa: ARG002 - as a WebSocket
        """Have the next request do what a message asks for."""
        sent = orjson.loads(message)
        match sent["type"]:
            case "unsubscribe":
                for name in sent["endpoints"]:
                    self._forget(name)
                self._deliver({"type": "unsubscribed", "id": sent["id"], "endpoints": sent["endpoints"]})
                return
            case "auth":
                self._token, self._is_unanswered = sent["token"], True
            case "subscribe":
                self._client = sent.get("client", self._client)
                self._data = sent.get("data", False)
                for name, version in sent["endpoints"].items():
                    self._known[name] = version or 0
                    self._fresh[name] = self._ids[name] = sent["id"]
                    self._resynced.discard(name)
        self._changed.set()

    async def recv(self, decode: Literal[False]) -> bytes:  # noqa: ARG002 - as a WebSocket
        """Return the next message. Raises ``ConnectionClosed``."""
        while not self._messages:
            if self._ended:
                raise ConnectionClosedError(self._close, None)
            self._arrived.clear()
            await self._arrived.wait()
        self._read.set()
        return self._messages.popleft()

    # Requests

    async def _run(self) -> None:
        try:
            while True:
                self._changed.clear()
                if self._fresh or self._is_unanswered:
                    await self._poll(0)
                elif not self._known:
                    await self._until_changed(asyncio.sleep(WAIT_S))
                    if not self._changed.is_set():
                        await self._poll(0)  # the server is still there
                else:
                    await self._until_changed(self._stream() if self._streams else self._poll(WAIT_S))
        except (TimeoutError, Unreachable, ValueError, KeyError, TypeError, AttributeError):
            self.end(None)

    async def _until_changed(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for news, at most until there is something to send."""
        await run_until(asyncio.FIRST_COMPLETED, [waiting, self._changed.wait()])

    async def _poll(self, wait_s: int) -> None:
        names = list(self._known if wait_s else self._fresh)
        await self._pace(len(names))
        fresh, is_unanswered = dict(self._fresh), self._is_unanswered
        async with asyncio.timeout(wait_s + LATE_S), self._request(names, wait_s) as answer:
            await self._read_answer(answer, names, fresh, is_unanswered=is_unanswered)

    async def _stream(self) -> None:
        names = list(self._known)
        await self._pace(len(names))
        fresh = dict(self._fresh)
        try:
            async with asyncio.timeout(FIRST_EVENT_S) as limit, self._request(names, WAIT_S, stream=True) as answer:
                if answer.status == 200 and "event-stream" in answer.headers.get("Content-Type", ""):
                    await self._read_events(answer.parts, names, limit)
                    return
                self._streams = self._streams and answer.status != 200
                await self._read_answer(answer, names, fresh, is_unanswered=False)
        except TimeoutError:
            self._streams = False

    async def _pace(self, names: int) -> None:
        """Wait until the server's limit has room for a request."""
        now = asyncio.get_running_loop().time()
        wait_s = max(self._buckets.wait_s("", 0, now), self._not_before - now)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._buckets.charge("", names, now + wait_s)

    def _request(
        self, names: Iterable[str], wait_s: int, *, stream: bool = False
    ) -> AbstractAsyncContextManager[OpenAnswer]:
        body: Message = {
            "endpoints": {name: self._known[name] or None for name in names if name in self._known},
            "wait": wait_s,
        }
        body |= {"data": True} if self._data else {}
        body |= {"resynced": sorted(self._resynced)} if self._resynced else {}
        body |= {} if self._token is None else {"token": self._token}
        body |= {} if self._client is None else {"client": self._client}
        self._client = None
        headers = self._headers | ({"Accept": "text/event-stream"} if stream else {})
        return open_answer("POST", self._url, headers=headers, body=orjson.dumps(body), tls=self._tls)

    async def _read_answer(
        self, answer: OpenAnswer, names: list[str], fresh: dict[str, int], *, is_unanswered: bool
    ) -> None:
        body = bytearray()
        async for part in answer.parts:
            body += part
            if len(body) > MAX_BODY_BYTES:
                raise ValueError
        if answer.status != 200:
            self._refused(answer, bytes(body))
            return
        found = orjson.loads(body)
        if is_unanswered and not any(message["type"] == "authenticated" for message in found["messages"]):
            found["messages"].append({"type": "error", "id": AUTH_ID, "code": "", "message": "no tokens"})
        self._is_unanswered = self._is_unanswered and not is_unanswered
        self._apply(found["messages"], names, fresh)
        if "close" in found:
            self.end(Close(found["close"]["code"], found["close"]["reason"]))

    def _refused(self, answer: OpenAnswer, body: bytes) -> None:
        delay_s = retry_after_s(answer.headers.get("Retry-After"))
        problem: Any = None
        with contextlib.suppress(ValueError):  # of something in the way
            problem = orjson.loads(body)
        if isinstance(problem, dict) and "close" in problem:
            self.end(Close(problem["close"], str(problem.get("detail", ""))))
        elif answer.status == 429 and self._is_open:
            delay_s += random.random()  # noqa: S311 - spreads clients, is no secret
            self._not_before = asyncio.get_running_loop().time() + delay_s
        elif delay_s > 0:
            self.end(Close(codes.Close.OVERLOAD, f"retry={1000 * delay_s:.0f}"))
        else:
            raise Unreachable(self._url, f"HTTP {answer.status}")

    async def _read_events(self, parts: AsyncGenerator[bytes], names: list[str], limit: asyncio.Timeout) -> None:
        rest = b""
        async for part in parts:
            limit.reschedule(asyncio.get_running_loop().time() + SILENCE_S)
            *events, rest = (rest + part).split(b"\n\n")
            if len(rest) > MAX_BODY_BYTES:
                raise ValueError
            self._apply([orjson.loads(event[6:]) for event in events if event.startswith(b"data: ")], names, {})
            for event in events:
                if event.startswith(b"event: close"):
                    close = orjson.loads(event.partition(b"data: ")[2])
                    self.end(Close(close["code"], close["reason"]))
                    return
            while len(self._messages) > MAX_QUEUED:
                limit.reschedule(None)
                self._read.clear()
                await self._read.wait()

    # Answers

    def _apply(self, received: list[Message], names: list[str], fresh: dict[str, int]) -> None:
        """Deliver messages as a WebSocket would, which states once what each answer states anew."""
        self._welcome(received)
        self._set_status(received, names)
        for message in received:
            match message["type"]:
                case "welcome" | "status":
                    pass
                case "authenticated":
                    self._deliver({**message, "id": AUTH_ID})
                case "subscribed":
                    self._subscribed(message, fresh)
                case "update":
                    self._updated(message)
                case "resync":
                    self._resync(message)
                case _:
                    self._deliver(message)
        if received:
            # The link takes silence for a broken connection.
            self._deliver({"type": "status", "live": self._live, "endpoints": []})

    def _welcome(self, received: list[Message]) -> None:
        for message in received:
            if message["type"] == "welcome" and not self._is_open:
                self._is_open = True
                self._deliver(message)

    def _updated(self, message: Message) -> None:
        name = message["endpoint"]
        if name in self._known:
            # A server that lags repeats older ones.
            self._known[name] = max(self._known[name], message["version"])
            self._resynced.discard(name)
            self._deliver(message)

    def _resync(self, message: Message) -> None:
        news = [name for name in message["endpoints"] if name in self._known and name not in self._resynced]
        self._resynced.update(news)
        if news:
            self._deliver({"type": "resync", "endpoints": news})

    def _subscribed(self, message: Message, fresh: dict[str, int]) -> None:
        """Deliver what is new: answers to requests, names that are rejected now, and versions that were lost."""
        replies: dict[int, Message] = {}

        def reply(name: str) -> Message:
            request_id = self._ids[name]
            empty = {"type": "subscribed", "id": request_id, "endpoints": {}, "rejected": {}}
            return replies.setdefault(request_id, empty)

        for name, version in message["endpoints"].items():
            if name not in self._known:
                continue
            is_answer = name in fresh and fresh[name] == self._fresh.get(name)
            is_lost = (version or 0) < self._known[name]
            if is_answer:
                del self._fresh[name]
            if is_answer or is_lost:
                reply(name)["endpoints"][name] = version
            if is_lost:
                self._known[name] = version or 0  # the next one may be less than what was lost
        for name, rejection in message.get("rejected", {}).items():
            if name in self._known and (name not in self._fresh or self._fresh[name] == fresh.get(name)):
                reply(name)["rejected"][name] = rejection
                self._forget(name)
        for each in replies.values():
            self._deliver(each)

    def _set_status(self, received: list[Message], names: list[str]) -> None:
        """Deliver how the status has changed: of the server, and of names that are stale or no longer."""
        live, stale = self._live, set(self._stale)
        for message in received:
            if message["type"] != "status":
                continue
            if "endpoints" not in message:
                live = message["live"]
                stale.difference_update(names)
            elif message["live"]:
                stale.difference_update(message["endpoints"])
            else:
                stale.update(message["endpoints"])
        before = self._stale
        if live != self._live:
            before = set()
            self._deliver({"type": "status", "live": live})
        for changed, is_live in ((before - stale, True), (stale - before, False)):
            if changed:
                self._deliver({"type": "status", "live": is_live, "endpoints": sorted(changed)})
        self._live, self._stale = live, stale

    def _deliver(self, message: Message) -> None:
        self._messages.append(orjson.dumps(message))
        self._arrived.set()

    def _forget(self, name: str) -> None:
        for held in (self._known, self._ids, self._fresh):
            held.pop(name, None)
        self._resynced.discard(name)
        self._stale.discard(name)


def _http_url(url: str, path: str) -> str:
    """Return the URL of a request to the server of a WebSocket URL."""
    parts = urlsplit(url)
    scheme = "https" if parts.scheme == "wss" else "http"
    return urlunsplit((scheme, parts.netloc, parts.path.removesuffix("/ws") + path, "", ""))


def _would_accept(status: int, body: bytes | bytearray) -> bool:
    """Return whether a server has answered a request to its WebSocket URL: it would accept a handshake now."""
    try:
        return status == 426 and orjson.loads(body)["code"] == "upgrade_required"
    except (ValueError, KeyError, TypeError):
        return False
