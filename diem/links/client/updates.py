"""Client of one server or proxy: subscribe, iterate over events, reconnect."""

import random
from collections.abc import Sequence
from typing import Any

from diem.links.client.base import BaseClient, Event, Timing
from diem.links.client.line import ClientLink


class UpdatesClient(BaseClient):
    """One connection to one of ``urls``, kept up until the block is left.

    A ``status`` event is about the connection, or about an endpoint for which the server spoke apart: an endpoint is
    live while the last of both say so.
    """

    def __init__(self, urls: str | Sequence[str], *, origin: str | None = None, timing: Timing | None = None) -> None:
        super().__init__()
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._stale: dict[str, None] = {}
        """Subscribed endpoints that were last said not to be live."""
        self._line = ClientLink(self._find, self, origin, timing or Timing())

    async def _run(self) -> None:
        await self._line.run()

    async def _find(self) -> str:
        return random.choice(self._urls)  # noqa: S311 - spreads clients, is no secret

    def _want(self, names: Sequence[str]) -> None:
        self._line.want(names)

    def _release(self, names: Sequence[str]) -> None:
        self._line.release(names)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._stale.pop(name, None)

    # Hearing

    def opened(self, _line: ClientLink, url: str) -> None:
        """Say so."""
        self._publish(Event("open", message=url))

    def closed(self, _line: ClientLink, code: int | None, reason: str) -> None:
        """Say so."""
        self._publish(Event("closed", code=code, message=reason))

    def nonsense(self, _line: ClientLink) -> None:
        """Say so."""
        self._publish(Event("error", message="the server sent what is not of the protocol"))

    def on_message(self, _line: ClientLink, message: dict[str, Any]) -> None:
        """Turn it into events."""
        self._take(message)
        match message.get("type"):
            case "subscribed":
                for name, why in message["rejected"].items():
                    self._reject(name, why)
            case "status":
                self._status(message.get("endpoints"), live=message["live"])

    def _status(self, part: Sequence[str] | None, *, live: bool) -> None:
        """Take a status: without ``part`` it speaks for all, also for endpoints that an earlier one named."""
        if part is None:
            self._publish(Event("status", live=live))
            part = list(self._stale) if live else []
        for name in part:
            if name not in self._known:
                continue
            if live:
                self._stale.pop(name, None)
            else:
                self._stale[name] = None
            self._publish(Event("status", name, live=live))
