"""Writes all canary endpoints, whose data is the time of the write."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from deploy.clients.data_service import DataService, ServiceRefused, detail_of
from diem.process.auth import SharedKey

BATCH: Final = 50
"""Most datasets of a request."""


@dataclass
class CanaryWriter:
    """Writes to a Data Service."""

    service: DataService
    key: SharedKey
    names: tuple[str, ...]

    async def write(self) -> dict[str, int]:
        """Write every endpoint; return their versions. Raises ``DataServiceUnavailable``, ``ServiceRefused``."""
        versions: dict[str, int] = {}
        for first in range(0, len(self.names), BATCH):
            body = _datasets(self.names[first : first + BATCH], time.time())
            answer = await self.service.request(
                "PUT", "/v1/data", json=body, headers={"Authorization": self.key.header}
            )
            versions |= _versions(answer)
        return versions


def _versions(answer: httpx.Response) -> Mapping[str, int]:
    if not answer.is_success:
        raise ServiceRefused("the Data Service", answer.status_code, detail_of(answer))
    try:
        return {str(each["endpoint"]): int(each["version"]) for each in answer.json()["accepted"]}
    except (ValueError, LookupError, TypeError):
        raise ServiceRefused("the Data Service", answer.status_code, "its answer has no versions") from None


def _datasets(names: Iterable[str], now_s: float) -> dict[str, Any]:
    """Return a bulk request with a value that each write changes: an equal one is no update."""
    hour = time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(now_s))
    points = [{"time": hour, "value": round(1000 * now_s)}]
    return {"datasets": [{"endpoint": name, "unit": "1", "resolution": "PT1H", "points": points} for name in names]}
