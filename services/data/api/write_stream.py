"""``POST /v1/data``: a stream of writes, one JSON object a line, each answered with a line once it is on the disk."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from diem.errors import DiemError
from diem.links.http_server import STREAM
from diem.links.rest import problem
from diem.protocol import endpoints
from diem.protocol.media_types import JSON_PATCH, MERGE_PATCH, POINTS_PATCH
from services.data import kinds
from services.data.access.write_access import WriteRights
from services.data.api import problems
from services.data.api.door import WriteDoor, answer_of, record_writes
from services.data.api.requests import MAX_KEY_CHARACTERS, coding_refusal, is_key, ttl_ms
from services.data.errors import InvalidDataset, MalformedBody
from services.data.kinds import DOCUMENT, Body
from services.data.kinds.json_text import load, written
from services.data.store import Accepted, Change, Deletion, IdempotencyKey, Precondition, Write
from services.data.store.store import Store

NDJSON: Final = "application/x-ndjson"
WINDOW: Final = 256
"""Maximum number of writes of a stream without an answer; then it reads no further."""
_CONTENT: Final = {"value": DOCUMENT, "series": kinds.SERIES}
_PATCHES: Final = {"merge": MERGE_PATCH, "patch": JSON_PATCH, "points": POINTS_PATCH}
_TYPES: Final = _CONTENT | _PATCHES
_EFFECTS: Final = frozenset({*_TYPES, "delete", "notice"})
_OPTIONS: Final = frozenset({"endpoint", "key", "ttl", "if_match", "title"})

Answer = dict[str, Any]


@dataclass(slots=True)
class _Line:
    """A line of the stream, whose answer may still come."""

    number: int
    waiting: "asyncio.Future[list[Accepted]] | None" = None
    fault: BaseException | None = None

    @property
    def is_begun(self) -> bool:
        """True if the write is queued or refused."""
        return self.fault is not None or self.waiting is not None

    @property
    def is_known(self) -> bool:
        """True if there is an answer."""
        return self.fault is not None or (self.waiting is not None and self.waiting.done())

    def answer(self) -> Answer:
        """Return the answer; raises what is no refusal."""
        fault = self.fault if self.waiting is None else self.waiting.exception()
        if isinstance(fault, DiemError):
            return {"line": self.number, **problems.description_of(fault)}
        if fault is not None or self.waiting is None:
            raise fault or RuntimeError("a line without an answer")
        return {"line": self.number, **answer_of(self.waiting.result()[0])}


class StreamApi:
    """Handler of the resource.

    Lines are independent: a refused one does not affect the others. Their order is kept. A stream has up to
    :data:`WINDOW` writes in progress, so that the sender is slowed down by its connection, not by refusals.

    Args:
        store: of the data.
        door: of writes.
    """

    def __init__(self, store: Store, door: WriteDoor) -> None:
        self.queue = store.writer.queue
        self._door = door

    async def post(self, request: Request, writer: WriteRights) -> Response:
        """Answer a stream with a stream."""
        if kinds.media_type(request.headers.get("content-type", "")) != NDJSON:
            return problem(415, "unsupported_media_type", f"a stream of writes is {NDJSON}", headers={"Accept": NDJSON})
        if (refusal := coding_refusal(request)) is not None:
            return refusal
        return _Streaming(self, writer)

    @property
    def max_bytes(self) -> int:
        """Largest content of an endpoint."""
        return self._door.max_bytes

    async def write_of(self, text: bytes, writer: WriteRights) -> Write:
        """Return the write of a line; raises DiemError."""
        raw = await self._door.parse(lambda: _object(text), len(text))
        effects = raw.keys() & _EFFECTS
        if len(effects) != 1 or not raw.keys() <= _EFFECTS | _OPTIONS:
            expected = ", ".join(sorted(_EFFECTS))
            raise InvalidDataset(f"a line has endpoint, one of {expected}, and at most key, ttl, if_match, title", "$")
        (effect,) = effects
        endpoint = raw.get("endpoint")
        if type(endpoint) is not str:
            raise InvalidDataset("expected a string", "$.endpoint")
        endpoints.check(endpoint)
        rules = self._door.enter(endpoint, writer)
        # A stream may outlive its key.
        writer.confirm()
        fields = {"title": raw.get("title", "")}
        if type(fields["title"]) is not str:
            raise InvalidDataset("expected a string", "$.title")
        ttl = ttl_ms({"ttl": str(raw["ttl"])}) if "ttl" in raw else 0
        change: Change
        if effect == "delete":
            change = Deletion(endpoint)
        elif effect == "notice":
            change = self._door.notice(endpoint, rules, fields, ttl)
        else:
            body = Body(orjson.dumps(raw[effect]), _TYPES[effect], fields)
            if effect in _PATCHES:
                change = self._door.patch(endpoint, rules, body, ttl)
            else:
                make = self._door.document if effect == "value" else self._door.content
                change = await self._door.parse(partial(make, endpoint, rules, body, ttl), len(text))
        return Write(
            [change],
            key=_key(raw, text, writer),
            bound=writer.bound,
            precondition=_condition(raw),
            writer=writer.id,
        )


class _Streaming(Response):
    """The answer: read and write at the same time."""

    def __init__(self, api: StreamApi, writer: WriteRights) -> None:
        super().__init__(headers={"Cache-Control": "no-store"}, media_type=NDJSON)
        del self.headers["content-length"]
        self._api = api
        self._writer = writer
        self._lines: deque[_Line] = deque()
        """Those without an answer."""
        self._count = 0
        self._ended = False
        self._changed = asyncio.Condition()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer each line in order; the stream ends after the last one, or with the first one that is too long."""
        if (mark := scope.get(STREAM)) is not None:
            mark()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._answer(send))
            with suppress(ClientDisconnect):
                await self._read(Request(scope, receive))
            async with self._changed:
                self._ended = True
                self._changed.notify_all()
        record_writes(scope, self._writer, self._count)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read(self, request: Request) -> None:
        rest = bytearray()
        async for chunk in request.stream():
            *complete, after = chunk.split(b"\n")
            for text in complete:
                await self._take(bytes(rest) + text if rest else text)
                rest.clear()
            # Not a copy of a long line for each of its pieces.
            rest += after
            if len(rest) > 2 * self._api.max_bytes:
                break
            async with self._changed:
                self._changed.notify_all()
        await self._take(bytes(rest))

    async def _take(self, text: bytes) -> None:
        """Begin the write of a line; wait while too many are in progress."""
        self._count += 1
        if not text.strip():
            return
        if len(self._lines) >= WINDOW:
            async with self._changed:
                self._changed.notify_all()
                await self._changed.wait_for(lambda: len(self._lines) < WINDOW)
        line = _Line(self._count)
        self._lines.append(line)
        try:
            line.waiting = await self._api.queue(await self._api.write_of(text, self._writer))
        except DiemError as error:
            line.fault = error

    async def _answer(self, send: Send) -> None:
        """Send the answers in order, as soon as they are known, until the end of the stream."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._ended or (self._lines and self._lines[0].is_begun))
            if not self._lines:
                return
            if (waiting := self._lines[0].waiting) is not None:
                await asyncio.wait({waiting})
            answers = []
            while self._lines and self._lines[0].is_known:
                answers.append(orjson.dumps(self._lines.popleft().answer(), option=orjson.OPT_APPEND_NEWLINE))
            await send({"type": "http.response.body", "body": b"".join(answers), "more_body": True})
            async with self._changed:
                self._changed.notify_all()


def _object(text: bytes) -> dict[str, Any]:
    raw = load(text)
    if type(raw) is not dict:
        raise InvalidDataset("a line is an object", "$")
    # Refuses repeated fields and inexact numbers.
    written(raw, text)
    return raw


def _key(raw: dict[str, Any], text: bytes, writer: WriteRights) -> IdempotencyKey | None:
    key = raw.get("key")
    if key is None:
        return None
    if type(key) is not str or not is_key(key):
        raise MalformedBody(f"a key has 1 to {MAX_KEY_CHARACTERS} printable ASCII characters")
    return IdempotencyKey(key, blake2b(text, digest_size=16).digest(), writer.id)


def _condition(raw: dict[str, Any]) -> Precondition | None:
    match raw.get("if_match"):
        case None:
            return None
        case "*":
            return Precondition()
        case 0:
            return Precondition(exists=False)
        case int(version) if version > 0:
            return Precondition(frozenset({version}))
        case _:
            raise InvalidDataset("expected a version, 0 for no endpoint yet, or *", "$.if_match")
