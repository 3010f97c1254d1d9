"""Watermarks prove that a reader has everything: all interleavings of publisher, log, faults and reader, within bounds.

The rules are the real ones, :class:`OffsetTracker` of the publisher and :class:`PartitionState` of the bridge; around
them is a model of a store with one endpoint, which may be deleted, forgotten and made again, of a log that is
compacted, cut or loses its end, and of a server. It is explored breadth first, so a violation comes with the shortest
way to it. In every state, a watermark that counts has found a server that has the endpoint as the store had it before,
or has the record that corrects it still to read; where nothing is left to do, server and store agree, and heartbeats
are sent again.

Of Kafka is assumed that whoever reads is not so slow that a tombstone before it is removed, and that the end of a log
is not lost once it has led to the removal of other records. With two faults there is one way left: the log loses its
end, and within a second, before the store has kept the publisher's offsets, the publisher is killed.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

import pytest

from bridge.partition_state import LogChanged, PartitionState, ReaderOutdated
from diem.protocol.watermark import LogProof, incarnation_of, offset_of, position_of
from services.data.publisher.offsets import Extent, OffsetTracker

STATES: Final = 1_000_000 if "DIEM_WALKS_FACTOR" in os.environ else 20_000
"""Those nearest to the start; with `make walks`, all of them, about 630,000."""
NOTHING: Final = Extent(1, None, 0)
"""Known of an empty log."""


class Record(NamedTuple):
    """An update, a deletion, a tombstone with the version of one, or a watermark (``proof``)."""

    version: int
    gone: bool = False
    tombstone: bool = False
    proof: LogProof | None = None


class Endpoint(NamedTuple):
    """The endpoint in the store, or at the server; version 0: none."""

    version: int = 0
    gone: bool = False

    @property
    def alive(self) -> bool:
        return self.version > 0 and not self.gone


NONE: Final = Endpoint()
CREATED: Final = Endpoint(1)


_T = TypeVar("_T", OffsetTracker, PartitionState)


def _copy_of(slotted: _T) -> _T:
    other = object.__new__(type(slotted))
    for name in slotted.__slots__:
        setattr(other, name, getattr(slotted, name))
    return other


@dataclass
class World:
    """One state; a record of the log that was compacted away is None."""

    stored: Endpoint = CREATED
    floor: int = 0
    writes: int = 1
    due: bool = True
    burying: bool = False
    """The deletion is sent as a tombstone, if at all."""
    noted: int | None = None
    """End of the log once no deletion was under way."""
    buried: bool = False
    tracker: OffsetTracker = field(default_factory=lambda: OffsetTracker(NOTHING))
    kept: Extent = NOTHING
    publishing: bool = True
    begin: int = 0
    log: tuple[Record | None, ...] = ()
    cleaned: int = 0
    """Records from here on have not led to the removal of others."""
    reader: PartitionState | None = None
    last_incarnation: int | None = None
    """What the bridge knows without a reader."""
    outdated: bool = False
    """The bridge has told its reader to start over."""
    held: Endpoint = NONE
    seen: bool = False
    catching_up: bool = True
    dropping: bool = False
    """The endpoint is forgotten at the end of the catch-up."""
    unconfirmed: bool = False
    position: int = 0
    at_open: int = 0
    """Version of the store when the bridge began to read."""
    in_vain: Record | None = None
    """The last watermark that was read after the catch-up and did not count: no other like it will."""
    faults: int = 0
    wrong: str = ""

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    def copy(self, **changes: object) -> "World":
        """Return a copy whose parts may be changed."""
        # By hand: `copy` and `replace` take half of an exploration's time.
        other = object.__new__(World)
        vars(other).update(vars(self) | changes)
        other.tracker = _copy_of(other.tracker)
        other.reader = None if other.reader is None else _copy_of(other.reader)
        return other

    @property
    def key(self) -> tuple[object, ...]:
        tracker, reader = self.tracker, self.reader
        written = (tracker.next, tracker.complete_from, tracker.incarnation, tracker.foreign, tracker.extent)
        read = reader and (
            *(reader.position, reader.incarnation, reader.last_incarnation, reader.target, reader.read_from),
            *(reader.confirmed, reader.known_until, reader.at_end),
        )
        store = (self.stored, self.floor, self.writes, self.due, self.burying, self.noted, self.buried, self.kept)
        log = (self.publishing, self.begin, self.log, self.cleaned, self.last_incarnation, self.outdated, self.position)
        server = (self.held, self.seen, self.catching_up, self.dropping, self.unconfirmed, self.in_vain, self.at_open)
        return (written, tracker._exact, read, *store, *log, *server, self.faults)


@dataclass(frozen=True)
class Rules:
    """The model with one rule switched off fails."""

    mark: bool = True
    """Watermarks say before which offset deletions may be missing."""
    tombstones_tell: bool = True
    """A tombstone carries the deletion."""
    sweep: bool = True
    """A log that has lost its end is searched for endpoints that the store has forgotten."""
    verify: bool = True
    """A position moves on only once a watermark has shown that no deletion was missed."""
    keep_incarnation: bool = True
    """A log that has lost records gets another incarnation."""
    watch_begin: bool = True
    """The publisher sends everything again when the log begins later."""
    compare: Callable[[PartitionState, int, LogProof], bool] | None = None
    """Another rule for which watermarks count."""


@dataclass(frozen=True)
class Model:
    """The steps from each state; ``writes`` are accepted, the second one a deletion where it ``deletes``.

    Where it does not, nothing is compacted either, and a watermark is compared with what was accepted when the bridge
    began to read.
    """

    writes: int = 2
    faults: int = 1
    deletes: bool = True
    max_end: int = 10
    """Longest log: what would go beyond is not explored."""
    rules: Rules = Rules()

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._publish(world)
        yield from self._read(world)

    def _publish(self, world: World) -> Iterator[tuple[str, World]]:
        tracker = world.tracker
        if not world.publishing:
            tracker, due = OffsetTracker(world.kept), world.stored.version > 0
            yield "publisher starts", self._compare(world.copy(publishing=True, tracker=tracker, due=due))
            return
        if world.due:
            yield "publisher sends", self._write(world)
        elif world.stored.gone and not world.burying:
            yield "publisher begins to forget", world.copy(burying=True, noted=tracker.next)
        elif world.burying and not world.buried and world.noted is not None:
            after = world.copy(due=True, buried=True)
            after.tracker.forgotten = world.noted if self.rules.mark else 0
            yield "publisher sends the tombstone", self._write(after)
        elif world.buried:
            # In one transaction with the publisher's offsets.
            floor, extent = world.stored.version, tracker.extent
            yield "store forgets", self._reset_burial(world.copy(stored=Endpoint(), floor=floor, kept=extent))
        proof = tracker.proof(0)
        if not world.due and proof is not None and self._watermark_is_due(world, proof):
            yield "publisher writes a watermark", self._write(world, proof)
        if (compared := self._compare(world.copy())).key != world.key:
            yield "publisher compares the bounds", compared
        extent = tracker.extent
        if extent is not None and extent[:2] != world.kept[:2]:
            yield "cursor is kept", world.copy(kept=extent)

    @staticmethod
    def _reset_burial(world: World) -> World:
        world.burying, world.noted, world.buried = False, None, False
        return world

    def _watermark_is_due(self, world: World, proof: LogProof) -> bool:
        last = world.log[-1].proof if world.log and world.log[-1] is not None else None
        if last is None or (last[:2], last.forgotten) != (proof[:2], proof.forgotten):
            return True
        reader = world.reader
        if reader is None or reader.position != world.end or world.in_vain == world.log[-1]:
            return False
        # Those of every two seconds move the position on; here, from the beginning only.
        return not (reader.confirmed and reader.incarnation == proof.incarnation and world.position)

    def _write(self, world: World, proof: LogProof | None = None) -> World:
        stored = world.stored
        if proof is not None:
            record = Record(stored.version or world.floor, not stored.alive, proof=proof)
        elif not stored.version:
            record = Record(world.floor, gone=True, tombstone=True)
        else:
            record = Record(stored.version, stored.gone, tombstone=stored.gone and world.burying)
        after = world.copy(log=(*world.log, record))
        after.tracker.acknowledged(world.end, 1)
        if proof is None:
            after.due = False
        else:
            after.tracker.proved(proof)
        return self._same_incarnation(world, after)

    def _same_incarnation(self, before: World, after: World) -> World:
        if not self.rules.keep_incarnation:
            after.tracker.incarnation = before.tracker.incarnation
        return after

    def _compare(self, world: World) -> World:
        """Compare the bounds, on a copy; everything is due again if the log may lack something."""
        before, tracker, incarnation = world.copy(), world.tracker, world.tracker.incarnation
        tracker.compare_end(world.end)
        if self.rules.watch_begin:
            tracker.compare_begin(world.begin)
        if tracker.incomplete:
            stale = any(record is not None and record.proof is None for record in world.log)
            sweeping = stale and self.rules.sweep and not world.stored.version
            world.due = world.stored.version > 0 or sweeping
            if sweeping:
                tracker.forgotten = tracker.next or 0
            if tracker.incarnation != incarnation and world.burying:
                self._reset_burial(world)
            tracker.resending()
        return self._same_incarnation(before, world)

    # The reader

    def _read(self, world: World) -> Iterator[tuple[str, World]]:
        if world.reader is None:
            yield "server dials", self._resume(world.copy())
        elif not world.begin <= world.reader.position <= world.end:
            yield "offset out of range", self._lose_link(world.copy())
        elif world.reader.position < world.end:
            yield "bridge reads a record", self._read_record(world.copy())

    def _resume(self, world: World) -> World:
        if world.outdated or not world.position:
            world.outdated, world.position = False, 0
            world.unconfirmed |= world.seen
            world.seen = False
        reader = PartitionState(offset_of(world.position), incarnation_of(world.position))
        reader.last_incarnation = reader.incarnation
        reader.known_until = reader.position if world.position else None
        if world.last_incarnation not in {None, reader.incarnation}:
            reader.incarnation, reader.last_incarnation = None, world.last_incarnation
        reader.open(world.begin, world.end, 0.0)
        world.reader, world.catching_up = reader, True
        self._opened(world)
        return self._finish_catch_up(world)

    def _opened(self, world: World) -> None:
        world.at_open = 0 if self.deletes else world.stored.version

    def _finish_catch_up(self, world: World) -> World:
        if world.reader is not None and world.catching_up and world.reader.position >= world.reader.target:
            world.catching_up = False
            if world.dropping or (world.unconfirmed and not world.seen):
                world.held, world.seen = Endpoint(), False
            world.dropping = world.unconfirmed = False
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
        if record is not None and record.proof is None:
            self._apply(world, record)
        reader.advance(offset + 1, 0.0)
        if reader.position == world.end:
            reader.at_end = world.end
        world.position = reader.resumable
        if not self.rules.verify:
            world.position = position_of(offset + 1, reader.incarnation)
        if record is not None and record.proof is not None:
            reader.confirmed = False
            try:
                if self.rules.compare is None:
                    reader.apply_watermark(offset, record.proof, 0.0)
                else:
                    reader.confirmed = self.rules.compare(reader, offset, record.proof)
            except LogChanged:
                reader.open(world.begin, world.end, 0.0)
                self._opened(world)
            except ReaderOutdated:
                world.outdated = True
                return self._lose_link(world)
            world.in_vain = record if offset >= reader.target and not reader.confirmed else None
            if reader.confirmed and (fault := self._fault(world, record)):
                world.wrong = f"a watermark counts: {fault}"
        return self._finish_catch_up(world)

    def _apply(self, world: World, record: Record) -> None:
        if record.tombstone and not self.rules.tombstones_tell:
            return
        world.seen = True
        if record.version > world.held.version:
            world.held, world.dropping = Endpoint(record.version, record.gone), False
        if record.tombstone and record.version >= world.held.version:
            world.dropping = True
            if not world.catching_up:
                world.held, world.dropping, world.seen = Endpoint(), False, False

    def _fault(self, world: World, then: Record) -> str:
        """Compare the server with the store at the time of a watermark."""
        assert world.reader is not None
        if then.version < world.at_open:
            return f"its version is {then.version}, and {world.at_open} was accepted before"
        ahead = world.log[world.reader.position - world.begin :] if self.deletes else ()
        # Compaction has removed the record just before it was read; a later one follows.
        if any(record is not None and record.proof is None for record in ahead):
            return ""
        if not then.gone:
            return f"the server lacks version {then.version}" if world.held.version < then.version else ""
        deleted = world.held.alive and world.held.version <= then.version
        return f"the server has what was deleted by version {then.version}" if deleted else ""

    # Faults, compaction, and the user

    def incidents(self, world: World) -> Iterator[tuple[str, World]]:
        if world.writes < self.writes:
            writes, previous = world.writes + 1, world.stored.version or world.floor
            stored = Endpoint(previous + 1, self.deletes and writes == 2)
            after = world.copy(writes=writes, stored=stored, due=True)
            yield "write", after if stored.gone else self._reset_burial(after)
        if self.deletes:
            yield from self._compact(world)
        if world.faults == self.faults:
            return
        faulty = world.copy(faults=world.faults + 1)
        for begin in range(world.begin + 1, world.end + 1):
            yield f"log is cut to {begin}", faulty.copy(begin=begin, log=world.log[begin - world.begin :])
        for end in range(max(world.begin, world.cleaned), world.end):
            yield f"log loses its end from {end}", faulty.copy(log=world.log[: end - world.begin])
        yield "link is lost", self._lose_link(faulty.copy())
        if world.reader is not None and world.begin <= world.reader.position <= world.end:
            replaced = faulty.copy()
            assert replaced.reader is not None
            replaced.reader.open(world.begin, world.end, 0.0)
            yield "consumer is replaced", replaced
        yield "bridge crashes", self._lose_link(faulty.copy()).copy(last_incarnation=None)
        fresh = {"held": Endpoint(), "seen": False, "dropping": False, "unconfirmed": False}
        yield "server crashes", self._lose_link(faulty.copy(position=0, **fresh))
        if world.publishing:
            yield "publisher crashes", self._reset_burial(faulty.copy(publishing=False))

    def _compact(self, world: World) -> Iterator[tuple[str, World]]:
        """Remove one record that a later one of the endpoint supersedes, or a tombstone that nothing precedes."""
        updates = [n for n, record in enumerate(world.log) if record is not None and record.proof is None]
        for index, number in enumerate(updates):
            record = world.log[number]
            assert record is not None
            cleaned = world.begin + updates[min(index + 1, len(updates) - 1)] + 1
            if index == len(updates) - 1:
                read = world.reader is None or world.reader.position > world.begin + number
                if not (record.tombstone and index == 0 and read):
                    continue
            log = (*world.log[:number], None, *world.log[number + 1 :])
            yield (
                f"record {world.begin + number} is compacted away",
                world.copy(log=log, cleaned=max(cleaned, world.cleaned)),
            )

    def unsettled(self, world: World) -> str:
        """Return the fault of a state without fair steps."""
        if world.stored.alive and world.held != world.stored:
            return "nothing is left to do, and the server is old"
        if not world.stored.alive and world.held.alive:
            return "nothing is left to do, and the server has what was deleted"
        return "" if world.reader is not None and world.reader.confirmed else "never live again"


def explore(model: Model, start: World, limit: int) -> tuple[int, str, list[str]]:
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
            if following.end <= model.max_end and following.key not in ways:
                ways[following.key] = (world.key, label)
                waiting.append(following)
    return len(ways), "", []


def follow(model: Model, *labels: str) -> World:
    """Return the state after these steps, as if it had no faults."""
    world = World()
    for label in labels:
        steps = [*model.steps(world), *replace(model, faults=99).incidents(world)]
        world = next(following for name, following in steps if name.startswith(label))
    world.faults = 0
    return world


PUBLISHED: Final = ("publisher compares", "publisher sends", "publisher writes a watermark")
READ: Final = (*PUBLISHED, "server dials", *["bridge reads"] * 2, *["publisher writes a watermark", "bridge reads"] * 2)
DELETED: Final = ("write", "publisher sends")
BURIED: Final = ("publisher begins to forget", "publisher sends the tombstone")
AWAY: Final = "the reader is away when the endpoint is deleted"
THERE: Final = "the reader is there, and the endpoint is forgotten"
BEGINS: Final = "a reader begins while the endpoint is buried"
RETURNS: Final = "the reader returns when the endpoint is forgotten"
STARTS: Final = {
    "from the beginning": (),
    AWAY: (*READ, "link is lost", *DELETED, *BURIED),
    RETURNS: (*READ, "link is lost", *DELETED, *BURIED, "store forgets", "server dials", "bridge reads", "record 4"),
    THERE: (*READ, *DELETED, "bridge reads", *BURIED, "store forgets"),
    BEGINS: (*PUBLISHED, *DELETED, "server dials", "bridge reads", *BURIED),
}


@pytest.mark.parametrize("start", STARTS)
def test_a_watermark_that_counts_has_found_no_reader_with_a_forgotten_endpoint(start: str) -> None:
    model = Model(writes=3)
    states, fault, way = explore(model, follow(model, *STARTS[start]), STATES // 4)
    assert not fault, f"{fault} ({states} states): {'; '.join(way)}"
    assert states > 1000


@pytest.mark.parametrize(
    ("start", "rules"),
    [
        (AWAY, Rules(mark=False)),
        (BEGINS, Rules(tombstones_tell=False)),
        (THERE, Rules(sweep=False)),
        (RETURNS, Rules(verify=False)),
    ],
    ids=["no mark", "tombstones are positions", "a log put back is not searched", "positions move on unverified"],
)
def test_without_one_of_the_rules_a_reader_keeps_what_was_deleted(start: str, rules: Rules) -> None:
    begun = follow(Model(rules=replace(rules, verify=True)), *STARTS[start])
    _, fault, way = explore(Model(rules=rules), begun, 200_000)
    assert "the server has what was deleted" in fault, f"not found; {fault} {way}"


def test_a_watermark_that_counts_has_found_the_reader_with_everything() -> None:
    states, fault, way = explore(Model(deletes=False, max_end=6), World(), STATES)
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
def test_without_one_of_the_rules_of_updates_a_reader_is_old_and_live_or_never_live(
    rules: Rules, expected: str
) -> None:
    _, fault, way = explore(Model(deletes=False, max_end=6, rules=rules), World(), 200_000)
    assert expected in fault, f"not found; {fault} {way}"
