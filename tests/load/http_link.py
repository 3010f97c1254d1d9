"""The connections of load clients without WebSocket: long polls and event streams (docs/protocol.md section 1.8).

To its :class:`ClientLink` all requests of a client are one connection, as in the SDK. Each goes to another server than
the one before, as it may behind a balancer, with the versions that the history has. To the oracle it is a subscription
with its reply. The connection ends where no server answers, or where one closes it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import h11
import orjson
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response

from diem.process.tasks import on_failure
from tests.load import wire
from tests.load.link import CONNECT_SECONDS, History, Link, RecordedLink

WAIT_SECONDS: Final = 25
LATE_SECONDS: Final = 15.0
FIRST_EVENT_SECONDS: Final = 3.0
SILENCE_SECONDS: Final = 10.0
"""These four are the SDK's (``client/src/sdk/polling.ts``)."""
PACE_SECONDS: Final = 0.5
"""Least time from one request to the next: what changes meanwhile comes with one answer."""
_CHUNK: Final = 1 << 16
_TOO_MANY: Final = 429


class Positions(History, Protocol):
    """The history of a client with the versions that it knows."""

    urls: list[str]
    requests: int

    def known(self, name: str) -> int | None:
        """Return the known version of an endpoint."""


class HttpLink(RecordedLink):
    """The link of a client that polls."""

    streams = False

    def _connection(self, history: History, url: str) -> Link:
        return HttpConnection(cast("Positions", history), url, streams=self.streams)


class StreamLink(HttpLink):
    """The link of a client that reads event streams."""

    streams = True


class _Request(NamedTuple):
    """What the client wanted when it made a request."""

    names: frozenset[str]
    fresh: dict[str, int]
    auth: int | None


class _InterruptedError(Exception):
    """The request is repeated with other names, or with another token."""


class Socket:
    """A TCP connection with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.writer = writer
        self.is_reusable = False
        self._reader = reader
        self._host = host
        self._http = h11.Connection(h11.CLIENT)

    @property
    def is_open(self) -> bool:
        return self.is_reusable and not self._reader.at_eof() and not self.writer.is_closing()

    async def request(self, body: bytes, accept: str) -> AsyncGenerator[h11.Response | bytes]:
        """Send a request, and yield the head and the parts of the answer. Raises ``OSError``."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self.is_reusable = False
        fields = [("Host", self._host), ("Accept", accept), ("Content-Length", str(len(body)))]
        head = self._http.send(h11.Request(method="POST", target="/v1/updates", headers=fields)) or b""
        self.writer.write(
            head + (self._http.send(h11.Data(body)) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        )
        while True:
            try:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_CHUNK))
            except h11.RemoteProtocolError as error:
                raise ConnectionResetError("the answer ends early") from error
            if isinstance(event, h11.Response):
                yield event
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self.is_reusable = self._http.our_state is h11.DONE
                return
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("closed without an answer")

    def close(self) -> None:
        self.writer.transport.abort()


class HttpConnection(Link):
    """One request after the other, with the part of the library's interface that a :class:`ClientLink` uses."""

    _history: Positions

    def __init__(self, history: Positions, url: str, *, streams: bool) -> None:
        super().__init__(history)
        others = [each for each in history.urls if each != url]
        self._servers = deque(_address(each) for each in (url, *others))
        self._streams = streams
        self._names: dict[str, int] = {}
        """The subscriptions, each with the id of its latest request."""
        self._fresh: dict[str, int] = {}
        """Those whose latest request has no reply yet."""
        self._resynced: set[str] = set()
        """Those with a ``resync`` and no update after it."""
        self._token: str | None = None
        self._auth: int | None = None
        """The id of the ``auth`` without a reply yet."""
        self._data = False
        self._client: str | None = None
        """The client's id, until it is sent."""
        self._changed = asyncio.Event()
        self._sockets: dict[tuple[str, int], Socket] = {}
        self._waiting: Socket | None = None
        """The socket of a request that waits for updates."""
        self._is_interrupted = False
        self._next_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self.transport = cast("asyncio.Transport", self)

    # As the library has it

    async def open(self) -> None:
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._request()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(on_failure(lambda error: self._history.violated(repr(error))))

    async def send(self, payload: bytes, *, text: bool) -> None:
        """Change the subscriptions, or the token, with the next request."""
        assert text
        message = orjson.loads(payload)
        request_id = message["id"]
        if message["type"] == "unsubscribe":
            self._history.sent(message, self)
            for name in message["endpoints"]:
                self._forget(name)
            self._deliver({"type": "unsubscribed", "id": request_id, "endpoints": message["endpoints"]})
            return
        if message["type"] == "auth":
            self._token, self._auth = message["token"], request_id
        else:
            self._client = message.get("client", self._client)
            self._data = message.get("data", False)
            self._names.update(dict.fromkeys(message["endpoints"], request_id))
            self._fresh.update(dict.fromkeys(message["endpoints"], request_id))
            self._resynced.difference_update(message["endpoints"])
        self._changed.set()
        if self._waiting is not None:
            self._is_interrupted = True
            self._waiting.close()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._lose(None)

    def abort(self) -> None:
        """Abort the request that waits: the next one goes to another server."""
        for socket in (*self._sockets.values(), self._waiting):
            if socket is not None:
                socket.close()

    def _lose(self, close: Close | None) -> None:
        for socket in self._sockets.values():
            socket.close()
        if not self._lost:
            self._close = close
            self._end()

    # Requests

    async def _run(self) -> None:
        failures = 0
        while not self._lost:
            self._changed.clear()
            if not self._names and self._auth is None:
                await self._changed.wait()
            await asyncio.sleep(self._next_at - monotonic())
            self._next_at = monotonic() + PACE_SECONDS
            try:
                await self._request()
                failures = 0
            except _InterruptedError:
                continue
            except InvalidStatus as error:
                if error.response.status_code == _TOO_MANY:
                    await asyncio.sleep(float(error.response.headers.get("Retry-After", "1")))
                    continue
                failures += 1
            except OSError:
                failures += 1
            self._servers.rotate(-1)
            if failures >= len(self._servers):
                self._lose(None)

    async def _request(self) -> None:
        """Make a request and apply its answer. Raises ``OSError``, ``InvalidStatus``."""
        socket = await self._socket(self._servers[0])
        names = list(self._names)
        is_new = not names or self._fresh or self._auth is not None
        wait_s = 0 if not self.opened or (is_new and not self._streams) else WAIT_SECONDS
        is_stream = self._streams and wait_s > 0
        known = {name: self._history.known(name) for name in names}
        body: dict[str, Any] = {"endpoints": known, "wait": wait_s, "data": self._data}
        body |= {"resynced": sorted(self._resynced)} if self._resynced else {}
        body |= {"stale": sorted(name.decode() for name in self.stale)} if self.stale else {}
        body |= {"live": self.live} if self.opened else {}
        body |= {"client": self._client} if self._client is not None else {}
        body |= {"token": self._token} if self._token is not None else {}
        if wait_s > 0:
            self._waiting = socket
        if names:
            self._history.sent({"type": "subscribe", "endpoints": known}, self)
        self._history.requests += 1
        self._client = None
        made = _Request(frozenset(names), dict(self._fresh), self._auth)
        try:
            async with asyncio.timeout(FIRST_EVENT_SECONDS if is_stream else wait_s + LATE_SECONDS) as limit:
                answer = socket.request(orjson.dumps(body), "text/event-stream" if is_stream else "*/*")
                async with aclosing(answer):
                    head = cast("h11.Response", await anext(answer))
                    if head.status_code != 200:
                        raise InvalidStatus(await _refusal(head, answer))
                    if is_stream:
                        await self._read(answer, limit, made)
                        return
                    found = orjson.loads(b"".join([cast("bytes", part) async for part in answer]))
        except OSError as error:
            if self._is_interrupted:
                raise _InterruptedError from error
            raise
        finally:
            self._waiting, self._is_interrupted = None, False
            if socket.is_open and not self._lost:
                self._sockets[self._servers[0]] = socket
            else:
                socket.close()
        self._apply(found["messages"], made)
        if "close" in found:
            self._lose(Close(found["close"]["code"], found["close"]["reason"]))

    async def _socket(self, server: tuple[str, int]) -> Socket:
        kept = self._sockets.pop(server, None)
        if kept is not None and kept.is_open:
            return kept
        host, port = server
        async with asyncio.timeout(CONNECT_SECONDS):
            streams = await asyncio.open_connection(host, port, local_addr=(self._history.address, 0))
        return Socket(*streams, f"{host}:{port}")

    async def _read(self, answer: AsyncGenerator[h11.Response | bytes], limit: asyncio.Timeout, made: _Request) -> None:
        """Read a stream to its end."""
        rest = b""
        async for part in answer:
            limit.reschedule(asyncio.get_running_loop().time() + SILENCE_SECONDS)
            *events, rest = (rest + cast("bytes", part)).split(b"\n\n")
            self.last_received = monotonic()
            data = [event[len(b"data: ") :] for event in events if event.startswith(b"data: ")]
            self._apply([orjson.loads(each) for each in data], made)
            if events and events[-1].startswith(b"event: close"):
                close = orjson.loads(events[-1].partition(b"data: ")[2])
                self._lose(Close(close["code"], close["reason"]))
                return

    # Answers

    def _apply(self, messages: Iterable[dict[str, Any]], made: _Request) -> None:
        time = self.last_received = monotonic()
        if not self.opened:
            self._begin()
        self._set_status(messages)
        for message in messages:
            match message["type"]:
                case "update":
                    self._update(message, time, made.names)
                case "resync":
                    known = set() if self._streams else self._resynced
                    news = [name for name in message["endpoints"] if name in self._names and name not in known]
                    self._resynced.update(news)
                    self._deliver({"type": "resync", "endpoints": news})
                case "subscribed":
                    self._subscribed(message, time, made.fresh)
                case "authenticated":
                    self._authenticated(message, made.auth)
                case "status" | "welcome" if self.welcomed:
                    # The status was handled before.
                    pass
                case _:
                    self._deliver(message)

    def _authenticated(self, message: dict[str, Any], auth: int | None) -> None:
        if auth is not None and auth == self._auth:
            self._auth = None
            self._deliver({**message, "id": auth})

    def _update(self, message: dict[str, Any], time: float, requested: frozenset[str]) -> None:
        name = message["endpoint"]
        self.updates += 1
        if name not in requested:
            self._history.violated(f"an update of what was not requested: {message}"[:300])
        if name in self._names:
            self._resynced.discard(name)
            frame = wire.server_frame(orjson.dumps(message))
            self._history.record_frames(frame, 0, len(frame), time, self.number)

    def _subscribed(self, message: dict[str, Any], time: float, fresh: dict[str, int]) -> None:
        """Record an answer; forward that to a new request, or that names are rejected now."""
        registered = {name: version for name, version in message["endpoints"].items() if name in self._names}
        rejected = {name: why for name, why in message.get("rejected", {}).items() if name in self._names}
        self._history.record_message({**message, "endpoints": registered, "rejected": rejected}, time, self)
        answered = {name for name in (*registered, *rejected) if self._fresh.get(name) == fresh.get(name, -1)}
        for request_id in {self._names[name] for name in answered.union(rejected)}:
            mine = {name: registered[name] for name in answered & registered.keys() if self._names[name] == request_id}
            refused = {name: why for name, why in rejected.items() if self._names[name] == request_id}
            self._forward(
                orjson.dumps({"type": "subscribed", "id": request_id, "endpoints": mine, "rejected": refused})
            )
        for name in answered:
            del self._fresh[name]
        for name in rejected:
            self._forget(name)

    def _set_status(self, messages: Iterable[dict[str, Any]]) -> None:
        """Report how the status has changed since the last answer: each answer states it anew."""
        live, stale = self.live, set(self.stale)
        for message in messages:
            if message["type"] != "status":
                continue
            if "endpoints" not in message:
                live = message["live"]
                stale.clear()
            for name in message.get("endpoints", ()):
                (stale.discard if message["live"] else stale.add)(name.encode())
        if live != self.live:
            self._deliver({"type": "status", "live": live})
        for names, is_live in ((self.stale - stale, True), (stale - self.stale, False)):
            if names:
                self._deliver({"type": "status", "live": is_live, "endpoints": [name.decode() for name in names]})

    def _deliver(self, message: dict[str, Any]) -> None:
        self._history.record_message(message, monotonic(), self)
        self._forward(orjson.dumps(message))

    def _forget(self, name: str) -> None:
        self._names.pop(name, None)
        self._fresh.pop(name, None)
        self._resynced.discard(name)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80


async def _refusal(head: h11.Response, answer: AsyncGenerator[h11.Response | bytes]) -> Response:
    body = b"".join([cast("bytes", part) async for part in answer])
    fields = Headers({name.decode(): value.decode("latin-1") for name, value in head.headers})
    return Response(head.status_code, head.reason.decode(), fields, body)
