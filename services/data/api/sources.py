"""Positions of sources of records, behind the internal listener: which are stored, and replays from others."""

from collections.abc import Sequence
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from diem.links.rest import read_body
from services.data.errors import InvalidDataset, MalformedBody
from services.data.sources.runner import SourceRunner
from services.data.store.store import Store

PREFIX: Final = "/v1/sources"
START: Final = "start"
"""As a position: the beginning, as the source is configured."""
MAX_BODY_BYTES: Final = 64 * 1024


def source_routes(sources: SourceRunner, store: Store) -> Sequence[Route]:
    """Return the routes of the resource."""

    async def positions(request: Request) -> Response:
        source = sources.change_source(request.path_params["name"])
        intake = source.health.intake
        stopped = None if intake is None else intake.stopped
        answer = {
            "name": source.name,
            "positions": await store.reader.positions(source.name),
            "stopped": None if stopped is None else {"part": stopped[0], "after": stopped[1]},
            "error": source.health.error,
        }
        return _reply(answer)

    async def replay(request: Request) -> Response:
        source = sources.change_source(request.path_params["name"])
        wanted = _wanted(await read_body(request, MAX_BODY_BYTES))
        if wanted.get("skip"):
            intake = source.health.intake
            if intake is None or intake.stopped is None:
                raise InvalidDataset(f"{source.name} has not stopped at a record")
            found = dict([intake.stopped])
        else:
            given = wanted["from"]
            if given != START and "part" not in wanted and len(await store.reader.positions(source.name)) > 1:
                raise InvalidDataset(f"{source.name} has several parts: name the one with this position (part)")
            parts = [wanted["part"]] if "part" in wanted else [*await store.reader.positions(source.name)]
            found = {
                part: "" if given == START else await sources.position_at(source.name, part, given) for part in parts
            }
        await sources.go_on_at(source.name, found, store)
        return await positions(request)

    return [
        Route(PREFIX + "/{name}", positions, methods=["GET"]),
        Route(PREFIX + "/{name}/replay", replay, methods=["POST"]),
    ]


def _wanted(body: bytes) -> dict[str, Any]:
    try:
        raw = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"not JSON: {error}") from None
    fields = {"from": str, "part": str} if isinstance(raw, dict) and "from" in raw else {"skip": bool}
    if not isinstance(raw, dict) or not raw or any(type(raw[name]) is not fields.get(name) for name in raw):
        raise InvalidDataset('expected {"from": POSITION}, perhaps with "part", or {"skip": true}', "$")
    return raw


def _reply(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json", headers={"Cache-Control": "no-store"})
