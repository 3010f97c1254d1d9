"""Locate requests and their answers: which server has these endpoints (docs/protocol.md section 4). No I/O."""

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
MAX_QUESTION: Final = MAX_NAMES * (endpoints.MAX_BYTES + 4) + 256
"""Bytes of a question: so many of the longest names, with quotes, a comma and a blank."""
MAX_REJECTED: Final = 100
"""Names of an answer that are no endpoints; of more, only their number is told."""
_FIELDS: Final = frozenset({"endpoints", "clone"})
_BAD_NAME: Final = {"code": messages.BAD_NAME.code, "message": messages.BAD_NAME.message}

Load = Callable[[str], int | None]
"""Clients of the server with this public URL; None when it does not say."""


@dataclass(eq=False)
class InvalidRequest(DiemError):
    """What was asked cannot be answered; ``code`` is stable and for programs."""

    template = "{reason}"

    code: ErrorCode
    reason: str


class Question(NamedTuple):
    """What a client wants to know."""

    names: Sequence[str]
    rejected: Sequence[str]
    """What it named that is no endpoint, at most :data:`MAX_REJECTED` of it."""
    more_rejected: int
    """How many more of these there were."""
    clone: int | None
    """The clone that it stays with."""

    @property
    def given(self) -> int:
        """Different names in it."""
        return len(self.names) + len(self.rejected) + self.more_rejected


def read(data: bytes, most: int = MAX_NAMES) -> Question:
    """The question in a request's body; a name that is given twice counts once.

    Raises:
        InvalidRequest: it is not JSON, not of this form, or has more than ``most`` names.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(ErrorCode.BAD_JSON, f"not JSON: {error}") from None
    if not isinstance(body, dict) or not body.keys() <= _FIELDS:
        raise InvalidRequest(ErrorCode.BAD_MESSAGE, "a question is an object with endpoints, and perhaps clone")
    names, clone = body.get("endpoints"), body.get("clone")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidRequest(ErrorCode.BAD_MESSAGE, "endpoints is a list of names")
    if clone is not None and type(clone) is not int:
        raise InvalidRequest(ErrorCode.BAD_MESSAGE, "clone is a whole number")
    if len(names) > most:
        raise InvalidRequest(ErrorCode.TOO_MANY, f"at most {most} names in one question, not {len(names)}")
    return _question(names, clone)


def _question(names: Iterable[str], clone: int | None) -> Question:
    good: list[str] = []
    rejected: list[str] = []
    more = 0
    for name in dict.fromkeys(names):
        if endpoints.is_valid(name):
            good.append(name)
        elif len(rejected) < MAX_REJECTED:
            rejected.append(name)
        else:
            more += 1
    return Question(good, rejected, more, clone)


def choose(snapshot: Snapshot, wanted: int | None, load: Load, rng: random.Random) -> int:
    """The clone for a client: the one that it ``wanted`` if that has servers, else the one with the fewest clients.

    A clone of which a server does not say how many clients it has comes after those that do; among equals chance
    decides. A clone without any server is chosen only when there is no other one.
    """
    alive = [number for number, clone in snapshot.clones.items() if clone.owners] or list(snapshot.clones)
    if wanted in alive:
        return wanted

    def weight(number: int) -> tuple[bool, int, float]:
        loads = [load(owner.public) for owner in snapshot.clones[number].members.values()]
        return None in loads, sum(filter(None, loads)), rng.random()

    return min(alive, key=weight)


def servers(snapshot: Snapshot, clone: int, load: Load, rng: random.Random) -> list[str]:
    """The public URLs of a clone's servers, the one with the fewest clients first; those that say nothing are last."""

    def weight(url: str) -> tuple[bool, int, float]:
        clients = load(url)
        return clients is None, clients or 0, rng.random()

    return sorted((owner.public for owner in snapshot.clones[clone].members.values()), key=weight)


def answer(question: Question, snapshot: Snapshot, clone: int, urls: Sequence[str]) -> dict[str, Any]:
    """The answer of ``POST /v1/locate``, with the servers ``urls`` of the clone."""
    said = {
        "clone": clone,
        "epoch": snapshot.map.head.epoch,
        "endpoints": {name: _place(snapshot, name.encode(), clone) for name in question.names},
        "rejected": dict.fromkeys(question.rejected, _BAD_NAME),
        "servers": urls,
    }
    return {**said, "more_rejected": question.more_rejected} if question.more_rejected else said


def _place(snapshot: Snapshot, endpoint: bytes, clone: int) -> dict[str, Any]:
    if snapshot.is_hot(endpoint):
        return {"owner": None, "hot": True}
    owner = snapshot.owner(endpoint, clone)
    return {"owner": owner.public if owner else None}


class ClientCounts(Protocol):
    """How many clients each server has; see :class:`metadata.loads.Loads`."""

    def of(self, public: str) -> int | None:
        """Clients of a server; None when it does not say."""
        ...

    def sent(self, public: str) -> None:
        """A client was sent to a server."""
        ...


class Answers:
    """Makes answers of a directory. ``rng`` decides among equals."""

    def __init__(self, directory: Directory, clients: ClientCounts, rng: random.Random) -> None:
        self._directory = directory
        self._clients = clients
        self._rng = rng

    def to(self, question: Question) -> dict[str, Any] | None:
        """The answer; None while there can be none (503)."""
        snapshot, load = self._directory.snapshot, self._clients.of
        if snapshot is None:
            return None
        clone = choose(snapshot, question.clone, load, self._rng)
        urls = servers(snapshot, clone, load, self._rng)
        if clone != question.clone and urls:
            self._clients.sent(urls[0])
        return answer(question, snapshot, clone, urls)
