"""Accept connections from a listening socket in batches.

libuv accepts one connection in each turn of its loop. While a herd keeps turns busy, hundreds wait in the kernel's
queue, the writer's among them, for seconds.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

import structlog

AT_ONCE: Final = 64
"""Connections that are accepted in one turn, which takes some milliseconds."""
REST_S: Final = 1.0
"""After which it is tried again, when there was no descriptor for a connection."""
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_logger = structlog.get_logger(__name__)


class Acceptor:
    """Accepts what comes to ``listener``, a non-blocking socket, until :meth:`stop`; the socket stays open."""

    def __init__(self, listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._rest: asyncio.TimerHandle | None = None
        self._start()

    def stop(self) -> None:
        """Accept nothing more; what was accepted goes on."""
        self._loop.remove_reader(self._listener)
        if self._rest is not None:
            self._rest.cancel()

    def _start(self) -> None:
        self._rest = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _logger.warning("no connection can be accepted now", error=error.strerror)
                self._loop.remove_reader(self._listener)
                self._rest = self._loop.call_later(REST_S, self._start)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening = self._loop.create_task(self._open(connection))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:  # it has gone already
            connection.close()
