"""Requests to the metadata services: where endpoints are served, on hosts that the configuration trusts."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from diem.errors import DiemError
from diem.links.client.backoff import retry_after_s
from diem.links.client.link import printable
from diem.links.client.routes import Located
from diem.links.epochs import EpochGuard
from diem.process.listeners import is_loopback

TIMEOUT_S: Final = 5.0


@dataclass(eq=False)
class NotLocated(DiemError):
    """The metadata service gave no answer; ``retry_after_s`` is what it asked for."""

    template = "the metadata service does not answer: {reason}"
    retriable = True

    reason: str
    retry_after_s: float = 0.0


def trusted_url(url: object, base: str, hosts: frozenset[str]) -> str | None:
    """Return the URL to dial for a server that a server or the metadata service named; None if it is not trusted.

    A loopback address is the server's own view of itself: it is replaced by the host of ``base``, the URL of the
    metadata service. Any other host must be one of ``hosts``. The SDK has the same rule
    (``client/src/sdk/locator.ts``); ``tests/cases/owner_urls.json`` has the cases that both pass.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    if parts.scheme not in {"ws", "wss"} or parts.username is not None or not parts.hostname:
        return None
    if is_loopback(parts.hostname):
        service = urlsplit(base)
        host = f"[{service.hostname}]" if ":" in (service.hostname or "") else service.hostname
        return f"{'wss' if service.scheme == 'https' else 'ws'}://{host}{port}{parts.path}"
    return parts.geturl() if parts.hostname in hosts else None


class Locator:
    """Requests to one of several metadata services, and to the next one after a failure or an older answer.

    Args:
        bases: URLs of the services.
        hosts: hosts that servers may be on, besides those of ``bases``.
        origin: ``Origin`` header; None: none is sent.
    """

    def __init__(self, bases: Sequence[str], hosts: frozenset[str], origin: str | None) -> None:
        self._bases = [base.rstrip("/") for base in bases]
        self._hosts = hosts | {urlsplit(base).hostname or "" for base in bases}
        self._headers = {} if origin is None else {"Origin": origin}
        self._next = random.randrange(len(self._bases))  # noqa: S311 - spreads clients, is no secret
        self.clone: int | None = None
        """The group of servers that the first answer chose: the client stays with it."""
        self.untrusted: str | None = None
        """A server of the last answer that is on another host."""
        self._epochs = EpochGuard()

    def trusted_url(self, url: object) -> str | None:
        """Return the URL to dial for a server; None if it is not trusted."""
        trusted = trusted_url(url, self._bases[self._next], self._hosts)
        if trusted is None and url is not None:
            self.untrusted = str(url)
        return trusted

    async def locate(self, http: httpx.AsyncClient, names: Sequence[str], token: str | None = None) -> Located:
        """Locate at most 1000 endpoints. ``token`` is presented; None: none is.

        Raises:
            NotLocated: the service gave no answer, or none of the protocol.
        """
        request = {"endpoints": list(names)} | ({} if self.clone is None else {"clone": self.clone})
        headers = self._headers | ({} if token is None else {"Authorization": f"Bearer {token}"})
        try:
            reply = await http.post(self._bases[self._next] + "/locate", json=request, headers=headers)
            if reply.status_code != 200:
                raise NotLocated(_refusal(reply), retry_after_s(reply.headers.get("Retry-After")))
            answer = self._parse(reply.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._use_next()
            raise NotLocated(str(error) or type(error).__name__) from error
        except NotLocated:
            self._use_next()
            raise
        if answer.older:
            self._use_next()
        return answer

    def _use_next(self) -> None:
        self._next = (self._next + 1) % len(self._bases)

    def _parse(self, body: Mapping[str, Any]) -> Located:
        self.untrusted = None
        endpoints = body["endpoints"]
        self.clone = body.get("clone", self.clone)
        return Located(
            {name: self.trusted_url(place["owner"]) for name, place in endpoints.items()},
            frozenset(name for name, place in endpoints.items() if place.get("hot")),
            [url for url in map(self.trusted_url, body.get("servers", ())) if url],
            body.get("rejected", {}),
            older=self._is_older(body.get("epoch")),
        )

    def _is_older(self, epoch: object) -> bool:
        now = asyncio.get_running_loop().time()
        return isinstance(epoch, int) and not self._epochs.admits(epoch, now)


def _refusal(reply: httpx.Response) -> str:
    """Return the status of a reply, with the detail of its problem document if it has one."""
    try:
        detail = reply.json().get("detail")
    except (ValueError, AttributeError):
        detail = None
    shown = printable(detail) if isinstance(detail, str) else ""
    return f"HTTP {reply.status_code}: {shown}" if shown else f"HTTP {reply.status_code}"
