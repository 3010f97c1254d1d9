"""Locate the Data Service of a command, the local one or that of a URL, and read its refusals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from deploy.statedir import NotUp, StateDir
from diem.errors import DiemError
from diem.process.faults import ConfigurationError


@dataclass(eq=False)
class ServiceRefused(DiemError):
    """The service called `who` does not do it; `status` is the HTTP status, `detail` what it says."""

    template = "{who} refuses: {detail}"

    who: str
    status: int
    detail: str


def detail_of(reply: httpx.Response) -> str:
    """Return what an answer says, in one line (RFC 9457)."""
    try:
        problem = reply.json()
        text = str(problem.get("detail") or problem.get("title") or reply.reason_phrase)
    except (ValueError, AttributeError):
        text = reply.text[:200] or reply.reason_phrase
    return " ".join(text.split())


TIMEOUT_S: Final = 10.0


@dataclass(eq=False)
class BadUrl(ConfigurationError):
    """The URL of a Data Service is not one."""

    template = "--url is http(s)://host[:port], not {url!r}"

    url: str


@dataclass(eq=False)
class DataServiceUnavailable(DiemError):
    """The Data Service does not answer, or not like one."""

    template = "the Data Service at {base} does not answer: {reason}"
    retriable = True

    base: str
    reason: str


class Edges(NamedTuple):
    """Where clients connect to."""

    servers: list[str]
    """URLs of WebSocket servers."""
    metadata: list[str]
    """Base URLs of metadata services; none where every server serves everything."""


@dataclass(frozen=True, slots=True)
class DataService:
    """A Data Service by its base URL, without a final slash."""

    base: str

    @property
    def origin(self) -> str:
        """The origin of its page."""
        return self.base

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401  # httpx's own
        """Send a request. Raises `DataServiceUnavailable`."""
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
                return await client.request(method, self.base + path, **options)
        except httpx.HTTPError as error:
            raise DataServiceUnavailable(self.base, str(error) or type(error).__name__) from error

    async def json(self, path: str) -> dict[str, Any]:
        """GET a JSON object. Raises `DataServiceUnavailable` for anything else."""
        reply = await self.request("GET", path)
        try:
            body = reply.json()
        except ValueError:
            body = None
        if reply.status_code != 200 or not isinstance(body, dict):
            raise DataServiceUnavailable(self.base, f"GET {path} gives {reply.status_code}")
        return body

    async def endpoints(self) -> set[str]:
        """Return the names of the catalogue, which comes in parts. Raises `DataServiceUnavailable`."""
        names: set[str] = set()
        after = ""
        while True:
            query = f"?after={quote(after, safe='')}" if after else ""
            part = await self.json(f"/v1/endpoints{query}")
            names |= {entry["endpoint"] for entry in part["endpoints"]}
            following = part.get("next", "")
            if following <= after:
                return names
            after = following

    async def edges(self) -> Edges:
        """Return the WebSocket servers, and in mode z-client the metadata services, that it names to pages."""
        config = await self.json("/config.json")
        scheme = urlsplit(self.base).scheme
        servers = [self._url(entry, "wss" if scheme == "https" else "ws") for entry in config.get("servers", [])]
        metadata = config.get("metadata", []) if config.get("mode") == "z-client" else []
        return Edges(servers, [self._url(entry, scheme) for entry in metadata])

    async def websocket_urls(self) -> list[str]:
        """Return the URLs of the WebSocket servers that it names to pages."""
        return (await self.edges()).servers

    def _url(self, entry: Mapping[str, Any], scheme: str) -> str:
        """Return where an entry of the configuration is: without a url, on this service's host."""
        name = urlsplit(self.base).hostname or ""
        host = f"[{name}]" if ":" in name else name
        return entry.get("url") or f"{scheme}://{host}:{entry['port']}{entry['path']}"


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
