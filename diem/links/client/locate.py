"""Asks the metadata service who owns endpoints, and believes only owners on hosts that the configuration names."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from diem.errors import DiemError
from diem.links.client.retry_after import retry_after_s
from diem.links.client.routes import Located
from diem.links.epochs import EpochGuard
from diem.process.listeners import is_loopback

TIMEOUT_S: Final = 5.0


@dataclass(eq=False)
class NotLocated(DiemError):
    """The metadata service gave no answer; ``retry_after`` is what it asked for, in seconds."""

    template = "the metadata service does not answer: {reason}"
    retriable = True

    reason: str
    retry_after: float = 0.0


def believe(url: object, home: str, hosts: frozenset[str]) -> str | None:
    """The URL to dial for a server that somebody named; None when its host is none of ``hosts``.

    A loopback address is the server's own view of itself: for this client it is where the metadata service is, whose
    base URL is ``home``.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    if parts.scheme not in {"ws", "wss"} or parts.username is not None or not parts.hostname:
        return None
    if is_loopback(parts.hostname):
        base = urlsplit(home)
        host = f"[{base.hostname}]" if ":" in (base.hostname or "") else base.hostname
        return f"{'wss' if base.scheme == 'https' else 'ws'}://{host}{port}{parts.path}"
    return parts.geturl() if parts.hostname in hosts else None


class Locator:
    """Asks one of ``bases`` after the other. ``hosts``: where servers may be, besides the hosts of these."""

    def __init__(self, bases: Sequence[str], hosts: frozenset[str], origin: str | None) -> None:
        self._bases = [base.rstrip("/") for base in bases]
        self._hosts = hosts | {urlsplit(base).hostname or "" for base in bases}
        self._headers = {} if origin is None else {"Origin": origin}
        self._next = random.randrange(len(self._bases))  # noqa: S311 - spreads clients, is no secret
        self.clone: int | None = None
        """The group that the first answer chose: the client stays with it."""
        self.refused: str | None = None
        """An owner that was not believed."""
        self._epochs = EpochGuard()

    def believe(self, url: object) -> str | None:
        """The URL to dial for an owner, or None."""
        known = believe(url, self._bases[self._next], self._hosts)
        if known is None and url is not None:
            self.refused = str(url)
        return known

    async def ask(self, http: httpx.AsyncClient, names: Sequence[str]) -> Located:
        """Ask about at most 1000 names; after an older answer the next question goes elsewhere. Raises `NotLocated`."""
        question = {"endpoints": list(names)} | ({} if self.clone is None else {"clone": self.clone})
        try:
            reply = await http.post(self._bases[self._next] + "/locate", json=question, headers=self._headers)
            if reply.status_code != 200:
                raise NotLocated(f"HTTP {reply.status_code}", retry_after_s(reply.headers.get("Retry-After")))
            answer = self._read(reply.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._turn()
            raise NotLocated(str(error) or type(error).__name__) from error
        except NotLocated:
            self._turn()
            raise
        if answer.older:
            self._turn()
        return answer

    def _turn(self) -> None:
        self._next = (self._next + 1) % len(self._bases)

    def _read(self, body: Mapping[str, Any]) -> Located:
        self.refused = None
        places = body["endpoints"]
        self.clone = body.get("clone", self.clone)
        return Located(
            {name: self.believe(place["owner"]) for name, place in places.items()},
            frozenset(name for name, place in places.items() if place.get("hot")),
            [url for url in map(self.believe, body.get("servers", ())) if url],
            body.get("rejected", {}),
            older=self._is_older(body.get("epoch")),
        )

    def _is_older(self, epoch: object) -> bool:
        now = asyncio.get_running_loop().time()
        return isinstance(epoch, int) and not self._epochs.admits(epoch, now)
