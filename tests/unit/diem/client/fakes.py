"""A partitioned deployment in this process: scripted WebSocket servers."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import orjson
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from diem.client import BaseClient, Event, Timing
from tests.support.patience import until

QUICK = Timing(
    base_s=0.02,
    cap_s=0.2,
    late_s=0.05,
    suspect_after_s=1000.0,
    idle_after_s=0.05,
    stayed_after_s=5.0,
)
"""Short delays, but no suspicion of servers that are not live."""
PROTOCOL = Subprotocol("diem.v1.json")
LIMIT = "limit"
FORBIDDEN = {"code": "forbidden", "message": "m"}


class FakeServer:
    """Registers what is requested, but for ``refuse``: endpoint -> the owner that ``not_owner`` names, or ``LIMIT``.

    ``owners`` is that of the group: endpoint -> URL of its server, which the others name.
    """

    def __init__(self, owners: Mapping[str, str | None] | None = None) -> None:
        self.owners = {} if owners is None else owners
        self.refuse: dict[str, str | None] = {}
        self.requests: list[tuple[str, Any]] = []
        """Every request: type and endpoints."""
        self.asked_for_data: list[bool | None] = []
        """The member ``data`` of every request."""
        self.more_welcome: dict[str, Any] = {}
        """More members of ``welcome``."""
        self.held: set[str] = set()
        """The endpoints that are subscribed now."""
        self.live = True
        self.mute = False
        """Whether requests are recorded, and not answered."""
        self.errors: list[str] = []
        """Codes of the ``error`` replies to the next requests."""
        self.tokens: list[str] = []
        """Tokens that were presented, on all connections."""
        self.token_reply: dict[str, Any] | None = {"type": "authenticated", "expires": 1}
        """Reply to them; None: there is none."""
        self.forbidden: set[str] = set()
        """Endpoints that the token does not cover."""
        self.connections: set[ServerConnection] = set()
        self.limit: str | None = None
        """Why handshakes are refused with 429 and ``Retry-After: 1``; None: they are not."""
        self.refused_at: list[float] = []
        """When they were, by the loop's clock."""
        self.dials = 0
        self.port = 0
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    async def start(self) -> Self:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            self.port,
            subprotocols=[PROTOCOL],
            compression=None,
            process_request=self._refusal,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def kick(self, code: int = 1012, reason: str = "") -> None:
        for connection in list(self.connections):
            await connection.close(code, reason)

    async def send(self, message: dict[str, Any]) -> None:
        for connection in list(self.connections):
            await connection.send(orjson.dumps(message).decode())

    async def update(self, name: str, version: int) -> None:
        await self.send({"type": "update", "endpoint": name, "version": version, "time": "t"})

    async def moved(self, names: list[str], owner: str | None = None) -> None:
        await self.send({"type": "moved", "endpoints": names} | ({"owner": owner} if owner else {}))

    async def status(self, *, live: bool, names: list[str] | None = None) -> None:
        self.live = live if names is None else self.live
        await self.send(
            {"type": "status", "live": live, "since": "t"} | ({"endpoints": names} if names is not None else {})
        )

    def subscribed_with(self, name: str) -> list[int | None]:
        """Return the known versions with which an endpoint was subscribed."""
        return [names[name] for kind, names in self.requests if kind == "subscribe" and name in names]

    def _refusal(self, connection: ServerConnection, _request: Request) -> Response | None:
        if self.limit is None:
            return None
        self.refused_at.append(asyncio.get_running_loop().time())
        response = connection.respond(429, self.limit)
        response.headers["Retry-After"] = "1"
        return response

    async def _serve(self, connection: ServerConnection) -> None:
        self.dials += 1
        self.connections.add(connection)
        self.held.clear()
        try:
            welcome = {"type": "welcome", "session": "s", "server": f"fake-{self.port}", "mode": "z-client"}
            await connection.send(orjson.dumps(welcome | self.more_welcome).decode())
            await connection.send(orjson.dumps({"type": "status", "live": self.live, "since": "t"}).decode())
            async for data in connection:
                request = orjson.loads(data)
                if request["type"] == "auth":
                    self.tokens.append(request["token"])
                    if self.token_reply is not None:
                        await connection.send(orjson.dumps(self.token_reply | {"id": request["id"]}).decode())
                    continue
                answer = orjson.dumps(self._answer(request)).decode()
                if not self.mute:
                    await connection.send(answer)
        except ConnectionClosed:
            pass
        finally:
            self.connections.discard(connection)
            self.held.clear()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        kind, number, names = request["type"], request["id"], request["endpoints"]
        self.requests.append((kind, names))
        self.asked_for_data.append(request.get("data"))
        if self.errors:
            return {"type": "error", "id": number, "code": self.errors.pop(0), "message": "m"}
        if kind == "unsubscribe":
            self.held -= set(names)
            return {"type": "unsubscribed", "id": number, "endpoints": names}
        elsewhere = {name: owner for name, owner in self.owners.items() if owner != self.url} | self.refuse
        refused = {name: elsewhere.get(name) for name in names if name in elsewhere or name in self.forbidden}
        self.held |= names.keys() - refused.keys()
        answer: dict[str, Any] = {"type": "subscribed", "id": number, "endpoints": {}}
        answer["endpoints"] = {name: None for name in names if name not in refused}
        if refused:
            answer["rejected"] = {
                name: {"code": LIMIT, "message": "m"}
                if owner == LIMIT
                else FORBIDDEN
                if name in self.forbidden
                else {"code": "not_owner", "message": "m"} | ({"owner": owner} if owner else {})
                for name, owner in refused.items()
            }
        return answer


class Deployment:
    """Three servers; endpoints without an owner are at all of them."""

    def __init__(self, servers: list[FakeServer], owners: dict[str, str | None]) -> None:
        self.a, self.b, self.c = self.servers = servers
        self._owners = owners

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def own(self, **owners: FakeServer | str | None) -> None:
        """Set the owner of each ``/name``; None: it has none."""
        for name, owner in owners.items():
            self._owners[f"/{name}"] = owner.url if isinstance(owner, FakeServer) else owner


class Seen:
    """All events of a client, collected by a task of its own."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended = False

    def versions(self, name: str) -> list[int | None]:
        return [event.version for event in self.events if event.kind == "update" and event.endpoint == name]

    def live(self, name: str) -> bool | None:
        """Return the last status of an endpoint."""
        statuses = [event.live for event in self.events if event.kind == "status" and event.endpoint == name]
        return statuses[-1] if statuses else None

    async def until_live(self, *names: str) -> None:
        await until(lambda: all(self.live(name) for name in names))

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


def unsigned(claims: object) -> str:
    """Return a JWT (RFC 7519) with these claims, and no signature."""
    return f"e30.{base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip('=')}."


@contextlib.asynccontextmanager
async def seeing(client: BaseClient, *names: str) -> AsyncIterator[Seen]:
    """Connect a client, and collect its events; it is subscribed to ``names``, and they are live."""
    seen = Seen()

    async def follow() -> None:
        async for event in client:
            seen.events.append(event)
        seen.ended = True

    async with client:
        task = asyncio.create_task(follow())
        try:
            if names:
                await client.subscribe(dict.fromkeys(names))
                await seen.until_live(*names)
            yield seen
        finally:
            task.cancel()
            await asyncio.wait([task])


@contextlib.asynccontextmanager
async def deployed() -> AsyncIterator[Deployment]:
    """Start a deployment for the length of a test."""
    owners: dict[str, str | None] = {}
    servers = [await FakeServer(owners).start() for _ in range(3)]
    try:
        yield Deployment(servers, owners)
    finally:
        for server in servers:
            for connection in server.connections:
                # One that hangs would be waited for.
                connection.transport.abort()
            await server.stop()
