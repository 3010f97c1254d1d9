"""``POST /v1/hooks/{name}``: deliveries of webhooks, which prove by their signatures from whom they are."""

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from diem.links.rest import client_address, problem, read_body, retry_after
from diem.process import security_log
from diem.process.clock import Clock
from diem.process.limits import AddressRateLimiter
from diem.process.security_log import SecurityEvent
from services.data.api.door import answer_of
from services.data.api.requests import coding_refusal
from services.data.sources.webhook.signatures import Signed, Unverified
from services.data.sources.webhook.source import WebhookSource

MAX_IN_PROGRESS: Final = 128
"""Maximum number of deliveries in progress, whose bodies are in memory before it is known from whom they are."""


class HooksApi:
    """Handler of the resource.

    Args:
        hooks: webhooks by name.
        rate_limiter: of addresses, which has charged each request; refunded for verified ones.
        clock: of the rate.
    """

    def __init__(self, hooks: Mapping[str, WebhookSource], rate_limiter: AddressRateLimiter, clock: Clock) -> None:
        self._hooks = hooks
        self._rate_limiter = rate_limiter
        self._clock = clock
        self._in_progress = 0

    async def post(self, request: Request) -> Response:
        """Store a delivery."""
        hook = self._hooks.get(request.path_params["name"])
        if hook is None:
            return problem(404, "unknown_hook", "there is no webhook of this name: it needs a [[source]] in diem.toml")
        if self._in_progress >= MAX_IN_PROGRESS:
            return problem(503, "busy", "too many deliveries at once", headers={"Retry-After": retry_after()})
        self._in_progress += 1
        try:
            return await self._accept(hook, request)
        except Unverified as error:
            hook.count_unverified(error)
            address = client_address(request.scope)
            kind, name = SecurityEvent.WRONG_SIGNATURE, f"webhook {hook.name}"
            security_log.record(kind, address=address, key_name=name, code=401, detail=error.reason)
            return problem(401, "unverified", str(error), headers={"WWW-Authenticate": 'Signature realm="DIEM"'})
        finally:
            self._in_progress -= 1

    async def _accept(self, hook: WebhookSource, request: Request) -> Response:
        headers = dict(request.headers)
        signed = hook.signed(headers)
        if (refusal := coding_refusal(request)) is not None:
            return refusal
        body = await self._verified(hook, signed, request)
        accepted = await hook.store(signed, headers, body)
        answer = {"accepted": [answer_of(each) for each in accepted]}
        return JSONResponse(answer, headers={"Cache-Control": "no-store"})

    async def _verified(self, hook: WebhookSource, signed: Signed, request: Request) -> bytes:
        body = await read_body(request, hook.max_bytes)
        await hook.verify(signed, body)
        self._rate_limiter.refund(client_address(request.scope), self._clock.monotonic())
        return body
