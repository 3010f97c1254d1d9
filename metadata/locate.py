"""Locate requests and their answers: the servers of endpoints (docs/protocol.md section 3). No I/O."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import orjson

from diem.errors import DiemError
from diem.protocol import endpoints, messages
from diem.protocol.assignment import Snapshot
from diem.protocol.codes import ErrorCode
from metadata.directory import Directory

MAX_NAMES: Final = 1000
MAX_REQUEST_BYTES: Final = MAX_NAMES * (endpoints.MAX_NAME_BYTES + 4) + 256
"""Size of that many names of maximum length, each with quotes, a comma and a blank."""
MAX_REJECTED: Final = 100
"""Invalid names listed in an answer; further ones are only counted."""
_FIELDS: Final = frozenset({"endpoints", "clone"})
_BAD_NAME: Final = {"code": messages.BAD_NAME.code, "message": messages.BAD_NAME.message}
_FORBIDDEN: Final = {"code": messages.FORBIDDEN.code, "message": messages.FORBIDDEN.message}

Load = Callable[[str], int | None]
"""Number of clients of the server with this public URL; None if unknown."""


@dataclass(eq=False)
class InvalidRequest(DiemError):
    """The request cannot be answered; ``code`` is stable and for programs."""

    template = "{reason}"

    code: ErrorCode
    reason: str


class LocateQuery(NamedTuple):
    """Endpoints for which a client requests the owners."""

    names: Sequence[str]
    rejected: Sequence[str]
    """The first :data:`MAX_REJECTED` invalid names."""
    more_rejected: int
    """Number of further invalid names."""
    clone: int | None
    """Clone already in use by the client; None to be assigned one."""
    forbidden: Sequence[str] = ()
    """Endpoints that the client's token does not cover."""

    @property
    def name_count(self) -> int:
        """Number of distinct names."""
        return len(self.names) + len(self.forbidden) + len(self.rejected) + self.more_rejected

    def restricted(self, allows: Callable[[str], bool]) -> "LocateQuery":
        """Return the query restricted to the endpoints that ``allows`` accepts."""
        return self._replace(
            names=[name for name in self.names if allows(name)],
            forbidden=[name for name in self.names if not allows(name)],
        )


def parse(data: bytes, max_names: int = MAX_NAMES) -> LocateQuery:
    """Parse the body of a request; repeated names count once.

    Raises:
        InvalidRequest: not JSON, not of this form, or more than ``max_names`` names.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(ErrorCode.BAD_JSON, f"not JSON: {error}") from None
    if not isinstance(body, dict) or not body.keys() <= _FIELDS:
        raise InvalidRequest(ErrorCode.BAD_MESSAGE, "a request is an object with endpoints, and perhaps clone")
    names, clone = body.get("endpoints"), body.get("clone")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidRequest(ErrorCode.BAD_MESSAGE, "endpoints is a list of names")
    if clone is not None and type(clone) is not int:
        raise InvalidRequest(ErrorCode.BAD_MESSAGE, "clone is a whole number")
    if len(names) > max_names:
        raise InvalidRequest(ErrorCode.TOO_MANY, f"at most {max_names} names in one request, not {len(names)}")
    return _query(names, clone)


def _query(names: Iterable[str], clone: int | None) -> LocateQuery:
    valid: list[str] = []
    rejected: list[str] = []
    more = 0
    for name in dict.fromkeys(names):
        if endpoints.is_valid(name):
            valid.append(name)
        elif len(rejected) < MAX_REJECTED:
            rejected.append(name)
        else:
            more += 1
    return LocateQuery(valid, rejected, more, clone)


def choose_clone(snapshot: Snapshot, current: int | None, load: Load, rng: random.Random) -> int:
    """Return the clone for a client: ``current`` if it has servers, else the one with the fewest clients.

    Clones with a server of unknown load come last; ties are broken at random. A clone without servers is chosen only if
    there is no other.
    """
    with_servers = [number for number, clone in snapshot.clones.items() if clone.owners] or list(snapshot.clones)
    if current in with_servers:
        return current

    def rank(number: int) -> tuple[bool, int, float]:
        loads = [load(owner.public) for owner in snapshot.clones[number].members.values()]
        return None in loads, sum(filter(None, loads)), rng.random()

    return min(with_servers, key=rank)


def sort_servers(snapshot: Snapshot, clone: int, load: Load, rng: random.Random) -> list[str]:
    """Return the public URLs of a clone's servers by ascending load, unknown loads last."""

    def rank(url: str) -> tuple[bool, int, float]:
        clients = load(url)
        return clients is None, clients or 0, rng.random()

    return sorted((owner.public for owner in snapshot.clones[clone].members.values()), key=rank)


def answer(query: LocateQuery, snapshot: Snapshot, clone: int, urls: Sequence[str]) -> dict[str, Any]:
    """Return the answer of ``POST /v1/locate``, with the servers ``urls`` of the clone."""
    located = {
        "clone": clone,
        "epoch": snapshot.map.head.epoch,
        "endpoints": {name: _owner(snapshot, name.encode(), clone) for name in query.names},
        "rejected": dict.fromkeys(query.rejected, _BAD_NAME) | dict.fromkeys(query.forbidden, _FORBIDDEN),
        "servers": urls,
    }
    return {**located, "more_rejected": query.more_rejected} if query.more_rejected else located


def _owner(snapshot: Snapshot, endpoint: bytes, clone: int) -> dict[str, Any]:
    if snapshot.is_hot(endpoint):
        return {"owner": None, "hot": True}
    owner = snapshot.owner(endpoint, clone)
    return {"owner": owner.public if owner else None}


class ClientCounts(Protocol):
    """Number of clients of each server; see :class:`metadata.server_load.ServerLoads`."""

    def of(self, public: str) -> int | None:
        """Return the number of clients of a server; None if unknown."""
        ...

    def redirected(self, public: str) -> None:
        """Count a client redirected to a server."""
        ...


class OwnerLookup:
    """Looks up the owners of endpoints in a directory. ``rng`` breaks ties."""

    def __init__(self, directory: Directory, clients: ClientCounts, rng: random.Random) -> None:
        self._directory = directory
        self._clients = clients
        self._rng = rng

    def locate(self, query: LocateQuery) -> dict[str, Any] | None:
        """Return the answer; None until there is a snapshot (503)."""
        snapshot, load = self._directory.snapshot, self._clients.of
        if snapshot is None:
            return None
        clone = choose_clone(snapshot, query.clone, load, self._rng)
        urls = sort_servers(snapshot, clone, load, self._rng)
        if clone != query.clone and urls:
            self._clients.redirected(urls[0])
        return answer(query, snapshot, clone, urls)
