"""Client of ``/status`` on the internal listeners of other processes; apart, because only some processes need httpx."""

from typing import Any

import httpx
import orjson

from diem.process.auth import SharedKey


def status_client(timeout_s: float) -> httpx.AsyncClient:
    """Return an HTTP client for :func:`fetch_status`, without proxies of the environment, which would get the key."""
    return httpx.AsyncClient(timeout=timeout_s, trust_env=False)


async def fetch_status(http: httpx.AsyncClient, base_url: str, key: SharedKey) -> dict[str, Any] | None:
    """Return the status of the process at ``base_url``; None without a valid answer."""
    try:
        reply = await http.get(f"{base_url}/status", headers={"Authorization": key.header})
        body = orjson.loads(reply.content) if reply.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    return body if isinstance(body, dict) else None
