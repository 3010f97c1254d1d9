"""The steps of a migration, as a pure function of the map's topic: any instance that reads it can continue it.

PREPARE ends with the publisher's acknowledgement, MOVE after a while, RETIRE with another acknowledgement; then every
endpoint has a single home (docs/protocol.md section 5). Nothing else is remembered, so a crash is only a delay.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from diem.protocol.partition_map import Entry, Head, PartitionMap, Phase, encode_entry, partition_of

BACK: Final = "-"
"""Prefix of the plan's name in the head: it is being rolled back, or has been."""
_REVERSED: Final = {Phase.PREPARE: Phase.RETIRE, Phase.MOVE: Phase.MOVE, Phase.RETIRE: Phase.PREPARE}


class MapStep(NamedTuple):
    """Records to write to the map's topic in one transaction; None in ``records`` removes an entry."""

    records: Mapping[bytes, bytes | None]
    head: Head


def moving(map_: PartitionMap) -> dict[bytes, Entry]:
    """Return the endpoints that have another target than their home."""
    return {name: entry for name, entry in map_.entries.items() if entry.target not in {None, entry.home}}


def moves(
    map_: PartitionMap, homes: Mapping[bytes, int], unknown: Collection[bytes] = frozenset()
) -> dict[bytes, Entry]:
    """Return the entries of all endpoints that have to move so that endpoints are at ``homes``.

    An endpoint that has an entry and is ``unknown`` to the publisher goes back to where the hash puts it, whatever
    ``homes`` says: at the end of the move its entry is gone.
    """
    count = map_.head.partitions
    back = {name: partition_of(name, count) for name in unknown if name in map_.entries}
    placed = {name: Entry(map_.entry(name).home, target) for name, target in {**homes, **back}.items()}
    return {name: entry for name, entry in placed.items() if entry.home != entry.target}


def begin(
    map_: PartitionMap, homes: Mapping[bytes, int], plan: str, unknown: Collection[bytes] = frozenset()
) -> MapStep:
    """Return the step from a stable map to PREPARE, or to STABLE with the plan if there is nothing to move."""
    records = {name: encode_entry(entry) for name, entry in moves(map_, homes, unknown).items()}
    return MapStep(records, _next(map_, Phase.PREPARE if records else Phase.STABLE, plan))


def reverse(map_: PartitionMap) -> MapStep:
    """Return the step that turns a migration back, in any phase: home and target are exchanged, nothing is repeated."""
    head = map_.head
    records = {name: encode_entry(Entry(int(to), back)) for name, (back, to) in moving(map_).items() if to is not None}
    plan = head.plan.removeprefix(BACK) if head.plan.startswith(BACK) else BACK + head.plan
    return MapStep(records, _next(map_, _REVERSED[head.phase], plan))


def proceed(
    map_: PartitionMap, acknowledged: int, held: float, hold: float, unknown: Collection[bytes] = frozenset()
) -> MapStep | None:
    """Return the next step; None while it has to wait.

    Args:
        map_: as it is now.
        acknowledged: the epoch that the publisher has acknowledged last.
        held: seconds since this epoch was first seen.
        hold: seconds that MOVE lasts, in which clients go over.
        unknown: endpoints that the publisher did not have when it acknowledged this epoch.
    """
    match map_.head.phase:
        case Phase.PREPARE if acknowledged >= map_.head.epoch:
            return MapStep(_cancelled(map_, unknown), _next(map_, Phase.MOVE))
        case Phase.MOVE if held >= hold:
            return MapStep({}, _next(map_, Phase.RETIRE))
        case Phase.RETIRE if acknowledged >= map_.head.epoch:
            return MapStep(_single_homes(map_), _next(map_, Phase.STABLE))
    return None


def _cancelled(map_: PartitionMap, unknown: Collection[bytes]) -> dict[bytes, bytes | None]:
    """Unknown endpoints stay where they are, unless they go back to where the hash puts them."""
    count = map_.head.partitions
    hashed = {name: partition_of(name, count) for name in moving(map_).keys() & set(unknown)}
    return {
        name: None if map_.entries[name].home == place else encode_entry(Entry(map_.entries[name].home))
        for name, place in hashed.items()
        if map_.entries[name].target != place
    }


def _single_homes(map_: PartitionMap) -> dict[bytes, bytes | None]:
    count = map_.head.partitions
    targets = {name: entry.target for name, entry in moving(map_).items() if entry.target is not None}
    # Where the hash puts it, it needs no entry.
    return {name: None if partition_of(name, count) == to else encode_entry(Entry(to)) for name, to in targets.items()}


def _next(map_: PartitionMap, phase: Phase, plan: str | None = None) -> Head:
    head = map_.head
    return head._replace(epoch=head.epoch + 1, phase=phase, plan=head.plan if plan is None else plan)
