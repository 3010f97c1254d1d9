"""Asks running processes how they are: ours over their internal listeners, others by whether they answer at all."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

import httpx

from deploy.topology import HOST, Planned, Readiness
from diem.process.auth import SharedKey

TIMEOUT_S: Final = 1.0


class Probe:
    """A client of what runs; no answer is an answer too, so nothing here raises."""

    def __init__(self, key: SharedKey) -> None:
        # No proxies from the environment: the key must go to this machine only.
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        self._headers = {"Authorization": key.header}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._client.aclose()

    async def ready(self, process: Planned) -> bool:
        """Whether the process is ready, seen as its `readiness` says."""
        match process.readiness:
            case Readiness.READYZ:
                return await self._answers(f"{process.internal_url}/readyz", 200)
            case Readiness.HTTP:
                return await self._answers(str(process.public_url), None)
            case Readiness.CONNECT:
                return await _connects(process.ports.public or 0)

    async def report(self, process: Planned) -> dict[str, Any] | None:
        """Return what the process says about itself, or None when it does not answer.

        Of a process without an internal listener it is known only whether it is ready.
        """
        if process.internal_url is None:
            return {"ready": True} if await self.ready(process) else None
        try:
            reply = await self._client.get(f"{process.internal_url}/status", headers=self._headers)
            body = reply.json() if reply.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None
        return body if isinstance(body, dict) else None

    async def reports(self, processes: Sequence[Planned]) -> list[dict[str, Any] | None]:
        """Ask several processes at the same time; the answers come in their order."""
        return list(await asyncio.gather(*map(self.report, processes)))

    async def _answers(self, url: str, status: int | None) -> bool:
        try:
            reply = await self._client.get(url)
        except httpx.HTTPError:
            return False
        return status in {None, reply.status_code}


async def _connects(port: int) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(HOST, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
