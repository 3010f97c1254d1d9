"""The registry of subscriptions as a state machine, and the counts by endpoint."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diem.fanout.fanout import Registry, UpdateCounter

ENDPOINTS = st.sampled_from([b"/a", b"/b", b"/c"])
SUBSCRIBERS = st.integers(0, 4)


class RegistryMachine(RuleBasedStateMachine):
    """The registry against a plain set of pairs, with changes in the middle of iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry[int] = Registry()
        self.model: set[tuple[bytes, int]] = set()

    def change(self, add: bool, endpoint: bytes, subscriber: int) -> None:
        if add:
            self.registry.add(endpoint, subscriber)
            self.model.add((endpoint, subscriber))
        else:
            self.registry.discard(endpoint, subscriber)
            self.model.discard((endpoint, subscriber))

    @rule(add=st.booleans(), endpoint=ENDPOINTS, subscriber=SUBSCRIBERS)
    def subscribe_or_unsubscribe(self, add: bool, endpoint: bytes, subscriber: int) -> None:
        self.change(add, endpoint, subscriber)

    @rule(
        endpoint=ENDPOINTS,
        changes=st.lists(st.tuples(st.booleans(), ENDPOINTS, SUBSCRIBERS), min_size=1, max_size=5),
    )
    def change_while_iterating(self, endpoint: bytes, changes: list[tuple[bool, bytes, int]]) -> None:
        before = {subscriber for of, subscriber in self.model if of == endpoint}
        with self.registry.iterating():
            visited = []
            for subscriber in self.registry.subscribers(endpoint):
                visited.append(subscriber)
                for add, other, who in changes:
                    self.change(add, other, who)
            assert sorted(visited) == sorted(before), "a change during the loop must not disturb the loop"

    @invariant()
    def agrees_with_the_model(self) -> None:
        for endpoint in (b"/a", b"/b", b"/c"):
            expected = {subscriber for of, subscriber in self.model if of == endpoint}
            assert set(self.registry.subscribers(endpoint)) == expected
            assert (endpoint in self.registry) == bool(expected), (
                "an endpoint without subscribers leaves nothing behind"
            )
        assert self.registry.entries == len(self.model)


TestRegistry = RegistryMachine.TestCase


def test_updates_and_frames_are_counted_apart() -> None:
    counter = UpdateCounter()
    counter.receive([b"/a", b"/b"])
    counter.deliver(b"/a", 3)
    counter.receive([b"/a"])
    counter.deliver(b"/a", 2)
    assert sorted(counter) == [(b"/a", 2, 5), (b"/b", 1, 0)]


def test_swapped_counts_start_again_at_zero() -> None:
    counter = UpdateCounter()
    counter.receive([b"/a"])
    counter.deliver(b"/a", 1)
    done = counter.swap()
    counter.receive([b"/b"])
    assert (list(done), list(counter)) == ([(b"/a", 1, 1)], [(b"/b", 1, 0)])
    assert (len(done), len(counter)) == (1, 1)
