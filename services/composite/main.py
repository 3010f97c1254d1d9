"""Entry point of a composite: runs its children and its internal listener, and shuts down in order."""

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import orjson

from diem import __version__
from diem.links import refused_peers, unix_sockets
from diem.links.health import health_service
from diem.links.internal import InternalListener
from diem.process import metrics, security_log
from diem.process.fork_server import ForkServer
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import CANCEL_GRACE_S, Lifecycle
from diem.process.listeners import check_bind
from diem.process.metrics import Sample
from diem.process.modes import EDGE, INSIDE_COMPOSITE
from diem.process.ports import PersistedPorts, PortReservations
from diem.process.private_files import make_private_directory
from diem.process.tls import internal_tls
from diem.process.watchdog import HUNG_AFTER_S
from services.composite.composite import Composite, StatusPoller
from services.composite.control import PATH, ControlChannel
from services.composite.plan import CompositePlan, children
from services.composite.settings import Settings

ORPHAN_TIMEOUT_S: Final = 3.0
"""Seconds for the children of a killed composite to end, unless hung."""


async def main(settings: Settings, life: Lifecycle) -> None:
    """Run the children until stopped, then stop them in order."""
    started = time.monotonic()
    fork_server = ForkServer.start(INSIDE_COMPOSITE)
    key = KeyRing.load(settings.internal_key_file)
    check_bind(settings.host, authenticated=settings.access_decided, what="client listener")
    # Raise errors in the Kafka settings before a child does.
    settings.kafka().client_arguments()
    make_private_directory(settings.state_dir)
    file = settings.state_dir / f"{settings.process_name}.ports.json"
    ports = PersistedPorts(PortReservations(settings.host), file)
    ports.reserve(settings.port)
    ports.reserve(settings.internal_port)
    await ports.wait_until_free(ORPHAN_TIMEOUT_S)
    plan = _plan(settings, settings.port or ports.of("composite").public or 0)
    seconds = settings.drain_seconds * settings.time_factor + CANCEL_GRACE_S + 1.0
    composite = Composite(
        lambda pairs: children(plan, pairs, ports.of),
        settings.pairs,
        StatusPoller(key, settings.time_factor),
        seconds,
        hung_after_s=HUNG_AFTER_S * settings.time_factor,
        fork_server=fork_server,
    )
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=composite.why_not_ready,
        status=lambda: {
            "process": settings.process_name,
            "pid": os.getpid(),
            "version": __version__,
            "protocol": refused_peers.protocol(),
            "mode": settings.mode,
            "uptime_seconds": round(time.monotonic() - started, 1),
            "cpu_ms": round(1000 * time.process_time()),
            "clock": round(time.time(), 3),
            "url": f"ws://{plan.host}:{plan.port}/ws",
            "why_not_ready": composite.why_not_ready(),
            **composite.status(),
        },
        channels={PATH: ControlChannel(lambda: composite.pairs, composite.scale, settings.most_pairs)},
        sockets=settings.internal_sockets,
        tls=internal_tls(settings, settings.internal_host, life.on_reload),
        addresses=settings.internal_addresses,
        reserved=True,  # by the composite itself, or by its supervisor
    )
    internal.start()
    forget = metrics.register(lambda: [*_samples(composite), *security_log.samples()])
    async with health_service(settings, composite.why_not_ready):
        try:
            async with security_log.summaries(), asyncio.TaskGroup() as tasks:
                running = tasks.create_task(composite.run())
                if settings.tls_certificate is not None:
                    life.on_reload(composite.reload)
                await life.stopping.wait()
                running.cancel()
        finally:
            forget()
            # All stages share the drain time, after which this is cancelled and the remaining children are killed.
            try:
                await composite.stop(life.drain_seconds / 2 + 0.5)
            finally:
                internal.stop()
                await composite.stop(0)
                if fork_server is not None:
                    fork_server.close()


def _plan(settings: Settings, port: int) -> CompositePlan:
    sockets = (settings.internal_sockets or settings.state_dir / "sockets").absolute()
    return CompositePlan(
        number=settings.number,
        mode=settings.mode,
        host=settings.host,
        port=port,
        interest_url=",".join(settings.interest_url),
        max_pairs=settings.most_pairs,
        drain_seconds=settings.drain_seconds,
        edge={name: _text(value) for name in EDGE if (value := getattr(settings, name.lower())) is not None},
        sockets=sockets if unix_sockets.fits(sockets) else None,
    )


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | Path) else orjson.dumps(value, default=str).decode()


def _samples(composite: Composite) -> Iterable[Sample]:
    for child in composite.running():
        yield metrics.CHILD_UP.sample(1, child.name, f"{child.internal_url}/metrics")
    yield metrics.CHILD_RESTARTS.sample(composite.restarts)
    yield metrics.PAIRS.sample(composite.pairs)
    yield metrics.PAIRS_READY.sample(composite.ready_pairs)
    if (clients := composite.status().get("clients")) is not None:
        yield metrics.COMPOSITE_CLIENTS.sample(clients)
