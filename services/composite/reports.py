"""Poll the children of a composite for their status."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpx

from diem.process.auth import SharedKey
from services.composite.plan import Child

HASTY_S: Final = 0.2
"""Between two rounds while something is not ready."""
PATIENT_S: Final = 1.0
TIMEOUT_S: Final = 1.0


class Reports:
    """The last `/status` of each child that answers; of one that does not, nothing."""

    def __init__(self, key: SharedKey) -> None:
        self._headers = {"Authorization": key.header}
        self._last: dict[str, dict[str, Any]] = {}

    def of(self, name: str) -> dict[str, Any] | None:
        """What a child said when it was last asked; None when it did not answer."""
        return self._last.get(name)

    def ready(self, name: str) -> bool:
        """Whether a child said that it is ready."""
        return bool(self._last.get(name, {}).get("ready"))

    def forget(self, name: str) -> None:
        """A child is gone: what it said is void."""
        self._last.pop(name, None)

    async def run(self, running: Callable[[], Iterable[Child]]) -> None:
        """Ask the children that run, all at the same time, until cancelled."""
        # No proxies from the environment: the key must go to this machine only.
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
            while True:
                children = list(running())
                await asyncio.gather(*(self._ask(http, child) for child in children))
                done = all(self.ready(child.name) for child in children)
                await asyncio.sleep(PATIENT_S if done else HASTY_S)

    async def _ask(self, http: httpx.AsyncClient, child: Child) -> None:
        try:
            reply = await http.get(f"{child.internal_url}/status", headers=self._headers)
            body = reply.json() if reply.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            body = None
        if isinstance(body, dict):
            self._last[child.name] = body
        else:
            self.forget(child.name)
