"""The protocol ``diem.interest.v1`` (docs/internals.md section 2.4): which endpoints are watched at a server. Pure.

The Data Service sends ``prefixes``, upon which a server sends all watched endpoints below them, and from then on the
differences, in messages of at most :data:`MAX_NAMES` names.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError

SUBPROTOCOL: Final = "diem.interest.v1"
PATH: Final = "/interest"
MAX_NAMES: Final = 1000
"""Names in one message: at most 256 KiB."""


class InterestError(DiemError):
    """A message violates the protocol: the link is closed with 4500."""


class WatchedPrefixes(NamedTuple):
    """The prefixes of endpoints whose watchers matter."""

    prefixes: Sequence[str]


class Watched(NamedTuple):
    """Endpoints that are watched at a server from now on, and those that no longer are."""

    added: Sequence[str]
    removed: Sequence[str]


def prefixes_message(prefixes: Sequence[str]) -> bytes:
    """Return the message with all prefixes."""
    return orjson.dumps({"type": "prefixes", "prefixes": prefixes})


def watched_messages(added: Iterable[str], removed: Iterable[str]) -> Iterator[bytes]:
    """Yield the messages with these endpoints."""
    for field, names in (("removed", iter(removed)), ("added", iter(added))):
        while part := [*islice(names, MAX_NAMES)]:
            yield orjson.dumps({"type": "watched", field: part})


def decode(data: bytes) -> WatchedPrefixes | Watched | None:
    """Return a message; None for one of an unknown type, which is ignored.

    Raises:
        InterestError: it is malformed.
    """
    try:
        message = orjson.loads(data)
        match message["type"]:
            case "prefixes":
                return WatchedPrefixes(_names(message, "prefixes"))
            case "watched":
                return Watched(_names(message, "added"), _names(message, "removed"))
    except (ValueError, TypeError, LookupError) as error:
        raise InterestError(f"malformed message: {error}") from None
    return None


def _names(message: dict[str, Any], field: str) -> list[str]:
    names = message.get(field, [])
    if type(names) is not list or not all(type(name) is str for name in names):
        raise ValueError(f"{field} is no list of names")
    return names
