"""Counts of requests as events: in parts that fit, bounded, and every one accounted for."""

from collections.abc import Sequence

from diem.process.clock import ManualClock
from diem.protocol.traffic import MAX_ACCESSED, MAX_EVENT_BYTES, Accessed, Type, decode
from diem.traffic.accesses import AccessCounter

START = 1_700_000_000_000
LONGEST = Accessed("a" * 8, "p" * 32, f"/{'e' * 255}", 10**15, 10**15)


class World:
    def __init__(self, max_queued: int = 500) -> None:
        self.clock = ManualClock(wall_ms=START)
        self.counted: Sequence[Accessed] = ()
        self.accesses = AccessCounter("data", self.clock.wall_ms, self.take, max_queued=max_queued)

    def take(self) -> Sequence[Accessed]:
        taken, self.counted = self.counted, ()
        return taken


def test_counts_become_an_event_of_their_interval() -> None:
    world = World()
    world.counted = (Accessed("abcd1234", "free", "/a", 3, 1), Accessed("", "anonymous", "", 2, 0))
    world.clock.advance(60)
    world.accesses.count()
    event = decode(world.accesses.next() or b"")
    assert event.id == f"{world.accesses.boot}-1"
    assert (event.type, event.edge, event.since, event.until) == (Type.ACCESS, "data", START, START + 60_000)
    assert event.requests == (Accessed("abcd1234", "free", "/a", 3, 1), Accessed("", "anonymous", "", 2, 0))
    assert world.accesses.next() is None


def test_nothing_asked_makes_no_event() -> None:
    world = World()
    world.clock.advance(60)
    world.accesses.count()
    assert (world.accesses.queued, dict(world.accesses.recorded)) == (0, {})


def test_very_many_counts_are_several_events_that_are_not_too_long() -> None:
    world = World()
    world.counted = [LONGEST] * (2 * MAX_ACCESSED + 1)
    world.clock.advance(60)
    world.accesses.count()
    lines = [world.accesses.next() or b"" for _ in range(3)]
    assert [len(decode(line).requests) for line in lines] == [MAX_ACCESSED, MAX_ACCESSED, 1]
    assert len({decode(line).id for line in lines}) == 3
    assert max(map(len, lines)) <= MAX_EVENT_BYTES


def test_what_does_not_fit_is_lost_and_counted() -> None:
    world = World(max_queued=2)
    for _ in range(4):
        world.counted = [LONGEST]
        world.clock.advance(60)
        world.accesses.count()
    assert (world.accesses.queued, dict(world.accesses.lost)) == (2, {"queue": 2})
    assert world.accesses.next() is not None
    world.accesses.drop_all("end")
    assert (world.accesses.queued, dict(world.accesses.lost)) == (0, {"queue": 2, "end": 1})
    assert world.accesses.recorded == {"access": 4}


def test_a_clock_that_is_set_back_loses_no_count() -> None:
    world = World()
    world.counted = [LONGEST]
    world.clock.step_wall(-3600)
    world.accesses.count()
    assert world.accesses.queued == 0
    world.clock.advance(60)
    world.accesses.count()
    event = decode(world.accesses.next() or b"")
    assert (event.since, event.until, len(event.requests)) == (START - 3_600_000, START - 3_540_000, 1)
