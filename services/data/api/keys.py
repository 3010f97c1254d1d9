"""Administration of API keys, write keys and signing keys, behind the internal listener (docs/access.md section 3).

Edges report the data sent with updates there, below the same path (section 5).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from diem.errors import DiemError
from diem.links.rest import client_address, on_defect, on_http_error, problem, read_body
from diem.process import security_log
from diem.process.listeners import web_origin
from diem.process.security_log import UNIX_PEER, SecurityEvent
from diem.protocol import endpoints
from diem.protocol.update import iso
from diem.tokens.claims import MAX_ORIGIN, MAX_ORIGINS
from services.data.access.access import Access, ReadReport
from services.data.access.keys import (
    DEFAULT_ENDPOINTS,
    MAX_ENDPOINTS,
    MAX_NAME,
    MAX_PREFIXES,
    Key,
    WriteTerms,
    is_id,
    is_name,
)
from services.data.access.plans import DAY_S, MAX_PER_MINUTE
from services.data.access.signing import SigningKeyStatus
from services.data.api import problems
from services.data.errors import InvalidDataset, MalformedBody

PREFIX: Final = "/v1/keys"
SIGNING: Final = "/signing"
"""Path below :data:`PREFIX` of the signing keys of client tokens; never an id of another key."""
MAX_BODY_BYTES: Final = 32 * 1024
MAX_REPORT_BYTES: Final = 256 * 1024
MAX_REPORTED_KEYS: Final = 2000
"""Maximum number of keys per report of reads: 1,000 with reads, and as many with used-up quotas."""
MAX_READS: Final = 10**9
"""Maximum number of reads of one key in a report, and of reports by a process."""
MAX_LIFETIME_S: Final = 10 * 366 * DAY_S
SIGNING_KEY: Final = "client tokens"
"""Name of signing keys in the log."""
_FIELDS: Final = frozenset(
    {"name", "plan", "lifetime_seconds", "writes", "prefixes", "per_minute", "origins", "endpoints"}
)
Handler = Callable[[Request], Awaitable[Response]]


def internal_app(access: Access, routes: Sequence[Route] = ()) -> Starlette:
    """Return the application for the paths below :data:`PREFIX`, and for other ``routes`` of the internal listener."""

    def entry(key: Key) -> dict[str, Any]:
        return _entry(key, access.last_use.of(key))

    async def create(request: Request) -> Response:
        wanted = _wanted(await read_body(request, MAX_BODY_BYTES))
        if wanted.writes is None:
            key, text = await access.create(
                wanted.name, wanted.plan, lifetime_s=wanted.lifetime_s, origins=wanted.origins
            )
        else:
            key, text = await access.create_writer(wanted.name, wanted.writes, lifetime_s=wanted.lifetime_s)
        _audit(SecurityEvent.KEY_CREATED, request, key)
        # The only answer with the secret.
        return _reply({**entry(key), "key": text}, 201)

    async def all_(_request: Request) -> Response:
        return _reply({"keys": [entry(key) for key in access.all_keys()], "plans": sorted(access.plans)})

    async def revoke(request: Request) -> Response:
        key_id = request.path_params["key_id"]
        key = await access.revoke(key_id) if is_id(key_id) else None
        if key is None:
            return problem(404, "unknown_key", "there is no API key with this id")
        _audit(SecurityEvent.KEY_REVOKED, request, key)
        return _reply(entry(key))

    async def all_signing(_request: Request) -> Response:
        return _reply({"keys": [_signing_entry(each) for each in access.tokens.signing.status()]})

    async def rotate(request: Request) -> Response:
        made = access.tokens.signing.rotate()
        address = client_address(request.scope) or UNIX_PEER
        security_log.audit(SecurityEvent.KEY_CREATED, address=address, key_id=made.kid, key_name=SIGNING_KEY)
        entry = next(each for each in access.tokens.signing.status() if each.key is made)
        return _reply(_signing_entry(entry), 201)

    def route(path: str, handler: Handler, method: str) -> Route:
        return Route(PREFIX + path, handler, methods=[method])

    return Starlette(
        routes=[
            route("", create, "POST"),
            route("", all_, "GET"),
            route(SIGNING, all_signing, "GET"),
            route(SIGNING, rotate, "POST"),
            route("/reads", _reads(access), "POST"),
            route("/{key_id}", revoke, "DELETE"),
            *routes,
        ],
        exception_handlers={
            DiemError: problems.on_data_error,
            HTTPException: on_http_error,
            Exception: on_defect,
        },
    )


def _reads(access: Access) -> Handler:
    async def report(request: Request) -> Response:
        report = _report(await read_body(request, MAX_REPORT_BYTES))
        return _reply((await access.report_reads(report))._asdict())

    return report


def _audit(kind: SecurityEvent, request: Request, key: Key) -> None:
    address = client_address(request.scope) or UNIX_PEER
    write_terms = {"prefixes": list(key.prefixes), "per_minute": key.per_minute, "endpoints": key.max_endpoints}
    terms: dict[str, Any] = write_terms if key.writes else {"plan": key.plan, "origins": list(key.origins)}
    expires = _time(key.expires_ms)
    security_log.audit(kind, address=address, key_id=key.id, key_name=key.name, expires=expires, **terms)


class WantedKey(NamedTuple):
    """The key described in a request; an API key unless ``writes`` is given."""

    name: str
    plan: str
    writes: WriteTerms | None
    lifetime_s: int | None
    origins: tuple[str, ...] = ()


def _wanted(body: bytes) -> WantedKey:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidDataset('expected {"name": ..., "plan": ...}')
    if unknown := found.keys() - _FIELDS:
        raise InvalidDataset(f"there is no field {min(unknown)!r}", min(unknown))
    name, writes = found.get("name"), found.get("writes", False)
    if not isinstance(name, str) or not is_name(name.strip()):
        raise InvalidDataset(f"a name has 1 to {MAX_NAME} printable characters", "name")
    if not isinstance(writes, bool):
        raise InvalidDataset("writes is true or false", "writes")
    lifetime_s = _number(found, "lifetime_seconds", MAX_LIFETIME_S)
    if writes:
        return WantedKey(name.strip(), "", _write_terms(found), lifetime_s)
    return WantedKey(name.strip(), _plan(found), None, lifetime_s, _origins(found.get("origins", [])))


def _report(body: bytes) -> ReadReport:
    try:
        found = orjson.loads(body)
        source, number, reads, exhausted = (found[name] for name in ("source", "number", "reads", "exhausted"))
        # Edges of earlier releases have no leases.
        wanted = found.get("wanted", {})
        valid = (
            isinstance(source, str)
            and 0 < len(source) <= MAX_NAME
            and all(type(count) is int and 0 < count <= MAX_READS for count in (number, *reads.values()))
            and all(type(units) is int and units >= 0 for units in wanted.values())
            and len(reads) + len(exhausted) + len(wanted) <= MAX_REPORTED_KEYS
            and all(isinstance(account, str) for account in (*reads, *exhausted, *wanted))
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise MalformedBody(f"not a report of reads: {error}") from None
    if not valid:
        raise InvalidDataset("a report of reads has a source, a number, reads by account, and exhausted accounts")
    return ReadReport(source, number, reads, tuple(exhausted), wanted)


def _plan(found: dict[str, Any]) -> str:
    for term in ("prefixes", "per_minute", "endpoints"):
        if term in found:
            raise InvalidDataset("the plan has the terms of an API key: this is for write keys", term)
    plan = found.get("plan")
    if not isinstance(plan, str):
        raise InvalidDataset("a plan is needed", "plan")
    return plan


def _write_terms(found: dict[str, Any]) -> WriteTerms:
    for term in ("plan", "origins"):
        if term in found:
            raise InvalidDataset(f"a write key has no {term}", term)
    prefixes = _prefixes(found.get("prefixes", []))
    endpoints_bound = _number(found, "endpoints", MAX_ENDPOINTS)
    if endpoints_bound is None and prefixes:
        endpoints_bound = DEFAULT_ENDPOINTS
    return WriteTerms(prefixes, _number(found, "per_minute", MAX_PER_MINUTE), endpoints_bound)


def _number(found: dict[str, Any], name: str, greatest: int) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= greatest:
        raise InvalidDataset(f"{name} is a number from 1 to {greatest}", name)
    return value


def _prefixes(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_PREFIXES:
        raise InvalidDataset(f"prefixes is a list of at most {MAX_PREFIXES} names", "prefixes")
    for each in value:
        if not isinstance(each, str) or not endpoints.is_prefix(each):
            raise InvalidDataset(f"{str(each)[:100]!r} is not the name of an endpoint", "prefixes")
    return tuple(value)


def _origins(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_ORIGINS:
        raise InvalidDataset(f"origins is a list of at most {MAX_ORIGINS} origins", "origins")
    if not all(isinstance(each, str) and len(each) <= MAX_ORIGIN for each in value):
        raise InvalidDataset(f"an origin is text of at most {MAX_ORIGIN} characters", "origins")
    try:
        return tuple(dict.fromkeys(map(web_origin, value)))
    except ValueError as error:
        raise InvalidDataset(str(error), "origins") from None


def _entry(key: Key, last_used_ms: int | None) -> dict[str, Any]:
    shown = {
        "id": key.id,
        "name": key.name,
        "plan": key.plan or None,
        "created": iso(key.created_ms),
        "revoked": _time(key.revoked_ms),
        "expires": _time(key.expires_ms),
        "last_used": _time(last_used_ms),
        "writes": key.writes,
    }
    write_terms = {"prefixes": key.prefixes, "per_minute": key.per_minute, "endpoints": key.max_endpoints}
    terms = write_terms if key.writes else {"origins": key.origins}
    return {**shown, **terms}


def _signing_entry(status: SigningKeyStatus) -> dict[str, Any]:
    return {
        "kid": status.key.kid,
        "algorithm": status.key.public.algorithm,
        "created": iso(int(status.key.created_s * 1000)),
        "state": status.state,
        "until": None if status.until_s is None else iso(int(status.until_s * 1000)),
    }


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso(time_ms)


def _reply(value: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json", headers={"Cache-Control": "no-store"})
