"""Polls every server for its number of clients, to send new clients to the least loaded.

Separate from ``main``, its only importer, as this service's only part that connects to servers.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx
import structlog

from diem.links.internal_client import fetch_status, internal_client
from diem.process.allow_list import AllowList
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.tls import LinkTls
from diem.protocol.assignment import Owner
from metadata.directory import Directory

POLL_INTERVAL_S: Final = 5.0
POLL_TIMEOUT_S: Final = 2.0
CONCURRENT_POLLS: Final = 20
"""Maximum number of servers polled concurrently."""


class ServerLoads:
    """Number of clients of each server by its public URL, while :meth:`run` runs.

    Anyone who may join a group in Kafka can register any address there, so only ``allowed`` addresses are dialled.
    """

    def __init__(
        self, directory: Directory, key: KeyRing | SharedKey, allowed: Sequence[str], tls: LinkTls | None = None
    ) -> None:
        self._directory = directory
        self._tls = tls
        self._key = key
        self._allowed = AllowList(allowed)
        self._clients: dict[str, int] = {}
        self._refused: set[str] = set()

    def of(self, public: str) -> int | None:
        """Return the number of clients of a server by its public URL, as of the last poll; None if unknown."""
        return self._clients.get(public)

    def redirected(self, public: str) -> None:
        """Count a client redirected to a server as connected until the next poll."""
        if public in self._clients:
            self._clients[public] += 1

    async def run(self) -> None:
        """Poll until cancelled."""
        role = KeyRole.METADATA
        async with internal_client(self._key, POLL_TIMEOUT_S, self._tls, role=role, reports_keys=True) as http:
            while True:
                await self._poll_all(http)
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll_all(self, http: httpx.AsyncClient) -> None:
        slots = asyncio.Semaphore(CONCURRENT_POLLS)

        async def poll(server: Owner) -> tuple[str, int | None]:
            async with slots:
                return server.public, await self._poll(http, server)

        answers = await asyncio.gather(*(poll(server) for server in self._servers()))
        self._clients = {public: clients for public, clients in answers if clients is not None}

    def _servers(self) -> Iterable[Owner]:
        groups = self._directory.groups.values()
        return {server for group in groups for server in group.clone.members.values()}

    async def _poll(self, http: httpx.AsyncClient, server: Owner) -> int | None:
        try:
            async with asyncio.timeout(POLL_TIMEOUT_S):
                address = await self._address(server.internal)
                if address is None:
                    return None
                scheme = "https" if server.internal.startswith("wss:") else "http"
                status = await fetch_status(http, f"{scheme}://{address}") or {}
        except (OSError, TimeoutError, ValueError, LookupError):
            return None
        clients = status.get("clients")
        return clients if type(clients) is int else None

    async def _address(self, url: str) -> str | None:
        """Return the address and port of an internal URL; None if not allowed. Connect to this one."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "wss" else 80)
        address = await self._allowed.address(parts.hostname or "", port)
        if address is not None:
            return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
        if url not in self._refused and len(self._refused) < CONCURRENT_POLLS:
            self._refused.add(url)
            structlog.get_logger("metadata").warning("not polled for its load: its address is not allowed", url=url)
        return None
