"""Serves the operator page on its listener; imported on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from deploy.admin.app import make_app
from deploy.admin.listener import OperatorPage
from deploy.admin.sessions import Sessions
from diem.links.connection_limits import ConnectionLimits
from diem.links.http_server import make_server
from diem.process import security_log
from diem.process.clock import SystemClock
from services.data.settings import built_page

CONNECTIONS: Final = 64
"""Maximum number of open connections; a page has one or two."""
DRAIN_S: Final = 1.0


async def serve(page: OperatorPage, latest: Callable[[], Awaitable[bytes]], stopping: asyncio.Event) -> None:
    """Serve until ``stopping``, then answer the requests in progress. Raises ``BadKeyFile``."""
    server = make_server(
        make_app(page.pages or built_page() / "admin", Sessions(page.key_file, SystemClock()), latest),
        limits=ConnectionLimits(readers=CONNECTIONS, pending=CONNECTIONS),
        drain_s=DRAIN_S,
    )
    async with security_log.summaries():
        await server.run_until(stopping, *page.sockets)
