"""The writer of a mix of kinds: beside bulk writes of series and documents, single writes of everything else."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple

import httpx
import orjson

from tests.load import contents, mix
from tests.load.contents import DOCUMENT
from tests.load.writes import BATCH, DELETE_EVERY, WORKERS, Content, Writer
from tests.oracle.values import condensed

SINGLES: Final = 4
"""Updates of a batch that are made by single requests, at least."""
LEAST_BYTES, MOST_BYTES = 10, 1 << 20
SMALL_BYTES: Final = 2000
"""Largest documents of a bulk write, about."""
TWICE: Final = 0.6
"""Share of the documents that are patched twice at the same time."""
TTLS: Final = (1, 2, 3)
"""Times to live in seconds."""
CHECK_SECONDS: Final = 0.2
EXPIRED_SECONDS: Final = 10.0
"""Longest wait for the last expiries."""
REFUSED: Final = (httpx.codes.NOT_FOUND, httpx.codes.GONE, httpx.codes.PRECONDITION_FAILED)
"""Refusals that the workers cause each other."""
_PATCHES: Final = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
OPERATIONS: Final = frozenset(
    {
        *("sized", "octets", "notices", "expiring", "renewed", "made", "passing", "deleted"),
        *("merge", "json", "conditional"),
    }
)
"""What must have been accepted in a run of some seconds."""


class Single(NamedTuple):
    """A write of one endpoint."""

    operation: str
    """What it is counted as."""
    method: str
    name: str
    made: Content
    media_type: str = ""
    body: bytes = b""

    @classmethod
    def of(cls, operation: str, name: str, value: Any, ttl: float = 0) -> "Single":
        """Return the write of a whole document."""
        made = Content(change={"put": condensed(value)}, ttl=ttl)
        return cls(operation, "PUT", name, made, DOCUMENT, orjson.dumps(value))


class MixedWriter(Writer):
    """A writer of endpoints whose names say their kind (``mix``)."""

    connections = 4 * WORKERS

    def __init__(self, base: str, write_key: str, endpoints: Sequence[str], random: Random, **more: Any) -> None:
        super().__init__(base, write_key, endpoints, random, **more)
        self._versions: defaultdict[str, list[int]] = defaultdict(list)
        """The last versions of documents."""
        self._members: set[str] = set()
        """Members of collections that exist, as far as known."""
        self._living: dict[str, Single] = {}
        """Documents with a time to live, to be renewed."""
        self._due: dict[str, float] = {}
        """When endpoints expire."""

    async def final(self) -> dict[str, int]:
        """Return the versions when everything with a time to live has expired, or should have."""
        await asyncio.sleep(max(0.0, max(self._due.values(), default=0.0) - monotonic()))
        limit = monotonic() + EXPIRED_SECONDS
        while monotonic() < limit:
            answer = await self._http.get("/v1/endpoints")
            live = {entry["endpoint"] for entry in answer.raise_for_status().json()["endpoints"]}
            if not live & self._due.keys():
                break
            await asyncio.sleep(CHECK_SECONDS)
        return await super().final()

    async def _work(self, due: Any) -> None:
        busy = defaultdict[str, list[str]](list)
        for endpoint in self.endpoints:
            if endpoint not in self.quiet:
                busy[mix.kind_of(endpoint)].append(endpoint)
        together = busy[mix.SERIES] + busy[mix.DOCUMENTS]
        for moment in due:
            await asyncio.sleep(max(0.0, moment - monotonic()))
            some = self._random.sample(together, min(BATCH - SINGLES, len(together)))
            # Of different kinds in one commit.
            async with asyncio.TaskGroup() as tasks:
                bulk = tasks.create_task(super()._put(some, due=moment))
                for single in self._singles(busy):
                    tasks.create_task(single)
            if bulk.result() % DELETE_EVERY == 0:
                await self._delete(self._random.choice([*together, *busy[mix.SIZED], *busy[mix.OCTETS]]))

    def _singles(self, busy: Mapping[str, list[str]]) -> Iterator[Coroutine[None, None, None]]:
        """Yield the single writes beside a bulk write, of endpoints that are drawn."""

        def one(*kinds: str) -> list[str]:
            names = [name for kind in kinds for name in busy[kind]]
            return [self._random.choice(names)] if names else []

        for name in one(mix.DOCUMENTS):
            both = [self._merge, self._json]
            self._random.shuffle(both)
            yield both[0](name)
            if self._random.random() < TWICE:
                # Often in one commit.
                yield both[1](name)
        for name in one(mix.SIZED, mix.OCTETS, mix.NOTICES):
            yield self._put_one(name)
        for name in one(mix.SIZED):
            if not self._random.randrange(4):
                yield self._merge(name)
        for name in one(mix.EXPIRING):
            yield self._keep_alive(name)
        for name in one(mix.GAMES):
            yield self._play(name)

    # Whole contents

    async def _put(self, endpoints: Sequence[str], *, due: float, repeats: bool = True) -> int:
        """Change each endpoint once: what bulk writes can have by one, the others one by one."""
        together = [name for name in endpoints if mix.kind_of(name) in (mix.SERIES, mix.DOCUMENTS)]
        others, slots = [name for name in endpoints if name not in together], asyncio.Semaphore(WORKERS)

        async def one(name: str) -> None:
            async with slots:
                await self._put_one(name)

        async with asyncio.TaskGroup() as tasks:
            for name in others:
                tasks.create_task(one(name))
        return await super()._put(together, due=due, repeats=repeats) if together else self.requests

    def _bulk(self, endpoints: Sequence[str]) -> tuple[bytes, dict[str, Content]]:
        documents = {
            name: contents.document(name, stamp, self._other(), self._random.randrange(SMALL_BYTES))
            for name, stamp in self._stamps([name for name in endpoints if mix.kind_of(name) == mix.DOCUMENTS]).items()
        }
        body, made = super()._bulk([name for name in endpoints if name not in documents])
        listed = [{"endpoint": name, "value": value} for name, value in documents.items()]
        body = orjson.dumps({"datasets": orjson.loads(body)["datasets"], "documents": listed})
        return body, made | {name: Content(change={"put": condensed(value)}) for name, value in documents.items()}

    def _other(self) -> str:
        # A client with few rights has those to the first one, so that its name is no leak.
        return self.endpoints[0]

    async def _put_one(self, name: str) -> None:
        kind, (stamp,) = mix.kind_of(name), self._stamps([name]).values()
        if kind == mix.NOTICES:
            url = mix.URL.replace("{endpoint}", name)
            await self._send(Single(kind, "POST", name, Content(contents.stamp_of_notice(url))))
        elif kind == mix.OCTETS:
            media_type, content = contents.octets(stamp, self._size())
            made = Content(contents.stamp_of_octets(media_type, content))
            await self._send(Single(kind, "PUT", name, made, media_type, content))
        else:
            value = self._value(name, kind, stamp)
            if await self._send(Single.of(kind, name, value)) and kind == mix.GAMES:
                self._members.add(name)

    def _value(self, name: str, kind: str, stamp: int) -> Any:
        if kind == mix.SIZED:
            return contents.sized(name, stamp, self._size())
        return contents.document(name, stamp, self._other())

    def _size(self) -> int:
        """Return a size: each power of ten is as likely as the next smaller one, or a little less."""
        return int(LEAST_BYTES * (MOST_BYTES / LEAST_BYTES) ** (self._random.random() ** 2))

    # Parts of documents

    async def _merge(self, name: str) -> None:
        (stamp,) = self._stamps([name]).values()
        await self._patch(name, "merge", contents.merge_patch(stamp))

    async def _json(self, name: str) -> None:
        (stamp,) = self._stamps([name]).values()
        await self._patch(name, "json", contents.json_patch(name, stamp))

    async def _patch(self, name: str, how: str, patch: Any) -> None:
        """Patch a document; half of the patches name a version, some of these an old one."""
        versions, chance = self._versions[name], self._random.random()
        after = 0 if chance < 0.4 or not versions else versions[0] if chance < 0.5 else versions[-1]
        made = Content(change={how: patch}, after=after)
        operation = "conditional" if after else how
        await self._send(Single(operation, "PATCH", name, made, _PATCHES[how], orjson.dumps(patch)), refusals=REFUSED)

    # What comes and goes

    async def _keep_alive(self, name: str) -> None:
        """Write a document with a time to live, renew one by writing the same again, or patch it."""
        chance = self._random.random()
        if self._living and chance < 0.4:
            known = self._random.choice(list(self._living.values()))
            await self._send(known._replace(operation="renewed"))
        elif chance < 0.6:
            await self._merge(name)
        else:
            (stamp,) = self._stamps([name]).values()
            value = contents.document(name, stamp, self._other())
            self._living[name] = Single.of(mix.EXPIRING, name, value, self._random.choice(TTLS))
            await self._send(self._living[name])

    async def _play(self, name: str) -> None:
        """Make or delete a member of a collection, or change it; some expire."""
        if name in self._members and self._random.random() < 0.6:
            self._members.discard(name)
            await self._delete(name)
            return
        is_new, ttl = name not in self._members, self._random.choice((0, 0, *TTLS))
        (stamp,) = self._stamps([name]).values()
        value = contents.document(name, stamp, self._other())
        single = Single.of("passing" if ttl else "made" if is_new else mix.GAMES, name, value, ttl)
        headers = {"If-None-Match": "*"} if is_new and self._random.random() > 0.6 else {}
        if await self._send(single, headers=headers, refusals=REFUSED):
            self._members.add(name)

    async def _delete(self, endpoint: str) -> None:
        before = len(self.accepted)
        await super()._delete(endpoint)
        self.operations["deleted"] += len(self.accepted) > before

    async def _send(
        self, single: "Single", *, headers: Mapping[str, str] | None = None, refusals: Collection[int] = ()
    ) -> bool:
        """Send a single write; return whether it was accepted."""
        key, name, made = self._key(), single.name, single.made
        fields = {"Idempotency-Key": key, **(headers or {})}
        if single.media_type:
            fields["Content-Type"] = single.media_type
        if made.after:
            fields["If-Match"] = f'"{made.after}-json"'
        path = f"/v1/data{name}{f'?ttl={made.ttl}' if made.ttl else ''}"
        due = monotonic()
        self.requests += 1
        answer = await self._ask(single.method, path, {name: made}, fields, single.body, refusals=refusals)
        self.latencies.append(monotonic() - due)
        if answer.status != httpx.codes.OK:
            return False
        self._accept([answer.json()], key, {name: made}, answer.begun)
        self.operations[single.operation] += 1
        return True

    def _accept(
        self,
        items: list[dict[str, Any]],
        key: str,
        contents: Mapping[str, Content],
        begun: float,
        *,
        gone: bool = False,
    ) -> None:
        super()._accept(items, key, contents, begun, gone=gone)
        for item in items:
            name, made = item["endpoint"], contents[item["endpoint"]]
            self._versions[name] = [*self._versions[name][-3:], item["version"]]
            if made.ttl:
                self._due[name] = monotonic() + made.ttl
            elif gone or "put" in (made.change or {}):
                self._due.pop(name, None)
