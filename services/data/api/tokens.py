"""``POST /v1/tokens`` and ``GET /v1/tokens/keys``: client tokens for holders of API keys (docs/access.md section 8)."""

from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from diem.links.rest import problem, read_body
from diem.protocol import endpoints
from diem.tokens.claims import EVERYTHING, MAX_PREFIXES
from services.data.access.access import Access
from services.data.access.keys import bearer_key
from services.data.access.plans import MAX_TOKEN_S, MIN_TOKEN_S
from services.data.access.tokens import TokenRequest
from services.data.api.guard import unauthorised
from services.data.api.problems import quota_problem
from services.data.api.requests import has_etag
from services.data.cache_control import NO_CACHE
from services.data.errors import DataError, InvalidDataset, MalformedBody
from services.data.kinds import media_type

MAX_BODY_BYTES: Final = 32 * 1024
MAX_SUBJECT: Final = 100
_JSON: Final = "application/json"


class TokensApi:
    """Handlers of the resources."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def mint(self, request: Request) -> Response:
        """``POST /v1/tokens``: a token for the request's API key, within the limits of key and user."""
        text = bearer_key(request.headers.get("authorization"))
        key = None if text is None else self._access.verify(text)
        plan = None if key is None else self._access.plans.get(key.plan)
        if key is None or plan is None:
            return unauthorised("a token needs an API key")
        body = await read_body(request, MAX_BODY_BYTES)
        if body and media_type(request.headers.get("content-type", "")) != _JSON:
            return problem(415, "unsupported_media_type", f"the body is {_JSON}", headers={"Accept": _JSON})
        try:
            wanted = _wanted(body) if body else TokenRequest()
        except DataError:
            self._access.admit_token_request(key, plan, "")
            raise
        refused = quota_problem(self._access.admit_token_request(key, plan, wanted.subject))
        if refused is not None:
            return refused
        issued = await self._access.tokens.mint(key, plan, wanted)
        answer = orjson.dumps({"token": issued.token, "expires": issued.expires})
        return Response(answer, headers={"Cache-Control": "no-store"}, media_type=_JSON)

    async def keys(self, request: Request) -> Response:
        """``GET /v1/tokens/keys``: the public keys of tokens, for servers; no key needed (RFC 7517)."""
        document = self._access.tokens.document()
        headers = {"ETag": document.etag, "Cache-Control": NO_CACHE}
        if has_etag(request.headers.get("if-none-match"), document.etag):
            return Response(status_code=304, headers=headers)
        return Response(document.body, headers=headers, media_type="application/jwk-set+json")


def _wanted(body: bytes) -> TokenRequest:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"not JSON: {error}") from None
    if not isinstance(found, dict) or not found.keys() <= {"subject", "prefixes", "seconds"}:
        raise InvalidDataset('expected {"subject": ..., "prefixes": [...], "seconds": ...}, each of them optional')
    return TokenRequest(
        subject=_subject(found["subject"]) if "subject" in found else "",
        prefixes=_prefixes(found["prefixes"]) if "prefixes" in found else (),
        seconds=_seconds(found["seconds"]) if "seconds" in found else None,
    )


def _subject(found: object) -> str:
    if not isinstance(found, str) or not found.isprintable() or not 1 <= len(found) <= MAX_SUBJECT:
        raise InvalidDataset(f"a subject has 1 to {MAX_SUBJECT} printable characters", "subject")
    return found


def _prefixes(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_PREFIXES:
        raise InvalidDataset(f"prefixes are a list of 1 to {MAX_PREFIXES} endpoints", "prefixes")
    if not all(isinstance(each, str) and (each == EVERYTHING or endpoints.is_prefix(each)) for each in found):
        raise InvalidDataset('a prefix is "/" or an endpoint', "prefixes")
    return tuple(found)


def _seconds(found: object) -> int:
    if type(found) is not int or not MIN_TOKEN_S <= found <= MAX_TOKEN_S:
        raise InvalidDataset(f"a token is valid for {MIN_TOKEN_S} to {MAX_TOKEN_S} seconds", "seconds")
    return found
