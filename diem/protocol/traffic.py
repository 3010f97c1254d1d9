"""Traffic events: subscriptions of clients, updates received and delivered, requests to the REST API; pure.

Each is one JSON object, the value of a Kafka record or a line of a file (docs/traffic.md section 1).
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.protocol import endpoints as names
from diem.protocol.messages import MAX_VERSION

MAX_NAMES: Final = 100
"""Limit of endpoints of one ``subscribe`` or ``unsubscribe`` event."""
MAX_COUNTED: Final = 200
"""Limit of endpoints of one ``counts`` event."""
MAX_ACCESSED: Final = 150
"""Limit of entries of one ``access`` event."""
MAX_EVENT_BYTES: Final = 64 * 1024
"""Longest event in bytes: 200 of the longest names with two counters each have 60 KiB."""

_ID: Final = re.compile(r"[0-9a-f]{12}-(?:0|[1-9][0-9]{0,15})")
_PSEUDONYM: Final = re.compile(r"[0-9a-f]{16}")
_EDGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY_ID: Final = re.compile(r"(?:[a-z0-9]{8})?")
_PLAN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_COMMON: Final = frozenset({"type", "id", "time", "edge"})


def _canonical() -> str:
    def some(item: str, most: int) -> str:
        return f"{item}(?:,{item}){{0,{most - 1}}}+"

    count = "(?:0|[1-9][0-9]{0,14})"
    # Java looks up single characters of a class in a table, and tries one range after the other.
    characters = "".join(chr(code) for code in range(128) if re.fullmatch(f"[{names.CHARACTERS}]", chr(code)))
    characters = f"{characters.replace('-', '')}-"
    # As ``names.PATTERN`` without segments that begin with a dot, in one pass.
    name = rf'"(?=[^"]{{1,{names.MAX_NAME_BYTES}}}")(?:/(?!\.)[{characters}]++)++/?"'
    common = rf'"id":"{_ID.pattern}","time":{count},"edge":"{_EDGE.pattern}"'
    client = rf'"client":"{_PSEUDONYM.pattern}","connection":"{_PSEUDONYM.pattern}"'
    endpoints = rf'"endpoints":\[{some(name, MAX_NAMES)}\]'
    index, counted = "(?:0|[1-9][0-9]?)", rf"{name}:\[{count},{count}\]"
    unknown = rf'"unknown":\[{some(index, MAX_NAMES)}\]'
    updates = rf'"updates":\{{(?:{some(counted, MAX_COUNTED)})?+\}}'
    sharers = '(?:,"sharers":[1-9][0-9]{0,14})?+'
    accessed = rf'\["{_KEY_ID.pattern}","{_PLAN.pattern}",(?:""|{name}),{count},{count}\]'
    requests = rf'"requests":\[{some(accessed, MAX_ACCESSED)}\]'
    forms = (
        rf'(?:dis)?+connect",{common},{client}{sharers}',
        rf'subscribe",{common},{client},{endpoints}(?:,{unknown})?+{sharers}',
        rf'unsubscribe",{common},{client},{endpoints}{sharers}',
        rf'counts",{common},"since":{count},"until":{count},{updates}',
        rf'access",{common},"since":{count},"until":{count},{requests}',
    )
    one = "|".join(forms)
    return rf'\{{"type":"(?:{one})\}}'


CANONICAL: Final = _canonical()
"""Regular expression, of Python and of Java, of most lines that :func:`encode` writes.

Any JSON parser reads such a line alike: ASCII, no escapes or spaces, each field once and in order, integers of at most
15 digits. It is an event, with the values of :func:`decode`, if it is at most ``MAX_EVENT_BYTES`` long, no endpoint is
twice in ``updates``, ``unknown`` are indices of ``endpoints``, and ``until`` is after ``since``. Quantifiers of groups
are possessive: for others, Java recurses on each repetition.
"""


class BadEvent(DiemError):
    """The data is not a traffic event."""


class Type(StrEnum):
    """Type of an event; a client's events are of the first four types, in this order."""

    CONNECT = "connect"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    DISCONNECT = "disconnect"
    """Ends all subscriptions of its connection."""
    COUNTS = "counts"
    ACCESS = "access"
    """Requests to a Data Service."""


class Counted(NamedTuple):
    """Updates of one endpoint at one process in the interval of the event."""

    received: int
    """Fresh updates received; wasted if none was delivered."""
    delivered: int
    """Resulting frames passed to sessions."""


class Accessed(NamedTuple):
    """Requests to a Data Service under one access plan in the interval of the event."""

    key: str
    """Id of the API key; empty for readers without one."""
    plan: str
    endpoint: str
    """Empty for requests about no endpoint, or a nonexistent one."""
    answered: int
    refused: int
    """Requests beyond the quota or outside the plan."""


class TrafficEvent(NamedTuple):
    """One event. Fields not used by its type are empty; times are Unix milliseconds.

    ``id`` is unique among all processes and their incarnations, so that duplicates can be detected.
    """

    type: Type
    id: str
    time: int
    edge: str
    client: str = ""
    """Pseudonym: the same for all connections of one client, in any process."""
    connection: str = ""
    endpoints: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Those of ``endpoints`` without a version in the process, which may not exist."""
    sharers: int = 1
    """Number of open connections of the client's address at that time, including this one."""
    since: int = 0
    until: int = 0
    updates: Mapping[str, Counted] = {}
    requests: tuple[Accessed, ...] = ()

    @property
    def incarnation(self) -> str:
        """Incarnation of the process: a new one ends all connections of earlier ones."""
        return self.id[:12]


def encode(event: TrafficEvent) -> bytes:
    """Return the event as one line, without its end."""
    type_ = event.type
    found: dict[str, Any] = {"type": type_, "id": event.id, "time": event.time, "edge": event.edge}
    if type_ is Type.COUNTS:
        found["since"], found["until"] = event.since, event.until
        found["updates"] = {name: [*counted] for name, counted in event.updates.items()}
    elif type_ is Type.ACCESS:
        found["since"], found["until"] = event.since, event.until
        found["requests"] = [[*accessed] for accessed in event.requests]
    else:
        found["client"], found["connection"] = event.client, event.connection
        if event.endpoints:
            found["endpoints"] = event.endpoints
        if event.unknown:
            places = {name: place for place, name in enumerate(event.endpoints)}
            found["unknown"] = [places[name] for name in event.unknown]
        if event.sharers > 1:
            found["sharers"] = event.sharers
    return orjson.dumps(found)


def decode(data: bytes | str) -> TrafficEvent:
    """Parse and validate one event.

    Unknown fields are ignored, so that an older reader still counts the clients of a newer process.

    Raises:
        BadEvent: the data is not an event; the text gives the reason.
    """
    if len(data) > MAX_EVENT_BYTES:
        raise BadEvent(f"longer than {MAX_EVENT_BYTES} bytes")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadEvent(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadEvent("an event is a JSON object")
    try:
        type_ = Type(found.get("type", ""))
    except ValueError:
        raise BadEvent(f"no such type: {str(found.get('type'))[:40]!r}") from None
    own, read = _FORMS[type_]
    if missing := (_COMMON | own) - found.keys():
        raise BadEvent(f"{type_}: missing fields: {', '.join(sorted(missing))}")
    common = TrafficEvent(type_, _text(found, "id", _ID), _time(found, "time"), _text(found, "edge", _EDGE))
    return read(common, found)


def is_edge(name: str) -> bool:
    """Return whether ``name`` is a valid name of a process in events."""
    return _EDGE.fullmatch(name) is not None


def _connection(common: TrafficEvent, found: Mapping[str, Any]) -> TrafficEvent:
    sharers = _time(found, "sharers") if "sharers" in found else 1
    if not sharers:
        raise BadEvent("sharers: not even itself")
    client, connection = _text(found, "client", _PSEUDONYM), _text(found, "connection", _PSEUDONYM)
    return common._replace(client=client, connection=connection, sharers=sharers)


def _subscriptions(common: TrafficEvent, found: Mapping[str, Any]) -> TrafficEvent:
    given = found["endpoints"]
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_NAMES:
        raise BadEvent(f"endpoints: not 1 to {MAX_NAMES} of them")
    endpoints = tuple(map(_endpoint, given))
    unknown = _unknown(found, endpoints) if common.type is Type.SUBSCRIBE else ()
    return _connection(common, found)._replace(endpoints=endpoints, unknown=unknown)


def _unknown(found: Mapping[str, Any], endpoints: tuple[str, ...]) -> tuple[str, ...]:
    places = found.get("unknown", [])
    if not isinstance(places, list) or not all(_is_count(place) and place < len(endpoints) for place in places):
        raise BadEvent("unknown: not places in endpoints")
    return tuple(endpoints[place] for place in sorted(set(places)))


def _counts(common: TrafficEvent, found: Mapping[str, Any]) -> TrafficEvent:
    since, until, given = _time(found, "since"), _time(found, "until"), found["updates"]
    if since >= until:
        raise BadEvent("until is not after since")
    if not isinstance(given, dict) or len(given) > MAX_COUNTED:
        raise BadEvent(f"updates: not an object of at most {MAX_COUNTED} endpoints")
    updates = {_endpoint(name): _counted(value) for name, value in given.items()}
    return common._replace(since=since, until=until, updates=updates)


def _access(common: TrafficEvent, found: Mapping[str, Any]) -> TrafficEvent:
    since, until, given = _time(found, "since"), _time(found, "until"), found["requests"]
    if since >= until:
        raise BadEvent("until is not after since")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_ACCESSED:
        raise BadEvent(f"requests: not 1 to {MAX_ACCESSED} of them")
    return common._replace(since=since, until=until, requests=tuple(map(_accessed, given)))


_FORMS: Final[Mapping[Type, tuple[frozenset[str], Callable[[TrafficEvent, Mapping[str, Any]], TrafficEvent]]]] = {
    Type.CONNECT: (frozenset({"client", "connection"}), _connection),
    Type.SUBSCRIBE: (frozenset({"client", "connection", "endpoints"}), _subscriptions),
    Type.UNSUBSCRIBE: (frozenset({"client", "connection", "endpoints"}), _subscriptions),
    Type.DISCONNECT: (frozenset({"client", "connection"}), _connection),
    Type.COUNTS: (frozenset({"since", "until", "updates"}), _counts),
    Type.ACCESS: (frozenset({"since", "until", "requests"}), _access),
}


def _text(found: Mapping[str, Any], key: str, form: re.Pattern[str]) -> str:
    value = found[key]
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise BadEvent(f"{key}: {str(value)[:40]!r}")
    return value


def _time(found: Mapping[str, Any], key: str) -> int:
    if not _is_count(value := found[key]):
        raise BadEvent(f"{key}: {str(value)[:40]!r}")
    return int(value)


def _endpoint(name: object) -> str:
    if not isinstance(name, str) or not names.is_valid(name):
        raise BadEvent(f"not an endpoint: {str(name)[:40]!r}")
    return name


def _counted(value: object) -> Counted:
    if not isinstance(value, list) or len(value) != 2 or not all(map(_is_count, value)):
        raise BadEvent(f"not two counts: {str(value)[:40]!r}")
    return Counted(*value)


def _accessed(value: object) -> Accessed:
    if not isinstance(value, list) or len(value) != len(Accessed._fields):
        raise BadEvent(f"requests: {str(value)[:40]!r}")
    found = dict(zip(Accessed._fields, value, strict=True))
    key, plan, endpoint = _text(found, "key", _KEY_ID), _text(found, "plan", _PLAN), found["endpoint"]
    return Accessed(
        key, plan, "" if endpoint == "" else _endpoint(endpoint), _time(found, "answered"), _time(found, "refused")
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_VERSION
