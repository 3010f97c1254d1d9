"""Reconnecting connection of a client, and the subscriptions that it restores."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from operator import index
from secrets import token_hex
from typing import Any, Final, Protocol

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from diem.errors import DiemError
from diem.links.client.base import Timing
from diem.links.client.pace import Pace
from diem.links.client.retry_after import retry_after_s
from diem.process.backoff import Outage, full_jitter
from diem.protocol import codes, messages
from diem.protocol.traffic import with_client


class SubscriptionSet:
    """The set of names that is wanted, and what was asked for on this connection."""

    def __init__(self) -> None:
        self._wanted: dict[str, None] = {}
        self._requested: dict[str, int] = {}
        """Name -> id of the latest request that subscribes to it, on this connection."""
        self._renewed: set[str] = set()
        self._ids = itertools.count(1)

    def want(self, names: Iterable[str]) -> None:
        """Subscribe; to what is subscribed already once more, with the version that is known then."""
        for name in names:
            # Also when the server has not heard yet that it was given up: the version that is known may be another one.
            if name in self._wanted or name in self._requested:
                self._renewed.add(name)
            self._wanted[name] = None

    def release(self, names: Iterable[str]) -> None:
        """Unsubscribe."""
        for name in names:
            self._wanted.pop(name, None)
            self._renewed.discard(name)

    def begin(self) -> None:
        """There is another connection: nothing was asked for on it."""
        self._requested.clear()

    def next(self, known: Callable[[str], int | None]) -> dict[str, Any] | None:
        """What brings the server closer to what is wanted; it counts as sent. Departures free places, and go first."""
        surplus = list(
            itertools.islice((name for name in self._requested if name not in self._wanted), messages.MAX_NAMES)
        )
        if surplus:
            for name in surplus:
                del self._requested[name]
            return {"type": "unsubscribe", "id": next(self._ids), "endpoints": surplus}
        open_ones = (name for name in self._wanted if name in self._renewed or name not in self._requested)
        missing = list(itertools.islice(open_ones, messages.MAX_NAMES))
        if not missing:
            return None
        number = next(self._ids)
        self._requested.update(dict.fromkeys(missing, number))
        self._renewed.difference_update(missing)
        return {"type": "subscribe", "id": number, "endpoints": {name: known(name) for name in missing}}

    def confirmed(self, request_id: int, registered: Mapping[str, int | None]) -> dict[str, int | None]:
        """Return those of the registered names that count: the request is the latest for them, and they are wanted."""
        return {n: version for n, version in registered.items() if self._is_answer(request_id, n)}

    def refused(self, request_id: int, rejected: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the names that a server has refused that count; they are wanted no more.

        Only the answer to the latest request for a name says anything about it.
        """
        found = {n: why for n, why in rejected.items() if self._is_answer(request_id, n)}
        for name in found:
            del self._requested[name]
        self.release(found)
        return found

    def requested_by(self, request_id: int) -> list[str]:
        """Return the names whose latest request this is: an ``error`` leaves them unregistered."""
        return [name for name, number in self._requested.items() if number == request_id]

    def failed(self, request_id: int) -> None:
        """Ask again for the names of a request that registered nothing.

        They still count as asked for, since a request before that one may have registered them: what is given up
        meanwhile is unsubscribed.
        """
        self._renewed.update(name for name in self.requested_by(request_id) if name in self._wanted)

    def _is_answer(self, request_id: int, name: str) -> bool:
        return self._requested.get(name) == request_id and name in self._wanted


_RETRY: Final = re.compile(r"\bretry=(\d{1,9})\b")
_MAX_WINDOW: Final = 600.0
_PASSING: Final = frozenset({codes.ErrorCode.LIMIT, codes.ErrorCode.RATE})
"""Errors of a whole request that say nothing about its names: it is too much just now."""
CLOSE_WITHIN_S: Final = 2.0
"""A server that hangs is not waited for when a connection is closed."""

Find = Callable[[], Awaitable[str]]
"""Gives the URL to dial. A :class:`NothingToDial` counts as a failed attempt."""


def new_identity() -> str:
    """What a client calls itself, on all of its connections: chance, and nothing that says who it is."""
    return token_hex(16)


class NothingToDial(DiemError):
    """There is nowhere to connect to now."""

    retriable = True


class _OutOfStepError(DiemError):
    """The server's set of subscriptions is not known any more: a new connection begins with none."""

    retriable = True


class LinkListener(Protocol):
    """Who hears what comes of a line."""

    def known(self, name: str) -> int | None:
        """The version that is known of an endpoint; None = none."""
        ...

    def opened(self, line: "ClientLink", url: str) -> None:
        """There is a connection."""
        ...

    def closed(self, line: "ClientLink", code: int | None, reason: str) -> None:
        """There is none any more, or the attempt failed (code None)."""
        ...

    def on_message(self, line: "ClientLink", message: dict[str, Any]) -> None:
        """The server says something. KeyError, TypeError, AttributeError: it is not of the protocol."""
        ...

    def nonsense(self, line: "ClientLink") -> None:
        """What the server sent is not of the protocol; the connection ends."""
        ...


class ClientLink:
    """One connection. ``want`` and ``release`` take effect now, or when there is a connection."""

    def __init__(
        self,
        find: Find,
        listener: LinkListener,
        origin: str | None,
        timing: Timing,
        *,
        identity: str | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._find = find
        self._pace = pace or Pace()
        self._server = ""
        """What the server calls itself."""
        self._subscriptions = 0
        """How many it allows."""
        self._welcomed = asyncio.Event()
        self._refusals = 0
        """Requests that failed for the moment, since one was answered."""
        self._not_before = 0.0
        """Nothing is asked for before this time."""
        self._identity = identity or new_identity()
        self._listener = listener
        self._origin = origin
        self._timing = timing
        self._wanted = SubscriptionSet()
        self._work = asyncio.Event()
        self.is_open = False
        self.ended: tuple[int, str] | None = None
        """Close code and reason, when the server does not want this client back."""
        self.cap = timing.cap
        """No window of ours is longer, in seconds."""
        self._failures = 0
        self._pause: asyncio.Timeout | None = None
        """The wait for the next attempt, unless the server asked for it."""

    def want(self, names: Iterable[str]) -> None:
        """Subscribe; to what is subscribed already once more, with the version that is known now."""
        self._wanted.want(names)
        self._work.set()

    def release(self, names: Iterable[str]) -> None:
        """Unsubscribe."""
        self._wanted.release(names)
        self._work.set()

    async def run(self) -> None:
        """Keep the connection up until a close code forbids to come back."""
        loop = asyncio.get_running_loop()
        outage = Outage(loop.time(), self._timing.held_after)
        while True:
            began, close, at_least_s = loop.time(), None, 0.0
            try:
                await self._stay()
            except ConnectionClosed as error:
                close = error.rcvd or error.sent
            except InvalidStatus as error:
                at_least_s = retry_after_s(error.response.headers.get("Retry-After"))
            except (
                OSError,
                InvalidHandshake,
                TimeoutError,
                NothingToDial,
                _OutOfStepError,
                InvalidURI,
                UnicodeError,
            ):
                # The last two: a URL that others named, and nobody can dial.
                pass
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
                # Not a server of this protocol, or a broken one: another may be there next time.
                self._listener.nonsense(self)
            now = loop.time()
            if self.is_open:
                outage.lost(now, now - began)
            self.is_open = False
            code, reason = (close.code, close.reason) if close else (None, "")
            if code is not None and not codes.reconnects(code):
                self.ended = code, reason
            self._listener.closed(self, code, reason)
            if self.ended:
                return
            if now - began > self._timing.stable_after:
                self._failures = 0
            await self._wait(code, reason, outage.seconds(now), at_least_s)

    def expedite(self) -> bool:
        """Forget the failures and dial soon, if the next attempt is waited for; give whether it is.

        What is overloaded is left alone for as long as it asked.
        """
        if self._pause is None or self._pause.expired():
            return False
        self._failures = 0
        soon = asyncio.get_running_loop().time() + full_jitter(0, self._timing.soon, self._timing.soon)
        self._pause.reschedule(min(soon, self._pause.when() or soon))
        return True

    async def _wait(self, code: int | None, reason: str, gone_s: float, at_least_s: float) -> None:
        """Wait for the next attempt: at least `at_least_s`, which an HTTP server has asked for, and a random delay."""
        if code == codes.Close.RATE:
            self._pace.drain(self._server, self._subscriptions, asyncio.get_running_loop().time())
        retry = _RETRY.search(reason)
        if retry:
            delay = full_jitter(0, min(int(retry[1]) / 1000, _MAX_WINDOW), _MAX_WINDOW)
        else:
            delay = full_jitter(self._failures, self._timing.base, min(self.cap, max(self._timing.base, gone_s)))
        is_restart = code == codes.Close.RESTART
        self._failures += not is_restart  # that was meant to be
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_least_s + delay) as pause:
                self._pause = pause if is_restart or not (retry or at_least_s) else None
                await asyncio.Event().wait()
        self._pause = None

    async def _stay(self) -> None:
        url = await self._find()
        async with connect(
            with_client(url, self._identity),
            subprotocols=[Subprotocol(messages.SUBPROTOCOL)],
            origin=self._origin,  # type: ignore[arg-type] # a plain string is an Origin
            compression=None,
            proxy=None,
            ping_interval=None,
            close_timeout=CLOSE_WITHIN_S,
        ) as connection:
            self._wanted.begin()
            self._welcomed.clear()
            self._work.set()
            self.is_open = True
            self._listener.opened(self, url)
            writer = asyncio.create_task(self._write(connection))
            try:
                while True:
                    async with asyncio.timeout(self._timing.silent_after):
                        data = await connection.recv()
                    self._take(orjson.loads(data))
            except TimeoutError:
                # Nor would it answer a close frame.
                connection.transport.abort()
                raise
            finally:
                writer.cancel()
                await asyncio.wait([writer])

    async def _write(self, connection: ClientConnection) -> None:
        """Send what is missing, within the server's rate: what piles up meanwhile goes out as one message."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionClosed):
            await self._welcomed.wait()
            while True:
                await self._work.wait()
                now = loop.time()
                wait_s = max(self._pace.wait(self._server, self._subscriptions, now), self._not_before - now)
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                    continue
                message = self._wanted.next(self._listener.known)
                if message is None:
                    self._work.clear()
                    continue
                self._pace.charge(self._server, len(message["endpoints"]), now)
                await connection.send(orjson.dumps(message), text=True)

    def _take(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "welcome":
                self._server = str(message.get("server", ""))
                self._subscriptions = index(message.get("limits", {}).get("subscriptions", 0))
                self._welcomed.set()
            case "subscribed":
                self._refusals = 0
                message = self._answer(message["id"], message["endpoints"], message.get("rejected", {}))
            case "error" if message.get("id") is not None:
                self._failed(message["id"], message["code"], message["message"])
        self._listener.on_message(self, message)

    def _answer(self, number: int, registered: dict[str, int | None], rejected: dict[str, Any]) -> dict[str, Any]:
        """Return a ``subscribed`` with what counts of it."""
        return {
            "type": "subscribed",
            "id": number,
            # First, because what is refused is not wanted any more.
            "endpoints": self._wanted.confirmed(number, registered),
            "rejected": self._wanted.refused(number, rejected),
        }

    def _failed(self, number: int, code: str, text: str) -> None:
        """Ask again for what a request as a whole did not register, after a delay, or have it rejected."""
        names = self._wanted.requested_by(number)
        if not names:
            raise _OutOfStepError(code)  # it was to unsubscribe
        if code not in _PASSING:
            self._listener.on_message(
                self, self._answer(number, {}, {name: {"code": code, "message": text} for name in names})
            )
            return
        self._wanted.failed(number)
        delay_s = full_jitter(self._refusals, self._timing.base, self._timing.cap)
        self._not_before = asyncio.get_running_loop().time() + delay_s
        self._refusals += 1
        self._work.set()
