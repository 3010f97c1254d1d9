"""Watermarks prove that a reader has everything: all interleavings of faults of log, writer and reader, within bounds.

The rules are the real ones, :class:`OffsetTracker` of the publisher and :class:`PartitionState` of the bridge; around
them is a model of a store with one endpoint, a log that may be cut at its beginning or lose its end, and a server. It
is explored breadth first, so a violation comes with the shortest way to it. In every state, a watermark that counts has
found the server with all that was accepted before it; and where nothing is left to do, heartbeats are sent again.

With two faults there is one way left: the log loses its end, and within a second, before the store has kept the
publisher's offsets, the publisher is killed.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import pytest

from bridge.partition_state import LogChanged, PartitionState
from diem.protocol.watermark import LogProof, incarnation_of, offset_of, position_of
from services.data.publisher.offsets import Extent, OffsetTracker

MAX_END: Final = 6
"""Longest log: what would go beyond is not explored."""
STATES: Final = 1_000_000 if "DIEM_WALKS_FACTOR" in os.environ else 20_000
"""Those nearest to the start; with `make walks`, all of them, about 150,000."""


NOTHING: Final = Extent(1, None, 0)
"""Known of an empty log."""


@dataclass(frozen=True)
class Record:
    """An update to ``version``, or a watermark that was written when the store had that version."""

    version: int
    proof: LogProof | None = None


@dataclass
class LogWorld:
    """Parts of the states of a publisher, a log and its reader."""

    due: bool = True
    tracker: OffsetTracker = field(default_factory=lambda: OffsetTracker(NOTHING))
    kept: Extent = NOTHING
    publishing: bool = True
    begin: int = 0
    log: tuple[Any, ...] = ()
    reader: PartitionState | None = None
    last_incarnation: int | None = None
    """What the bridge knows without a reader."""
    position: int = 0
    in_vain: object = None
    """The last watermark that was read after the catch-up and did not count: no other like it will."""
    faults: int = 0
    wrong: str = ""

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    def copy(self, **changes: object) -> Self:
        """Return a copy whose parts may be changed."""
        other = replace(self, **changes)  # type: ignore[arg-type]
        other.tracker, other.reader = copy(other.tracker), copy(other.reader)
        return other

    @property
    def known(self) -> tuple[object, ...]:
        """The state of the tracker, and what the publisher and the bridge keep elsewhere."""
        tracker = self.tracker
        kept = (self.kept, self.publishing, self.last_incarnation, self.position, self.in_vain, self.faults)
        known = (tracker.next, tracker.complete_from, tracker.incarnation, tracker.foreign, tracker.extent)
        return (tracker._exact, *known, self.due, self.begin, self.log, *kept)


@dataclass
class World(LogWorld):
    """One state."""

    accepted: int = 1
    cursor: int = 0
    retained: int = 0
    at_open: int = 0
    """Version of the store when the bridge began to read."""

    @property
    def key(self) -> tuple[object, ...]:
        reader = self.reader
        read = reader and (
            *(reader.position, reader.incarnation, reader.last_incarnation),
            *(reader.target, reader.read_from, reader.confirmed),
        )
        return (*self.known, read, self.accepted, self.cursor, self.retained, self.at_open)


@dataclass(frozen=True)
class Rules:
    """The model with one rule switched off fails."""

    keep_incarnation: bool = True
    """A log that has lost records gets another incarnation."""
    watch_begin: bool = True
    """The publisher sends everything again when the log begins later."""
    compare: Callable[[PartitionState, int, LogProof], bool] | None = None
    """Another rule for which watermarks count."""


@dataclass(frozen=True)
class Model:
    """The steps from each state, with at most ``faults``, and versions of the store up to ``accepted``."""

    accepted: int = 2
    faults: int = 2
    rules: Rules = Rules()

    # Fair steps: the system does them by itself.

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._publish(world)
        yield from self._read(world)

    def _publish(self, world: World) -> Iterator[tuple[str, World]]:
        if not world.publishing:
            starting = world.copy(publishing=True, tracker=OffsetTracker(world.kept), due=world.cursor < world.accepted)
            yield "publisher starts", self._compare(starting)
            return
        if world.due or world.cursor < world.accepted:
            yield "publisher sends", self._write(world)
        proof = world.tracker.proof(0)
        if not world.due and world.cursor == world.accepted and proof is not None and self._mark_is_due(world, proof):
            yield "publisher writes a watermark", self._write(world, proof)
        if (compared := self._compare(world.copy())).key != world.key:
            yield "publisher compares the bounds", compared
        extent = world.tracker.extent
        if extent is not None and extent[:2] != world.kept[:2]:
            yield "cursor is kept", world.copy(kept=extent)

    def _mark_is_due(self, world: World, proof: LogProof) -> bool:
        """Every two seconds; here, only where it changes anything."""
        last = world.log[-1].proof if world.log else None
        if last is None or last[:2] != proof[:2]:
            return True
        reader = world.reader
        if reader is None or reader.position != world.end:
            return False
        if world.in_vain == world.log[-1]:
            return False
        return not (reader.confirmed and reader.incarnation == proof.incarnation)

    def _write(self, world: World, proof: LogProof | None = None) -> World:
        after = world.copy(log=(*world.log, Record(world.accepted, proof)))
        after.tracker.acknowledged(world.end, 1)
        if proof is None:
            after.due, after.cursor = False, world.accepted
        else:
            after.tracker.proved(proof)
        return self._same_incarnation(world, after)

    def _compare(self, world: World) -> World:
        """Compare the bounds, on a copy; everything is due again if the log may lack something."""
        before = world.copy()
        world.tracker.compare_end(world.end)
        if self.rules.watch_begin:
            world.tracker.compare_begin(world.begin)
        if world.tracker.incomplete:
            world.due = True
            world.tracker.resending()
        return self._same_incarnation(before, world)

    def _same_incarnation(self, before: World, after: World) -> World:
        if not self.rules.keep_incarnation:
            after.tracker.incarnation = before.tracker.incarnation
        return after

    def _read(self, world: World) -> Iterator[tuple[str, World]]:
        if world.reader is None:
            yield "server dials", self._resume(world.copy())
        elif not world.begin <= world.reader.position <= world.end:
            yield "offset out of range", self._lose_link(world.copy())
        elif world.reader.position < world.end:
            yield "bridge reads a record", self._read_record(world.copy())

    def _resume(self, world: World) -> World:
        reader = PartitionState(offset_of(world.position), incarnation_of(world.position))
        reader.last_incarnation = reader.incarnation
        if world.last_incarnation not in {None, reader.incarnation}:
            reader.incarnation, reader.last_incarnation = None, world.last_incarnation
        reader.open(world.begin, world.end, 0.0)
        world.reader, world.at_open = reader, world.accepted
        return world

    def _lose_link(self, world: World) -> World:
        if world.reader is not None:
            world.last_incarnation, world.reader = world.reader.last_incarnation, None
        return world

    def _read_record(self, world: World) -> World:
        reader = world.reader
        assert reader is not None
        offset = reader.position
        record = world.log[offset - world.begin]
        if record.proof is None:
            world.retained = max(world.retained, record.version)
        world.position = position_of(offset + 1, reader.incarnation)
        reader.advance(offset + 1, 0.0)
        if record.proof is not None:
            reader.confirmed = False
            try:
                if self.rules.compare is None:
                    reader.apply_watermark(offset, record.proof, 0.0)
                else:
                    reader.confirmed = self.rules.compare(reader, offset, record.proof)
            except LogChanged:
                reader.open(world.begin, world.end, 0.0)
                world.at_open = world.accepted
            world.in_vain = record if offset >= reader.target and not reader.confirmed else None
            if reader.confirmed and record.version < world.at_open:
                world.wrong = f"a watermark of version {record.version} counts when {world.at_open} was accepted before"
            if reader.confirmed and world.retained < record.version:
                world.wrong = f"a watermark counts for version {record.version}, the server has {world.retained}"
        return world

    # Faults, and the user

    def incidents(self, world: World) -> Iterator[tuple[str, World]]:
        if world.accepted < self.accepted:
            yield "write", world.copy(accepted=world.accepted + 1)
        if world.faults == self.faults:
            return
        faulty = world.copy(faults=world.faults + 1)
        for begin in range(world.begin + 1, world.end + 1):
            yield f"log is cut to {begin}", faulty.copy(begin=begin, log=world.log[begin - world.begin :])
        for end in range(world.begin, world.end):
            yield f"log loses its end from {end}", faulty.copy(log=world.log[: end - world.begin])
        yield "link is lost", self._lose_link(faulty.copy())
        yield "bridge crashes", self._lose_link(faulty.copy()).copy(last_incarnation=None)
        yield "server crashes", self._lose_link(faulty.copy()).copy(position=0, retained=0)
        if world.publishing:
            yield "publisher crashes", faulty.copy(publishing=False)

    def unsettled(self, world: World) -> str:
        """Return the fault of a state without fair steps."""
        if world.retained < world.accepted:
            return "nothing is left to do, and the server is old"
        return "" if world.reader is not None and world.reader.confirmed else "never live again"


def explore(model: Any, start: Any, limit: int = STATES, max_end: int = MAX_END) -> tuple[int, str, list[str]]:
    """Return the number of states, the first violation found, and the way to it."""
    ways: dict[tuple[object, ...], tuple[tuple[object, ...] | None, str]] = {start.key: (None, "")}
    waiting = deque([start])
    while waiting and len(ways) < limit:
        world = waiting.popleft()
        fair = list(model.steps(world))
        fault = world.wrong or (model.unsettled(world) if not fair else "")
        if fault:
            way: list[str] = []
            at: tuple[object, ...] | None = world.key
            while at is not None:
                at, label = ways[at]
                way.insert(0, label)
            return len(ways), fault, way[1:]
        for label, following in (*fair, *model.incidents(world)):
            if following.end <= max_end and following.key not in ways:
                ways[following.key] = (world.key, label)
                waiting.append(following)
    return len(ways), "", []


def test_a_watermark_that_counts_has_found_the_reader_with_everything() -> None:
    states, fault, way = explore(Model(accepted=2, faults=1), World())
    assert not fault, f"{fault} ({states} states): {'; '.join(way)}"
    assert states > 1000


def any_watermark(_reader: PartitionState, _offset: int, _proof: LogProof) -> bool:
    """The rule of releases up to 0.1: whatever the reader has."""
    return True


def without_min_offset(reader: PartitionState, offset: int, proof: LogProof) -> bool:
    reader.confirmed = False
    reader.apply_watermark(offset, proof._replace(min_offset=0), 0.0)
    return reader.confirmed


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(compare=any_watermark), "a watermark counts"),
        (Rules(keep_incarnation=False), "a watermark counts"),
        (Rules(watch_begin=False), "nothing is left to do"),
        (Rules(compare=without_min_offset), "a watermark counts"),
    ],
    ids=["every watermark counts", "one incarnation", "a cut log is not noticed", "no least offset"],
)
def test_without_one_of_the_rules_a_reader_is_old_and_live_or_never_live(rules: Rules, expected: str) -> None:
    _, fault, way = explore(Model(accepted=2, faults=1, rules=rules), World())
    assert expected in fault, f"not found; {fault} {way}"
