"""The steps of a migration, a pure function of the map's topic: any instance can continue it.

PREPARE ends with the publisher's acknowledgement, MOVE after a fixed time, RETIRE with another acknowledgement; then
every endpoint has a single home (docs/internals.md section 5). There is no other state, so a crash is only a delay.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from diem.protocol.partition_map import Entry, Head, PartitionMap, Phase, encode_entry
from diem.protocol.partitioners import partition_of

ROLLBACK: Final = "-"
"""Prefix of a plan's name in the map's head during and after its rollback."""
_REVERSED: Final = {Phase.PREPARE: Phase.RETIRE, Phase.MOVE: Phase.MOVE, Phase.RETIRE: Phase.PREPARE}


class MapStep(NamedTuple):
    """Records to write to the map's topic in one transaction; None in ``records`` removes an entry."""

    records: Mapping[bytes, bytes | None]
    head: Head


def moving(map_: PartitionMap) -> dict[bytes, Entry]:
    """Return the endpoints whose target differs from their home."""
    return {name: entry for name, entry in map_.entries.items() if entry.target not in {None, entry.home}}


def moves(
    map_: PartitionMap, homes: Mapping[bytes, int], unknown: Collection[bytes] = frozenset()
) -> dict[bytes, Entry]:
    """Return the entries of all endpoints that must move to reach ``homes``.

    An endpoint with an entry but ``unknown`` to the publisher moves to the partition of its hash, whatever its home in
    ``homes``: the end of the migration removes its entry.
    """
    count = map_.head.partitions
    hashed = {name: partition_of(name, count) for name in unknown if name in map_.entries}
    entries = {name: Entry(map_.entry(name).home, target) for name, target in {**homes, **hashed}.items()}
    return {name: entry for name, entry in entries.items() if entry.home != entry.target}


def begin(
    map_: PartitionMap, homes: Mapping[bytes, int], plan: str, unknown: Collection[bytes] = frozenset()
) -> MapStep:
    """Return the step from a stable map to the start of the :func:`moves` to ``homes``."""
    return prepare(map_, moves(map_, homes, unknown), plan)


def prepare(map_: PartitionMap, entries: Mapping[bytes, Entry], plan: str) -> MapStep:
    """Return the step from a stable map to PREPARE, or to STABLE with the plan's name if nothing moves."""
    records = {name: encode_entry(entry) for name, entry in entries.items()}
    return MapStep(records, _next(map_, Phase.PREPARE if records else Phase.STABLE, plan))


def reverse(map_: PartitionMap) -> MapStep:
    """Return the step that reverses a migration in any phase: homes and targets are swapped, no phase is repeated."""
    head = map_.head
    moves_ = [(name, home, target) for name, (home, target) in moving(map_).items() if target is not None]
    records = {name: encode_entry(Entry(target, home)) for name, home, target in moves_}
    plan = head.plan.removeprefix(ROLLBACK) if head.plan.startswith(ROLLBACK) else ROLLBACK + head.plan
    return MapStep(records, _next(map_, _REVERSED[head.phase], plan))


def proceed(
    map_: PartitionMap, acknowledged: int, elapsed_s: float, move_s: float, unknown: Collection[bytes] = frozenset()
) -> MapStep | None:
    """Return the next step; None if it is not due yet.

    Args:
        map_: the current map.
        acknowledged: the last epoch acknowledged by the publisher.
        elapsed_s: seconds since this epoch was first seen.
        move_s: duration in seconds of MOVE, in which clients move to the targets.
        unknown: endpoints unknown to the publisher when it acknowledged this epoch.
    """
    match map_.head.phase:
        case Phase.PREPARE if acknowledged >= map_.head.epoch:
            return MapStep(_cancelled(map_, unknown), _next(map_, Phase.MOVE))
        case Phase.MOVE if elapsed_s >= move_s:
            return MapStep({}, _next(map_, Phase.RETIRE))
        case Phase.RETIRE if acknowledged >= map_.head.epoch:
            return MapStep(_single_homes(map_), _next(map_, Phase.STABLE))
    return None


def _cancelled(map_: PartitionMap, unknown: Collection[bytes]) -> dict[bytes, bytes | None]:
    """Return records that keep unknown endpoints at home, except those moving to the partition of their hash."""
    count = map_.head.partitions
    hashed = {name: partition_of(name, count) for name in moving(map_).keys() & set(unknown)}
    return {
        name: None if map_.entries[name].home == partition else encode_entry(Entry(map_.entries[name].home))
        for name, partition in hashed.items()
        if map_.entries[name].target != partition
    }


def _single_homes(map_: PartitionMap) -> dict[bytes, bytes | None]:
    count = map_.head.partitions
    targets = {name: entry.target for name, entry in moving(map_).items() if entry.target is not None}
    # In the partition of its hash an endpoint needs no entry.
    return {name: None if partition_of(name, count) == to else encode_entry(Entry(to)) for name, to in targets.items()}


def _next(map_: PartitionMap, phase: Phase, plan: str | None = None) -> Head:
    head = map_.head
    return head._replace(epoch=head.epoch + 1, phase=phase, plan=head.plan if plan is None else plan)
