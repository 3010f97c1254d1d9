"""The partition map: the partition of every endpoint, and its moves to other partitions (docs/internals.md section 5).

An endpoint without an entry is in the partition of Kafka's own partitioner. All rules apply to the state as read,
because a reader may see only the newest record of every key of the map's topic.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

import orjson

from diem.protocol import endpoints
from diem.protocol.compatibility import OURS
from diem.protocol.keys import served_keys
from diem.protocol.partitioners import partition_of

HOT: Final = -1
"""In place of a partition: the topic of hot updates, read by every bridge."""
HEAD_KEY: Final = b"head"
"""Key of the record written last, which puts the entries before it into effect."""
START_KEY: Final = b"start"
"""Key of a record announcing the whole map, on links only, not in the topic."""
ACK_PREFIX: Final = b"ack/"
"""Prefix of the keys of acknowledgements, which report the epoch read by a process."""
PUBLISHER_ACK: Final = ACK_PREFIX + b"publisher"
"""Key of the publisher's acknowledgement: the log has all required by the epoch (docs/internals.md section 5)."""
MAX_PARTITIONS: Final = 10_000
MAX_UNKNOWN_BYTES: Final = 64 * 1024
"""Limit of the names in one acknowledgement, half of the topic's limit; the next one has the rest."""


class Phase(StrEnum):
    """Phase of a migration of endpoints."""

    STABLE = "stable"
    PREPARE = "prepare"
    MOVE = "move"
    RETIRE = "retire"


class Role(Enum):
    """Role of a server for an endpoint."""

    SERVING = auto()
    DRAINING = auto()
    """Serves existing subscribers only: the endpoint is moving away."""
    NOT_OWNED = auto()


class Entry(NamedTuple):
    """Placement of an endpoint: a partition or :data:`HOT`, and the target of a move."""

    home: int
    target: int | None = None


class Head(NamedTuple):
    """The part of the map that applies to all endpoints.

    ``partitions`` is the P of the hash; entries may use partitions beyond it, so that a topic can grow without moving
    unplanned endpoints. ``epoch`` grows with every head; ``plan`` is the current or last migration.
    """

    partitions: int
    epoch: int
    phase: Phase = Phase.STABLE
    plan: str = ""
    keys: str = ""
    """Of a served topic, the partitioner of its producers and the template of its endpoints, which have the keys."""

    def partition(self, endpoint: bytes) -> int:
        """Return the partition of ``endpoint``, or of its key."""
        if not self.keys:
            return partition_of(endpoint, self.partitions)
        partitioner, template = served_keys(self.keys)
        return partitioner.place(template.key(endpoint), self.partitions)


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """One epoch and phase of the map. ``entries`` has the endpoints not placed by the hash."""

    head: Head
    entries: Mapping[bytes, Entry] = field(default_factory=dict)

    def entry(self, endpoint: bytes) -> Entry:
        """Return the entry of ``endpoint``, or else one for the partition of its hash."""
        return self.entries.get(endpoint) or Entry(self.head.partition(endpoint))

    def home(self, endpoint: bytes) -> int:
        """Return the partition whose owner serves clients."""
        home, target = self.entry(endpoint)
        return target if target is not None and self.head.phase in {Phase.MOVE, Phase.RETIRE} else home

    def written_to(self, endpoint: bytes) -> tuple[int, ...]:
        """Return the partitions to which the publisher writes its updates."""
        home, target = self.entry(endpoint)
        if target is None or target == home or self.head.phase is Phase.STABLE:
            return (home,)
        return (target,) if self.head.phase is Phase.RETIRE else (home, target)

    def role(self, written: tuple[int, ...], owned: Collection[int]) -> Role:
        """Return the role of a server that reads the partitions ``owned``, which may include :data:`HOT`.

        ``written`` is :meth:`written_to` of the endpoint.
        """
        if self.head.phase is Phase.MOVE and len(written) > 1 and written[1] not in owned:
            return Role.DRAINING if written[0] in owned else Role.NOT_OWNED
        return Role.SERVING if any(place in owned for place in written) else Role.NOT_OWNED


def encode_head(head: Head, entries: int | None = None) -> bytes:
    """Encode the value of the record with :data:`HEAD_KEY`.

    ``entries`` is its number of entries, by which a reader detects missing ones.
    """
    fields = {name: value for name, value in head._asdict().items() if name not in {"plan", "keys"} or value}
    return orjson.dumps(fields if entries is None else {**fields, "entries": entries})


def encode_entry(entry: Entry) -> bytes:
    """Encode the value of the record whose key is the endpoint."""
    return orjson.dumps({"home": entry.home, **({} if entry.target is None else {"target": entry.target})})


def encode_ack(epoch: int, unknown: Iterable[bytes] = ()) -> bytes:
    """Encode an acknowledgement of ``epoch``; ``unknown`` are endpoints with entries that were never published."""
    room, names = MAX_UNKNOWN_BYTES, list[str]()
    for name in unknown:
        room -= len(name) + 3
        if room < 0:
            break
        names.append(name.decode())
    return orjson.dumps({"epoch": epoch, **({"unknown": names} if names else {})})


def parse_ack(value: bytes | None) -> int:
    """Return the epoch of an acknowledgement; -1 if the value is not one."""
    match _object(value):
        case {"epoch": int(epoch)}:
            return epoch
    return -1


def parse_unknown(value: bytes | None) -> frozenset[bytes]:
    """Return the unpublished endpoints of an acknowledgement; empty if the value is not one."""
    match _object(value):
        case {"epoch": int(), "unknown": [*names]}:
            return frozenset(name.encode() for name in names if isinstance(name, str) and endpoints.is_valid(name))
    return frozenset()


class MapBuilder:
    """Builds the map from the records of its topic, in order.

    Entries take effect with the next head. A head of an older epoch is ignored (I7); malformed records are skipped and
    counted. A head with ``"protocol":n`` is for processes that speak version n of the internal protocol; others keep
    the previous map (:attr:`needs`). A head with a wrong number of entries means lost records: the previous map stays,
    too. Memory is bounded by the endpoints with entries.
    """

    def __init__(self) -> None:
        self.map: PartitionMap | None = None
        self.invalid = 0
        """Number of malformed records."""
        self.needs: int | None = None
        """The version of the internal protocol that the newest head needs, if this process does not speak it."""
        self.is_complete = False
        """The newest head was read, since the beginning of the log, with all of its entries."""
        self._entries: dict[bytes, Entry] = {}
        self._fresh = True

    def restart(self) -> None:
        """Restart at the beginning of the same log: older epochs remain invalid."""
        self._entries, self.is_complete = {}, False

    def count_after(self, records: Mapping[bytes, bytes | None]) -> int:
        """Return the number of entries after ``records``."""
        return len((self._entries.keys() | {key for key, value in records.items() if value}) - _removed(records))

    def apply(self, key: bytes, value: bytes | None) -> bool:
        """Apply one record; an empty value removes an entry. Return whether the map has changed."""
        if key == START_KEY:
            self.restart()
            self._fresh = True
        elif key == HEAD_KEY:
            self.needs = _needs(value)
            if self.needs is None:
                return self._apply_head(_head(value), _count(value))
            self.is_complete = True
        elif not key.startswith(ACK_PREFIX):
            self._apply_entry(key, value)
        return False

    def _apply_entry(self, key: bytes, value: bytes | None) -> None:
        if not value:
            self._entries.pop(key, None)
            return
        entry = _entry(value) if endpoints.is_valid(key.decode("ascii", "replace")) else None
        if entry is None:
            self.invalid += 1
        else:
            self._entries[key] = entry

    def _apply_head(self, head: Head | None, count: int | None) -> bool:
        if head is None:
            self.invalid += 1
            return False
        if self.map is not None and head.epoch < self.map.head.epoch and not self._fresh:
            return False
        self.is_complete = count is None or count == len(self._entries)
        if not self.is_complete:
            return False
        before, self._fresh = self.map, False
        self.map = PartitionMap(head, dict(self._entries))
        return self.map != before


def _removed(records: Mapping[bytes, bytes | None]) -> set[bytes]:
    return {key for key, value in records.items() if not value}


def _count(value: bytes | None) -> int | None:
    match _object(value):
        case {"entries": int(count)}:
            return count
    return None


def _needs(value: bytes | None) -> int | None:
    match _object(value):
        case {"protocol": int(version)} if version > OURS.newest:
            return version
    return None


def _head(value: bytes | None) -> Head | None:
    match _object(value):
        case {"partitions": int(count), "epoch": int(epoch), "phase": str(phase), **rest}:
            if 1 <= count <= MAX_PARTITIONS and epoch >= 0 and phase in set(Phase):
                return Head(count, epoch, Phase(phase), str(rest.get("plan", "")), str(rest.get("keys", "")))
    return None


def _entry(value: bytes) -> Entry | None:
    match _object(value):
        case {"home": int(home), "target": int(target)} if min(home, target) >= HOT:
            return Entry(home, target)
        case {"home": int(home), **rest} if home >= HOT and "target" not in rest:
            return Entry(home)
    return None


def _object(value: bytes | None) -> Any:  # noqa: ANN401 - whatever the JSON is
    try:
        return orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
