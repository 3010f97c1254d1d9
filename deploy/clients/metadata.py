"""A client of the metadata service's internal listener: the partition map, and plans (docs/protocol.md section 4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx

from deploy.clients.data_service import ServiceRefused, detail_of
from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.protocol.assignment import BadSnapshot, Snapshot, decode

WHO: Final = "the metadata service"
TIMEOUT_S: Final = 30.0
CONNECT_S: Final = 3.0
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout)


@dataclass(eq=False)
class MetadataUnavailable(DiemError):
    """No metadata service answers, or none can do it now."""

    retriable = True

    reason: str

    def __str__(self) -> str:
        """Return the text."""
        return f"{WHO} does not answer: {self.reason}"


class PlanStatus(NamedTuple):
    """Status of a plan."""

    id: str
    state: str
    """`ready`, `preparing`, `moving`, `retiring`, `applied`, `rolling_back` or `rolled_back`."""
    phase: str | None = None
    """Of the map; None while the service has not read it."""
    epoch: int | None = None
    moves: int = 0
    """Endpoints."""
    waiting_for: str | None = None
    epoch_of_plan: int | None = None
    created: str | None = None
    partitions: int | None = None
    endpoints: int | None = None
    since: str | None = None
    """Begin of this phase as the service saw it; None where it did not."""

    @classmethod
    def of(cls, body: dict[str, Any]) -> "PlanStatus":
        """From JSON; what is not known here is passed over."""
        return cls(**{name: value for name, value in body.items() if name in cls._fields})

    @property
    def is_outdated(self) -> bool:
        """Return whether it cannot be applied any more: the map has changed since it was made."""
        return self.state == "ready" and self.epoch is not None and self.epoch_of_plan != self.epoch


class MetadataService:
    """Any one of the metadata services: all know the same map. Plans are known to those that share a directory."""

    def __init__(self, urls: Sequence[str], key: SharedKey, client: Callable[[], httpx.AsyncClient]) -> None:
        self._urls = list(urls)
        self._headers = {"Authorization": key.header}
        self._client = client

    async def snapshot(self) -> Snapshot:
        """Return the map, and who owns what. Raises `MetadataUnavailable`."""
        reply = await self._request("GET", "/v1/partitions")
        try:
            return decode(reply.content)
        except BadSnapshot as error:
            raise MetadataUnavailable(str(error)) from error

    async def plans(self) -> list[PlanStatus]:
        """Return all plans, the latest last. Raises `MetadataUnavailable`."""
        return [PlanStatus.of(each) for each in (await self._json("GET", "/v1/plans"))["plans"]]

    async def plan(self, name: str) -> PlanStatus:
        """Return the status of a plan. Raises `MetadataUnavailable`, `ServiceRefused` (404: there is none)."""
        return PlanStatus.of(await self._json("GET", f"/v1/plans/{name}"))

    async def report(self, name: str) -> dict[str, Any]:
        """Return what a plan promised. Raises `MetadataUnavailable`, `ServiceRefused`."""
        return await self._json("GET", f"/v1/plans/{name}/report")

    async def submit(self, plan: bytes) -> PlanStatus:
        """Have a plan kept.

        Raises:
            MetadataUnavailable: nobody answers.
            ServiceRefused: 409, the map has another epoch; 422, it is no plan.
        """
        return PlanStatus.of(await self._json("POST", "/v1/plans", plan))

    async def apply(self, name: str) -> PlanStatus:
        """Begin to apply a plan. Raises `MetadataUnavailable` (it may have begun), `ServiceRefused`."""
        return PlanStatus.of(await self._json("POST", f"/v1/plans/{name}/apply"))

    async def rollback(self, name: str) -> PlanStatus:
        """Begin to take a plan back. Raises `MetadataUnavailable` (it may have begun), `ServiceRefused`."""
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
                    reply = await client.request(method, url + path, content=content, headers=self._headers)
                except httpx.HTTPError as error:
                    failure = str(error) or type(error).__name__
                    # Whoever got a request may have done it: another one would do it again.
                    if method != "GET" and not isinstance(error, _NOT_SENT):
                        break
                else:
                    if reply.is_success:
                        return reply
                    if reply.status_code < 500 or reply.status_code == 507:
                        raise ServiceRefused(WHO, reply.status_code, detail_of(reply))
                    failure = detail_of(reply)
        raise MetadataUnavailable(failure)


def metadata_service(urls: Sequence[str], key: SharedKey) -> MetadataService:
    """Return the client of the services at these base URLs."""
    # No proxies from the environment: the key must go to these services only.
    timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_S)
    return MetadataService(urls, key, lambda: httpx.AsyncClient(timeout=timeout, trust_env=False))
