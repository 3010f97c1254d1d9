"""The library's entry: a client of one deployment, by the address of its Data Service.

``Client`` reads ``/config.json``, keeps the connections that the mode needs, and fetches data that does not come with
updates, by the other modules of this package.
"""

import asyncio
import contextlib
import inspect
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import quote, urljoin, urlsplit

import orjson

from diem.client.backoff import Timing, retry_after_s
from diem.client.client import BaseClient, Event, UpdatesClient
from diem.client.fetches import CompletedEvents, DataMissing, FetchDelayed
from diem.client.http import HttpAnswer, request
from diem.client.link import ClientLink
from diem.client.partitioned import PartitionedClient
from diem.client.tokens import NoToken, TokenFunction
from diem.client.values import EndpointSnapshot
from diem.errors import ConfigurationError, DiemError
from diem.process.backoff import Backoff
from diem.protocol import endpoints
from diem.protocol.page_config import Edges

REREAD_AFTER: Final = 3
"""Failed dials in a row after which the configuration may be out of date."""
MAX_MEMBERS: Final = 1000
"""Members of a collection that are watched."""
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a retry may succeed."""
_logger: Final = logging.getLogger("diem.client")


@dataclass(eq=False)
class Rejected(DiemError):
    """Servers refuse an endpoint; ``code`` is ``forbidden``, ``limit``, … (docs/protocol.md section 1)."""

    template = "{endpoint}: {code}: {reason}"

    endpoint: str
    code: str
    reason: str


@dataclass(eq=False)
class ConnectionLost(DiemError):
    """A connection has ended or was refused, and is dialled again; ``code`` as that of :class:`~diem.client.Event`."""

    template = "connection lost ({code}): {reason}"
    retriable = True

    code: int | None
    reason: str


@dataclass(eq=False)
class Closed(DiemError):
    """The server does not accept this client again (docs/protocol.md section 1.4), or the client was closed."""

    template = "closed ({code}): {reason}"

    code: int | None
    reason: str


@dataclass(eq=False)
class RequestFailed(DiemError):
    """The Data Service has refused a request, with an HTTP status."""

    template = "{what}: {status}: {detail}"

    what: str
    status: int
    detail: str


class ServiceProblem(DiemError):
    """An endpoint's data cannot be fetched now, or a message of a server is wrong."""

    retriable = True


class Update(NamedTuple):
    """One version of an endpoint."""

    endpoint: str
    version: int
    data: Any
    """By the kind of data (:mod:`diem.client.values`); None if gone."""
    live: bool
    """Whether updates are current: False while the connection is lost, or the server is behind."""
    gone: bool = False
    """The endpoint was deleted."""
    time: str = ""
    """Time of the change in RFC 3339."""
    media_type: str = ""


class _Watch:
    """Names that one iteration wants, and those of which there is news: bounded by the former."""

    def __init__(self, *, liveness: bool) -> None:
        self.liveness = liveness
        self.names: set[str] = set()
        self.changed: dict[str, None] = {}
        self.shown: dict[str, tuple[int, bool]] = {}
        """Version and liveness that were yielded last."""
        self.rejected: Rejected | None = None
        self.wake = asyncio.Event()

    def notify(self, name: str) -> None:
        self.changed[name] = None
        self.wake.set()


class _ConfiguredClient(UpdatesClient):
    """Reads the addresses again after failed dials, because servers may have moved."""

    reread: Callable[[], Any]
    _failures = 0

    async def _select(self) -> str:
        if self._failures and self._failures % REREAD_AFTER == 0:
            with contextlib.suppress(DiemError):
                edges = await self.reread()
                self._urls = edges.servers or self._urls
        return await super()._select()

    def opened(self, link: ClientLink, url: str) -> None:
        self._failures = 0
        super().opened(link, url)

    def closed(self, link: ClientLink, code: int | None, reason: str) -> None:
        self._failures += 1
        super().closed(link, code, reason)


def _log(problem: DiemError) -> None:
    _logger.warning("%s", problem)


class Client:
    """A client of one deployment, connected while its ``async with`` block runs. For one event loop, not thread-safe.

    Any number of iterations of :meth:`watch` share the connection, and the subscription of an endpoint. Each holds the
    latest of each endpoint that it wants, so a slow one conflates and never delays another.

    Args:
        url: of the deployment, as ``https://diem.example``; its ``/config.json`` names everything else.
        token: a client token (a JWT), or a function, plain or ``async``, that returns one, called again before it
            expires.
        api_key: for requests of data; without ``token`` it also gets client tokens.
        tls: context for ``https``; None: the system's authorities decide.
        on_problem: called with problems that may pass; without it they are warnings of the logger ``diem.client``.
        timing: delays; None: those of the protocol.

    Raises:
        ConfigurationError: ``url`` is not one.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | TokenFunction | None = None,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        on_problem: Callable[[DiemError], object] = _log,
        timing: Timing | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(f"{url!r} is not the address of a deployment, as http://localhost:8080")
        self._base = url.removesuffix("/config.json").rstrip("/")
        self._api_key = api_key
        self._token = token
        self._presented = token if isinstance(token, str) else ""
        self._tls = tls
        self._on_problem = on_problem
        self._timing = timing
        self._rest = f"{self._base}/v1"
        self._client: BaseClient | None = None
        self._completed: CompletedEvents | None = None
        self._is_partitioned = False
        self._server_live = False
        self._live: dict[str, bool] = {}
        """Endpoint -> liveness that servers have named."""
        self._latest: dict[str, Update] = {}
        self._watches: list[_Watch] = []
        self._end: DiemError | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._finish(Closed(None, "the client was closed"))

    def watch(self, *names: str, liveness: bool = False) -> AsyncGenerator[Update, None]:
        """Return an iterator of the current version of each endpoint, and of every later one; it reconnects by itself.

        Leaving the iterator, as by ``break``, ends the subscriptions that no other one wants.

        Args:
            names: of endpoints or collections; data of the latter has ``members``, their names.
            liveness: also yield an endpoint, with the same version, when ``live`` has changed.

        Raises:
            BadName: one is not an endpoint name.
            Rejected: from the iterator: servers refuse one of the endpoints.
            Closed: from the iterator: the server does not accept this client again.
        """
        for name in names:
            endpoints.check(name)
        return self._updates(names, _Watch(liveness=liveness))

    def watch_collection(self, name: str) -> AsyncGenerator[Update, None]:
        """Return an iterator of all endpoints directly below a collection, with those that are created later.

        One that is deleted is yielded once more with ``gone``. At most 1,000 members are watched.

        Args:
            name: of the collection, which ends with a slash.

        Raises:
            BadName: it is not the name of a collection. Those of :meth:`watch` from the iterator.
        """
        endpoints.check(name)
        if not endpoints.is_collection(name):
            raise ConfigurationError(f"{name} is not a collection: did you mean {name}/?")
        return self._members(name)

    async def get(self, name: str) -> Update:
        """Return the current version of an endpoint, without a subscription.

        Raises:
            BadName: it is not an endpoint name.
            DataMissing: there is none, or it was deleted.
            RequestFailed: the Data Service refuses the request.
            FetchDelayed: it cannot answer now.
            Unreachable: it does not answer.
        """
        endpoints.check(name)
        if self._client is None:
            await self._read_config()
        try:
            found = await self._fetch(name, None)
        except RequestFailed as error:
            if error.status in {404, 410}:
                raise DataMissing(name) from None
            raise
        if found is None:
            raise DataMissing(name)
        return Update(name, found.version, found.value, self.is_live(name), False, found.time, found.media_type)

    def is_live(self, name: str) -> bool:
        """Return whether updates of a watched endpoint are current."""
        return self._server_live and self._live.get(name, not self._is_partitioned)

    @property
    def transport(self) -> Literal["websocket", "http"]:
        """Return how servers are reached: ``http`` where no WebSocket gets through."""
        return self._client.transport if self._client is not None else "websocket"

    async def _updates(self, names: Iterable[str], watch: _Watch) -> AsyncGenerator[Update, None]:
        shown = watch.shown
        self._watches.append(watch)
        try:
            self._want(watch, names)
            while True:
                while watch.changed:
                    name = next(iter(watch.changed))
                    del watch.changed[name]
                    update = self._latest.get(name)
                    if update is None or name not in watch.names:
                        continue
                    update = update._replace(live=self.is_live(name))
                    state = update.version, update.live
                    before = shown.get(name)
                    if before is None or before[0] != state[0] or (watch.liveness and before != state):
                        shown[name] = state
                        yield update
                if watch.rejected is not None:
                    raise watch.rejected
                if self._end is not None:
                    raise self._end
                watch.wake.clear()
                await watch.wake.wait()
        finally:
            self._watches.remove(watch)
            self._discard(watch, list(watch.names))

    async def _members(self, collection: str) -> AsyncGenerator[Update, None]:
        watch = _Watch(liveness=False)
        shown: dict[str, Update] = {}
        async with contextlib.aclosing(self._updates([collection], watch)) as updates:
            async for update in updates:
                if update.endpoint != collection:
                    shown[update.endpoint] = update
                    yield update
                    continue
                named = [] if update.gone else [name for name in update.data["members"] if not name.endswith("/")]
                if len(named) > MAX_MEMBERS:
                    self._on_problem(
                        ServiceProblem(f"{collection} has {len(named)} members: {MAX_MEMBERS} are watched")
                    )
                members = set(named[:MAX_MEMBERS])
                left = watch.names - members - {collection}
                self._discard(watch, left)
                self._want(watch, members - watch.names)
                for name in left:
                    last = shown.pop(name, None)
                    if last is not None and not last.gone:
                        yield last._replace(data=None, gone=True)

    def _want(self, watch: _Watch, names: Iterable[str]) -> None:
        fresh = [name for name in names if not self._is_wanted(name)]
        watch.names.update(names)
        for name in watch.names & self._latest.keys():
            watch.notify(name)
        if self._client is not None:
            self._client.add_names(dict.fromkeys(fresh))

    def _discard(self, watch: _Watch, names: Iterable[str]) -> None:
        watch.names.difference_update(names)
        for name in names:
            watch.shown.pop(name, None)
        unused = [name for name in names if not self._is_wanted(name)]
        for name in unused:
            self._latest.pop(name, None)
            self._live.pop(name, None)
            if self._completed is not None:
                self._completed.forget(name)
        if self._client is not None:
            self._client.drop_names(unused)

    # The connection

    async def _run(self) -> None:
        try:
            edges = await self._first_config()
            self._is_partitioned = self._server_live = bool(edges.metadata)
            token = None if self._token is None and self._api_key is None else self._request_token
            client: BaseClient
            if edges.metadata:
                hosts = {urlsplit(self._base).hostname or ""}
                client = PartitionedClient(
                    edges.servers,
                    metadata=edges.metadata,
                    hosts=hosts,
                    timing=self._timing,
                    token=token,
                    tls=self._tls,
                    data=True,
                )
            else:
                client = _ConfiguredClient(edges.servers, timing=self._timing, token=token, tls=self._tls, data=True)
                client.reread = self._read_config
            last = Closed(None, "the connection has ended")
            async with client, CompletedEvents(client, self._fetch, client.correct) as events:
                self._client, self._completed = client, events
                client.add_names(dict.fromkeys(name for watch in self._watches for name in watch.names))
                async for event in events:
                    if event.kind == "closed":
                        last = Closed(event.code, event.message)
                    self._apply(event)
            self._finish(last)
        except DiemError as error:
            self._finish(error)
        finally:
            self._client = self._completed = None

    def _finish(self, error: DiemError) -> None:
        self._end = self._end or error
        self._server_live = False
        for watch in self._watches:
            watch.wake.set()

    def _apply(self, event: Event) -> None:
        name = event.endpoint
        match event.kind:
            case "update" if name and (event.has_value or event.gone) and self._is_wanted(name):
                self._latest[name] = Update(
                    name, event.version or 0, event.value, True, event.gone, event.time, event.media_type
                )
                self._notify(name)
            case "status" if name and self._is_wanted(name):
                self._live[name] = bool(event.live)
                self._notify(name)
            case "status" | "closed" if not name and not self._is_partitioned:
                self._server_live = bool(event.live)
                for each in self._latest:
                    self._notify(each)
            case "rejected" if name:
                code, _, reason = event.message.partition(": ")
                for watch in self._watches:
                    if name in watch.names:
                        watch.names.discard(name)
                        watch.rejected = Rejected(name, code, reason)
                        watch.wake.set()
            case "error":
                self._on_problem(ServiceProblem(f"{name}: {event.message}" if name else event.message))
        if event.kind == "closed":
            self._on_problem(ConnectionLost(event.code, event.message or "no connection"))

    def _is_wanted(self, name: str) -> bool:
        return any(name in watch.names for watch in self._watches)

    def _notify(self, name: str) -> None:
        for watch in self._watches:
            if name in watch.names:
                watch.notify(name)

    # Requests

    async def _first_config(self) -> Edges:
        timing = self._timing or Timing()
        backoff = Backoff(timing.base_s, timing.cap_s)
        while True:
            try:
                return await self._read_config()
            except DiemError as error:
                self._on_problem(error)
            await asyncio.sleep(backoff.next_delay())

    async def _read_config(self) -> Edges:
        url = f"{self._base}/config.json"
        answer = await request("GET", url, tls=self._tls)
        try:
            config = orjson.loads(answer.body)
            edges = Edges.of_config(config, self._base)
            self._rest = urljoin(url, config["rest"]).rstrip("/")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RequestFailed(url, answer.status, _detail(answer)) from None
        if not edges.servers:
            raise RequestFailed(url, answer.status, "the configuration has no servers")
        return edges

    async def _request_token(self) -> str:
        if isinstance(self._token, str):
            return self._token
        if self._token is not None:
            answer = self._token()
            self._presented = await answer if inspect.isawaitable(answer) else answer
            return self._presented
        url = f"{self._rest}/tokens"
        reply = await request("POST", url, headers={"Authorization": f"Bearer {self._api_key}"}, tls=self._tls)
        try:
            return str(orjson.loads(reply.body)["token"])
        except (ValueError, KeyError, TypeError):
            raise NoToken(f"{url}: {reply.status}: {_detail(reply)}") from None

    async def _fetch(self, name: str, version: int | None) -> EndpointSnapshot | None:
        if self._api_key is None and self._token is not None and not self._presented:
            try:
                await self._request_token()
            except Exception as error:  # the application's function may raise anything
                raise FetchDelayed(str(NoToken(str(error) or type(error).__name__))) from error
        bearer = self._api_key or self._presented
        headers = {"Accept": "*/*"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        if version is None:
            headers["Cache-Control"] = "no-cache"
        url = f"{self._rest}/data{quote(name)}" + ("" if version is None else f"?version={version}")
        try:
            answer = await request("GET", url, headers=headers, tls=self._tls)
        except DiemError as error:
            raise FetchDelayed(str(error)) from error
        if version is not None and answer.status == 404:
            return None  # this version is not kept
        if answer.status in _LATER:
            raise FetchDelayed(f"{answer.status}: {_detail(answer)}", retry_after_s(answer.headers.get("Retry-After")))
        if answer.status != 200:
            raise RequestFailed(name, answer.status, _detail(answer))
        try:
            return EndpointSnapshot.of_answer(answer.headers, answer.body)
        except ValueError as error:
            raise FetchDelayed(str(error)) from error


def _detail(answer: HttpAnswer) -> str:
    """Return the reason of an error answer in one line (RFC 9457)."""
    try:
        return str(orjson.loads(answer.body)["detail"])
    except (ValueError, KeyError, TypeError):
        return "no answer of DIEM"
