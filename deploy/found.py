"""Where the Data Service of a command is: the one that `diem up` runs here, or the one that a URL names."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from deploy.statedir import NotUp, StateDir
from diem.errors import DiemError
from diem.process.faults import ConfigurationError

TIMEOUT_S: Final = 10.0


class BadUrl(ConfigurationError):
    """The URL of a Data Service is not one."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(url)

    def __str__(self) -> str:
        return f"--url is http(s)://host[:port], not {self.url!r}"


class Unreachable(DiemError):
    """The Data Service does not answer, or not like one."""

    retriable = True

    def __init__(self, base: str, reason: str) -> None:
        self.base = base
        self.reason = reason
        super().__init__(base, reason)

    def __str__(self) -> str:
        return f"the Data Service at {self.base} does not answer: {self.reason}"


@dataclass(frozen=True, slots=True)
class DataService:
    """A Data Service by its base URL, without a final slash."""

    base: str

    @property
    def origin(self) -> str:
        """The origin of its page."""
        return self.base

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401  # httpx's own
        """Send a request. Raises `Unreachable`."""
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
                return await client.request(method, self.base + path, **options)
        except httpx.HTTPError as error:
            raise Unreachable(self.base, str(error) or type(error).__name__) from error

    async def json(self, path: str) -> dict[str, Any]:
        """GET a JSON object. Raises `Unreachable` for anything else."""
        reply = await self.request("GET", path)
        try:
            body = reply.json()
        except ValueError:
            body = None
        if reply.status_code != 200 or not isinstance(body, dict):
            raise Unreachable(self.base, f"GET {path} gives {reply.status_code}")
        return body

    async def websocket_urls(self) -> list[str]:
        """Return the URLs of the WebSocket servers that it names to pages."""
        config = await self.json("/config.json")
        parts = urlsplit(self.base)
        scheme = "wss" if parts.scheme == "https" else "ws"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return [
            entry.get("url") or f"{scheme}://{host}:{entry['port']}{entry['path']}"
            for entry in config.get("servers", [])
        ]


def data_service(state: StateDir, url: str | None) -> DataService:
    """Return the Data Service at `url`, or the one of the `diem up` in the state directory.

    Raises:
        BadUrl: `url` is not the base of one.
        NotUp: there is no `url`, and nothing was started in the state directory.
    """
    if url is None:
        page = state.read_processes().get("urls", {}).get("page")
        if page is None:
            raise NotUp(state.path)
        return DataService(str(page).rstrip("/"))
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
        raise BadUrl(url)
    return DataService(url.rstrip("/"))
