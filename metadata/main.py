"""Wires the metadata service: Kafka on one side, clients and proxies on the other."""

import asyncio
import logging
import random
from functools import partial

import structlog

from diem.kafka.client import silence_library_log
from diem.kafka.map_reader import MapReader
from diem.links.connection_limits import ConnectionLimits, address_bound
from diem.links.http_server import AsgiFallback, HttpServer, make_server
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.lifecycle import Lifecycle
from diem.process.limits import AddressRateLimiter, RateLimit
from diem.process.listeners import bind, check_bind, is_loopback, origin_allowed
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
    """Answer who owns what, until asked to stop.

    Raises:
        DiemError: a key or a port cannot be used, or Kafka is not configured.
    """
    silence_library_log()
    # One for each server that is asked how many clients it has, every 5 s.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    options, key, clock = settings.kafka(), SharedKey.load(settings.internal_key_file), SystemClock()
    check_bind(settings.host, authenticated=bool(settings.origins), what="public listener")
    listener = bind(settings.host, settings.port)
    directory = Directory(settings.clone_numbers)
    map_reader = MapReader(options)
    driver = MigrationDriver(options, map_reader, clock, settings.move_seconds, directory.unassigned)
    plans = AsgiFallback(plans_app(PlanService(options, driver, PlanStore(settings.plans_dir)), key), PREFIX)

    def map_changed() -> None:
        # While a map is being read, it may be one of long ago.
        if map_reader.caught_up:
            directory.update_map(map_reader.map)
            driver.changed()

    map_reader.on_changed = map_changed
    assignments = Assignments(options, directory, clock)
    server_loads = ServerLoads(directory, key, settings.allowed)
    owners = OwnerLookup(directory, server_loads, random.Random())  # noqa: S311 - it shares out, and hides nothing
    public = _public(settings, owners)
    partitions = SnapshotFeed(directory)
    directory.on_changed.append(partitions.changed)
    report = MetadataStatus(
        life,
        clock,
        directory=directory,
        map_reader=map_reader,
        driver=driver,
        assignments=assignments,
        public=public,
        partitions=partitions,
    )
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=report.why_not_ready,
        status=report.status,
        ends={"/watch": partitions},
        pages={"/v1/partitions": partitions.page},
        fallback=plans,
        sockets=settings.internal_sockets,
    )
    server = _server(settings, public)
    forget = metrics.register(report.samples)
    try:
        await internal.start()
        structlog.get_logger("metadata").info("serving", host=settings.host, port=listener.getsockname()[1])
        async with asyncio.TaskGroup() as tasks:
            work = (map_reader.run(), driver.run(), assignments.run(), server_loads.run(), partitions.run())
            running = [tasks.create_task(each) for each in work]
            tasks.create_task(_stop_feed(life, partitions))
            await server.run_until(life.stopping, listener)
            await plans.drain(settings.drain_seconds / 4)
            for task in running:
                task.cancel()
    finally:
        listener.close()
        internal.stop()
        forget()


async def _stop_feed(life: Lifecycle, partitions: SnapshotFeed) -> None:
    await life.stopping.wait()
    partitions.stop()


def _public(settings: Settings, owners: OwnerLookup) -> LocateApi:
    plan = AddressRateLimiter(
        RateLimit(settings.rate, settings.burst), RateLimit(settings.rate_loopback, settings.burst_loopback)
    )
    allows_origin = partial(
        origin_allowed,
        allowed=frozenset(settings.origins),
        page_port=settings.page_port,
        loopback_bind=is_loopback(settings.host),
    )
    return LocateApi(owners, allows_origin, plan, most=settings.subscriptions)


def _server(settings: Settings, public: LocateApi) -> HttpServer:
    return make_server(
        public,
        limits=ConnectionLimits(
            settings.connections,
            per_address=address_bound(
                settings.connections_per_address, loopback=settings.connections, trusted=settings.trusted_proxies
            ),
        ),
        drain_s=settings.drain_seconds / 2,
        trusted_proxies=[str(network) for network in settings.trusted_proxies],
    )
