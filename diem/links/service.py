"""Start-up and end that the services repeat: internal listener, common part of ``/status``, metrics, frozen heap."""

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from diem import __version__
from diem.links.internal import ChannelHandler, InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.metrics import Sample


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
    def internal_sockets(self) -> Path | None:
        """Directory of Unix sockets."""
        ...


@contextlib.asynccontextmanager
async def internal_service(
    settings: ServiceSettings,
    key: SharedKey,
    *,
    ready: Callable[[], str | None],
    status: Callable[[], dict[str, Any]],
    samples: Callable[[], Iterable[Sample]],
    channels: Mapping[str, ChannelHandler] | None = None,
) -> AsyncIterator[None]:
    """Serve health, metrics, ``/status`` and ``channels`` on the internal listener while this is open.

    ``status`` is the service's own part; name, process id, version and uptime are added.

    Raises:
        PortTaken: another process has the port.
    """
    started = time.monotonic()
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=ready,
        status=lambda: {
            "process": settings.process_name,
            "pid": os.getpid(),
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - started, 1),
            **status(),
        },
        ends=channels,
        sockets=settings.internal_sockets,
    )
    forget = metrics.register(samples)
    try:
        await internal.start()
        yield
    finally:
        internal.stop()
        forget()


def freeze_heap() -> None:
    """Exempt all objects from garbage collection that exist now: they live as long as the process."""
    gc.collect()
    gc.freeze()


async def run_until(
    stopping: asyncio.Event, works: Iterable[Coroutine[Any, Any, None]], drain: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run ``works`` until ``stopping``, then ``drain``, then cancel the works; the first failure ends all."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
        await stopping.wait()
        await drain()
        for task in running:
            task.cancel()
