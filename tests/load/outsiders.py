"""Clients without the right to most endpoints, beside the load: a message that names one of those is a leak.

docs/reliability.md I12. At every address for clients there are three: a stranger has no token, a limited one has a
token for some endpoints, and a demoted one replaces a token for all of them by that one. Each subscribes to the same
endpoints again and again, whichever server has them, and connects again whenever it was closed.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import NamedTuple

import httpx
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from diem.process.tasks import cancelled_at_the_end
from diem.protocol.endpoints import coverage
from diem.protocol.messages import SUBPROTOCOL
from tests.load.bench import Goal
from tests.load.credentials import Credentials
from tests.load.mix import ROOT, groups_of
from tests.load.system import System

PERMITTED, FORBIDDEN = 20, 20
"""Number of endpoints that the tokens of limited clients cover, and of others that they subscribe to as well.

Besides, they have the right to one collection and its members, and ask for the other collections.
"""
AGAIN_SECONDS = 2.0
RECONNECT_SECONDS = 0.5
OPEN_SECONDS = 5.0
ADDRESS = "127.0.3.{}"
"""They have addresses of their own, so that limits of addresses concern no client of the load."""
KEPT = 5
"""Leaks that are kept as text."""
_EDGES = ("websocket-", "proxy-", "composite-")
_NAME = re.compile(r'"(/load-test/[^"\\]*)"')
"""A name in JSON, also in the list of a collection; not one that is quoted within a text."""


class Rights(NamedTuple):
    """Endpoints that an outsider asks for: those that its token covers, and others."""

    prefixes: list[str]
    permitted: list[str]
    others: list[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> "Rights":
        """Divide some of the endpoints and collections, and one endpoint that never exists."""
        plain = [name for name in names if not name.endswith("/")]
        group = groups_of(plain)[:1]
        prefixes = [*plain[::5][:PERMITTED], *group]
        covered = coverage(tuple(prefixes))
        members = [name for name in names if coverage(tuple(group))(name)] if group else []
        others = [name for name in plain[1::5] if not covered(name)][: FORBIDDEN - 1]
        collections = [name for name in names if name.endswith("/") and not covered(name)]
        permitted = list(dict.fromkeys([*prefixes[:PERMITTED], *members[:PERMITTED]]))
        return cls(prefixes, permitted, [*others, *collections, f"{ROOT}none"])

    def covers(self, name: str) -> bool:
        """Return whether a token for the prefixes covers an endpoint."""
        return coverage(tuple(self.prefixes))(name)


class Outsider:
    """One of them, and what it was sent. ``rights`` are those of its token; None: it has no token."""

    def __init__(self, kind: str, rights: Rights | None) -> None:
        self.kind = kind
        self.leaks: list[str] = []
        self.leaked = 0
        self.refused = 0
        """Number of names, requests and handshakes that were refused."""
        self.updates = 0
        self._token = rights

    def check(self, text: str) -> None:
        """Check a message, of a WebSocket or of the metadata service."""
        named = {name for name in _NAME.findall(text) if self._token is None or not self._token.covers(name)}
        message = orjson.loads(text)
        if not named:
            self.updates += message.get("type") == "update"
            self.refused += message.get("code") == "unauthorised"
            return
        rejected = {name for name, why in message.get("rejected", {}).items() if why["code"] == "forbidden"}
        if named <= rejected.difference(message.get("endpoints", ())):
            self.refused += len(named)
            return
        self.leaked += 1
        self.leaks += [f"{self.kind}: {text[:300]}"] * (len(self.leaks) < KEPT)


class Subscribing(Outsider):
    """An outsider at a WebSocket address.

    Args:
        bearer: its token in the handshake; empty: none.
        demoted_to: the token that replaces it; what it was sent before is not checked.
    """

    def __init__(self, kind: str, url: str, rights: Rights, bearer: str = "", demoted_to: str = "") -> None:
        super().__init__(kind, rights if bearer else None)
        self._url = url
        self._rights = rights
        self._demoted_to = demoted_to
        self._protocols = [Subprotocol(SUBPROTOCOL), *([Subprotocol(f"bearer.{bearer}")] if bearer else [])]

    async def run(self, address: str) -> None:
        """Connect again and again, until cancelled."""
        while True:
            try:
                async with connect(
                    self._url,
                    proxy=None,
                    compression=None,
                    subprotocols=self._protocols,
                    local_addr=(address, 0),
                    open_timeout=OPEN_SECONDS,
                ) as link:
                    await self._follow(link)
            except InvalidStatus as error:
                self.refused += error.response.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
            except (OSError, TimeoutError, WebSocketException):
                pass
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _follow(self, link: ClientConnection) -> None:
        checking = not self._demoted_to
        asking = asyncio.create_task(self._ask(link))
        try:
            async for frame in link:
                text = str(frame)
                if checking:
                    self.check(text)
                else:
                    checking = '"type":"authenticated"' in text
        finally:
            asking.cancel()

    async def _ask(self, link: ClientConnection) -> None:
        names = dict.fromkeys([*self._rights.permitted, *self._rights.others])
        with suppress(WebSocketException):
            for number in count(1):
                await _send(link, type="subscribe", id=number, endpoints=names)
                if number == 1 and self._demoted_to:
                    await _send(link, type="auth", id=0, token=self._demoted_to)
                await asyncio.sleep(AGAIN_SECONDS)


class Locating(Outsider):
    """An outsider at the metadata service."""

    def __init__(self, kind: str, url: str, rights: Rights, bearer: str = "") -> None:
        super().__init__(kind, rights if bearer else None)
        self._url = url
        self._question = {"endpoints": [*rights.permitted, *rights.others]}
        self._headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}

    async def run(self, address: str) -> None:
        """Ask again and again, until cancelled."""
        transport = httpx.AsyncHTTPTransport(local_address=address)
        async with httpx.AsyncClient(transport=transport, timeout=OPEN_SECONDS, trust_env=False) as http:
            while True:
                with suppress(httpx.HTTPError):
                    answer = await http.post(f"{self._url}locate", json=self._question, headers=self._headers)
                    if answer.status_code == httpx.codes.UNAUTHORIZED:
                        self.refused += 1
                    self.check(answer.text)
                await asyncio.sleep(AGAIN_SECONDS)


class Outsiders:
    """All of a run."""

    def __init__(self, members: Sequence[Outsider]) -> None:
        self.members = members

    def goals(self) -> list[Goal]:
        """Return the results as goals."""
        leaks = [leak for member in self.members for leak in member.leaks]
        told = f" ({leaks[0]})" if leaks else ""
        idle = [member.kind for member in self.members if not member.refused]
        limited = sum(member.updates for member in self.members if not member.kind.startswith("stranger"))
        strangers = sum(member.updates for member in self.members if member.kind.startswith("stranger"))
        return [
            Goal(f"I12, messages that name an endpoint without the right{told}", "", 0, self._sum("leaked")),
            Goal("I12, updates to clients without a token", "", 0, strangers),
            Goal(f"I12, outsiders that were refused nothing {idle or ''}".strip(), "", 0, len(idle)),
            Goal("I12, updates that limited clients were sent", "", 1, limited, at_least=True),
        ]

    def figures(self) -> dict[str, int]:
        """Return what the outsiders were sent, in all."""
        return {"outsiders": len(self.members), **{name: self._sum(name) for name in ("refused", "updates", "leaked")}}

    def _sum(self, name: str) -> int:
        return sum(getattr(member, name) for member in self.members)


@asynccontextmanager
async def watching(system: System, names: Sequence[str], key: str) -> AsyncIterator[Outsiders]:
    """Run outsiders at every address for clients until the block ends; ``key`` is an API key for everything."""
    rights = Rights.of(names)
    async with httpx.AsyncClient(base_url=system.rest, trust_env=False) as http:
        credentials = Credentials(http, key)
        full, some = await credentials.token(), await credentials.token(prefixes=rights.prefixes)
    members: list[Subscribing | Locating] = []
    for place, url in _addresses(system):
        members += [
            Subscribing(f"stranger at {place}", url, rights),
            Subscribing(f"limited at {place}", url, rights, some),
            Subscribing(f"demoted at {place}", url, rights, full, some),
        ]
    if system.metadata:
        members += [
            Locating("stranger at metadata", system.metadata, rights),
            Locating("limited at metadata", system.metadata, rights, some),
        ]
    async with cancelled_at_the_end() as tasks:
        tasks += [asyncio.create_task(each.run(ADDRESS.format(1 + n))) for n, each in enumerate(members)]
        yield Outsiders(members)


def _addresses(system: System) -> Iterator[tuple[str, str]]:
    """Yield name and URL of nginx, where there is one, and of the processes behind it."""
    for process in system.processes():
        if process.public_port and (process.name == "nginx" or process.name.startswith(_EDGES)):
            yield process.name, f"ws://127.0.0.1:{process.public_port}/ws"


async def _send(link: ClientConnection, **message: object) -> None:
    await link.send(orjson.dumps(message).decode())
