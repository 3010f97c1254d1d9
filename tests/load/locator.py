"""Locates owners of endpoints by the metadata service, for all clients of a process."""

import asyncio
from time import monotonic
from typing import Any, NamedTuple

import httpx

AT_ONCE = 8
"""Most pending requests of all clients."""


class Located(NamedTuple):
    """An answer of ``POST /v1/locate``."""

    clone: int
    owners: dict[str, str | None]
    """URL by endpoint; None = it has no owner now, or is hot."""
    rejected: dict[str, dict[str, Any]]
    """The reason by endpoint for those that are not located."""


class Locator:
    """Client of the metadata service at the base URL of ``http``; counts requests and failures."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.asked = 0
        self.failed = 0
        self.longest = 0.0
        """Longest wait for an answer in seconds, besides each client's first."""
        self._http = http
        # Not the pool's own queue: it looks at everybody who waits, for each who waits.
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def locate(self, endpoints: list[str], clone: int | None, token: str = "") -> Located | None:
        """Return the owners of at most 1000 endpoints; None if the service does not answer."""
        self.asked += 1
        question = {"endpoints": endpoints} | ({} if clone is None else {"clone": clone})
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        begun = monotonic()
        try:
            async with self._slots:
                answer = await self._http.post("locate", json=question, headers=headers)
        except httpx.HTTPError:
            self.failed += 1
            return None
        finally:
            if clone is not None:
                self.longest = max(self.longest, monotonic() - begun)
        if answer.status_code != httpx.codes.OK:
            self.failed += 1
            return None
        body = answer.json()
        owners = {name: place["owner"] for name, place in body["endpoints"].items()}
        return Located(body["clone"], owners, body.get("rejected", {}))
