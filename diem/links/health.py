"""Health of a process over HTTP: ``/livez`` and ``/readyz``, on internal listeners and on a dedicated one.

The latter serves nothing else and needs no key, so that health checkers, such as the kubelet of Kubernetes, need no
access to the internal listener with its feeds.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import structlog
from websockets.http11 import Request

from diem.links.connection_limits import GRACE_S, Pool
from diem.links.listener import Listener, Reply, ServerConnection
from diem.process import security_log
from diem.process.listeners import bind
from diem.process.security_log import SecurityEvent

PATHS: Final = frozenset({"/livez", "/readyz"})
MAX_CONNECTIONS: Final = 256
"""Maximum number of open connections; beyond it, one silent for a second is evicted, or else the new one is closed."""
MAX_PER_ADDRESS: Final = 16
"""The same per address, so that no other one can keep the kubelet out and get processes killed."""
MAX_REQUEST_BYTES: Final = 4096


class HealthSettings(Protocol):
    """Settings of a process with an optional health listener."""

    @property
    def health_host(self) -> str:
        """Address of the listener."""
        ...

    @property
    def health_port(self) -> int | None:
        """Port of the listener; None: no listener."""
        ...


def health_reply(path: str, why_not_ready: Callable[[], str | None]) -> Reply:
    """Return the reply to a GET of one of :data:`PATHS`: live by answering, ready without a reason not to be."""
    why_not = why_not_ready() if path == "/readyz" else None
    return Reply(200, b"ok\n") if why_not is None else Reply(503, why_not.encode() + b"\n")


class HealthConnection(ServerConnection):
    """A connection to the listener: one request, answered and closed."""

    __slots__ = ("_listener",)

    def __init__(self, listener: "HealthListener") -> None:
        super().__init__(subprotocols=(), max_size=MAX_REQUEST_BYTES)
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, or close it unread."""
        super().connection_made(transport)
        if not self._listener.admit(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Uncount the connection."""
        self._listener.connections.leave(self)
        super().connection_lost(exc)

    @property
    def drained(self) -> bool:
        """True: the connection may always be evicted."""
        return True

    def evict(self) -> None:
        """Abort the connection: another one needs its place."""
        self.abort()

    def on_request(self, request: Request) -> None:
        """Answer a GET."""
        path = request.path.partition("?")[0]
        self.reply(self._listener.answer(path) if path in PATHS else Reply(404, b"not found\n"))


class HealthListener:
    """Serves :data:`PATHS` on ``host`` and ``port`` (0: a free one) to everybody.

    Raises:
        PortInUse, AddressUnavailable, BindFailed: from the constructor.
    """

    def __init__(self, host: str, port: int, why_not_ready: Callable[[], str | None]) -> None:
        self._why_not_ready = why_not_ready
        self.connections = Pool[HealthConnection](MAX_CONNECTIONS, lambda _address: MAX_PER_ADDRESS, grace_s=GRACE_S)
        self._listener = Listener((bind(host, port),), lambda: HealthConnection(self))

    @property
    def port(self) -> int:
        """The bound port."""
        return self._listener.port

    def start(self) -> None:
        """Begin to accept connections."""
        self._listener.start()

    def stop(self) -> None:
        """Accept no more connections; idempotent."""
        self._listener.stop()

    def answer(self, path: str) -> Reply:
        """Return the reply to a GET of one of :data:`PATHS`."""
        return health_reply(path, self._why_not_ready)

    def admit(self, connection: HealthConnection) -> bool:
        """Count a new connection; return False if there are too many others."""
        now = asyncio.get_running_loop().time()
        if self.connections.join(connection, connection.peer, now) is None:
            self.connections.set_idle(connection, now)
            return True
        security_log.record(SecurityEvent.RATE_EXCEEDED, address=connection.peer, code=503, detail="health listener")
        return False


@contextlib.asynccontextmanager
async def health_service(settings: HealthSettings, why_not_ready: Callable[[], str | None]) -> AsyncIterator[None]:
    """Serve health while the block runs, if its port is set.

    Raises:
        PortInUse, AddressUnavailable, BindFailed: the address cannot be used.
    """
    if settings.health_port is None:
        yield
        return
    listener = HealthListener(settings.health_host, settings.health_port, why_not_ready)
    listener.start()
    structlog.get_logger("health").info("serving health", host=settings.health_host, port=listener.port)
    try:
        yield
    finally:
        listener.stop()
