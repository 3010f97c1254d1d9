"""Partition owners, as published by the metadata service (docs/internals.md section 4)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from diem.errors import DiemError
from diem.protocol.partition_map import HOT, Entry, Head, PartitionMap, Phase

STABLE: Final = "stable"
REBALANCING: Final = "rebalancing"
UNKNOWN: Final = "unknown"


class BadSnapshot(DiemError):
    """The data is not a snapshot."""


class Owner(NamedTuple):
    """A server of a group: its name in the group, its URL for proxies (``internal``) and for clients (``public``)."""

    server: str
    internal: str
    public: str


class Clone(NamedTuple):
    """One group: its servers, and the owner of each partition at its last stable assignment."""

    state: str
    """``stable``, ``rebalancing``, or ``unknown`` before Kafka's first answer."""
    members: Mapping[str, Owner]
    owners: Mapping[int, str]
    """Partition -> name of the server."""


class Snapshot(NamedTuple):
    """The input of routing: the map, and the groups by clone number."""

    map: PartitionMap
    clones: Mapping[int, Clone]

    def is_hot(self, endpoint: bytes) -> bool:
        """Return whether every server has this endpoint."""
        return self.map.home(endpoint) == HOT

    def owner(self, endpoint: bytes, clone: int) -> Owner | None:
        """Return a clone's owner of ``endpoint``; None if it is hot or has no owner now."""
        group = self.clones.get(clone)
        if group is None:
            return None
        return group.members.get(group.owners.get(self.map.home(endpoint), ""))


def member_id(number: int) -> str:
    """Return the name of server ``number`` in its group; it sorts like the number, and ranges follow that order."""
    return f"b{number:03d}"


def client_id(owner: Owner) -> str:
    """Return the client id in which a member of the group publishes its URLs."""
    return "|".join(owner)


def parse_client_id(text: str) -> Owner | None:
    """Return the server in a client id; None if it has another form."""
    parts = text.split("|")
    return Owner(*parts) if len(parts) == len(Owner._fields) and all(parts) else None


def encode(snapshot: Snapshot) -> bytes:
    """Encode the JSON of ``GET /v1/partitions`` and of the internal watch."""
    head, entries = snapshot.map.head, snapshot.map.entries
    return orjson.dumps(
        {
            "type": "partitions",
            "epoch": head.epoch,
            "phase": head.phase,
            "partitions": head.partitions,
            **({"keys": head.keys} if head.keys else {}),
            "entries": {endpoint.decode(): list(entry) for endpoint, entry in entries.items()},
            "clones": {
                str(number): {
                    "state": clone.state,
                    "members": {
                        name: {"internal": m.internal, "public": m.public} for name, m in clone.members.items()
                    },
                    "owners": {str(partition): server for partition, server in clone.owners.items()},
                }
                for number, clone in snapshot.clones.items()
            },
        }
    )


def decode(data: bytes) -> Snapshot:
    """Decode a snapshot.

    Raises:
        BadSnapshot: the data is not one.
    """
    try:
        body = orjson.loads(data)
        head = Head(int(body["partitions"]), int(body["epoch"]), Phase(body["phase"]), keys=str(body.get("keys", "")))
        entries = {name.encode(): Entry(*places) for name, places in body["entries"].items()}
        clones = {int(number): _clone(clone) for number, clone in body["clones"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadSnapshot(f"not a snapshot: {type(error).__name__} {error}") from None
    return Snapshot(PartitionMap(head, entries), clones)


def _clone(body: Any) -> Clone:  # noqa: ANN401 - JSON
    members = {name: Owner(name, str(urls["internal"]), str(urls["public"])) for name, urls in body["members"].items()}
    return Clone(str(body["state"]), members, {int(number): str(name) for number, name in body["owners"].items()})
