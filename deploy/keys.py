"""A client of the Data Service's internal listener, for its API keys (docs/access.md section 3)."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.found import DataService, ServiceRefused, detail_of
from deploy.statedir import NotUp, StateDir
from diem.process.auth import SharedKey
from diem.process.faults import ConfigurationError

PATH: Final = "/v1/keys"
WHO: Final = "the Data Service"


@dataclass(eq=False)
class BadInternalUrl(ConfigurationError):
    """What was given is not the URL of an internal listener."""

    template = "--data is http(s)://host:port of an internal listener, not {url!r}"

    url: str


class KeyService:
    """The API keys of one Data Service."""

    def __init__(self, service: DataService, shared: SharedKey) -> None:
        self._service = service
        self._headers = {"Authorization": shared.header}

    async def create(self, name: str, plan: str) -> dict[str, Any]:
        """Make a key; the field ``key`` of the answer is the key itself.

        Raises:
            DataServiceUnavailable: the Data Service does not answer.
            ServiceRefused: it answers with an error.
        """
        # In a body: what is in a URL, others log.
        return await self._ask("POST", PATH, json={"name": name, "plan": plan})

    async def all(self) -> dict[str, Any]:
        """Return all keys, the oldest first, and the plans that a key may have.

        Raises:
            DataServiceUnavailable: the Data Service does not answer.
            ServiceRefused: it answers with an error.
        """
        return await self._ask("GET", PATH)

    async def revoke(self, key_id: str) -> dict[str, Any]:
        """Let a key be of no use. Raises `DataServiceUnavailable`, `ServiceRefused`."""
        if not (key_id.isascii() and key_id.isalnum()):
            raise ServiceRefused(WHO, 404, "there is no API key with this id")
        return await self._ask("DELETE", f"{PATH}/{key_id}")

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401  # httpx's own
        reply = await self._service.request(method, path, headers=self._headers, **options)
        if not reply.is_success:
            raise ServiceRefused(WHO, reply.status_code, detail_of(reply))
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
