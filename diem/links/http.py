"""A public HTTP server: uvicorn, under signals and a deadline that are ours, with a limit on idle handshakes."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_S: Final = 10.0
KEEP_ALIVE_S: Final = 30
MAX_HEADER_BYTES: Final = 16 * 1024


class TimedProtocol(H11Protocol):
    """A connection that is closed when its first request has not begun to be answered within 10 s (reliability S16).

    When there are as many connections as may be, the one that has said nothing for longest gives way to a new one.
    """

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401  # as uvicorn declares it
        """Start the clock."""
        super().connection_made(transport)
        self._first_request = asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self._too_slow)
        silent = self._silent
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            for oldest in list(silent):
                del silent[oldest]
                if oldest.cycle is None:
                    oldest.transport.abort()
                    # It is counted until the loop has come round; the new one's request is not there before.
                    break
        silent[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._first_request.cancel()
        self._silent.pop(self, None)
        super().connection_lost(exc)

    @property
    def _silent(self) -> "dict[TimedProtocol, None]":
        """Connections of this server, the oldest first; those that have said something are passed over when met."""
        silent: dict[TimedProtocol, None] = self.server_state.__dict__.setdefault("silent", {})
        return silent

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to its other protocol, which has a clock of its own."""
        self._first_request.cancel()
        super().handle_websocket_upgrade(event)

    def _too_slow(self) -> None:
        if self.cycle is None:
            self.transport.close()


class Server(uvicorn.Server):
    """uvicorn without a hand on the process's signals: :meth:`run_until` ends it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the life cycle."""
        yield

    async def run_until(self, stopping: asyncio.Event, listener: socket.socket) -> None:
        """Serve ``listener`` until ``stopping``; then answer what has begun and return."""
        serving = asyncio.create_task(self.serve([listener]))
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
            self.should_exit = True
            await serving
        finally:
            stop.cancel()
            serving.cancel()


def make_server(
    app: ASGIApp,
    *,
    connections: int,
    drain_s: float,
    trusted_proxies: Sequence[str] = (),
    upgraded: Callable[[], asyncio.Protocol] | None = None,
) -> Server:
    """A server for the public listener.

    Args:
        app: the application.
        connections: open connections, beyond which a request is answered 503.
        drain_s: how long requests that have begun may take once it stops.
        trusted_proxies: addresses and networks whose X-Forwarded-For is believed.
        upgraded: makes the protocol of a connection that asks to become a WebSocket; it is handed the request, and
            the connection is its own from then on. Without it, such a request is answered like any other.
    """
    # Its start and end are those of the process, which says so itself.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        # Called as uvicorn's own protocols are.
        ws="none" if upgraded is None else cast("Any", lambda **_given: upgraded()),
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        limit_concurrency=connections,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(drain_s)),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    return Server(config)
