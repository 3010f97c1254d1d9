"""The edges that a canary watches, and its endpoints: one in each partition; pure."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from diem.protocol.assignment import Snapshot
from diem.protocol.endpoints import CANARY
from diem.protocol.partition_map import partition_of

PARTITIONED: Final = frozenset({"z-client", "z-proxy", "z-composite", "xz"})
"""Modes in which each server has a share of the partitions."""
_COMPOSITES: Final = frozenset({"z-composite", "xz"})
CLIENTS: Final = "clients"
"""Name of the edge at which a client arrives that knows the address of the page alone."""


class EdgeKind(Enum):
    """How an edge is watched."""

    CLIENTS = auto()
    """By a client with the configuration of the page: through nginx, or at the owners of endpoints."""
    PUBLIC = auto()
    """By a client at the public address of a process."""
    SERVER = auto()
    """By a link to the internal listener of a server, which has all endpoints."""
    MEMBER = auto()
    """The same at a server of a group, which has a share of the partitions."""


class EdgeAddress(NamedTuple):
    """An edge: its name, and the URL of its WebSocket."""

    name: str
    url: str
    kind: EdgeKind

    @property
    def is_partial(self) -> bool:
        """Whether the edge has the partitions alone that it confirms."""
        return self.kind is EdgeKind.MEMBER


def canary_endpoints(partitions: int) -> dict[str, int]:
    """Return an endpoint for each partition of the updates topic: name -> partition (docs/protocol.md section 3).

    The names are the same each time, so that any number of runs write the same endpoints.
    """
    return {_name(partition, partitions): partition for partition in range(partitions)}


def _name(partition: int, partitions: int) -> str:
    plain = f"{CANARY}p{partition}"
    names = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(1)))
    return next(name for name in names if partition_of(name.encode(), partitions) == partition)


def edges_of_system(processes: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> Iterator[EdgeAddress]:
    """Yield the edges of a ``diem up``: servers, also those of composites, and the public addresses of proxies.

    Args:
        processes: content of ``processes.json``.
        targets: content of ``targets.json``, which has the children of composites.
    """
    kind = EdgeKind.MEMBER if processes.get("mode") in PARTITIONED else EdgeKind.SERVER
    for group in targets:
        labels = group["labels"]
        if labels["process"] == "websocket":
            name = f"websocket-{labels['number']}" if "number" in labels else "websocket"
            if labels["mode"] in _COMPOSITES:
                name = f"composite-{labels.get('clone', 1)}/{name}"
            yield EdgeAddress(name, f"ws://{group['targets'][0]}/ws", kind)
    for process in processes.get("processes", ()):
        public = process["urls"]["public"]
        if process["process"] in {"proxy", "composite"} and public:
            yield EdgeAddress(process["name"], public, EdgeKind.PUBLIC)


def edges_of_groups(snapshot: Snapshot) -> Iterator[EdgeAddress]:
    """Yield the servers that the metadata service knows, by their internal listeners."""
    for number, clone in sorted(snapshot.clones.items()):
        for name, owner in sorted(clone.members.items()):
            yield EdgeAddress(f"clone-{number}/{name}", owner.internal, EdgeKind.MEMBER)


def named_edges(public: Iterable[str], servers: Iterable[str]) -> Iterator[EdgeAddress]:
    """Yield edges by their URLs: WebSockets of public listeners, and base URLs of servers' internal listeners."""
    for url in public:
        yield EdgeAddress(url, url, EdgeKind.PUBLIC)
    for url in servers:
        yield EdgeAddress(url, f"ws{url.removeprefix('http')}/ws", EdgeKind.SERVER)
