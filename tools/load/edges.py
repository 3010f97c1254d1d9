"""The edges watched by a canary, and its endpoints: one per partition; pure."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from diem.protocol.assignment import Snapshot
from diem.protocol.endpoints import CANARY
from diem.protocol.partitioners import partition_of

PARTITIONED: Final = frozenset({"z-client", "z-proxy", "z-composite", "xz"})
"""Modes with the partitions divided among servers."""
_COMPOSITES: Final = frozenset({"z-composite", "xz"})


class EdgeAddress(NamedTuple):
    """An edge: its name, and the URL of its WebSocket."""

    name: str
    url: str
    is_server: bool = False
    """True for a link to a server's internal listener; else a client's connection to a public address."""
    is_partial: bool = False
    """True for a member of a group, with only the partitions it confirms."""


def canary_endpoints(partitions: int) -> dict[str, int]:
    """Return an endpoint for each partition of the updates topic: name -> partition (docs/internals.md section 3).

    The names are constant, so that all runs write the same endpoints.
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
    for group in targets:
        labels = group["labels"]
        if labels["process"] == "websocket":
            name = f"websocket-{labels['number']}" if "number" in labels else "websocket"
            if labels["mode"] in _COMPOSITES:
                name = f"composite-{labels.get('clone', 1)}/{name}"
            url, is_partial = f"ws://{group['targets'][0]}/ws", labels["mode"] in PARTITIONED
            yield EdgeAddress(name, url, is_server=True, is_partial=is_partial)
    for process in processes.get("processes", ()):
        public = process["urls"]["public"]
        if process["process"] in {"proxy", "composite"} and public:
            yield EdgeAddress(process["name"], public)


def edges_of_groups(snapshot: Snapshot) -> Iterator[EdgeAddress]:
    """Yield the servers known to the metadata service, by their internal listeners."""
    for number, clone in sorted(snapshot.clones.items()):
        for name, owner in sorted(clone.members.items()):
            yield EdgeAddress(f"clone-{number}/{name}", owner.internal, is_server=True, is_partial=True)
