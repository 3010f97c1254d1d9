"""Pure: what a server says to a proxy besides updates, parsed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from diem.errors import DiemError


class BadMessage(DiemError):
    """A text that no server of this protocol sends: the link is closed."""


@dataclass(frozen=True, slots=True)
class UpstreamSubscribed:
    """The answer to request ``id``; ``elsewhere``: what was refused, with the URL of the owner where that is known."""

    id: int
    versions: Mapping[str, int | None]
    elsewhere: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The answer to request ``id``: nothing follows for what it named."""

    id: int


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """Whether the server is current, as a whole or in these endpoints."""

    live: bool
    endpoints: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Moved:
    """These endpoints are at another server."""

    endpoints: Sequence[str]
    owner: str | None


@dataclass(frozen=True, slots=True)
class UpstreamResync:
    """Whoever looks at these endpoints must fetch them again."""

    endpoints: Sequence[str]


@dataclass(frozen=True, slots=True)
class Failed:
    """Request ``id`` was refused as a whole."""

    id: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """A message that means nothing to a proxy, such as the ``welcome``."""


Said = UpstreamSubscribed | Unsubscribed | UpstreamStatus | Moved | UpstreamResync | Failed | Nothing


def parse(payload: bytes) -> Said:
    """One message of a server.

    Raises:
        BadMessage: it is not one.
    """
    try:
        return _parse(orjson.loads(payload))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMessage(f"not a server's message: {type(error).__name__}") from None


def _parse(message: dict[str, Any]) -> Said:
    read = _READERS.get(message["type"])
    return read(message) if read is not None else Nothing()


def _subscribed(message: dict[str, Any]) -> Said:
    elsewhere = {name: why.get("owner") for name, why in message.get("rejected", {}).items()}
    return UpstreamSubscribed(int(message["id"]), dict(message["endpoints"]), elsewhere)


def _status(message: dict[str, Any]) -> Said:
    endpoints = message.get("endpoints")
    return UpstreamStatus(bool(message["live"]), None if endpoints is None else list(endpoints))


_READERS: dict[str, Callable[[dict[str, Any]], Said]] = {
    "subscribed": _subscribed,
    "unsubscribed": lambda message: Unsubscribed(int(message["id"])),
    "status": _status,
    "moved": lambda message: Moved(list(message["endpoints"]), message.get("owner")),
    "resync": lambda message: UpstreamResync(list(message["endpoints"])),
    "error": lambda message: Failed(int(message["id"])) if "id" in message else Nothing(),
}


def subscribe(request_id: int, known: Mapping[str, int | None]) -> bytes:
    """The proxy's own request to a server."""
    return orjson.dumps({"type": "subscribe", "id": request_id, "endpoints": known})


def unsubscribe(request_id: int, names: Sequence[str]) -> bytes:
    """The proxy's own request to a server."""
    return orjson.dumps({"type": "unsubscribe", "id": request_id, "endpoints": names})
