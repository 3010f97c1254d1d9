"""The listener of the operator page: on this machine only, bound before anything is started.

Separate from ``server``, whose import of an HTTP server takes 0.2 s, in which ``diem up`` starts its processes.
"""

import asyncio
import importlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from diem.process.listeners import bind_all

DEFAULT_PORT: Final = 8090


class OperatorPage:
    """The operator page of one system.

    Args:
        port: port to bind, on this machine only; 0 for a free one.
        key_file: the key for signing in.
        pages: directory of the built page; None: the one of this installation.

    Raises:
        PortInUse, AddressUnavailable, BindFailed: from the constructor.
    """

    def __init__(self, port: int, *, key_file: Path, pages: Path | None = None) -> None:
        self.key_file = key_file
        self.pages = pages
        self.sockets: tuple[socket.socket, ...] = bind_all("localhost", port, reserved=True)

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """URL for people of this machine."""
        return f"http://localhost:{self.port}/admin"

    async def serve(self, latest: Callable[[], Awaitable[bytes]], stopping: asyncio.Event) -> None:
        """Serve the documents of ``latest`` until ``stopping``. Raises ``BadKeyFile``."""
        server = await asyncio.to_thread(importlib.import_module, "deploy.admin.server")
        await server.serve(self, latest, stopping)

    def close(self) -> None:
        """Close the listener; idempotent."""
        for each in self.sockets:
            each.close()
