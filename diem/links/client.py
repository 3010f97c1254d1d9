"""The Python client of ``diem.v1.json``: subscribe, iterate over events, reconnect with what is known."""

import asyncio
import contextlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from diem.process.backoff import full_jitter
from diem.protocol import codes, endpoints, messages

BASE: Final = 0.5
CAP: Final = 30.0
STABLE_AFTER: Final = 60.0
"""Seconds of an open connection after which the back-off begins anew (docs/protocol.md section 1)."""
SILENT_AFTER: Final = 60.0
_RETRY = re.compile(r"retry=(\d{1,9})")

Kind = Literal["open", "closed", "subscribed", "unsubscribed", "update", "resync", "status", "rejected", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a subscriber can see."""

    kind: Kind
    endpoint: str | None = None
    """The endpoint that it is about; None for the connection itself."""
    version: int | None = None
    """Of an update: its version. Of ``subscribed``: the retained version, None = none yet."""
    gone: bool = False
    live: bool | None = None
    code: int | None = None
    """Of ``closed``: the close code, None when there was no connection."""
    message: str = ""


class UpdatesClient:
    """One connection to one of ``urls``, kept up until the block is left.

    It is an asynchronous iterator of :class:`Event`. Updates that are not newer than what was told, or of endpoints
    that are not subscribed, are dropped. Events wait in a map of the latest per endpoint and kind: a slow consumer
    conflates, and memory is bounded by the subscriptions. The iteration ends after a close code that forbids to
    reconnect.
    """

    def __init__(self, urls: str | Sequence[str], *, origin: str | None = None) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._origin = origin
        self._known: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._events: dict[object, Event] = {}
        self._wake = asyncio.Event()
        self._connection: ClientConnection | None = None
        self._ended = False
        self._next_id = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._events.pop(next(iter(self._events)))

    async def subscribe(self, known: Mapping[str, int | None]) -> None:
        """Subscribe to endpoints, given the versions of the data that is held (None = none).

        Raises:
            BadName: one of the names is none; nothing is sent.
        """
        for name in known:
            endpoints.check(name)
        self._known.update({name: version or 0 for name, version in known.items()})
        await self._send_subscribe(dict.fromkeys(known))

    async def unsubscribe(self, names: Sequence[str]) -> None:
        """Unsubscribe from endpoints."""
        for name in names:
            self._known.pop(name, None)
            self._told.pop(name, None)
            self._events.pop(("update", name), None)
        for start in range(0, len(names), messages.MAX_NAMES):
            await self._send({"type": "unsubscribe", "endpoints": list(names[start : start + messages.MAX_NAMES])})

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            opened, close = loop.time(), None
            try:
                await self._stay()
            except ConnectionClosed as error:
                close = error.rcvd or error.sent
            except (OSError, InvalidHandshake, TimeoutError):
                pass
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
                # Not a server of this protocol, or a broken one: another may be listed.
                self._say(("error", None), Event("error", message="the server sent what is not of the protocol"))
            self._connection = None
            code = close.code if close else None
            self._say(("closed", None), Event("closed", code=code, message=close.reason if close else ""))
            if code is not None and not codes.reconnects(code):
                self._ended = True
                self._wake.set()
                return
            attempt = 0 if loop.time() - opened > STABLE_AFTER else attempt + 1
            asked = _RETRY.search(close.reason) if close else None
            wait = full_jitter(0, int(asked[1]) / 1000, CAP) if asked else full_jitter(attempt, BASE, CAP)
            await asyncio.sleep(wait)

    async def _stay(self) -> None:
        url = random.choice(self._urls)  # noqa: S311 - spreads clients, is no secret
        async with connect(
            url,
            subprotocols=[Subprotocol(messages.SUBPROTOCOL)],
            origin=self._origin,  # type: ignore[arg-type] # a plain string is an Origin
            compression=None,
            proxy=None,
            ping_interval=None,
        ) as connection:
            self._connection = connection
            self._say(("open", None), Event("open", message=url))
            await self._send_subscribe(dict.fromkeys(self._known))
            while True:
                async with asyncio.timeout(SILENT_AFTER):
                    self._take(orjson.loads(await connection.recv()))

    async def _send_subscribe(self, names: Mapping[str, None]) -> None:
        wanted = [name for name in names if name in self._known]
        for start in range(0, len(wanted), messages.MAX_NAMES):
            part = wanted[start : start + messages.MAX_NAMES]
            known = {name: max(self._known[name], self._told.get(name, 0)) or None for name in part}
            await self._send({"type": "subscribe", "endpoints": known})

    async def _send(self, message: dict[str, Any]) -> None:
        if self._connection is not None:
            self._next_id += 1
            data = orjson.dumps({"type": message["type"], "id": self._next_id, "endpoints": message["endpoints"]})
            with contextlib.suppress(ConnectionClosed):
                await self._connection.send(data, text=True)

    def _take(self, message: dict[str, Any]) -> None:  # noqa: C901 - one case a message type
        match message.get("type"):
            case "update":
                name, version = message["endpoint"], message["version"]
                if name in self._known and version > max(self._known[name], self._told.get(name, 0)):
                    self._told[name] = version
                    self._say(("update", name), Event("update", name, version, gone=message.get("gone", False)))
            case "subscribed":
                for name, version in message["endpoints"].items():
                    self._say(("subscribed", name), Event("subscribed", name, version))
                for name, why in message.get("rejected", {}).items():
                    self._known.pop(name, None)
                    self._say(("rejected", name), Event("rejected", name, message=f"{why['code']}: {why['message']}"))
            case "unsubscribed":
                for name in message["endpoints"]:
                    self._say(("unsubscribed", name), Event("unsubscribed", name))
            case "resync":
                for name in message["endpoints"]:
                    self._say(("resync", name), Event("resync", name))
            case "status":
                self._say(("status", None), Event("status", live=message["live"]))
            case "error":
                self._say(("error", None), Event("error", message=f"{message['code']}: {message['message']}"))

    def _say(self, key: object, event: Event) -> None:
        self._events.pop(key, None)
        self._events[key] = event
        self._wake.set()
