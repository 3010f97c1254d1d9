"""A client of the Data Service's internal listener, for its API keys (docs/access.md section 3)."""

from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from deploy.found import DataService
from deploy.statedir import NotUp, StateDir
from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.process.faults import ConfigurationError

PATH: Final = "/v1/keys"


class BadInternalUrl(ConfigurationError):
    """What was given is not the URL of an internal listener."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(url)

    def __str__(self) -> str:
        return f"--data is http(s)://host:port of an internal listener, not {self.url!r}"


class Refused(DiemError):
    """The Data Service does not do it; `status` is the HTTP status, `detail` what it says."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(status, detail)

    def __str__(self) -> str:
        return f"the Data Service refuses: {self.detail}"


class KeyService:
    """The API keys of one Data Service."""

    def __init__(self, service: DataService, shared: SharedKey) -> None:
        self._service = service
        self._headers = {"Authorization": shared.header}

    async def create(self, name: str, plan: str) -> dict[str, Any]:
        """Make a key; the field `key` of the answer is the key itself. Raises `Unreachable`, `Refused`."""
        # In a body: what is in a URL, others log.
        return await self._ask("POST", PATH, json={"name": name, "plan": plan})

    async def all(self) -> dict[str, Any]:
        """Return all keys, the oldest first, and the plans that a key may have. Raises `Unreachable`, `Refused`."""
        return await self._ask("GET", PATH)

    async def revoke(self, key_id: str) -> dict[str, Any]:
        """Let a key be of no use. Raises `Unreachable`, `Refused`."""
        if not (key_id.isascii() and key_id.isalnum()):
            raise Refused(404, "there is no API key with this id")
        return await self._ask("DELETE", f"{PATH}/{key_id}")

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401  # httpx's own
        reply = await self._service.request(method, path, headers=self._headers, **options)
        if not reply.is_success:
            raise Refused(reply.status_code, _detail(reply))
        answer: dict[str, Any] = reply.json()
        return answer


def key_service(state: StateDir, url: str | None, shared: SharedKey) -> KeyService:
    """Return the keys of the Data Service at `url`, or of the `diem up` in the state directory.

    Raises:
        BadInternalUrl: `url` is not the base of one.
        NotUp: there is no `url`, and nothing was started in the state directory.
    """
    if url is None:
        processes = state.read_processes().get("processes", [])
        url = next((process["urls"]["internal"] for process in processes if process["process"] == "data"), None)
        if url is None:
            raise NotUp(state.path)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
        raise BadInternalUrl(url)
    return KeyService(DataService(url.rstrip("/")), shared)


def _detail(reply: httpx.Response) -> str:
    """Return what an answer says, in one line (RFC 9457)."""
    try:
        problem = reply.json()
        text = str(problem.get("detail") or problem.get("title") or reply.reason_phrase)
    except (ValueError, AttributeError):
        text = reply.text[:200] or reply.reason_phrase
    return " ".join(text.split())
