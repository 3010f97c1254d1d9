"""Start-up and shutdown shared by the services: internal listener, common fields of ``/status``, metrics, heap."""

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from diem import __version__
from diem.links import refused_peers
from diem.links.internal import ChannelHandler, InternalListener
from diem.links.listener import Reply
from diem.process import metrics, security_log
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.process.metrics import Sample
from diem.process.tls import OnReload, internal_tls

if TYPE_CHECKING:
    # Only services with an HTTP API load the HTTP server.
    from diem.links.http_server import AsgiFallback


class ServiceSettings(Protocol):
    """Settings of a process with an internal listener."""

    @property
    def process_name(self) -> str:
        """Name of the process in ``/status``."""
        ...

    @property
    def internal_host(self) -> str:
        """Address of the internal listener."""
        ...

    @property
    def internal_port(self) -> int:
        """Port of the internal listener; 0 for a free one."""
        ...

    @property
    def supervised(self) -> bool:
        """True if a supervisor reserves the port for this process."""
        ...

    @property
    def internal_sockets(self) -> Path | None:
        """Directory of Unix sockets."""
        ...

    @property
    def internal_addresses(self) -> Collection[str]:
        """Further addresses of the internal listener."""
        ...

    @property
    def internal_tls_certificate(self) -> Path | None:
        """Certificate of the internal listener beyond this machine."""
        ...

    @property
    def internal_tls_key(self) -> Path | None:
        """Private key of that certificate."""
        ...


@contextlib.asynccontextmanager
async def internal_service(
    settings: ServiceSettings,
    key: KeyRing | SharedKey,
    *,
    ready: Callable[[], str | None],
    status: Callable[[], dict[str, Any]],
    samples: Callable[[], Iterable[Sample]],
    channels: Mapping[str, ChannelHandler] | None = None,
    pages: Mapping[str, Callable[[], Reply]] | None = None,
    reads: Mapping[str, Callable[[str], Reply]] | None = None,
    fallback: "AsgiFallback | None" = None,
    on_reload: OnReload | None = None,
) -> AsyncIterator[InternalListener]:
    """Serve health, metrics, ``/status``, channels, pages and a fallback internally while the block runs.

    ``status`` returns the service's own fields; name, process id, versions, uptime, refused clients, peers with another
    key, and the reason not to be ready are added. ``channels``, ``pages``, ``reads`` and ``fallback`` are those of
    :class:`InternalListener`, which is yielded once it accepts connections. ``on_reload`` registers a function to call
    on SIGHUP.

    Raises:
        PortInUse: another process has the port.
        BadCertificate: the certificate of the listener cannot be used.
    """
    started = time.monotonic()
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=lambda: _with_refused_keys(ready()),
        status=lambda: {
            "process": settings.process_name,
            "pid": os.getpid(),
            "version": __version__,
            "protocol": refused_peers.protocol(),
            "uptime_seconds": round(time.monotonic() - started, 1),
            "cpu_ms": round(1000 * time.process_time()),
            "clock": round(time.time(), 3),
            "refused": security_log.refused(),
            "keys_refused": refused_peers.keys_refused(),
            "why_not_ready": _with_refused_keys(ready()),
            **status(),
        },
        channels=channels,
        pages=pages,
        reads=reads,
        fallback=fallback,
        sockets=settings.internal_sockets,
        addresses=settings.internal_addresses,
        tls=internal_tls(settings, settings.internal_host, on_reload),
        reserved=settings.supervised,
    )
    unregister = metrics.register(lambda: [*samples(), *security_log.samples()])
    try:
        internal.start()
        async with security_log.summaries():
            yield internal
    finally:
        internal.stop()
        unregister()


def _with_refused_keys(why_not: str | None) -> str | None:
    # Without the peers: readiness is public.
    refused = refused_peers.keys_refused()
    return f"{why_not}; keys of peers do not match, see the log" if why_not and refused else why_not


def freeze_heap() -> None:
    """Exempt all existing objects from garbage collection, as they live as long as the process."""
    gc.collect()
    gc.freeze()


async def run_until(
    stopping: asyncio.Event, works: Iterable[Coroutine[Any, Any, None]], drain: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run ``works`` until ``stopping``, then ``drain``, then cancel the works. The first failure cancels the rest."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        await stopping.wait()
        await drain()
        for task in running:
            task.cancel()
