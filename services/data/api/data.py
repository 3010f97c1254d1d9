"""The resources under ``/v1``: catalogue, single and bulk writes (docs/protocol.md section 2)."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.links.rest import BodyTooLarge, problem, read_body
from diem.protocol import endpoints
from diem.protocol.media_types import essence
from diem.protocol.update import TRACE_HEADER
from services.data import kinds
from services.data.access.write_access import WriteRights
from services.data.api import bulk, cost
from services.data.api.catalogue import ENTRIES_PER_REQUEST, MAX_ENTRIES, Catalogue, CataloguePage
from services.data.api.door import WriteDoor, answer_of, record_writes
from services.data.api.guard import rights_of, writer_of
from services.data.api.requests import (
    accepts_gzip,
    coding_refusal,
    endpoint_of,
    has_etag,
    idempotency_key,
    precondition_of,
    ttl_ms,
)
from services.data.cache_control import NO_CACHE
from services.data.errors import DatasetTooLarge
from services.data.kinds import DOCUMENT, Body
from services.data.kinds.prefixes import Prefix
from services.data.limits import SMALLER
from services.data.store import Change, Deletion, Write
from services.data.store.store import Store

if TYPE_CHECKING:
    # Its HTTP client is loaded only where a topic is served.
    from services.data.api.retained import RetainedReads


class DataApi:
    """Handlers of the resources.

    Args:
        store: of the data.
        catalogue: of the store.
        door: of writes.
        retained: of a served topic, whose endpoints are listed instead.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, door: WriteDoor, retained: "RetainedReads | None" = None
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._retained = retained
        self._door = door

    async def catalogue(self, request: Request) -> Response:
        """``GET /v1/endpoints``: the reader's endpoints, in parts; with ``?gone=true`` deleted ones, too."""
        wanted = _wanted_part(request)
        if isinstance(wanted, str):
            return problem(400, "bad_query", wanted)
        wanted = wanted._replace(rights=rights_of(request.scope))
        if self._retained is not None:
            listed = await self._retained.catalogue(wanted)
            return Response(listed, headers={"Cache-Control": "no-store"}, media_type=DOCUMENT)
        compress = accepts_gzip(request.headers.get("accept-encoding"))
        # Writers see their own writes; others may get a part up to a second old.
        fresh = writer_of(request.scope) is not None
        part, made = await self._catalogue.part(wanted, fresh=fresh, compressed=compress)
        cost.add(request, made // ENTRIES_PER_REQUEST)
        body = (await part.compressed() if compress else b"") or part.body
        coded = body is not part.body
        etags = {True: f'"{part.etag}-gzip"', False: f'"{part.etag}"'}
        headers = {"ETag": etags[coded], "Cache-Control": NO_CACHE, "Vary": "Accept-Encoding, Authorization"}
        condition = request.headers.get("if-none-match")
        if any(has_etag(condition, etag) for etag in etags.values()):
            return Response(status_code=304, headers=headers)
        if coded:
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers, media_type=DOCUMENT)

    async def put(self, request: Request, writer: WriteRights) -> Response:
        """``PUT /v1/data/{endpoint}``: the content of one endpoint; its media type names the kind."""
        endpoint = endpoint_of(request)
        rules = self._door.enter(endpoint, writer)
        media_type = kinds.media_type(request.headers.get("content-type", ""))
        if media_type == DOCUMENT and rules.kind == "series":
            media_type = kinds.SERIES
        if (refusal := _refusal(media_type, rules, request)) is not None:
            return refusal
        body = Body(await self._content(request), media_type, request.query_params)
        parse = partial(self._door.content, endpoint, rules, body, ttl_ms(body.fields))
        made = await self._door.parse(parse, len(body.content))
        writer.confirm()
        return await self._submit(request, writer, body.content, made)

    async def post(self, request: Request, writer: WriteRights) -> Response:
        """``POST /v1/data/{endpoint}`` without a body: the news of a change of data that lives elsewhere."""
        endpoint = endpoint_of(request)
        rules = self._door.enter(endpoint, writer)
        if rules.kind not in {"", "notice"}:
            return _unsupported(f"endpoints below {rules.name} are of the kind {rules.kind}: PUT their content")
        if await read_body(request, self._door.max_bytes):
            return _unsupported("POST takes no body and announces a change of data elsewhere: PUT stores content")
        made = self._door.notice(endpoint, rules, request.query_params, ttl_ms(request.query_params))
        writer.confirm()
        return await self._submit(request, writer, b"", made)

    async def patch(self, request: Request, writer: WriteRights) -> Response:
        """``PATCH /v1/data/{endpoint}``: change a part of the content, by a media type of its kind's patches."""
        endpoint = endpoint_of(request)
        rules = self._door.enter(endpoint, writer)
        media_type = kinds.media_type(request.headers.get("content-type", ""))
        if media_type not in kinds.PATCHES:
            every = ", ".join(sorted(kinds.PATCHES))
            return _unsupported(f"a PATCH is one of {every}", {"Accept-Patch": every})
        if (refusal := coding_refusal(request)) is not None:
            return refusal
        body = Body(await self._content(request), media_type, request.query_params)
        patch = self._door.patch(endpoint, rules, body, ttl_ms(body.fields))
        writer.confirm()
        return await self._submit(request, writer, body.content, patch)

    async def put_bulk(self, request: Request, writer: WriteRights) -> Response:
        """``PUT /v1/data``: several series and documents, all or none."""
        writer.begin()
        if kinds.media_type(request.headers.get("content-type", "")) != DOCUMENT:
            return _unsupported(f"a request for several endpoints is {DOCUMENT} in UTF-8", {"Accept": DOCUMENT})
        if (refusal := coding_refusal(request)) is not None:
            return refusal
        if "if-match" in request.headers or "if-none-match" in request.headers:
            return problem(400, "malformed", "If-Match and If-None-Match are for writes of one endpoint")
        content = await read_body(request, 2 * self._door.max_bytes)
        parsed = await self._door.parse(lambda: self._door.bulk(bulk.parse(content)), len(content))
        writer.confirm([each.endpoint for each in parsed])
        for each in parsed:
            self._door.refuse_owned(each.endpoint)
        accepted = await self._store.writer.submit(
            Write(
                parsed,
                key=idempotency_key(request, content, writer.id),
                bound=writer.bound,
                writer=writer.id,
                traceparent=self._traceparent(request),
            )
        )
        record_writes(request.scope, writer, len(parsed))
        return _Accepted({"accepted": [answer_of(one) for one in accepted]})

    async def delete(self, request: Request, writer: WriteRights) -> Response:
        """``DELETE /v1/data/{endpoint}``: delete the endpoint; a later PUT creates it again."""
        endpoint = endpoint_of(request)
        self._door.enter(endpoint, writer)
        return await self._submit(request, writer, b"", Deletion(endpoint))

    async def _content(self, request: Request) -> bytes:
        try:
            return await read_body(request, self._door.max_bytes)
        except BodyTooLarge as error:
            raise DatasetTooLarge(f"{error}: {SMALLER}") from None

    def _traceparent(self, request: Request) -> str | None:
        return None if self._store.writer.tracer is None else request.headers.get(TRACE_HEADER)

    async def _submit(self, request: Request, writer: WriteRights, body: bytes, change: Change) -> Response:
        write = Write(
            [change],
            key=idempotency_key(request, body, writer.id),
            bound=writer.bound,
            precondition=precondition_of(request.headers),
            writer=writer.id,
            traceparent=self._traceparent(request),
        )
        (accepted,) = await self._store.writer.submit(write)
        record_writes(request.scope, writer, 1)
        return _Accepted(answer_of(accepted))


_FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


def _refusal(media_type: str, rules: Prefix, request: Request) -> Response | None:
    """Return the answer to content that is not stored by PUT; None if it may be."""
    if not media_type or essence(media_type) in _FORMS:
        # curl's default for -d, and nobody's content.
        detail = "name the media type of the body: Content-Type: application/json for JSON (curl: --json)"
        return _unsupported(f"{detail}, {kinds.SERIES} or {kinds.CSV} for a series; text is in UTF-8")
    kind = kinds.kind_of(media_type).name
    if kind in {"notice", "collection"}:
        return _unsupported(f"a {kind} has no content to PUT")
    if rules.kind and kind != rules.kind:
        return _unsupported(f"endpoints below {rules.name} are of the kind {rules.kind}, not {kind}")
    if media_type in kinds.PATCHES:
        return _unsupported(f"{media_type} is the body of a PATCH, and no content")
    return coding_refusal(request)


def _wanted_part(request: Request) -> CataloguePage | str:
    """Return the requested part of the catalogue, or the fault of the query."""
    query = request.query_params
    gone, after, limit = query.get("gone", "false"), query.get("after"), query.get("limit", str(MAX_ENTRIES))
    if gone not in {"true", "false"}:
        return "gone is true or false"
    if after is not None and not endpoints.is_valid(after):
        return "after is the name of an endpoint"
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 9 and 1 <= int(limit) <= MAX_ENTRIES):
        return f"limit is a number from 1 to {MAX_ENTRIES}"
    return CataloguePage(gone == "true", after or "", int(limit))


class _Accepted(Response):
    """The answer to a write: all of its header fields are known."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.status_code = 200
        self.background = None
        self.body = orjson.dumps(value)
        length = b"%d" % len(self.body)
        self.raw_headers = [
            (b"cache-control", b"no-store"), (b"content-length", length), (b"content-type", DOCUMENT.encode())
        ]  # fmt: skip


def _unsupported(detail: str, headers: dict[str, str] | None = None) -> Response:
    return problem(415, "unsupported_media_type", detail, headers=headers)
