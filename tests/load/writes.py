"""The writer: bulk writes at a steady rate (open loop), each retried with its Idempotency-Key until it is answered."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from random import Random
from time import monotonic
from typing import Any, ClassVar, NamedTuple

import httpx
import orjson

from tests.load.contents import POINTS, dataset
from tests.load.mix import collections_of
from tests.load.probe import read
from tests.load.trace import Write
from tests.oracle.history import Accepted, Event, Kind, Uncertain

BATCH = 50
WORKERS = 8
"""Most concurrent requests. Due requests wait, and their latency counts from when they were due."""
TIMEOUT_SECONDS = 10.0
GIVE_UP_SECONDS = 60.0
RETRY_SECONDS = 0.5
REPEAT_EVERY = 20
"""Interval, in requests, of repeats after a 2xx: the same key must get the same versions."""
DELETE_EVERY = 25
"""Interval, in requests, of deletions; a later write recreates the endpoint."""
_RETRIED = {408, 429, 500, 502, 503, 504}


class WriteRefused(Exception):
    """The Data Service rejected a valid write, or did not accept it within a minute."""


class Content(NamedTuple):
    """What a write makes of an endpoint: fields of :class:`~tests.oracle.history.Accepted`."""

    stamp: int = 0
    change: Any = None
    ttl: float = 0.0
    after: int = 0


class Answer(NamedTuple):
    """The answer to a request, and when that was first sent."""

    status: int
    body: bytes
    begun: float

    def json(self) -> Any:
        """Return the parsed body."""
        return orjson.loads(self.body)


class Writer:
    """Changes endpoints of a Data Service and records the accepted changes.

    ``rate`` counts updates a second; ``points`` is the length of the datasets. A write whose answer was lost is
    repeated with the same key, and the lost attempt is kept as :class:`Uncertain`: a wiped store may have forgotten
    the key.
    """

    connections: ClassVar[int] = WORKERS + 1

    def __init__(
        self,
        base: str,
        write_key: str,
        endpoints: Sequence[str],
        random: Random,
        *,
        rate: float,
        points: int = POINTS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.accepted: list[Accepted] = []
        self.uncertain: list[Uncertain] = []
        self.latencies: list[float] = []
        """Seconds from the due time of a request until its 2xx."""
        self.statuses: Counter[str] = Counter()
        self.requests = 0
        self.operations: Counter[str] = Counter()
        """Accepted writes of a mix of kinds."""
        self.endpoints = list(endpoints)
        self.collections = collections_of(endpoints)
        """The collections that the endpoints make, which clients may subscribe to as well."""
        self.quiet: frozenset[str] = frozenset()
        """Endpoints that change only by :meth:`change`, so that a missed update is not soon followed by another."""
        self._random = random
        self._every = BATCH / rate
        self._points = points
        self._stamp = 0
        self._going = asyncio.Event()
        self._going.set()
        self._http = httpx.AsyncClient(
            base_url=base,
            headers={"Authorization": f"Bearer {write_key}"},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
            transport=transport,
            limits=httpx.Limits(max_connections=self.connections),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def put_all(self) -> None:
        """Change every endpoint once."""
        for start in range(0, len(self.endpoints), BATCH):
            await self._put(self.endpoints[start : start + BATCH], due=monotonic())

    async def change(self, endpoints: Sequence[str]) -> None:
        """Change endpoints once, now."""
        await self._put(endpoints, due=monotonic())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Start no requests in this block: due ones wait."""
        self._going.clear()
        try:
            yield
        finally:
            self._going.set()

    async def run(self, seconds: float) -> None:
        """Write at the rate for ``seconds``; return when the last write is answered."""
        await self._write(range(round(seconds / self._every)))

    async def run_until(self, over: asyncio.Event) -> None:
        """Write at the rate until ``over`` is set; return when the last write is answered."""
        await self._write(takewhile(lambda _: not over.is_set(), count()))

    async def replay(self, writes: Sequence[Write]) -> None:
        """Write as a trace does, from now on; return when the last write is answered."""
        start = monotonic()
        due = iter(writes)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._replay(start, due))

    def newest(self) -> dict[str, int]:
        """Return the greatest accepted version of every endpoint."""
        newest: dict[str, int] = {}
        for change in self.accepted:
            newest[change.endpoint] = max(change.version, newest.get(change.endpoint, 0))
        return newest

    async def _write(self, numbers: Iterable[int]) -> None:
        start = monotonic()
        due = (start + number * self._every for number in numbers)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work(due))

    async def final(self) -> dict[str, int]:
        """Return REST's version of every endpoint, including deleted ones, and of the collections (0: unknown)."""
        answer = await self._http.get("/v1/endpoints?gone=true")
        answer.raise_for_status()
        versions = {entry["endpoint"]: entry["version"] for entry in answer.json()["endpoints"]}
        return versions | {name: (await read(self._http, name))[0] or 0 for name in self.collections}

    async def read_all(self) -> tuple[list[Event], dict[int, tuple[str, ...]]]:
        """Return the data that REST has of every endpoint, as the events of a client, and the lists of collections."""
        events, lists, slots = list[Event](), dict[int, tuple[str, ...]](), asyncio.Semaphore(WORKERS)

        async def one(name: str) -> None:
            async with slots:
                version, seen = await read(self._http, name)
            if version is not None:
                events.append(Event(monotonic(), Kind.HELD, name, version, seen.stamp))
            if seen.members is not None:
                lists[seen.stamp] = seen.members

        async with asyncio.TaskGroup() as tasks:
            for name in [*self.endpoints, *self.collections]:
                tasks.create_task(one(name))
        return events, lists

    def changed_since(self, time: float) -> int:
        """Return the number of changes accepted since ``time``, without repeated requests."""
        return len({(change.endpoint, change.version) for change in self.accepted if change.time >= time})

    async def _work(self, due: Any) -> None:
        busy = [endpoint for endpoint in self.endpoints if endpoint not in self.quiet]
        for moment in due:
            await asyncio.sleep(max(0.0, moment - monotonic()))
            endpoints = self._random.sample(busy, min(BATCH, len(busy)))
            if await self._put(endpoints, due=moment) % DELETE_EVERY == 0:
                await self._delete(self._random.choice(busy))

    async def _replay(self, start: float, writes: Iterator[Write]) -> None:
        for time, endpoints in writes:
            await asyncio.sleep(max(0.0, start + time - monotonic()))
            await self._put(endpoints, due=start + time, repeats=False)

    async def _put(self, endpoints: Sequence[str], *, due: float, repeats: bool = True) -> int:
        """Send a request; return its number, from 1. Some are repeated with their key, if ``repeats``."""
        self.requests += 1
        number = self.requests
        key, (body, contents) = self._key(), self._bulk(endpoints)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        answer = await self._ask("PUT", "/v1/data", contents, headers, body)
        self.latencies.append(monotonic() - due)
        self._accept(answer.json()["accepted"], key, contents, answer.begun)
        if repeats and number % REPEAT_EVERY == 0:
            again = await self._ask("PUT", "/v1/data", contents, headers, body)
            self._accept(again.json()["accepted"], key, contents, answer.begun)
        return number

    def _bulk(self, endpoints: Sequence[str]) -> tuple[bytes, dict[str, Content]]:
        """Return the body of a request for several endpoints, and what it makes of each."""
        stamps = self._stamps(endpoints)
        body = orjson.dumps({"datasets": [dataset(name, stamp, self._points) for name, stamp in stamps.items()]})
        return body, {name: Content(stamp) for name, stamp in stamps.items()}

    async def _delete(self, endpoint: str) -> None:
        key, contents = self._key(), {endpoint: Content()}
        # Deleting what another worker has deleted is no fault.
        answer = await self._ask(
            "DELETE", f"/v1/data{endpoint}", contents, {"Idempotency-Key": key}, refusals=(404, 410)
        )
        if answer.status == httpx.codes.OK:
            self._accept([answer.json()], key, contents, answer.begun, gone=True)

    async def _ask(
        self,
        method: str,
        path: str,
        contents: Mapping[str, Content],
        headers: dict[str, str],
        body: bytes = b"",
        *,
        refusals: Collection[int] = (),
    ) -> Answer:
        """Return the 2xx, or an answer with one of the statuses ``refusals``. Raises ``WriteRefused``."""
        begun = monotonic()
        give_up = begun + GIVE_UP_SECONDS
        while True:
            await self._going.wait()
            start = monotonic()
            wait = self._random.random() * RETRY_SECONDS
            try:
                answer = await self._http.request(method, path, content=body, headers=headers)
            except httpx.TransportError as error:
                self.statuses[type(error).__name__] += 1
                now = monotonic()
                self.uncertain += [Uncertain(name, start, now, it.stamp, it.change) for name, it in contents.items()]
            else:
                self.statuses[str(answer.status_code)] += 1
                if answer.is_success or answer.status_code in refusals:
                    return Answer(answer.status_code, answer.content, begun)
                if answer.status_code not in _RETRIED:
                    raise WriteRefused(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
                wait += float(answer.headers.get("Retry-After", 0))
            if monotonic() > give_up:
                raise WriteRefused(f"{method} {path}: no 2xx within {GIVE_UP_SECONDS:.0f} s, but {dict(self.statuses)}")
            await asyncio.sleep(wait)

    def _accept(
        self,
        items: list[dict[str, Any]],
        key: str,
        contents: Mapping[str, Content],
        begun: float,
        *,
        gone: bool = False,
    ) -> None:
        now = monotonic()
        for item in items:
            name = item["endpoint"]
            stamp, change, ttl, after = contents[name]
            self.accepted.append(Accepted(name, item["version"], now, gone, key, stamp, change, begun, ttl, after))

    def _key(self) -> str:
        return f"load-{self._random.getrandbits(64):016x}"

    def _stamps(self, endpoints: Sequence[str]) -> dict[str, int]:
        """Return a stamp for the new dataset of each endpoint, which no other one has."""
        first = self._stamp + 1
        self._stamp += len(endpoints)
        return dict(zip(endpoints, range(first, self._stamp + 1), strict=True))
