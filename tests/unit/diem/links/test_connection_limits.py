"""Requests begun in one turn of the event loop: limited, first come, first served."""

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from diem.links.connection_limits import RequestTurns


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


def test_what_is_too_much_for_a_turn_waits_for_the_next_ones() -> None:
    loop, begun = Loop(), list[int]()
    turns = RequestTurns(loop.ready.append, 2)
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
    turns = RequestTurns(loop.ready.append, per_turn)
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
