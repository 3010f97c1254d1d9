"""Locates owners of endpoints by the metadata service, for all clients of a process."""

import asyncio
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from diem.links.client.tokens import NoToken, TokenSource
from tests.load.link import Server

NAMES = 1000
"""Most names in a request."""
AT_ONCE = 8
"""Most pending requests of all clients."""


class Located(NamedTuple):
    """An answer of ``POST /v1/locate``."""

    clone: int
    owners: dict[bytes, str | None]
    """URL by endpoint; None = it has no owner now."""
    hot: set[bytes]
    """Hot endpoints, which every server has."""
    servers: list[str]


class Locator:
    """Client of the metadata service at the base URL of ``http``; counts requests and failures."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.asked = 0
        self.failed = 0
        self.tokens: TokenSource | None = None
        """Where its tokens come from; None: it is anonymous."""
        self._http = http
        # Not the pool's own queue: it looks at everybody who waits, for each who waits.
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def locate(self, endpoints: list[bytes], clone: int | None) -> Located | None:
        """Return the owners of endpoints; None if the service does not answer."""
        self.asked += 1
        question = {"endpoints": [endpoint.decode() for endpoint in endpoints]}
        try:
            async with self._slots:
                bearer = {} if self.tokens is None else {"Authorization": f"Bearer {await self.tokens.ready()}"}
                answer = await self._http.post(
                    "locate", json=question if clone is None else {**question, "clone": clone}, headers=bearer
                )
        except (httpx.HTTPError, NoToken):
            self.failed += 1
            return None
        if answer.status_code != 200:
            self.failed += 1
            return None
        body = answer.json()
        places = {name.encode(): place for name, place in body["endpoints"].items()}
        return Located(
            clone=body["clone"],
            owners={endpoint: place["owner"] for endpoint, place in places.items()},
            hot={endpoint for endpoint, place in places.items() if place.get("hot")},
            servers=body["servers"],
        )


def server_at(url: str) -> Server:
    """Return the server of an owner's URL."""
    parts = urlsplit(url)
    return Server(parts.hostname or "", parts.port or 80, f"{parts.path}?{parts.query}" if parts.query else parts.path)
