"""Reads of a served topic, whose data the WebSocket servers retain and the store has not (docs/adr/0037)."""

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import httpx
import orjson

from diem.links.internal import READS
from diem.links.internal_client import internal_client
from diem.process.key_ring import KeyRing
from diem.process.tls import LinkTls
from diem.protocol.media_types import kind_of
from diem.protocol.update import UPDATE
from services.data.api.catalogue import CataloguePage
from services.data.errors import StoreUnavailable, UnknownEndpoint, VersionNotKept
from services.data.store import StoredVersion

TIMEOUT_S: Final = 3.0
MAX_READS: Final = 64
"""Requests to servers at once; further readers wait."""
_OK: Final = 200
_UNKNOWN: Final = 404
_ELSEWHERE: Final = 421


class RetainedReads:
    """Asks the servers. Readers of an endpoint at the same time share one answer.

    Args:
        urls: of the internal listeners of all possible servers.
        keys: the internal key.
        tls: of these listeners.
        partitioned: each endpoint is at one of the servers, else at all.
    """

    def __init__(self, urls: Sequence[str], keys: KeyRing, tls: LinkTls, *, partitioned: bool) -> None:
        self._urls = urls
        self._http = internal_client(keys, TIMEOUT_S, tls)
        self._partitioned = partitioned
        self._turn = asyncio.Semaphore(MAX_READS)
        self._pending: dict[str, asyncio.Task[StoredVersion]] = {}

    async def current(self, endpoint: str) -> StoredVersion:
        """Return the current version.

        Raises:
            UnknownEndpoint: the topic has no such endpoint.
            StoreUnavailable: the server that has it cannot be reached, or cannot tell now.
        """
        task = self._pending.get(endpoint)
        if task is None:
            task = self._pending[endpoint] = asyncio.create_task(self._find(endpoint))
            task.add_done_callback(lambda _: self._pending.pop(endpoint, None))
        return await asyncio.shield(task)

    async def version(self, endpoint: str, version: int) -> StoredVersion:
        """Return a version if it is the current one.

        Raises:
            VersionNotKept: it is another.
            UnknownEndpoint, StoreUnavailable: as for :meth:`current`.
        """
        found = await self.current(endpoint)
        if found.version != version:
            raise VersionNotKept(endpoint, version)
        return found

    async def catalogue(self, wanted: CataloguePage) -> bytes:
        """Return a part of the catalogue, of the first endpoints of each server.

        Raises:
            StoreUnavailable: no server can be reached.
        """
        answers = await self._request("/")
        entries = {each["endpoint"]: each for answer in answers if answer.status_code == _OK for each in answer.json()}
        allows = (lambda _name: True) if wanted.rights is None else wanted.rights.allows
        names = sorted(name for name in entries if name > wanted.after and allows(name))
        shown = [
            {**entries[name], "kind": kind_of(entries[name]["media_type"]), "title": "", "source": "", "gone": False}
            for name in names[: wanted.limit]
        ]
        more = {"next": names[wanted.limit - 1]} if len(names) > wanted.limit else {}
        return orjson.dumps({"endpoints": shown, **more})

    async def _find(self, endpoint: str) -> StoredVersion:
        async with self._turn:
            answers = await self._request(endpoint)
        found = [_stored(answer) for answer in answers if answer.status_code == _OK]
        if found:
            # During a rebalance two have it, one of which may lag.
            return max(found)
        if answers and all(answer.status_code in {_UNKNOWN, _ELSEWHERE} for answer in answers):
            raise UnknownEndpoint(endpoint)
        reasons = [answer.text for answer in answers if answer.status_code not in {_UNKNOWN, _ELSEWHERE}]
        raise StoreUnavailable(reasons[0])

    async def _request(self, name: str) -> list[httpx.Response]:
        """Return the answers: of all servers, or of one of equal ones. Raises ``StoreUnavailable`` without any."""
        if self._partitioned:
            outcomes = await asyncio.gather(*(self._get(url, name) for url in self._urls))
            answers = [answer for answer in outcomes if answer is not None]
        else:
            answers = []
            for url in random.sample(self._urls, len(self._urls)):
                answer = await self._get(url, name)
                if answer is not None and answer.status_code in {_OK, _UNKNOWN}:
                    return [answer]
                answers += [] if answer is None else [answer]
        if not answers:
            raise StoreUnavailable("no server can be reached now")
        return answers

    async def _get(self, url: str, name: str) -> httpx.Response | None:
        try:
            return await self._http.get(f"{url}{READS}{name}")
        except httpx.HTTPError:
            return None


def _stored(answer: httpx.Response) -> StoredVersion:
    headers = answer.headers
    changed = datetime.fromisoformat(headers["diem-time"])
    media_type = headers["content-type"]
    return StoredVersion(
        int(headers["diem-version"]), round(changed.timestamp() * 1000), UPDATE, media_type, answer.content
    )
