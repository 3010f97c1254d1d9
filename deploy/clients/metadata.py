"""A client of the metadata service's internal listener: partition map and plans (docs/internals.md sections 4, 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx

from deploy.clients.data_service import ServiceRefused, detail_of
from diem.errors import DiemError
from diem.links.internal_client import internal_client
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.protocol.assignment import BadSnapshot, Snapshot, decode

WHO: Final = "the metadata service"
TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 3.0
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout)


@dataclass(eq=False)
class MetadataUnavailable(DiemError):
    """No metadata service answers, or none can handle the request now."""

    template = f"{WHO} does not answer: {{reason}}"
    retriable = True

    reason: str


APPLYING_STATES: Final = frozenset({"preparing", "moving", "retiring"})
"""States of a plan in progress."""
ROLLING_BACK_STATES: Final = frozenset({"rolling_back"})


class PlanStatus(NamedTuple):
    """Status of a plan."""

    id: str
    state: str
    """``ready``, ``preparing``, ``moving``, ``retiring``, ``applied``, ``rolling_back`` or ``rolled_back``."""
    phase: str | None = None
    """Phase of the map; None until read by the service."""
    epoch: int | None = None
    moves: int = 0
    """Number of endpoints."""
    waiting_for: str | None = None
    epoch_of_plan: int | None = None
    created: str | None = None
    partitions: int | None = None
    endpoints: int | None = None
    since: str | None = None
    """Start of the phase as observed by the service; None if it was not running."""

    @classmethod
    def of(cls, body: dict[str, Any]) -> "PlanStatus":
        """Return a status from JSON; unknown fields are ignored."""
        return cls(**{name: value for name, value in body.items() if name in cls._fields})

    @property
    def is_in_progress(self) -> bool:
        """True while it moves endpoints."""
        return self.state in APPLYING_STATES | ROLLING_BACK_STATES

    @property
    def is_outdated(self) -> bool:
        """True if it can no longer be applied: the map has changed since its computation."""
        return self.state == "ready" and self.epoch is not None and self.epoch_of_plan != self.epoch


class MetadataService:
    """Client of the metadata services, tried in order.

    All have the same map; those that share a directory have the same plans.
    """

    def __init__(self, urls: Sequence[str], client: Callable[[], httpx.AsyncClient]) -> None:
        self._urls = list(urls)
        self._client = client

    async def snapshot(self) -> Snapshot:
        """Return the partition map and its owners. Raises ``MetadataUnavailable``."""
        reply = await self._request("GET", "/v1/partitions")
        try:
            return decode(reply.content)
        except BadSnapshot as error:
            raise MetadataUnavailable(str(error)) from error

    async def plans(self) -> list[PlanStatus]:
        """Return all plans, the latest last. Raises ``MetadataUnavailable``."""
        return [PlanStatus.of(each) for each in (await self._json("GET", "/v1/plans"))["plans"]]

    async def plan(self, name: str) -> PlanStatus:
        """Return the status of a plan. Raises ``MetadataUnavailable``, ``ServiceRefused`` (404: there is none)."""
        return PlanStatus.of(await self._json("GET", f"/v1/plans/{name}"))

    async def report(self, name: str) -> dict[str, Any]:
        """Return the report of a plan: its expected effects. Raises ``MetadataUnavailable``, ``ServiceRefused``."""
        return await self._json("GET", f"/v1/plans/{name}/report")

    async def submit(self, plan: bytes) -> PlanStatus:
        """Submit a plan.

        Raises:
            MetadataUnavailable: no service answers.
            ServiceRefused: 409, the map has another epoch; 422, it is not a valid plan.
        """
        return PlanStatus.of(await self._json("POST", "/v1/plans", plan))

    async def apply(self, name: str) -> PlanStatus:
        """Start to apply a plan. Raises ``MetadataUnavailable`` (it may have started), ``ServiceRefused``."""
        return PlanStatus.of(await self._json("POST", f"/v1/plans/{name}/apply"))

    async def rollback(self, name: str) -> PlanStatus:
        """Start to roll a plan back. Raises ``MetadataUnavailable`` (it may have started), ``ServiceRefused``."""
        return PlanStatus.of(await self._json("POST", f"/v1/plans/{name}/rollback"))

    async def _json(self, method: str, path: str, content: bytes | None = None) -> dict[str, Any]:
        reply = await self._request(method, path, content)
        try:
            body = reply.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise MetadataUnavailable(f"{method} {path} gives no JSON object")
        return body

    async def _request(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        failure = ""
        async with self._client() as client:
            for url in self._urls:
                try:
                    reply = await client.request(method, url + path, content=content)
                except httpx.HTTPError as error:
                    failure = str(error) or type(error).__name__
                    # The service may have executed the request: the next one would repeat it.
                    if method != "GET" and not isinstance(error, _NOT_SENT):
                        break
                else:
                    if reply.is_success:
                        return reply
                    if reply.status_code < 500 or reply.status_code == 507:
                        raise ServiceRefused(WHO, reply.status_code, detail_of(reply))
                    failure = detail_of(reply)
        raise MetadataUnavailable(failure)


def metadata_service(urls: Sequence[str], keys: KeyRing | SharedKey) -> MetadataService:
    """Return the client of the services at these base URLs."""
    timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_S)
    return MetadataService(urls, lambda: internal_client(keys, timeout))
