"""Wires the metadata service: Kafka on one side, clients and proxies on the other."""

import asyncio
import contextlib
import random
from functools import partial

import structlog

from diem.kafka.client import silence_library_log
from diem.kafka.epochs import ServedMap
from diem.kafka.map_reader import MapReader
from diem.links.client_auth import ClientAuth
from diem.links.connection_limits import ConnectionLimits, address_bound
from diem.links.handshakes import HandshakeLimits
from diem.links.health import health_service
from diem.links.http_server import AsgiFallback, HttpServer, make_server
from diem.links.service import freeze_heap, internal_service, run_until
from diem.process.clock import SystemClock
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle
from diem.process.limits import AddressRateLimiter, RateLimit
from diem.process.listeners import bind_all, check_bind, is_loopback, origin_allowed
from diem.process.tls import LinkTls, ServerTls, server_tls
from metadata.api import LocateApi
from metadata.assignments import Assignments
from metadata.directory import Directory
from metadata.locate import OwnerLookup
from metadata.plans.api import PREFIX, plans_app
from metadata.plans.migration_driver import MigrationDriver
from metadata.plans.plan_service import PlanService
from metadata.plans.plan_store import PlanStore
from metadata.server_load import ServerLoads
from metadata.settings import Settings
from metadata.snapshot_feed import SnapshotFeed
from metadata.status import MetadataStatus


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve the owners of endpoints until asked to stop.

    Raises:
        DiemError: a key or a port cannot be used, or Kafka is not configured.
    """
    silence_library_log()
    options, key, clock = settings.kafka(), KeyRing.load(settings.internal_key_file), SystemClock()
    check_bind(settings.host, authenticated=settings.access_decided, what="public listener")
    listeners = bind_all(settings.host, settings.port, reserved=settings.supervised)
    directory = Directory(settings.clone_numbers)
    map_reader = MapReader(options) if options.served is None else ServedMap(options, options.served)
    driver = MigrationDriver(options, map_reader, clock, settings.move_seconds, directory.unassigned)
    plans = AsgiFallback(plans_app(PlanService(options, driver, PlanStore(settings.plans_dir))), PREFIX)
    # A topic of others has their partitions.
    offered = plans if options.served is None else None

    def map_changed() -> None:
        # Until the topic is read to its end, the map may be outdated.
        if map_reader.caught_up:
            directory.update_map(map_reader.map)
            driver.changed()

    map_reader.on_changed = map_changed
    assignments = Assignments(options, directory, clock)
    server_loads = ServerLoads(directory, key, settings.allowed, LinkTls(settings.internal_ca_file))
    owners = OwnerLookup(directory, server_loads, random.Random())  # noqa: S311 - for load balancing, not a secret
    auth = ClientAuth.of(settings, clock)
    api = _locate_api(settings, owners, auth)
    snapshots = SnapshotFeed(directory)
    directory.on_changed.append(snapshots.changed)
    report = MetadataStatus(
        life,
        clock,
        directory=directory,
        map_reader=map_reader,
        driver=driver,
        assignments=assignments,
        api=api,
        auth=auth,
        snapshots=snapshots,
    )
    server = _server(settings, api, server_tls(settings, life.on_reload))
    with contextlib.ExitStack() as closing:
        for listener in listeners:
            closing.enter_context(contextlib.closing(listener))
        async with (
            internal_service(
                settings,
                key,
                on_reload=life.on_reload,
                ready=report.why_not_ready,
                status=report.status,
                samples=report.samples,
                channels={"/watch": snapshots},
                pages={"/v1/partitions": snapshots.page},
                fallback=offered,
            ),
            health_service(settings, report.why_not_ready),
            asyncio.TaskGroup() as tasks,
        ):
            structlog.get_logger("metadata").info("serving", host=settings.host, port=listeners[0].getsockname()[1])
            freeze_heap()
            serving = tasks.create_task(server.run_until(life.stopping, *listeners))

            async def drain() -> None:
                snapshots.stop()
                await serving
                await plans.drain(settings.drain_seconds / 4)

            works = (auth.run(), map_reader.run(), driver.run(), assignments.run(), server_loads.run(), snapshots.run())
            await run_until(life.stopping, works, drain)


def _locate_api(settings: Settings, owners: OwnerLookup, auth: ClientAuth) -> LocateApi:
    limiter = AddressRateLimiter(
        RateLimit(settings.rate, settings.burst), RateLimit(settings.rate_loopback, settings.burst_loopback)
    )
    allows_origin = partial(
        origin_allowed,
        allowed=frozenset(settings.origins),
        page_port=settings.page_port,
        loopback_bind=is_loopback(settings.host),
    )
    return LocateApi(
        owners,
        allows_origin,
        limiter,
        auth,
        max_names=settings.subscriptions,
        anonymous=settings.anonymous,
        loopback_bind=is_loopback(settings.host),
    )


def _server(settings: Settings, api: LocateApi, tls: ServerTls | None) -> HttpServer:
    return make_server(
        api,
        limits=ConnectionLimits(
            settings.connections,
            per_address=address_bound(
                settings.connections_per_address, loopback=settings.connections, trusted=settings.trusted_proxies
            ),
        ),
        drain_s=settings.drain_seconds / 2,
        trusted_proxies=settings.trusted_proxies,
        tls=tls,
        handshakes=HandshakeLimits(
            settings.connections_per_address, settings.connections, trusted=settings.trusted_proxies
        ),
    )
