"""The resources under ``/v1``: catalogue, single and bulk writes (docs/protocol.md section 6)."""

from collections.abc import Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.links.rest import BodyTooLarge, client_address, problem, read_body
from diem.process import security_log
from diem.process.security_log import SecurityEvent
from diem.protocol import endpoints
from services.data import datasets
from services.data.access.write_access import WriteRights
from services.data.api import cost
from services.data.api.catalogue import ENTRIES_PER_REQUEST, MAX_ENTRIES, Catalogue, CataloguePage
from services.data.api.guard import rights_of, unauthorised_write, writer_of
from services.data.api.rendered import CSV, JSON
from services.data.api.requests import (
    accepts_gzip,
    described,
    endpoint_of,
    has_etag,
    idempotency_key,
    is_coded,
    media_type,
)
from services.data.cache_control import NO_CACHE
from services.data.errors import DatasetTooLarge, OwnedBySource
from services.data.store import Accepted, Store, Write

OwnerOf = Callable[[str], str | None]
"""Returns the name of the source that claims an endpoint; None if there is none."""


class DataApi:
    """Handlers of the resources. A source's endpoints are read-only: two writers would overwrite each other."""

    def __init__(self, store: Store, catalogue: Catalogue, owner_of: OwnerOf) -> None:
        self._store = store
        self._owner_of = owner_of
        self._catalogue = catalogue

    async def catalogue(self, request: Request) -> Response:
        """``GET /v1/endpoints``: the reader's endpoints, in parts; with ``?gone=true`` deleted ones, too."""
        wanted = _wanted_part(request)
        if isinstance(wanted, str):
            return problem(400, "bad_query", wanted)
        wanted = wanted._replace(rights=rights_of(request.scope))
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
        return Response(body, headers=headers, media_type=JSON)

    async def put(self, request: Request) -> Response:
        """``PUT /v1/data/{endpoint}``: one dataset, JSON or CSV."""
        writer = writer_of(request.scope)
        if writer is None:
            return unauthorised_write(request.scope)
        endpoint = endpoint_of(request)
        writer.begin(endpoint)
        self._refuse_owned(endpoint)
        kind = media_type(request.headers.get("content-type"))
        if kind not in {JSON, CSV}:
            return _unsupported(f"{JSON} or {CSV}")
        if is_coded(request.headers.get("content-encoding")):
            return _unsupported_coding()
        try:
            body = await read_body(request, datasets.MAX_DATASET_BYTES)
        except BodyTooLarge as error:
            raise DatasetTooLarge(f"{error}: {datasets.SMALLER}") from None
        dataset = datasets.parse_single(endpoint, body) if kind == JSON else self._from_csv(endpoint, body, request)
        if request.query_params:
            dataset = described(dataset, request.query_params)
        writer.confirm()
        (accepted,) = await self._store.writer.submit(
            Write([dataset], key=idempotency_key(request, body, writer.id), bound=writer.bound)
        )
        _record_write(request, writer, 1)
        return _json(_answer(accepted))

    async def put_bulk(self, request: Request) -> Response:
        """``PUT /v1/data``: up to 50 datasets, all or none."""
        writer = writer_of(request.scope)
        if writer is None:
            return unauthorised_write(request.scope)
        writer.begin()
        if media_type(request.headers.get("content-type")) != JSON:
            return _unsupported(JSON)
        if is_coded(request.headers.get("content-encoding")):
            return _unsupported_coding()
        body = await read_body(request, datasets.MAX_BULK_BYTES)
        parsed = datasets.parse_bulk(body)
        writer.confirm([dataset.endpoint for dataset in parsed])
        for dataset in parsed:
            self._refuse_owned(dataset.endpoint)
        accepted = await self._store.writer.submit(
            Write(parsed, key=idempotency_key(request, body, writer.id), bound=writer.bound)
        )
        _record_write(request, writer, len(parsed))
        return _json({"accepted": [_answer(one) for one in accepted]})

    async def delete(self, request: Request) -> Response:
        """``DELETE /v1/data/{endpoint}``: delete the endpoint; a later PUT creates it again."""
        writer = writer_of(request.scope)
        if writer is None:
            return unauthorised_write(request.scope)
        endpoint = endpoint_of(request)
        writer.begin(endpoint)
        self._refuse_owned(endpoint)
        accepted = await self._store.writer.delete(endpoint, key=idempotency_key(request, b"", writer.id))
        _record_write(request, writer, 1)
        return _json(_answer(accepted))

    def _refuse_owned(self, endpoint: str) -> None:
        owner = self._owner_of(endpoint)
        if owner is not None:
            raise OwnedBySource(endpoint, owner)

    def _from_csv(self, endpoint: str, body: bytes, request: Request) -> datasets.Dataset:
        head = self._store.index.heads.get(endpoint)
        known = (head.unit, head.resolution) if head is not None and not head.gone else (None, None)
        (dataset,) = datasets.rows_to_datasets(
            datasets.parse_csv(body),
            endpoint=endpoint,
            unit_=request.query_params.get("unit") or known[0],
            resolution=request.query_params.get("resolution") or known[1],
            zone=request.query_params.get("zone", ""),
        )
        return dataset


def _record_write(request: Request, writer: WriteRights, changes: int) -> None:
    address = client_address(request.scope)
    security_log.record(SecurityEvent.WRITES, address=address, key_name=writer.name, changes=changes)


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


def _answer(accepted: Accepted) -> dict[str, Any]:
    return {"endpoint": accepted.endpoint, "version": accepted.version, "changed": accepted.changed}


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), headers={"Cache-Control": "no-store"}, media_type=JSON)


def _unsupported(expected: str) -> Response:
    headers = {"Accept": expected.replace(" or ", ", ")}
    return problem(415, "unsupported_media_type", f"the body must be {expected} in UTF-8", headers=headers)


def _unsupported_coding() -> Response:
    detail = "the body must not be compressed: send it without Content-Encoding"
    return problem(415, "unsupported_coding", detail, headers={"Accept-Encoding": "identity"})
