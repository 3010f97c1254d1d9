"""The public listener of servers and proxies, on a port of their own or one that several share (docs/adr/0043)."""

import asyncio
from collections.abc import Callable
from typing import Final

from diem.links.edge import Admission, Edge, admission_rules
from diem.links.listener import Listener
from diem.process import watchdog
from diem.process.edge_settings import EdgeSettings
from diem.process.lifecycle import Lifecycle
from diem.process.listeners import allow_connections, bind_all, check_bind
from diem.process.shared_counts import SharedCounts
from diem.process.tls import ServerTls, server_tls

SEND_BUFFER_BYTES: Final = 64 * 1024


def admission(settings: EdgeSettings, number: int) -> Admission:
    """Return the admission of the process with a number among those that may share its port."""
    if not settings.shared_port:
        return Admission(admission_rules(settings))
    file = settings.state_dir / f"clients-at-{settings.port}"
    return Admission(admission_rules(settings), SharedCounts(file, number))


class PublicListener:
    """Accepts clients on the public address.

    A port of its own is bound at once, and refuses clients with a reason until the process is ready. A shared port is
    listened on while the process is ready, because the kernel sends a process its part of all new clients.
    """

    def __init__(
        self, settings: EdgeSettings, life: Lifecycle, edge: Edge, connection: Callable[[], asyncio.Protocol]
    ) -> None:
        allow_connections(settings.capacity)
        check_bind(settings.host, authenticated=settings.access_decided, what="client listener")
        self._settings = settings
        self._edge = edge
        self._connection = connection
        self._tls = server_tls(settings, life.on_reload)
        self._handshakes = edge.admission.handshakes()
        self._listener = None if settings.shared_port else self._bind(self._tls)

    def start(self) -> None:
        """Accept clients, on a shared port once the process is ready."""
        if self._listener is not None:
            self._listener.start()
            return
        self._edge.on_readiness = self._on_readiness
        if self._edge.ready:
            self._on_readiness(True)

    def stop(self) -> None:
        """Accept no more clients."""
        self._edge.on_readiness = lambda _ready: None
        self._close()

    def _bind(self, tls: ServerTls | None) -> Listener:
        return Listener(
            bind_all(self._settings.host, self._settings.port, reserved=self._settings.supervised),
            self._connection,
            send_buffer=SEND_BUFFER_BYTES,
            tls=tls,
            handshakes=self._handshakes,
            is_busy=self._edge.awaits_requests,
        )

    def _on_readiness(self, ready: bool) -> None:
        self._close()
        if ready:
            self._listener = self._bind(self._tls)
            self._listener.start()
            watchdog.lend(self._listener.sockets)

    def _close(self) -> None:
        if self._listener is None:
            return
        if self._settings.shared_port:
            watchdog.lend(())
        self._listener.stop()
        self._listener = None
