"""The internal listener of every process: health, metrics, status and the feed, behind the shared key."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import orjson
from websockets.http11 import Request
from websockets.typing import Subprotocol

from diem.links.acceptor import Listener, Reply, ServerConnection
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.listeners import bind, check_bind
from diem.protocol import feed

_SUBPROTOCOLS: Final = (Subprotocol(feed.SUBPROTOCOL),)


class FeedEnd(Protocol):
    """What serves the feed protocol on accepted connections."""

    @property
    def accepting(self) -> bool:
        """Whether readers are taken now; otherwise they are answered 503 and dial again."""
        ...

    def opened(self, connection: "InternalConnection") -> None:
        """A reader has connected."""
        ...

    def received(self, connection: "InternalConnection", data: bytes) -> None:
        """A text message of a reader."""
        ...

    def resumed(self, connection: "InternalConnection") -> None:
        """A reader's connection takes data again after a pause."""
        ...

    def closed(self, connection: "InternalConnection") -> None:
        """A reader is gone."""
        ...


class InternalConnection(ServerConnection):
    """One connection to an internal listener: answered and closed, or a reader of the feed."""

    __slots__ = ("_listener", "_reader", "paused")

    def __init__(self, listener: "InternalListener") -> None:
        super().__init__(subprotocols=_SUBPROTOCOLS, max_size=feed.MAX_BATCH_BYTES)
        self._listener = listener
        self._reader: FeedEnd | None = None
        self.paused = False
        """Whether the transport asks to wait: nothing more is written then."""

    def on_request(self, request: Request) -> None:
        """Answer a GET, or take a reader of the feed."""
        path = request.path.partition("?")[0]
        feed_end = self._listener.feed
        if path == "/feed" and feed_end is not None and self._listener.authorised(request):
            if not feed_end.accepting:
                self.reply(Reply(503, b"not ready\n", headers={"Retry-After": "1"}))
            elif self.upgrade(request):
                self._reader = feed_end
                feed_end.opened(self)
            return
        self.reply(self._listener.answer(path, request))

    def on_text(self, data: bytes) -> None:
        """Hand a reader's message to the feed."""
        if self._reader is not None:
            self._reader.received(self, data)

    def on_closed(self) -> None:
        """Take a reader off the feed."""
        if self._reader is not None:
            self._reader.closed(self)
            self._reader = None

    def pause_writing(self) -> None:
        """The reader is slow: the cursor waits, and conflates meanwhile."""
        self.paused = True

    def resume_writing(self) -> None:
        """Go on where the cursor stands."""
        self.paused = False
        if self._reader is not None:
            self._reader.resumed(self)


class InternalListener:
    """Serves ``/livez`` and ``/readyz`` to everybody, ``/metrics``, ``/status`` and ``/feed`` to holders of the key.

    Args:
        host: address to bind; internal listeners always ask for the key, so any address is allowed.
        port: port to bind, 0 for a free one.
        key: the shared key.
        ready: why the process is not ready, or None when it is.
        status: the process's status, as JSON values.
        feed: the feed that this process serves, if any.

    Raises:
        PortTaken: from the constructor.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: SharedKey,
        ready: Callable[[], str | None],
        status: Callable[[], dict[str, Any]],
        feed: FeedEnd | None = None,
    ) -> None:
        check_bind(host, authenticated=True, what="internal listener")
        self.feed = feed
        self._key = key
        self._ready = ready
        self._status = status
        self._listener = Listener(bind(host, port), lambda: InternalConnection(self))

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._listener.port

    async def start(self) -> None:
        """Begin to accept connections."""
        await self._listener.start()

    def stop(self) -> None:
        """Accept no more connections."""
        self._listener.stop()

    def authorised(self, request: Request) -> bool:
        """Whether the request carries the shared key."""
        values = request.headers.get_all("Authorization")
        return len(values) == 1 and self._key.matches(values[0])

    def answer(self, path: str, request: Request) -> Reply:
        """The answer to a GET that is not an upgrade."""
        if path == "/livez":
            return Reply(200, b"ok\n")
        if path == "/readyz":
            why_not = self._ready()
            return Reply(200, b"ok\n") if why_not is None else Reply(503, why_not.encode() + b"\n")
        if not self.authorised(request):
            return Reply(401, b"the shared key is needed\n", headers={"WWW-Authenticate": "Bearer"})
        if path == "/metrics":
            body, content_type = metrics.render()
            return Reply(200, body, content_type)
        if path == "/status":
            return Reply(200, orjson.dumps(self._status()), "application/json")
        return Reply(404, b"not found\n")
