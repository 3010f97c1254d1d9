"""Maps errors to HTTP statuses and RFC 9457 problem documents by one table."""

import math
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from diem.errors import DiemError
from diem.links.rest import BodyTooLarge, client_address, problem, retry_after
from diem.process import security_log
from diem.process.auth import BadKeyFile
from diem.process.security_log import SecurityEvent
from diem.protocol.endpoints import BadName
from services.data import errors
from services.data.access.access import UnknownPlan
from services.data.access.keys import TooManyKeys
from services.data.access.quota import QuotaDecision, QuotaReason
from services.data.access.signing import TooManySigningKeys
from services.data.access.tokens import PrefixNotInPlan, TokenTooLarge
from services.data.access.write_access import WriteReason, WriteRefused
from services.data.api import refused_writes
from services.data.files.reader import ReaderEnded

_STATUSES: Final[tuple[tuple[type[DiemError], int, str], ...]] = (
    (BadName, 400, "bad_name"),
    (errors.MalformedBody, 400, ""),
    (errors.UnknownEndpoint, 404, ""),
    (errors.UnknownSource, 404, ""),
    (errors.VersionNotKept, 404, ""),
    (errors.OwnedBySource, 409, ""),
    (errors.WrongKind, 409, ""),
    (errors.KeptByStore, 409, ""),
    (errors.PatchRefused, 409, ""),
    (errors.VersionsUsedUp, 409, ""),
    (errors.EndpointDeleted, 410, ""),
    (errors.PreconditionFailed, 412, ""),
    (BodyTooLarge, 413, "too_large"),
    (errors.DatasetTooLarge, 413, ""),
    (errors.UnpatchableKind, 415, ""),
    (errors.MissingPackage, 415, ""),
    (errors.ScriptRefused, 415, ""),
    (errors.InvalidDataset, 422, ""),
    (errors.IdempotencyKeyReused, 422, ""),
    (errors.TooManyEndpoints, 422, ""),
    (UnknownPlan, 422, ""),
    (PrefixNotInPlan, 403, "not_in_plan"),
    (TokenTooLarge, 422, "token_too_large"),
    (TooManyKeys, 409, "too_many_keys"),
    (TooManySigningKeys, 409, "too_many_keys"),
    (BadKeyFile, 503, "bad_key_file"),
    (errors.StoreUnavailable, 503, ""),
    (ReaderEnded, 503, ""),
)

REFUSALS: Final = {
    QuotaReason.UNKNOWN: (401, "unauthorised", "this API key is unknown"),
    QuotaReason.REVOKED: (401, "key_revoked", "this key was revoked"),
    QuotaReason.EXPIRED: (401, "key_expired", "this key has expired"),
    QuotaReason.UNVERIFIED: (401, "unauthorised", "this token is not valid here, or has expired"),
    QuotaReason.NO_PLAN: (403, "no_plan", "the plan of this API key is no longer offered"),
    QuotaReason.ORIGIN: (403, "origin", "this API key is not for pages of this origin"),
    QuotaReason.READ_ONLY: (403, "read_only", "this API key is for reading: a write needs a write key"),
    QuotaReason.WRITE_ONLY: (403, "write_only", "this key is for writing: reading needs an API key"),
    QuotaReason.PREFIX: (403, "not_in_plan", "this endpoint is not in the plan"),
    QuotaReason.MINUTE: (429, "rate", "more requests than the plan has for a minute"),
    QuotaReason.DAY: (429, "quota", "more requests than the plan has for a day"),
    QuotaReason.USER_MINUTE: (429, "rate", "more requests than the plan has for one user in a minute"),
    QuotaReason.USER_DAY: (429, "quota", "more requests than the plan has for one user in a day"),
    QuotaReason.TOKENS: (429, "rate", "more tokens than the plan has requests"),
    QuotaReason.UNAVAILABLE: (503, "store_unavailable", "the store cannot commit now: requests cannot be counted"),
}


_WRITE_REFUSALS: Final = {
    WriteReason.INVALID: (401, SecurityEvent.REVOKED_KEY, "this write key was revoked or has expired"),
    WriteReason.PREFIX: (403, SecurityEvent.FORBIDDEN, "this write key does not cover {endpoint}"),
    WriteReason.RATE: (429, SecurityEvent.RATE_EXCEEDED, "more changes than this write key may make in a minute"),
    WriteReason.OVER_RATE: (
        403,
        SecurityEvent.FORBIDDEN,
        "this request alone has more changes than the write key may make in a minute",
    ),
}


def description_of(error: DiemError) -> dict[str, Any]:
    """Return status, code and detail of an error; one without a status is a defect and is raised again."""
    if isinstance(error, WriteRefused):
        status, _, detail = _WRITE_REFUSALS[error.reason]
        return {"status": status, "code": error.reason, "detail": detail.format(endpoint=error.endpoint)}
    found = next(((status, code) for kind, status, code in _STATUSES if isinstance(error, kind)), None)
    if found is None:
        raise error
    status, code = found
    return {
        "status": status, "code": error.code if isinstance(error, errors.DataError) else code, "detail": str(error)
    }  # fmt: skip


def problem_of(error: DiemError) -> Response:
    """Return the problem document of an error; an error without a status is a defect and is raised again."""
    described = description_of(error)
    headers: dict[str, str] = {}
    more: dict[str, Any] = {}
    if isinstance(error, errors.StoreUnavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, ReaderEnded):
        headers["Retry-After"] = retry_after()
    if isinstance(error, errors.InvalidDataset):
        more["errors"] = [{"where": error.where, "detail": error.reason}]
    if isinstance(error, errors.EndpointDeleted | errors.PreconditionFailed):
        more["version"] = error.version
    if isinstance(error, errors.UnpatchableKind) and error.patches:
        headers["Accept-Patch"] = error.patches
    return problem(described["status"], described["code"], described["detail"], headers=headers, more=more)


async def on_data_error(request: Request, error: Exception) -> Response:
    """Answer a :class:`DiemError`; a handler for Starlette."""
    if not isinstance(error, DiemError):
        raise error
    refused_writes.record(request.scope, str(error))
    return problem_of(error)


def quota_problem(decision: QuotaDecision) -> Response | None:
    """Return the answer to a request refused by its plan; None if admitted."""
    if decision.reason is QuotaReason.ADMITTED:
        return None
    status, code, detail = REFUSALS[decision.reason]
    headers = {"Retry-After": str(decision.wait_s)} if decision.wait_s else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="DIEM", error="invalid_token"'
    return problem(status, code, detail, headers=headers)


async def on_write_refused(request: Request, error: Exception) -> Response:
    """Answer a write that its key does not allow, and record it; a handler for Starlette."""
    if not isinstance(error, WriteRefused):
        raise error
    status, kind, detail = _WRITE_REFUSALS[error.reason]
    security_log.record(
        kind,
        address=client_address(request.scope),
        key_name=error.key_name,
        code=error.reason,
        detail=error.endpoint,
    )
    refused_writes.record(request.scope, detail.format(endpoint=error.endpoint))
    headers = {"Retry-After": str(error.wait_s)} if error.wait_s else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="DIEM", error="invalid_token"'
    return problem(status, error.reason, detail.format(endpoint=error.endpoint), headers=headers)


def too_many_requests(retry_after_s: float, policy: str) -> Response:
    """Return the answer to an address beyond its rate, with RateLimit header fields."""
    seconds = max(1, math.ceil(retry_after_s))
    headers = {
        "Retry-After": str(seconds),
        "RateLimit-Policy": policy,
        "RateLimit": f'"anonymous";r=0;t={seconds}',
    }
    return problem(429, "rate", "too many requests from this address", headers=headers)
