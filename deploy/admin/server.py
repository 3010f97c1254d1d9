"""Serves the operator page on its listener; imported on demand."""

import asyncio
from collections.abc import Sequence
from typing import Final

from deploy.admin.app import make_app
from deploy.admin.collector import Collector, PlanReader, StatusSource
from deploy.admin.listener import OperatorPage
from deploy.admin.sessions import Sessions
from deploy.clients.metadata import MetadataService
from diem.links.connection_limits import ConnectionLimits
from diem.links.http_server import make_server
from diem.links.internal_client import internal_client
from diem.process import security_log
from diem.process.clock import SystemClock
from diem.process.key_ring import KeyRing
from services.data.settings import built_page

CONNECTIONS: Final = 64
"""Maximum number of open connections; a page has one or two."""
METADATA_TIMEOUT_S: Final = 2.0
"""Timeout of requests to a metadata service."""
DRAIN_S: Final = 1.0


async def serve(page: OperatorPage, source: StatusSource, stopping: asyncio.Event) -> None:
    """Serve until ``stopping``, then answer the requests in progress. Raises ``BadKeyFile``."""
    clock = SystemClock()
    keys = KeyRing.load(page.internal_key_file)

    def service(urls: Sequence[str]) -> MetadataService:
        return MetadataService(urls, lambda: internal_client(keys, METADATA_TIMEOUT_S))

    collector = Collector(source, PlanReader(service), page.logs, clock)
    server = make_server(
        make_app(page.pages or built_page() / "admin", Sessions(page.key_file, clock), collector.latest),
        limits=ConnectionLimits(readers=CONNECTIONS, pending=CONNECTIONS),
        drain_s=DRAIN_S,
    )
    try:
        async with security_log.summaries():
            await server.run_until(stopping, *page.sockets)
    finally:
        await collector.close()
