"""Small instances and placements, for the tests of placement."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from learning.placement.backend import Backend
from learning.placement.blocks import Block, Parts
from learning.placement.instance import Instance

SECONDS = 100.0
Sets = list[tuple[list[int], int]]


def block(*sets: tuple[list[int], int]) -> Block:
    """From pairs of pins and weight, of the fewest clients that are connected for so long in 100 seconds."""
    pins = np.array([pin for pins, _ in sets for pin in pins], np.int32)
    sizes = np.array([len(pins) for pins, _ in sets], np.int32)
    weights = np.array([weight for _, weight in sets], np.int64)
    return Block(pins, sizes, weights, np.ceil(weights / SECONDS).astype(np.int64))


def instance(rates: list[float], *sets: tuple[list[int], int]) -> Instance:
    """Endpoints /000, /001, ... with the subscribers that the sets say, over 100 seconds."""
    made = block(*sets)
    subscribers = np.bincount(made.pins, weights=np.repeat(made.weights, made.sizes), minlength=len(rates))
    return Instance.of(
        [f"/{each:03}" for each in range(len(rates))], rates, (subscribers / SECONDS).tolist(), made, SECONDS
    )


def backend(made: Instance, blocks: int = 1) -> Backend:
    return Backend(made.blocks(blocks), len(made.endpoints))


def sets_of(made: Instance) -> Sets:
    ends = made.starts.tolist()
    pins = made.pins.tolist()
    return [(pins[a:b], weight) for a, b, weight in zip(ends, ends[1:], made.weight.tolist(), strict=False)]


def counted(made: Instance, part: Parts) -> float:
    """Sum of the fan-out, set by set."""
    return sum(max(1, len({part[pin] for pin in pins} - {-1})) * weight for pins, weight in sets_of(made))


def optimum(made: Instance, load: np.ndarray, k: int, epsilon: float) -> float | None:
    """The least sum of the fan-out of all placements that keep the load bound, by trying all."""
    most, best = (1 + epsilon) * load.sum() / k, None
    for choice in product(range(k), repeat=load.size):
        part = np.array(choice, np.int32)
        if np.bincount(part, weights=load, minlength=k).max() <= most:
            found = counted(made, part)
            best = found if best is None else min(best, found)
    return best


@st.composite
def instances(draw: st.DrawFn, endpoints: int = 30) -> Instance:
    """Up to ``endpoints`` endpoints and 60 sets of them."""
    count = draw(st.integers(4, endpoints))
    rates = draw(st.lists(st.floats(0.1, 3, allow_nan=False), min_size=count, max_size=count))
    pins = st.lists(st.integers(0, count - 1), min_size=1, max_size=6, unique=True)
    return instance(rates, *draw(st.lists(st.tuples(pins, st.integers(1, 100)), min_size=1, max_size=60)))


def random_instance(seed: int, endpoints: int, sets: int, groups: int = 3) -> Instance:
    """Sets mostly inside of one of ``groups`` groups of endpoints."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(sets):
        size, home = int(rng.integers(2, 5)), int(rng.integers(groups))
        inside = rng.random(size) < 0.8
        pins = np.where(
            inside, rng.integers(0, -(-endpoints // groups), size) * groups + home, rng.integers(0, endpoints, size)
        )
        found.append((sorted({int(pin) for pin in pins if pin < endpoints} | {home}), int(rng.integers(1, 5))))
    return instance((0.5 + rng.random(endpoints)).tolist(), *found)


def random_parts(made: Instance, seed: int, k: int) -> Parts:
    """Parts at random, with about one endpoint in eight hot."""
    rng = np.random.default_rng(seed)
    count = len(made.endpoints)
    return np.where(rng.random(count) < 0.12, -1, rng.integers(0, k, count)).astype(np.int32)
