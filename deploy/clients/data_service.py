"""HTTP clients of the Data Service: datasets on its public listener, API keys on its internal one.

Commands find it by ``--url`` or ``--data``, else through the state directory of the local ``diem up``.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from deploy.system.state_dir import NotUp, StateDir
from diem.errors import ConfigurationError, DiemError
from diem.links.internal_client import internal_client
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.process.tls import client_context, pinned_context
from diem.protocol.page_config import Edges

TIMEOUT_S: Final = 10.0
KEYS_PATH: Final = "/v1/keys"
SIGNING_KEYS_PATH: Final = "/v1/keys/signing"
SOURCES_PATH: Final = "/v1/sources"
TOKENS_PATH: Final = "/v1/tokens"
INTERNAL_FORM: Final = "http(s)://host:port of an internal listener"


@dataclass(eq=False)
class ServiceRefused(DiemError):
    """A service answered with an error; ``status`` is the HTTP status, ``detail`` its explanation."""

    template = "{who} refuses: {detail}"

    who: str
    status: int
    detail: str


@dataclass(eq=False)
class RequestRefused(DiemError):
    """The Data Service refused a request for one endpoint; ``outcome`` is ``stored``, ``read`` or ``deleted``."""

    template = "{endpoint} was not {outcome} ({status}): {detail}"

    endpoint: str
    outcome: str
    status: int
    detail: str


@dataclass(eq=False)
class BadUrl(ConfigurationError):
    """The value of an option is not the base URL of a listener."""

    template = "{option} is {form}, not {url!r}"

    option: str
    form: str
    url: str


@dataclass(eq=False)
class DataServiceUnavailable(DiemError):
    """The Data Service does not answer, or something else does."""

    template = "the Data Service at {base} does not answer: {reason}"
    retriable = True

    base: str
    reason: str


class Upload(NamedTuple):
    """A change of one endpoint."""

    content: bytes = b""
    media_type: str = ""
    """Of the content; empty: none is sent."""
    terms: Mapping[str, str] = {}
    """Of the query: unit, zone, title, ttl."""
    conditions: Mapping[str, str] = {}
    """Header fields: If-Match, If-None-Match."""


class StoredContent(NamedTuple):
    """Content of one version of an endpoint."""

    body: bytes
    headers: Mapping[str, str]
    """Of the answer, whatever the case of their names: Content-Type, Diem-Version, Diem-Time."""

    @property
    def media_type(self) -> str:
        """The media type; empty if the answer names none."""
        return self.headers.get("Content-Type", "")


def detail_of(reply: httpx.Response) -> str:
    """Return the detail of an error response in one line, with its input line, if any (RFC 9457).

    Without a problem document it is the plain text of the response, else the reason phrase.
    """
    try:
        problem = reply.json()
        detail = str(problem.get("detail") or problem.get("title") or reply.reason_phrase)
        line = problem.get("line")
    except (ValueError, AttributeError):
        text, line = reply.text[:200], None
        detail = reply.reason_phrase if text.lstrip()[:1] in {"", "<", "[", "{"} else text
    return " ".join(detail.split()) + (f" (line {line})" if line and f"line {line}" not in detail else "")


def public_client(tls: ssl.SSLContext | None) -> httpx.AsyncClient:
    """Return an HTTP client of public listeners, without proxies of the environment."""
    return httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=tls or False)


@dataclass(frozen=True, slots=True)
class DataService:
    """A Data Service by its base URL without a final slash, which is the origin of its page."""

    base: str
    client: Callable[[], httpx.AsyncClient] | None = field(default=None, repr=False)
    """Creates the client for each request; None: one for a public listener."""
    certificate: Path | None = None
    """Its own, pinned certificate; None: the authorities decide (``SSL_CERT_FILE`` names others)."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for connections; None without TLS."""
        if not self.base.startswith("https:"):
            return None
        return client_context() if self.certificate is None else pinned_context(self.certificate)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401  # httpx's own
        """Send a request. Raises ``DataServiceUnavailable``."""
        try:
            async with self.client() if self.client is not None else public_client(self.tls) as client:
                return await client.request(method, self.base + path, **options)
        except httpx.HTTPError as error:
            raise DataServiceUnavailable(self.base, str(error) or type(error).__name__) from error

    async def json(self, path: str, key: SharedKey | None = None) -> dict[str, Any]:
        """GET a JSON object, with a credential if there is one.

        Raises:
            ServiceRefused: 401 or 403.
            DataServiceUnavailable: it does not answer, or with anything else.
        """
        reply = await self.request("GET", path, headers={} if key is None else {"Authorization": key.header})
        if reply.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise ServiceRefused(
                f"the Data Service at {self.base}", reply.status_code, f"GET {path}: {detail_of(reply)}"
            )
        try:
            body = reply.json()
        except ValueError:
            body = None
        if reply.status_code != 200 or not isinstance(body, dict):
            raise DataServiceUnavailable(self.base, f"GET {path} gives {reply.status_code}")
        return body

    async def endpoints(self, key: SharedKey | None = None) -> set[str]:
        """Return the names of the catalogue, reading all of its pages. Raises as :meth:`json`.

        ``key`` is an API key or a client token; None: anonymous access.
        """
        return {entry["endpoint"] async for entry in self._catalogue(key)}

    async def versions(self, key: SharedKey | None = None) -> dict[str, int]:
        """Return the version of each endpoint in the catalogue, up to a second old.

        ``key`` is as for :meth:`endpoints`. Raises as :meth:`json`.
        """
        return {entry["endpoint"]: entry["version"] async for entry in self._catalogue(key)}

    async def _catalogue(self, key: SharedKey | None) -> AsyncIterator[dict[str, Any]]:
        """Yield the entries of all pages."""
        after = ""
        while True:
            query = f"?after={quote(after, safe='')}" if after else ""
            page = await self.json(f"/v1/endpoints{query}", key)
            for entry in page["endpoints"]:
                yield entry
            following = page.get("next", "")
            if following <= after:
                return
            after = following

    async def client_token(self, key: SharedKey, subject: str | None = None) -> str:
        """Return a client token for an API key; ``subject`` is its user (None: the key itself).

        Raises:
            DataServiceUnavailable: the Data Service does not answer, or not with a token.
            ServiceRefused: the key is invalid, or too many tokens were requested with it.
        """
        wanted = {} if subject is None else {"json": {"subject": subject}}
        reply = await self.request("POST", TOKENS_PATH, headers={"Authorization": key.header}, **wanted)
        if not reply.is_success:
            raise ServiceRefused("the Data Service", reply.status_code, detail_of(reply))
        try:
            return str(reply.json()["token"])
        except (ValueError, KeyError, TypeError):
            raise DataServiceUnavailable(self.base, f"POST {TOKENS_PATH} gives no token") from None

    async def edges(self) -> Edges:
        """Return the WebSocket servers and, in mode z-client, the metadata services from its page configuration."""
        return Edges.of_config(await self.json("/config.json"), self.base)

    async def put(self, key: SharedKey, endpoint: str, change: Upload) -> dict[str, Any]:
        """Store content under a checked name, return the answer. Raises ``DataServiceUnavailable``, ``RequestRefused``.

        So do the other changes.
        """
        return await self._change("PUT", endpoint, "stored", key, change)

    async def patch(self, key: SharedKey, endpoint: str, change: Upload) -> dict[str, Any]:
        """Change a part of the content, return the answer."""
        return await self._change("PATCH", endpoint, "changed", key, change)

    async def notify(self, key: SharedKey, endpoint: str, change: Upload) -> dict[str, Any]:
        """Announce a change of data that lives elsewhere, return the answer."""
        return await self._change("POST", endpoint, "announced", key, change)

    async def delete(self, key: SharedKey, endpoint: str, change: Upload) -> dict[str, Any]:
        """Delete an endpoint, return the answer."""
        return await self._change("DELETE", endpoint, "deleted", key, change)

    async def get(
        self, key: SharedKey | None, endpoint: str, version: int | None = None, accept: str = "*/*"
    ) -> StoredContent:
        """Return the content of a checked name, current or as of a retained version.

        Args:
            key: an API key or a client token, or None for anonymous access.
            endpoint: the name.
            version: None for the current one.
            accept: a media type of the kind.

        Raises:
            DataServiceUnavailable: the Data Service does not answer.
            RequestRefused: its status is not 200.
        """
        params = {} if version is None else {"version": str(version)}
        headers = {"Accept": accept} | ({"Cache-Control": "no-cache"} if version is None else {})
        reply = await self._endpoint("GET", endpoint, "read", key=key, headers=headers, params=params)
        return StoredContent(reply.content, reply.headers)

    async def _change(self, method: str, endpoint: str, outcome: str, key: SharedKey, change: Upload) -> dict[str, Any]:
        headers = dict(change.conditions) | ({"Content-Type": change.media_type} if change.media_type else {})
        reply = await self._endpoint(
            method, endpoint, outcome, key=key, headers=headers, params=change.terms, content=change.content
        )
        answer: dict[str, Any] = reply.json()
        return answer

    async def _endpoint(
        self,
        method: str,
        endpoint: str,
        outcome: str,
        *,
        key: SharedKey | None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        authorization = {} if key is None else {"Authorization": key.header}
        reply = await self.request(
            method, f"/v1/data{endpoint}", headers={**(headers or {}), **authorization}, params=params, content=content
        )
        if reply.status_code != 200:
            raise RequestRefused(endpoint, outcome, reply.status_code, detail_of(reply))
        return reply


class AdminService:
    """The keys (docs/access.md section 3) and sources of one Data Service, on its internal listener.

    Every method raises ``DataServiceUnavailable`` without an answer, and ``ServiceRefused`` for an error answer.
    """

    def __init__(self, service: DataService) -> None:
        self._service = service

    async def create(self, name: str, **terms: object) -> dict[str, Any]:
        """Create a key with the fields of docs/access.md section 3; ``key`` in the answer is the key itself."""
        # In the body, because proxies log URLs.
        return await self._request("POST", KEYS_PATH, json={"name": name, **terms})

    async def all(self) -> dict[str, Any]:
        """Return all keys, oldest first, and the available plans."""
        return await self._request("GET", KEYS_PATH)

    async def revoke(self, key_id: str) -> dict[str, Any]:
        """Revoke a key."""
        if not (key_id.isascii() and key_id.isalnum()):
            raise ServiceRefused("the Data Service", 404, "there is no API key with this id")
        return await self._request("DELETE", f"{KEYS_PATH}/{key_id}")

    async def signing_keys(self) -> dict[str, Any]:
        """Return the keys that sign client tokens, the oldest first."""
        return await self._request("GET", SIGNING_KEYS_PATH)

    async def rotate(self) -> dict[str, Any]:
        """Create a new signing key of client tokens, and return it without its secret."""
        return await self._request("POST", SIGNING_KEYS_PATH)

    async def positions(self, source: str) -> dict[str, Any]:
        """Return the stored positions of a source of records, and the record at which it has stopped."""
        return await self._request("GET", f"{SOURCES_PATH}/{quote(source, safe='')}")

    async def replay(self, source: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """Let a source go on elsewhere; ``wanted`` as in docs/sources.md."""
        return await self._request("POST", f"{SOURCES_PATH}/{quote(source, safe='')}/replay", json=wanted)

    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401  # httpx's own
        reply = await self._service.request(method, path, **options)
        if not reply.is_success:
            raise ServiceRefused("the Data Service", reply.status_code, detail_of(reply))
        answer: dict[str, Any] = reply.json()
        return answer


def data_service(state: StateDir, url: str | None, option: str = "--url") -> DataService:
    """Return the Data Service at ``url``, the value of ``option``, else that of the ``diem up`` in the state directory.

    Raises:
        BadUrl: ``url`` is not a base URL.
        NotUp: there is no ``url``, and nothing was started in the state directory.
    """
    if url is not None:
        return DataService(base_url(url, option, "http(s)://host[:port][/path]", has_path=True))
    running = state.read_processes()
    page, certificate = running.get("urls", {}).get("page"), running.get("certificate")
    if page is None:
        raise NotUp(state.path)
    return DataService(str(page).rstrip("/"), certificate=Path(certificate) if certificate else None)


def admin_service(state: StateDir, url: str | None, keys: KeyRing | SharedKey) -> AdminService:
    """Return the administration of the Data Service at ``url``, else of the ``diem up`` in the state directory.

    Raises:
        BadUrl: ``url`` is not the base URL of an internal listener.
        NotUp: there is no ``url``, and nothing was started in the state directory.
    """
    if url is None:
        processes = state.read_processes().get("processes", [])
        url = next((process["urls"]["internal"] for process in processes if process["process"] == "data"), None)
        if url is None:
            raise NotUp(state.path)
    return AdminService(DataService(base_url(url, "--data"), lambda: internal_client(keys, TIMEOUT_S)))


def base_url(url: str, option: str, form: str = INTERNAL_FORM, *, has_path: bool = False) -> str:
    """Return the base URL of a listener, without a trailing slash.

    Raises:
        BadUrl: the value of ``option`` is none.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # checked only when it is read
    except ValueError:
        raise BadUrl(option, form, url) from None
    path = parts.path.rstrip("/")
    is_path_wrong = path.endswith("/v1") if has_path else path  # /v1 is the REST interface's
    if parts.scheme not in {"http", "https"} or not parts.hostname or is_path_wrong:
        raise BadUrl(option, form, url)
    return url.rstrip("/")
