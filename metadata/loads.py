"""Asks every server how many clients it has, so that new ones can be sent where there is most room."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

import httpx
import orjson
import structlog

from diem.process.auth import SharedKey
from diem.protocol.assignment import Owner
from metadata.directory import Directory

EVERY_S: Final = 5.0
WITHIN_S: Final = 2.0
AT_ONCE: Final = 20
"""Servers asked at a time."""

Network = IPv4Network | IPv6Network


class Loads:
    """Clients of each server by its public URL. :meth:`run` does the work.

    Whoever may join a group in Kafka may name any address there; the shared key is shown to those ``allowed`` only.
    """

    def __init__(self, directory: Directory, key: SharedKey, allowed: Sequence[Network]) -> None:
        self._directory = directory
        self._key = key
        self._allowed = allowed
        self._clients: dict[str, int] = {}
        self._refused: set[str] = set()

    def of(self, public: str) -> int | None:
        """Clients of the server with this public URL, as it last said; None when it does not say."""
        return self._clients.get(public)

    def sent(self, public: str) -> None:
        """A client was sent there: until the server is asked again, it counts as connected."""
        if public in self._clients:
            self._clients[public] += 1

    async def run(self) -> None:
        """Ask until cancelled."""
        async with httpx.AsyncClient(timeout=WITHIN_S, trust_env=False) as http:
            while True:
                await self._ask_all(http)
                await asyncio.sleep(EVERY_S)

    async def _ask_all(self, http: httpx.AsyncClient) -> None:
        few = asyncio.Semaphore(AT_ONCE)

        async def ask(server: Owner) -> tuple[str, int | None]:
            async with few:
                return server.public, await self._ask(http, server)

        answers = await asyncio.gather(*(ask(server) for server in self._servers()))
        self._clients = {public: clients for public, clients in answers if clients is not None}

    def _servers(self) -> Iterable[Owner]:
        groups = self._directory.groups.values()
        return {server for group in groups for server in group.clone.members.values()}

    async def _ask(self, http: httpx.AsyncClient, server: Owner) -> int | None:
        try:
            async with asyncio.timeout(WITHIN_S):
                address = await self._address(server.internal)
                if address is None:
                    return None
                answer = await http.get(f"http://{address}/status", headers={"Authorization": self._key.header})
                clients = orjson.loads(answer.content)["clients"]
        except (OSError, TimeoutError, ValueError, LookupError, TypeError, httpx.HTTPError, httpx.InvalidURL):
            return None
        return clients if type(clients) is int else None

    async def _address(self, url: str) -> str | None:
        """Address and port behind an internal URL, if they are allowed. What was looked at is what is dialled."""
        parts = urlsplit(url)
        found = await asyncio.get_running_loop().getaddrinfo(
            parts.hostname, parts.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        address = ip_address(found[0][4][0])
        if any(address in network for network in self._allowed):
            return f"{address}:{parts.port or 80}" if address.version == 4 else f"[{address}]:{parts.port or 80}"
        if url not in self._refused and len(self._refused) < AT_ONCE:
            self._refused.add(url)
            structlog.get_logger("metadata").warning("not asked for its load: its address is not allowed", url=url)
        return None
