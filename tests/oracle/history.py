"""The history of a run: accepted changes, every client's events, faults; stored as JSON Lines, one file per client.

All times are seconds of one machine's monotonic clock, so that they compare between the processes of a run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson


class Kind(StrEnum):
    """Kinds of events of a client."""

    OPEN = "open"
    """``code`` is 1 where compression was agreed."""
    CLOSE = "close"
    """``code`` is the close code; :data:`LEFT` if the client left for good."""
    SUBSCRIBE = "subscribe"
    """The request was sent; ``version`` is the known version in it."""
    SUBSCRIBED = "subscribed"
    """The reply; ``version`` is the one that it states (0 for null)."""
    REJECTED = "rejected"
    UNSUBSCRIBE = "unsubscribe"
    """The request was sent: no updates are due from here, though some may arrive until the reply."""
    UNSUBSCRIBED = "unsubscribed"
    UPDATE = "update"
    """The update passed the drop rule and was announced to the application."""
    HELD = "held"
    """The client now holds the data of this version, which came with the update or was fetched; ``code`` is the stamp
    in the data (:class:`Accepted`), for a collection the fingerprint of its list, 0 for a deletion."""
    RESYNC = "resync"
    STATUS = "status"
    """``code`` is 1 for live; without an endpoint it is for all of them."""
    MOVED = "moved"
    """The connection does not have the endpoint any more, and it is wanted all the same: the server said so (``code``
    1), or the client has left it there for another connection (``code`` 0). No promise rests because of it."""
    RAW = "raw"
    """``code`` update frames were counted on the wire of the connection that ends here, before the filter."""


WIPE = "wipe-store"
"""The fault that deliberately removes accepted changes and remembered request keys."""
LEFT = 0
"""Code of a ``close`` by the client itself: promises to it end."""


class Accepted(NamedTuple):
    """A change that was answered with 2xx."""

    endpoint: str
    version: int
    time: float
    """Time when the answer was read."""
    gone: bool = False
    key: str = ""
    """The Idempotency-Key of the request."""
    stamp: int = 0
    """Number that the data has, by itself (series) or as its fingerprint; 0 if there is none, or ``change`` says it."""
    change: Any = None
    """What is written to a document that is patched, now or later (``values.applied``); None for other data."""
    begun: float = 0.0
    """Time when the request was first sent."""
    ttl: float = 0.0
    """Seconds until the endpoint expires; 0: never, or for a patch as before."""
    after: int = 0
    """The version in ``If-Match``, after which the write was accepted; 0 without one."""


class Uncertain(NamedTuple):
    """A write without an answer: it may have been accepted once."""

    endpoint: str
    start: float
    end: float
    stamp: int = 0
    """That of its data; 0 if there is none."""
    change: Any = None
    """As that of an accepted one."""


class Event(NamedTuple):
    """One event of one client; :class:`Kind` defines the meaning of the fields."""

    time: float
    kind: str
    endpoint: str = ""
    version: int = 0
    code: int = 0
    link: int = 0
    """Number of the client's connection; always 0 for clients with one at a time."""


class Fault(NamedTuple):
    """An injected fault, from its injection until what it hit is back in service."""

    kind: str
    target: str
    start: float
    end: float
    heal: float | None = None
    """The fault's own T_heal, seconds after its end; None for that of the run."""
    told: float | None = None
    """Seconds from its start within which every connected client must get live:false; None if none must."""
    excuses: bool = True
    """Whether promises are suspended from its start until T_heal after its end; false if no client may notice."""


class Snapshot(NamedTuple):
    """The counters of one process at the end of a run (invariant I14); processes count in updates."""

    process: str
    consumed: int
    forwarded: int
    not_subscribed: int
    stale: int
    bad: int


@dataclass(frozen=True)
class History:
    """A whole run. ``clients`` may load lazily: the oracle reads one client at a time."""

    accepted: list[Accepted]
    clients: Mapping[str, list[Event]]
    end: float
    """End of the observation, until which promises are checked."""
    faults: list[Fault] = field(default_factory=list)
    uncertain: list[Uncertain] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    final: dict[str, int] | None = None
    """REST's version of each endpoint and collection at the end; None if not read."""
    lists: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The names that a collection lists, by their fingerprint."""
    rights: Mapping[str, list[str]] = field(default_factory=dict)
    """The prefixes that the tokens of a client cover; clients without such a limit are not there."""


Row = TypeVar("Row", Accepted, Uncertain, Fault, Snapshot)


class ClientFiles(Mapping[str, list[Event]]):
    """The clients of a recorded history; a file is read on each access, and not kept."""

    def __init__(self, folder: Path) -> None:
        self._files = {path.stem: path for path in sorted(folder.glob("*.jsonl"))}

    def __getitem__(self, client: str) -> list[Event]:
        """Return the events of ``client`` by time."""
        with self._files[client].open("rb") as lines:
            return [_event(orjson.loads(line)) for line in lines]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the clients."""
        return iter(self._files)

    def __len__(self) -> int:
        """Return the number of recorded clients."""
        return len(self._files)


def _event(row: dict[str, Any]) -> Event:
    get = row.get
    return Event(row["time"], row["kind"], get("endpoint", ""), get("version", 0), get("code", 0), get("link", 0))


def write_client(folder: Path, client: str, events: Iterable[Event]) -> None:
    """Write one client's events to ``folder/clients``; fields at their default are left out, except for a close."""
    lines = []
    for time, kind, endpoint, version, code, link in events:
        row: dict[str, Any] = {"client": client, "time": time, "kind": kind}
        if endpoint:
            row["endpoint"] = endpoint
        if version:
            row["version"] = version
        if code or kind in (Kind.CLOSE, Kind.STATUS, Kind.RAW):
            row["code"] = code
        if link:
            row["link"] = link
        lines.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    path = folder / "clients" / f"{client}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))


def write_lists(folder: Path, name: str, lists: Mapping[int, Iterable[str]]) -> None:
    """Write the lists of collections that one process has seen to ``folder/lists``."""
    path = folder / "lists" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps({str(stamp): [*names] for stamp, names in lists.items()}))


def write_rights(folder: Path, rights: Mapping[str, list[str]]) -> None:
    """Write the rights of clients to ``folder``."""
    (folder / "rights.json").write_bytes(orjson.dumps({**rights}))


def write_history(folder: Path, history: History, *, clients: bool = True) -> None:
    """Write ``history`` below ``folder``; without ``clients`` if the client process has written them."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_rows(folder / "accepted.jsonl", history.accepted)
    _write_rows(folder / "uncertain.jsonl", history.uncertain)
    _write_rows(folder / "faults.jsonl", history.faults)
    _write_rows(folder / "snapshots.jsonl", history.snapshots)
    (folder / "end.json").write_bytes(orjson.dumps({"end": history.end, "final": history.final}))
    if clients:
        for client, events in history.clients.items():
            write_client(folder, client, events)
        write_lists(folder, "all", history.lists)
        write_rights(folder, history.rights)


def read_history(folder: Path) -> History:
    """Read the history below ``folder``. Raises ``FileNotFoundError`` if there is none."""
    end = orjson.loads((folder / "end.json").read_bytes())
    found = [orjson.loads(path.read_bytes()) for path in sorted((folder / "lists").glob("*.json"))]
    rights = folder / "rights.json"
    return History(
        accepted=_read_rows(folder / "accepted.jsonl", Accepted),
        clients=ClientFiles(folder / "clients"),
        end=end["end"],
        faults=_read_rows(folder / "faults.jsonl", Fault),
        uncertain=_read_rows(folder / "uncertain.jsonl", Uncertain),
        snapshots=_read_rows(folder / "snapshots.jsonl", Snapshot),
        final=end["final"],
        lists={int(stamp): names for each in found for stamp, names in each.items()},
        rights=orjson.loads(rights.read_bytes()) if rights.exists() else {},
    )


def _write_rows(path: Path, rows: Iterable[Accepted | Uncertain | Fault | Snapshot]) -> None:
    """Write rows without the fields that have their defaults."""
    lines = []
    for row in rows:
        usual = row._field_defaults
        shown = {name: value for name, value in row._asdict().items() if name not in usual or value != usual[name]}
        lines.append(orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE))
    path.write_bytes(b"".join(lines))


def _read_rows(path: Path, kind: type[Row]) -> list[Row]:
    with path.open("rb") as lines:
        return [kind(**orjson.loads(line)) for line in lines]
