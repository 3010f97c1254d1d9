"""Refusals of opening handshakes: the reason and remedy for people, and the two forms of answers.

Programs can read the handshake's answer, with the text in its body. A browser hides it from its page: the page requests
the same path without an upgrade, and gets a problem document readable by any page. It reveals no more than the refused
handshake. ``/config.json`` of the Data Service has the same text for an origin (:func:`foreign_origin`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from diem.links.listener import Reply
from diem.process.limits import AdmissionResult
from diem.process.listeners import is_of_this_machine, web_origin

MEDIA_TYPE: Final = "application/problem+json"
LIMIT_RETRY_AFTER_S: Final = 10
"""Retry delay of an address at its limit: a client may leave only after hours, so there is no hurry."""


class Cause(StrEnum):
    """Cause of a refused handshake: ``code`` of the problem document, and key of the count in ``/status``."""

    ORIGIN = "origin"
    """Pages of this origin may not connect."""
    UNAUTHORISED = "unauthorised"
    """A token is missing or not accepted."""
    LIMIT = "limit"
    """The address or user has reached its limit of clients."""
    RATE = "rate"
    """Too many new clients, or too many messages before."""
    FULL = "full"
    """The process has reached its limit of clients."""
    BAD_REQUEST = "bad_request"
    NOT_READY = "not_ready"
    """The process is starting or stopping, which may affect any client, or has not loaded the token keys yet."""


@dataclass(frozen=True, slots=True)
class RefusedClient:
    """A refusal of a client."""

    status: int
    cause: Cause
    detail: str
    """For people: the problem and its remedy."""
    retry_after_s: int = 0
    """0: a retry is pointless."""

    def reply(self) -> Reply:
        """Return the answer to the handshake."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return Reply(self.status, f"{self.detail}\n".encode(), headers=headers | self._retry())

    def problem(self) -> Reply:
        """Return the answer to a page's request for the reason of its failed handshake (RFC 9457)."""
        document: dict[str, Any] = {"status": self.status, "code": self.cause, "detail": self.detail}
        return readable(self.status, document, self._retry())

    def _retry(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else {}


def no_refusal() -> Reply:
    """Return the answer to such a request if a handshake would be accepted now."""
    detail = "a WebSocket handshake would be accepted here"
    return readable(426, {"status": 426, "code": "upgrade_required", "detail": detail}, {"Upgrade": "websocket"})


def readable(status: int, document: dict[str, Any], headers: Mapping[str, str]) -> Reply:
    """Return a problem document that pages of all origins may read."""
    fields = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Retry-After", **headers}
    return Reply(status, orjson.dumps(document), MEDIA_TYPE, {"Cache-Control": "no-store", **fields})


NOT_READY: Final = RefusedClient(503, Cause.NOT_READY, "not ready", 1)
WRONG_PATH: Final = RefusedClient(404, Cause.BAD_REQUEST, "WebSocket clients connect to /ws")
TWO_ORIGINS: Final = RefusedClient(403, Cause.ORIGIN, "more than one Origin")
NO_TOKENS: Final = RefusedClient(
    403,
    Cause.UNAUTHORISED,
    "a token is needed, and none is accepted here (--anonymous on admits clients without one, DIEM_*_TOKEN_KEYS names "
    "the keys of tokens)",
)


MAX_ORIGIN: Final = 300
"""Longest quoted origin: a host name has at most 253 characters."""
_PLAIN: Final = re.compile(r"https?://[a-z0-9._:\[\]-]+")


def foreign_origin(origin: str) -> str:
    """Return the reason why pages of an origin may not connect, and the remedy.

    ``origin`` is an untrusted header field, and the text may be pasted into a shell: only for pages of this machine is
    it a complete option.
    """
    try:
        origin = web_origin(origin)
    except ValueError:
        origin = ""
    if len(origin) > MAX_ORIGIN or not _PLAIN.fullmatch(origin):
        return "a page of a file or a sandboxed frame has no origin (--origin null allows all such): serve it over http"
    if is_of_this_machine(urlsplit(origin).hostname or ""):
        return f"{origin} is not an allowed origin; start with --origin {origin}"
    return f"{origin} is not an allowed origin; if this page is yours, add it with --origin"


def by_origin(origin: str) -> RefusedClient:
    """Return the refusal of a page for its origin."""
    return RefusedClient(403, Cause.ORIGIN, foreign_origin(origin))


def by_rate_of_requests(retry_after_s: int) -> RefusedClient:
    """Return the answer to an address that requests refusal reasons too often."""
    return RefusedClient(429, Cause.RATE, "too many requests from this address", retry_after_s)


def by_limit(result: AdmissionResult, bound: float, retry_after_s: int) -> RefusedClient:
    """Return the refusal for exceeding a limit.

    Args:
        result: the limit.
        bound: its value; not used of limits of messages.
        retry_after_s: time until the rates admit the client again.
    """
    cause, text = _LIMITS[result]
    wait_s = LIMIT_RETRY_AFTER_S if result is AdmissionResult.ADDRESS_LIMIT else retry_after_s
    return RefusedClient(result.status, cause, text.format(bound=f"{bound:g}"), wait_s)


_LIMITS: Final = {
    AdmissionResult.ADDRESS_LIMIT: (Cause.LIMIT, "this address has {bound} clients already (--clients-per-address)"),
    AdmissionResult.ADDRESS_TOO_FAST: (
        Cause.RATE,
        "this address may open {bound} connections a second in the long run (--clients-per-address)",
    ),
    AdmissionResult.ADDRESS_USED_UP: (Cause.RATE, AdmissionResult.ADDRESS_USED_UP.reason),
    AdmissionResult.USER_LIMIT: (Cause.LIMIT, "this user has {bound} clients already (DIEM_*_CONNECTIONS_PER_USER)"),
    AdmissionResult.USER_USED_UP: (Cause.RATE, AdmissionResult.USER_USED_UP.reason),
    AdmissionResult.PROCESS_FULL: (Cause.FULL, "this server has {bound} clients already (DIEM_*_CAPACITY)"),
}
