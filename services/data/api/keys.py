"""Administration of API keys, behind the internal listener, which authenticates (docs/access.md section 3)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from diem.errors import DiemError
from diem.links.rest import client_address, on_defect, on_http_error, problem, read_body
from diem.process import security_log
from diem.process.security_log import UNIX_PEER, SecurityEvent
from diem.protocol.update import iso
from services.data.access.access import Access
from services.data.access.keys import MAX_NAME, Key, is_id, is_name
from services.data.api import problems
from services.data.errors import InvalidDataset, MalformedBody

PREFIX: Final = "/v1/keys"
MAX_BODY_BYTES: Final = 4096
Handler = Callable[[Request], Awaitable[Response]]


def keys_app(access: Access) -> Starlette:
    """Return the application for the paths below :data:`PREFIX`."""

    async def create(request: Request) -> Response:
        name, plan = _wanted(await read_body(request, MAX_BODY_BYTES))
        key, text = await access.create(name, plan)
        _audit(SecurityEvent.KEY_CREATED, request, key)
        # The only answer that contains the secret.
        return _reply({**_entry(key), "key": text}, 201)

    async def all_(_request: Request) -> Response:
        return _reply({"keys": [_entry(key) for key in access.all_keys()], "plans": sorted(access.plans)})

    async def revoke(request: Request) -> Response:
        key_id = request.path_params["key_id"]
        key = await access.revoke(key_id) if is_id(key_id) else None
        if key is None:
            return problem(404, "unknown_key", "there is no API key with this id")
        _audit(SecurityEvent.KEY_REVOKED, request, key)
        return _reply(_entry(key))

    def route(path: str, handler: Handler, method: str) -> Route:
        return Route(PREFIX + path, handler, methods=[method])

    return Starlette(
        routes=[route("", create, "POST"), route("", all_, "GET"), route("/{key_id}", revoke, "DELETE")],
        exception_handlers={
            DiemError: problems.on_data_error,
            HTTPException: on_http_error,
            Exception: on_defect,
        },
    )


def _audit(kind: SecurityEvent, request: Request, key: Key) -> None:
    address = client_address(request.scope) or UNIX_PEER
    security_log.audit(kind, address=address, key_id=key.id, key_name=key.name, plan=key.plan)


def _wanted(body: bytes) -> tuple[str, str]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidDataset('expected {"name": ..., "plan": ...}')
    name, plan = found.get("name"), found.get("plan")
    if not isinstance(name, str) or not is_name(name.strip()):
        raise InvalidDataset(f"a name has 1 to {MAX_NAME} printable characters", "name")
    if not isinstance(plan, str):
        raise InvalidDataset("a plan is needed", "plan")
    return name.strip(), plan


def _entry(key: Key) -> dict[str, Any]:
    revoked = None if key.revoked_ms is None else iso(key.revoked_ms)
    return {"id": key.id, "name": key.name, "plan": key.plan, "created": iso(key.created_ms), "revoked": revoked}


def _reply(value: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json", headers={"Cache-Control": "no-store"})
