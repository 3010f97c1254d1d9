"""``POST /v1/files``: a file as its publisher writes it, read by a mapping (docs/protocol.md section 2.3)."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.errors import ConfigurationError
from diem.links.rest import BodyTooLarge, problem, read_body, retry_after
from diem.protocol import endpoints
from diem.protocol.media_types import DOCUMENT, SERIES
from services.data.access.write_access import WriteRights
from services.data.api.bulk import MAX_ENDPOINTS
from services.data.api.door import WriteDoor, answer_of, record_writes
from services.data.api.requests import coding_refusal, idempotency_key
from services.data.errors import DatasetTooLarge, InvalidDataset, MalformedBody
from services.data.files.grid import InputFile
from services.data.files.layout_text import layout_text
from services.data.files.presets import load_preset, presets
from services.data.files.suggestion import FileWork, Suggestion
from services.data.kinds import Representation
from services.data.large import run_sized
from services.data.sources.config import layout_in
from services.data.sources.tables import MappedTable
from services.data.store import Write
from services.data.store.store import Store

PATH: Final = "/v1/files"
DATASETS: Final = 4
"""Largest datasets in a file, and in what is made of one."""
AT_ONCE: Final = 4
"""Files read at once; their contents are in memory."""
MAX_NAME: Final = 255
MAX_LAYOUT: Final = 8000
"""Characters of a layout; those of a request's head are bounded, too."""
SHOWN: Final = 50
"""Endpoints described in an answer, at most."""
ENDS: Final = 3
"""Points shown of each end of a series."""
CURVE: Final = 96
"""Values of a series for a plot, at most."""
_ASSUMED: Final = {"unit", "resolution", "zone"}
"""Fields that a layout has if they are in question."""
_FILE_NAME: Final = re.compile(rf"[^/\x00-\x1f\x7f]{{1,{MAX_NAME}}}")
_SMALLER: Final = "split it, read it by a [[source]] of diem.toml, or raise DIEM_DATASET_BYTES"


class FilesApi:
    """Handler of the resource. Converting takes a process of its own; at most :data:`AT_ONCE` files are in memory.

    Args:
        store: of the data.
        door: of writes.
        files: converts files, and suggests their layouts.
    """

    def __init__(self, store: Store, door: WriteDoor, files: FileWork) -> None:
        self._store = store
        self._door = door
        self._files = files
        self._free = asyncio.Semaphore(AT_ONCE)

    async def post(self, request: Request, writer: WriteRights) -> Response:
        """Suggest a layout for a file; or convert it by one, and store its endpoints or, as a preview, show them."""
        query = request.query_params
        _check(query)
        if (refusal := coding_refusal(request)) is not None:
            return refusal
        layout = _layout(query)
        if self._free.locked():
            return problem(503, "busy", "too many files at once", headers={"Retry-After": retry_after()})
        async with self._free:
            writer.begin()
            body = await self._body(request)
            file = InputFile(query.get("name", "file"), body, request.headers.get("content-type", ""))
            if layout is None:
                return _json(await self._suggestion(file))
            found = await self._checked(await self._files.convert(file, layout.mapping, layout.target), writer)
            if query.get("preview") == "true":
                return _json(await _described(found, layout.zone))
            return await self._store_all(request, writer, body, found)

    async def _store_all(
        self, request: Request, writer: WriteRights, body: bytes, found: Sequence[Representation]
    ) -> Response:
        writer.confirm([each.endpoint for each in found])
        key = idempotency_key(request, body, writer.id)
        accepted = await self._store.writer.submit(Write(found, key=key, bound=writer.bound, writer=writer.id))
        record_writes(request.scope, writer, len(accepted))
        return _json({"accepted": [answer_of(one) for one in accepted]})

    async def _body(self, request: Request) -> bytes:
        try:
            return await read_body(request, DATASETS * self._door.max_bytes)
        except BodyTooLarge as error:
            raise DatasetTooLarge(f"{error}: {_SMALLER}") from None

    async def _suggestion(self, file: InputFile) -> dict[str, Any]:
        made = await self._files.suggest(file)
        fields = {**(load_preset(made.preset, Path()) if made.preset else {}), **made.fields}
        described = await _described(made.found, fields.get("zone", "UTC"))
        return {**_suggested(made), "presets": presets(), **described}

    async def _checked(self, found: list[Representation], writer: WriteRights) -> list[Representation]:
        """Return content as it is stored; raises DiemError if it may not be, also by this writer."""
        if len(found) > MAX_ENDPOINTS:
            raise InvalidDataset(f"{len(found)} endpoints, at most are {MAX_ENDPOINTS} (keys: where, value)")
        size = sum(len(each.content) for each in found)
        if size > (most := DATASETS * self._door.max_bytes):
            raise DatasetTooLarge(f"its endpoints would have {size} bytes, at most are {most}: {_SMALLER}")
        checked = await self._door.parse(partial(self._door.bulk, found), size)
        writer.check([each.endpoint for each in checked])
        for each in checked:
            self._door.refuse_owned(each.endpoint)
        return checked


def _suggested(made: Suggestion) -> dict[str, Any]:
    """Return a layout, with what is assumed in it, and the words about it."""
    fields = made.layout
    for question in made.questions:
        if question.key in _ASSUMED:
            fields.setdefault(question.key, question.assumed)
    return {
        "endpoint": made.fields.get("prefix") or made.fields.get("endpoint") or f"/{made.name}",
        "preset": made.preset,
        "layout": layout_text(fields, made.keys),
        "notes": [{"key": key, "text": text} for key, text in made.notes],
        "questions": [
            {"key": each.key, "assumed": each.assumed, "text": each.reason, "others": each.others}
            for each in made.questions
        ],
        "problem": made.problem,
    }


def _check(query: Mapping[str, str]) -> None:
    if _FILE_NAME.fullmatch(query.get("name", "file")) is None:
        raise MalformedBody(f"name is that of the file, 1 to {MAX_NAME} characters without /")
    if query.get("preview", "false") not in {"true", "false"}:
        raise MalformedBody("preview is true or false")
    if len(query.get("layout", "")) > MAX_LAYOUT:
        raise MalformedBody(f"a layout has at most {MAX_LAYOUT} characters: use a preset's file with `diem put`")


def _layout(query: Mapping[str, str]) -> MappedTable | None:
    """Return the layout by which a file is converted; None to suggest one."""
    if "endpoint" not in query:
        if "preset" in query or "layout" in query:
            raise InvalidDataset(
                "preset and layout need endpoint; without these three, a layout is suggested", "endpoint"
            )
        return None
    endpoint = endpoints.check_written(query["endpoint"])
    try:
        return layout_in(query.get("layout", ""), query.get("preset", ""), endpoint)
    except ConfigurationError as error:
        raise InvalidDataset(str(error), "layout") from None


async def _described(found: Sequence[Representation], zone: str) -> dict[str, Any]:
    shown = found[:SHOWN]
    size = sum(len(each.content) for each in shown)
    described = await run_sized(lambda: [*map(_summary, shown)], size)
    return {"zone": zone, "count": len(found), "endpoints": described}


def _summary(made: Representation) -> dict[str, Any]:
    common = {"endpoint": made.endpoint, "title": made.title, "media_type": made.media_type, "bytes": len(made.content)}
    if made.media_type != SERIES:
        return common
    points = orjson.loads(made.content)["points"]
    series = {"unit": made.label("unit"), "resolution": made.label("resolution"), "points": len(points)}
    ends = {"first": points[:ENDS], "last": points[ENDS:][-ENDS:]}
    return {**common, **series, **ends, "curve": _curve([point["value"] for point in points])}


def _curve(values: Sequence[float | None]) -> Sequence[float | None]:
    """Return at most :data:`CURVE` values: of longer series, the least and the greatest of consecutive parts."""
    if len(values) <= CURVE:
        return values
    parts = CURVE // 2
    made: list[float | None] = []
    for number in range(parts):
        part = values[len(values) * number // parts : len(values) * (number + 1) // parts]
        given = [value for value in part if value is not None]
        made += [min(given), max(given)] if given else [None, None]
    return made


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), headers={"Cache-Control": "no-store"}, media_type=DOCUMENT)
