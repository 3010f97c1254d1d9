"""Asks running processes how they are, over their internal listeners."""

import asyncio
from typing import Any, Final, Self

import httpx

from diem.process.auth import SharedKey

TIMEOUT_S: Final = 1.0


class Probe:
    """A client of internal listeners; no answer is an answer too, so nothing here raises."""

    def __init__(self, key: SharedKey) -> None:
        # No proxies from the environment: the key must go to this machine only.
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        self._headers = {"Authorization": key.header}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._client.aclose()

    async def ready(self, internal_url: str) -> bool:
        """Whether the process says that it is ready."""
        try:
            reply = await self._client.get(f"{internal_url}/readyz")
        except httpx.HTTPError:
            return False
        return reply.status_code == 200

    async def report(self, internal_url: str) -> dict[str, Any] | None:
        """Return what the process says about itself, or None when it does not answer."""
        try:
            reply = await self._client.get(f"{internal_url}/status", headers=self._headers)
            body = reply.json() if reply.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None
        return body if isinstance(body, dict) else None

    async def reports(self, internal_urls: list[str]) -> list[dict[str, Any] | None]:
        """Ask several processes at the same time; the answers come in the order of the URLs."""
        return list(await asyncio.gather(*(self.report(url) for url in internal_urls)))
