"""Requests begun in one turn of the event loop: limited, first come, first served."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.links.connection_limits import (
    HEAD_START_S,
    READS_BESIDE_WRITES,
    REQUESTS_PER_TURN,
    Pool,
    ReadsPerTurn,
    RequestTurns,
)


class Loop:
    """The ready queue of an event loop, one turn at a time."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], None]] = deque()

    def turn(self) -> None:
        for _ in range(len(self.ready)):
            self.ready.popleft()()


class Asker:
    def __init__(self, name: int, begun: list[int]) -> None:
        self.name = name
        self.begun = begun

    def process_received(self) -> None:
        self.begun.append(self.name)


def ask(turns: RequestTurns, name: int, begun: list[int]) -> None:
    if turns.may_begin():
        begun.append(name)
    else:
        turns.wait(Asker(name, begun))


def fail(_call: Callable[[], None]) -> None:
    pytest.fail("the loop must not sleep")


def test_where_none_may_begin_the_loop_sleeps_until_the_next_turn() -> None:
    loop, asleep, begun = Loop(), Loop(), list[int]()
    allowed = 0
    turns = RequestTurns(loop.ready.append, asleep.ready.append, lambda: allowed)
    for name in range(3):
        ask(turns, name, begun)
    asleep.turn()
    assert (begun, len(asleep.ready), len(loop.ready)) == ([], 1, 0)
    allowed = 1
    asleep.turn()
    assert (begun, len(asleep.ready), len(loop.ready)) == ([0], 0, 1)
    loop.turn()
    loop.turn()
    assert begun == [0, 1, 2]


def test_reads_wait_for_a_write_at_first_and_are_few_beside_it() -> None:
    writing = False
    reads = ReadsPerTurn(lambda: writing)
    assert reads(9.0) == REQUESTS_PER_TURN
    writing = True
    step_s = HEAD_START_S / 4
    # Writes that never end have no other head start.
    assert [reads(10.0 + turn * step_s) for turn in range(8)] == [0] * 4 + [READS_BESIDE_WRITES] * 4
    writing = False
    assert reads(10.5) == REQUESTS_PER_TURN
    writing = True
    assert reads(10.5) == 0
    # Nobody asked when that write ended.
    assert reads(20.0) == 0


def test_what_is_too_much_for_a_turn_waits_for_the_next_ones() -> None:
    loop, begun = Loop(), list[int]()
    turns = RequestTurns(loop.ready.append, fail, lambda: 2)
    for name in range(5):
        ask(turns, name, begun)
    assert begun == [0, 1]
    loop.turn()
    assert begun == [0, 1, 2, 3]
    loop.turn()
    assert begun == [0, 1, 2, 3, 4]
    loop.turn()
    assert not loop.ready


@given(per_turn=st.integers(1, 3), arrivals=st.lists(st.integers(0, 6), max_size=12))
def test_everybody_begins_in_the_order_of_coming_and_no_turn_has_more_than_it_may(
    per_turn: int, arrivals: list[int]
) -> None:
    loop, begun = Loop(), list[int]()
    turns = RequestTurns(loop.ready.append, fail, lambda: per_turn)
    names = iter(range(1000))
    for count in [*arrivals, *[0] * (sum(arrivals) + 2)]:
        before = len(begun)
        loop.turn()
        for _ in range(count):
            ask(turns, next(names), begun)
        assert len(begun) - before <= per_turn
    assert begun == list(range(sum(arrivals)))
    assert not len(turns)
    assert not loop.ready


def test_the_connection_that_is_idle_longest_is_evicted() -> None:
    pool = Pool[Client](2, lambda _address: None)
    first, second, third = Client(), Client(), Client()
    for now, client in enumerate((first, second)):
        assert pool.join(client, "192.0.2.1", now) is None
        pool.set_idle(client, now)
    pool.set_idle(first, 2.0)
    assert pool.join(third, "192.0.2.1", 3.0) is None
    assert (first.evicted, second.evicted) == (False, True)


class Client:
    """A member of a pool."""

    drained = True

    def __init__(self) -> None:
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True
