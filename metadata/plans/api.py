"""Plans over REST, behind the internal listener, which authenticates (docs/internals.md section 5).

Separate from ``main``, its only importer, as this package's only part that depends on HTTP.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from diem.errors import DiemError
from diem.kafka.errors import KafkaUnavailable
from diem.links.rest import client_address, problem
from diem.process import security_log
from diem.process.security_log import UNIX_PEER, SecurityEvent
from metadata.plans.plan import MAX_BYTES, BadPlan, PlanTooLarge, decode
from metadata.plans.plan_service import PlanConflict, PlanNotFound, PlanService
from metadata.plans.plan_store import PlanNotStored

PREFIX: Final = "/v1/plans"
Handler = Callable[[Request], Awaitable[Response]]
_ANSWERS: Final[dict[type[DiemError], tuple[int, str]]] = {
    BadPlan: (422, "bad_plan"),
    PlanTooLarge: (413, "too_large"),
    PlanNotFound: (404, "unknown_plan"),
    PlanConflict: (409, "conflict"),
    PlanNotStored: (507, "not_kept"),
    KafkaUnavailable: (503, "kafka_unavailable"),
}


def plans_app(plans: PlanService) -> Starlette:
    """Return the application for all paths below :data:`PREFIX`."""

    async def submit(request: Request) -> Response:
        # Off the event loop: decoding a plan of a million endpoints takes seconds.
        plan = await asyncio.to_thread(decode, await _body(request))
        answer = await plans.submit(plan)
        _audit(SecurityEvent.PLAN_SUBMITTED, request, plan.id)
        return _reply(answer, 201)

    async def list_plans(_request: Request) -> Response:
        return _reply({"plans": await plans.all()})

    async def status(request: Request) -> Response:
        return _reply(await plans.status(request.path_params["name"]))

    async def report(request: Request) -> Response:
        return _reply(dict(await plans.report(request.path_params["name"])))

    async def apply(request: Request) -> Response:
        answer = await plans.apply(request.path_params["name"])
        _audit(SecurityEvent.PLAN_APPLIED, request, request.path_params["name"])
        return _reply(answer, 202)

    async def rollback(request: Request) -> Response:
        answer = await plans.rollback(request.path_params["name"])
        _audit(SecurityEvent.PLAN_ROLLED_BACK, request, request.path_params["name"])
        return _reply(answer, 202)

    def route(path: str, handler: Handler, method: str) -> Route:
        return Route(PREFIX + path, _answering(handler), methods=[method])

    return Starlette(
        routes=[
            route("", submit, "POST"),
            route("", list_plans, "GET"),
            route("/{name}", status, "GET"),
            route("/{name}/report", report, "GET"),
            route("/{name}/apply", apply, "POST"),
            route("/{name}/rollback", rollback, "POST"),
        ]
    )


def _answering(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except tuple(_ANSWERS) as error:
            status, code = _ANSWERS[type(error)]
            return problem(status, code, str(error), headers={"Retry-After": "1"} if status == 503 else None)

    return answer


def _audit(kind: SecurityEvent, request: Request, plan: str) -> None:
    security_log.audit(kind, address=client_address(request.scope) or UNIX_PEER, plan=plan)


async def _body(request: Request) -> bytes:
    body, excess = bytearray(), 0
    async for part in request.stream():
        if len(body) + len(part) <= MAX_BYTES and not excess:
            body += part
        else:
            excess += len(part)
        # An oversized body is read nevertheless, or the client might miss the answer; but not without limit.
        if excess > MAX_BYTES:
            break
    if excess:
        raise PlanTooLarge(f"a plan has at most {MAX_BYTES >> 20} MiB")
    return bytes(body)


def _reply(status: dict[str, Any], code: int = 200) -> Response:
    return Response(orjson.dumps(status), code, media_type="application/json", headers={"Cache-Control": "no-store"})
