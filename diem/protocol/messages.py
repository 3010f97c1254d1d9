"""The client protocol ``diem.v1.json`` (docs/protocol.md section 1): both directions, except updates (``update``)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.protocol.codes import ErrorCode

SUBPROTOCOL: Final = "diem.v1.json"
MAX_MESSAGE_BYTES: Final = 32 * 1024
"""Longest client message; a longer one closes with 1009 (docs/reliability.md S8)."""
MAX_FETCH_WINDOW_MS: Final = 10_000
"""Longest time over which clients spread their fetches (section 1.2)."""
MAX_NAMES: Final = 100
"""Limit of names in one message, beyond which it is refused with ``too_many`` (docs/reliability.md S11)."""
MAX_WAIT_S: Final = 25
"""Longest wait of a long poll: proxies cut what is silent for longer, most after 30 or 60 s."""
SUBSCRIPTIONS: Final = 1024
"""Subscriptions per connection, unless configured otherwise (docs/reliability.md S10): enough for a page of 1,000
series, and for a client with this many in all to be refused at no server of a group, wherever endpoints move."""
CLIENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")
"""Self-chosen ids of clients: random and not personal."""
MAX_VERSION: Final = 2**53 - 1
"""Limit of versions and ids: every JSON parser reads such numbers exactly (RFC 8259 section 6)."""


@dataclass(eq=False)
class MessageError(DiemError):
    """A refused client message, answered with an ``error`` frame."""

    template = "{code}: {message}"

    code: ErrorCode
    message: str
    request_id: int | None = None


class Refusal(NamedTuple):
    """Reason to reject a name; ``owner`` is the URL of its server, if known (``not_owner``)."""

    code: ErrorCode
    message: str
    owner: str | None = None


BAD_NAME: Final = Refusal(ErrorCode.BAD_NAME, "not an endpoint name")
"""One short text for all: a reply must not be many times longer than its request (docs/protocol.md section 1)."""
NO_WILDCARDS: Final = Refusal(ErrorCode.BAD_NAME, "no wildcards: subscribe to the collection")
"""Of a name with ``*`` as its last segment, which would stay silent for ever."""
FORBIDDEN: Final = Refusal(ErrorCode.FORBIDDEN, "not covered by the token")
"""The same for nonexistent endpoints, so as not to reveal their existence."""


# Requests of clients are named tuples: frozen dataclasses take twice as long to create, once per message.


class Auth(NamedTuple):
    """``auth``: a token, at the beginning or to refresh."""

    id: int
    token: str


class Subscribe(NamedTuple):
    """``subscribe``: endpoint names, not validated, with the client's versions (0 = none).

    ``rejected`` are already refused names of the request; the reply includes them.
    """

    id: int
    endpoints: dict[str, int]
    rejected: Mapping[str, Refusal] = MappingProxyType({})
    client: str | None = None
    """The client's random id, with its first request, if ``welcome`` announces the recording of traffic."""
    data: bool = False
    """True to request updates with data, if ``welcome`` offers it."""


class Unsubscribe(NamedTuple):
    """``unsubscribe``: endpoint names, not validated."""

    id: int
    endpoints: list[str]


class UpdatesRequest(NamedTuple):
    """The body of a request for updates over HTTP (section 1.8)."""

    subscribe: Subscribe
    token: str | None = None
    wait_s: float = MAX_WAIT_S
    resynced: frozenset[str] = frozenset()
    """Names whose ``resync`` the client has had already, so that it is no news."""
    live: bool = True
    """False: the last status that the client has was ``live: false``."""
    stale: frozenset[str] = frozenset()
    """Names of which the client has been told that they are not live."""
    is_versioned: bool = False
    """A GET of what follows a version, whose answer a cache may store."""


Request = Auth | Subscribe | Unsubscribe
"""A request of a client."""


def parse(data: bytes, limit: int | None = MAX_NAMES) -> Request:
    """Parse one client message with at most ``limit`` names (None: any number).

    Raises:
        MessageError: ``bad_json``, ``bad_message`` (no object, unknown type, wrong, missing or unknown fields) or
            ``too_many``; with the request's id if readable.
    """
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MessageError(ErrorCode.BAD_JSON, f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise MessageError(ErrorCode.BAD_MESSAGE, "a message is a JSON object")
    request_id: Any = message.get("id")
    if not _is_count(request_id):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"id" must be a whole number from 0 to 2^53-1')
    try:
        return _PARSERS[message["type"]](request_id, message, limit)
    except (KeyError, TypeError):
        raise MessageError(ErrorCode.BAD_MESSAGE, "unknown type, or a field is missing", request_id) from None


def parse_updates(data: bytes, limit: int) -> UpdatesRequest:
    """Parse the body of a request for updates of at most ``limit`` endpoints.

    Raises:
        MessageError: as of :func:`parse`.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MessageError(ErrorCode.BAD_JSON, f"the body is not JSON: {error}") from None
    return updates_request(body, limit)


def updates_request(body: object, limit: int) -> UpdatesRequest:
    """Check a request for updates of at most ``limit`` endpoints.

    Raises:
        MessageError: ``bad_message`` or ``too_many``.
    """
    if not isinstance(body, dict) or "endpoints" not in body or "type" in body or "id" in body:
        raise MessageError(ErrorCode.BAD_MESSAGE, 'the body is a JSON object with "endpoints", their known versions')
    token, wait_s, live = body.pop("token", None), body.pop("wait", MAX_WAIT_S), body.pop("live", True)
    names = {field: body.pop(field, ()) for field in ("resynced", "stale")}
    if token is not None and not isinstance(token, str):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"token" must be a string')
    if type(wait_s) not in (int, float) or not 0 <= wait_s <= MAX_WAIT_S:
        raise MessageError(ErrorCode.BAD_MESSAGE, f'"wait" must be a number of seconds from 0 to {MAX_WAIT_S}')
    if not isinstance(live, bool):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"live" must be true or false')
    for field, found in names.items():
        if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
            raise MessageError(ErrorCode.BAD_MESSAGE, f'"{field}" must be an array of names')
    body["type"], body["id"] = "subscribe", 0
    subscribe = _subscribe(0, body, limit)
    return UpdatesRequest(subscribe, token, wait_s, frozenset(names["resynced"]), live, frozenset(names["stale"]))


def _auth(request_id: int, message: dict[str, Any], _limit: int | None) -> Auth:
    token = message["token"]
    _only(message, _AUTH_FIELDS, request_id)
    if not isinstance(token, str):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"token" must be a string', request_id)
    return Auth(request_id, token)


def _subscribe(request_id: int, message: dict[str, Any], limit: int | None) -> Subscribe:
    endpoints = message["endpoints"]
    client = message.pop("client", None)
    data = message.pop("data", False)
    _only(message, _ENDPOINTS_FIELDS, request_id)
    if client is not None and not (isinstance(client, str) and CLIENT_ID.fullmatch(client)):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"client" has 8 to 64 letters, digits, "-" and "_"', request_id)
    if not isinstance(data, bool):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"data" must be true or false', request_id)
    if not isinstance(endpoints, dict):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"endpoints" must be an object of known versions', request_id)
    _bounded(endpoints, limit, request_id)
    known: dict[str, int] = {}
    for name, version in endpoints.items():
        if version is not None and not _is_count(version):
            raise MessageError(ErrorCode.BAD_MESSAGE, "a known version is a whole number or null", request_id)
        known[name] = version or 0
    return Subscribe(request_id, known, client=client, data=data)


def _unsubscribe(request_id: int, message: dict[str, Any], limit: int | None) -> Unsubscribe:
    endpoints = message["endpoints"]
    _only(message, _ENDPOINTS_FIELDS, request_id)
    if not isinstance(endpoints, list) or not all(isinstance(name, str) for name in endpoints):
        raise MessageError(ErrorCode.BAD_MESSAGE, '"endpoints" must be an array of names', request_id)
    _bounded(endpoints, limit, request_id)
    return Unsubscribe(request_id, endpoints)


_PARSERS: dict[str, Callable[[int, dict[str, Any], int | None], Auth | Subscribe | Unsubscribe]] = {
    "auth": _auth,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
}


_AUTH_FIELDS: Final = frozenset({"type", "id", "token"})
_ENDPOINTS_FIELDS: Final = frozenset({"type", "id", "endpoints"})


def _only(message: dict[str, Any], fields: frozenset[str], request_id: int) -> None:
    # Otherwise a misspelt field would be silently ignored, and the client would wait forever for its effect.
    if len(message) != len(fields):
        unknown = ", ".join(sorted(message.keys() - fields))[:100]
        raise MessageError(ErrorCode.BAD_MESSAGE, f"unknown fields: {unknown}", request_id)


def _bounded(names: dict[str, Any] | list[str], limit: int | None, request_id: int) -> None:
    if limit is not None and len(names) > limit:
        raise MessageError(ErrorCode.TOO_MANY, f"more than {limit} names in one message", request_id)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_VERSION


def over_limit(limit: int) -> Refusal:
    """Return the refusal of a client with ``limit`` subscriptions."""
    return Refusal(ErrorCode.LIMIT, f"over {limit} subscriptions (DIEM_*_SUBSCRIPTIONS)")


def not_owner(owner: str | None) -> Refusal:
    """Return the refusal of an endpoint of another server, at the URL ``owner``."""
    return Refusal(ErrorCode.NOT_OWNER, "served elsewhere", owner)


def welcome(
    *,
    session: str,
    server: str,
    mode: str,
    authenticated: bool,
    subscriptions: int,
    traffic: bool = False,
    data: bool = False,
    fetch_window_ms: int = 0,
    heartbeat_ms: int = 0,
) -> bytes:
    """Encode ``welcome``, the first message of every connection.

    ``traffic``: clients may send their id; ``data``: they may request updates with data; ``fetch_window_ms``: window
    for spreading their fetches; ``heartbeat_ms``: maximum time between frames to them.
    """
    message: dict[str, Any] = {
        "type": "welcome",
        "session": session,
        "server": server,
        "mode": mode,
        "authenticated": authenticated,
        "limits": {"subscriptions": subscriptions, "message_bytes": MAX_MESSAGE_BYTES},
    }
    if traffic:
        message["traffic"] = True
    if data:
        message["data"] = True
    if fetch_window_ms:
        message["fetch_window_ms"] = fetch_window_ms
    if heartbeat_ms:
        message["heartbeat_ms"] = heartbeat_ms
    return orjson.dumps(message)


def authenticated(request_id: int, expires: int) -> bytes:
    """Encode the reply to ``auth`` with a valid token, which expires at ``expires`` (Unix seconds)."""
    return orjson.dumps({"type": "authenticated", "id": request_id, "expires": expires})


def subscribed(
    request_id: int,
    endpoints: Mapping[str, int | None],
    rejected: Mapping[str, Refusal],
) -> bytes:
    """Encode the reply to ``subscribe``: retained versions by endpoint (None = none yet), and rejected names."""
    reply: dict[str, Any] = {"type": "subscribed", "id": request_id, "endpoints": endpoints}
    if rejected:
        reply["rejected"] = {name: _refusal(refusal) for name, refusal in rejected.items()}
    return orjson.dumps(reply)


def _refusal(refusal: Refusal) -> dict[str, str]:
    reply = {"code": refusal.code, "message": refusal.message}
    return reply if refusal.owner is None else {**reply, "owner": refusal.owner}


def unsubscribed(request_id: int, endpoints: Iterable[str]) -> bytes:
    """Encode the reply to ``unsubscribe``; nothing follows for these endpoints."""
    return orjson.dumps({"type": "unsubscribed", "id": request_id, "endpoints": list(endpoints)})


def status(*, live: bool, since: str, endpoints: Iterable[str] | None = None) -> bytes:
    """Encode ``status``: whether updates are current, for ``endpoints`` only if given."""
    reply: dict[str, Any] = {"type": "status", "live": live, "since": since}
    if endpoints is not None:
        reply["endpoints"] = list(endpoints)
    return orjson.dumps(reply)


def moved(endpoints: Iterable[str], owner: str | None) -> bytes:
    """Encode ``moved``: these endpoints are at the server ``owner``, or where the metadata service locates them."""
    # The endpoints first: conflation finds the endpoint of a frame by its first slash.
    reply: dict[str, Any] = {"type": "moved", "endpoints": list(endpoints)}
    return orjson.dumps(reply if owner is None else {**reply, "owner": owner})


def resync(endpoints: Iterable[str]) -> bytes:
    """Encode ``resync``: the client refetches these endpoints."""
    return orjson.dumps({"type": "resync", "endpoints": list(endpoints)})


def error(code: ErrorCode, message: str, request_id: int | None = None) -> bytes:
    """Encode the refusal of a request; without an id if the request had no valid one."""
    reply: dict[str, Any] = {"type": "error"}
    if request_id is not None:
        reply["id"] = request_id
    return orjson.dumps({**reply, "code": code, "message": message})


# The other direction: requests of a proxy to a server, and a server's messages except updates


def subscribe(request_id: int, known: Mapping[str, int | None], *, data: bool = False) -> bytes:
    """Encode a request to subscribe, with the proxy's versions; ``data``: request updates with data."""
    request = {"type": "subscribe", "id": request_id, "endpoints": known}
    return orjson.dumps({**request, "data": True} if data else request)


def unsubscribe(request_id: int, names: Sequence[str]) -> bytes:
    """Encode a request to unsubscribe."""
    return orjson.dumps({"type": "unsubscribe", "id": request_id, "endpoints": names})


class BadMessage(DiemError):
    """An invalid message of a server: the link is closed."""


@dataclass(frozen=True, slots=True)
class SubscribedReply:
    """Reply to request ``id``; ``elsewhere`` are the rejected names with the URL of the owner, None if unknown."""

    id: int
    versions: Mapping[str, int | None]
    elsewhere: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class UnsubscribedReply:
    """Reply to request ``id``; nothing follows for its endpoints."""

    id: int


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """Liveness of the server's updates, of ``endpoints`` only unless None."""

    live: bool
    endpoints: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class MovedMessage:
    """These endpoints have moved to another server."""

    endpoints: Sequence[str]
    owner: str | None


@dataclass(frozen=True, slots=True)
class ResyncMessage:
    """Subscribers of these endpoints must fetch them again."""

    endpoints: Sequence[str]


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """Request ``id`` was refused as a whole."""

    id: int


@dataclass(frozen=True, slots=True)
class OtherMessage:
    """A message that a proxy ignores, such as the ``welcome``."""


ServerMessage = (
    SubscribedReply | UnsubscribedReply | StatusMessage | MovedMessage | ResyncMessage | ErrorReply | OtherMessage
)


def parse_server(payload: bytes) -> ServerMessage:
    """Parse one message of a server other than an update.

    Raises:
        BadMessage: it is malformed.
    """
    try:
        message = orjson.loads(payload)
        read = _SERVER_PARSERS.get(message["type"])
        return read(message) if read is not None else OtherMessage()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMessage(f"not a server's message: {type(error).__name__}") from None


def _subscribed_reply(message: dict[str, Any]) -> ServerMessage:
    elsewhere = {name: why.get("owner") for name, why in message.get("rejected", {}).items()}
    return SubscribedReply(int(message["id"]), dict(message["endpoints"]), elsewhere)


def _status_message(message: dict[str, Any]) -> ServerMessage:
    endpoints = message.get("endpoints")
    return StatusMessage(bool(message["live"]), None if endpoints is None else list(endpoints))


_SERVER_PARSERS: dict[str, Callable[[dict[str, Any]], ServerMessage]] = {
    "subscribed": _subscribed_reply,
    "unsubscribed": lambda message: UnsubscribedReply(int(message["id"])),
    "status": _status_message,
    "moved": lambda message: MovedMessage(list(message["endpoints"]), message.get("owner")),
    "resync": lambda message: ResyncMessage(list(message["endpoints"])),
    "error": lambda message: ErrorReply(int(message["id"])) if "id" in message else OtherMessage(),
}
