"""The client of the mode z-client: one connection for each server that owns something wanted (docs/protocol.md 4)."""

import asyncio
import functools
import math
import ssl
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpx

from diem.links.client.base import BaseClient, Event, Timing
from diem.links.client.line import ClientLink, Find, NothingToDial, new_identity
from diem.links.client.locate import TIMEOUT_S, Locator, NotLocated
from diem.links.client.owners import OwnerPool
from diem.links.client.pace import Pace
from diem.links.client.routes import Located, Routes, RouteStep
from diem.process.backoff import full_jitter

SILENT_AFTER: Final = 32.0
"""Seconds: servers say every 25 s whether they are live."""


@functools.cache
def _authorities() -> ssl.SSLContext:
    """Whom to trust, for all clients of the process: to read it takes 17 ms and 850 KiB."""
    return httpx.create_ssl_context(trust_env=False)


class PartitionedClient(BaseClient):
    """Finds out from the metadata services at ``bases`` who owns what, and follows the servers' ``moved``.

    It fails static: while no metadata service answers, everything stays where it is and is dialled where it was. Owners
    are dialled only on the hosts of ``bases``, and on ``hosts``. ``status`` events are about endpoints.
    """

    def __init__(
        self,
        bases: Sequence[str],
        *,
        hosts: Iterable[str] = (),
        origin: str | None = None,
        timing: Timing | None = None,
    ) -> None:
        super().__init__()
        # Another server has what one that hangs had: its silence is waited for no longer than it takes to be silence.
        self._timing = timing or Timing(silent_after=SILENT_AFTER)
        self._origin = origin
        self._identity = new_identity()
        self._pace = Pace()
        """Of all lines: one to a server that was parted from before does not begin anew."""
        self._locator = Locator(bases, frozenset(hosts), origin)
        self._routes = Routes(self._timing)
        self._owners = OwnerPool(self._connect, self._timing)
        self._announced_live: dict[str, bool] = {}
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        """Set and replaced whenever a round of locating ends."""
        self._failures = 0
        self._not_before = 0.0
        self._ended = False

    def _want(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._routes:
                self._apply(self._routes.again(name))
            else:
                self._routes.want(name, _now())
        self._wake.set()

    def _release(self, names: Sequence[str]) -> None:
        self._apply([step for name in names for step in self._routes.release(name)])

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._announced_live.pop(name, None)

    async def _run(self) -> None:
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=_authorities()) as http:
                while not self._ended:
                    self._wake.clear()
                    self._poll()
                    if _now() >= self._not_before:
                        await self._locate(http)
                    self._answered.set()
                    self._answered = asyncio.Event()
                    await self._pause()
        finally:
            await self._owners.end()

    async def _pause(self) -> None:
        """Until something is due, or something has changed."""
        polls = [owner.poll_at for owner in self._owners]
        due = min([max(self._routes.next_due, self._not_before), *polls])
        try:
            async with asyncio.timeout_at(None if due == math.inf else due):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _poll(self) -> None:
        """Doubt servers that are not live, and part from those that nothing needs."""
        now = _now()
        for owner in self._owners:
            if owner.is_suspect(now):
                self._routes.suspect(owner.url, now)
            if owner.is_over(used=self._routes.uses(owner.url), now=now):
                self._owners.part(owner.url)

    async def _locate(self, http: httpx.AsyncClient) -> None:
        while names := self._routes.to_locate(_now()):
            try:
                answer = await self._locator.ask(http, names)
            except NotLocated as error:
                wait = max(full_jitter(self._failures, self._timing.base, self._timing.cap), error.retry_after)
                self._failures += 1
                self._not_before = _now() + wait
                self._routes.unanswered(names, _now())
                self._named(names, None)
                self._publish(Event("error", message=str(error)))
                return
            self._failures = 0
            if self._locator.refused:
                self._refused(self._locator.refused)
            self._apply(self._routes.located(names, answer, self._owners.live, _now()))
            if not answer.older:
                self._named(names, answer)
            for name in set(names) & answer.rejected.keys():
                self._reject(name, answer.rejected[name])
                self._apply(self._routes.release(name))

    def _named(self, names: Sequence[str], answer: Located | None) -> None:
        """Tell the servers of ``names``, each once, whether an answer has named them."""
        servers: dict[str, bool] = {}
        for name in names:
            url = self._routes.url(name) if name in self._routes else None
            if url is None:
                continue
            named = answer is not None and (
                url in answer.servers if name in answer.hot else url == answer.owners.get(name)
            )
            servers[url] = named or servers.get(url, False)
        self._owners.named(servers)

    def _apply(self, steps: Sequence[RouteStep]) -> None:
        together: dict[tuple[str, str], list[str]] = defaultdict(list)
        for step in steps:
            together[step.kind, step.url].append(step.name)
        for (kind, url), names in together.items():
            if kind == "join":
                self._owners.line(url).want(names)
            elif (owner := self._owners.get(url)) is not None:
                owner.line.release(names)
        self._wake.set()

    def _connect(self, url: str) -> ClientLink:
        return ClientLink(self._finder(url), self, self._origin, self._timing, identity=self._identity, pace=self._pace)

    def _finder(self, url: str) -> Find:
        async def find() -> str:
            """Before another attempt it is asked whether anything is still there."""
            if not self._owners.take_named(url):
                self._routes.suspect(url, _now())
                self._wake.set()
                try:
                    async with asyncio.timeout(self._timing.answer_timeout_s):
                        await self._answered.wait()
                except TimeoutError:
                    pass
                if not self._routes.uses(url):
                    raise NothingToDial(url)
            return url

        return find

    # Hearing

    def opened(self, _line: ClientLink, url: str) -> None:
        """Until it says otherwise, it is live."""
        self._publish(Event("open", message=url), url)
        self._live(url, live=True)

    def closed(self, line: ClientLink, code: int | None, reason: str) -> None:
        """What was there is stale, and may be elsewhere."""
        url = self._owners.url(line)
        if url is None:
            return
        self._apply(self._routes.lost(url))
        self._live(url, live=False)
        if self._routes.uses(url):
            # Others may be lost before it is looked at: they take nothing back.
            self._ended = self._ended or line.ended is not None
            self._publish(Event("closed", code=code, message=reason), url)
        elif line.ended is not None:
            # It dials no more: whoever needs this server again begins anew.
            self._owners.part(url)

    def nonsense(self, line: ClientLink) -> None:
        """Say so."""
        url = self._owners.url(line)
        self._publish(Event("error", message=f"{url} sent what is not of the protocol"), url)

    def on_message(self, line: ClientLink, message: dict[str, Any]) -> None:
        """Follow what is said about owners; the rest becomes events."""
        url = self._owners.url(line)
        if url is None:
            return
        match message.get("type"):
            case "subscribed":
                self._apply(self._routes.registered(url, message["endpoints"], _now()))
                for name, why in message["rejected"].items():
                    self._turned_away(url, name, why)
                self._publish_liveness(message["endpoints"])
            case "unsubscribed":
                # The last word of a server that was left for another one is no news.
                message = {**message, "endpoints": [name for name in message["endpoints"] if name not in self._routes]}
            case "moved":
                owner = self._owner(message.get("owner"))
                self._apply(self._routes.moved(url, message["endpoints"], owner, _now()))
                self._publish_liveness(message["endpoints"])
            case "status":
                self._live(url, live=message["live"], part=message.get("endpoints"))
        self._take(message)

    def _turned_away(self, url: str, name: str, why: dict[str, Any]) -> None:
        if why["code"] == "not_owner":
            self._apply(self._routes.not_owner(url, name, self._owner(why.get("owner")), _now()))
        elif why["code"] == "limit" and name in self._routes and self._routes.was_registered(name):
            # Endpoints move without this client's doing: one that was subscribed goes on being asked for.
            self._apply(self._routes.over_limit(url, name, _now()))
            self._publish_liveness([name])
        elif name in self._known:
            self._reject(name, why)
            self._apply(self._routes.release(name))

    def _owner(self, url: object) -> str | None:
        if url is None:
            return None
        known = self._locator.believe(url)
        if known is None:
            self._refused(str(url))
        return known

    def _refused(self, url: str) -> None:
        self._publish(Event("error", message=f"refused a server that is on another host: {url}"), url)

    def _live(self, url: str, *, live: bool, part: Sequence[str] | None = None) -> None:
        if (owner := self._owners.get(url)) is not None:
            owner.set_status(live=live, part=part, now=_now())
        self._publish_liveness(self._routes.at(url))
        self._wake.set()

    def _publish_liveness(self, names: Iterable[str]) -> None:
        """Say of each endpoint whether its changes arrive as they happen, if that is news."""
        for name in names:
            # What was not subscribed yet was never live.
            if name not in self._routes or not (self._routes.is_registered(name) or name in self._announced_live):
                continue
            owner = self._owners.get(self._routes.url(name))
            live = owner is not None and owner.live and self._routes.is_registered(name) and name not in owner.stale
            if live != self._announced_live.get(name):
                self._announced_live[name] = live
                self._publish(Event("status", name, live=live))


def _now() -> float:
    return asyncio.get_running_loop().time()
