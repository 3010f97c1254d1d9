import numpy as np

from learning.placement.backend import NumpyBackend
from learning.placement.objective import balance, fan_out
from tests.bench import placement_baselines
from tests.support.instances import Recipe, population
from tests.unit.learning.placement.instances import block

SMALL = population(Recipe(endpoints=400, clients=3000, communities=16, mixing=0.05, seed=3)).instance()
BACKEND = NumpyBackend(SMALL.blocks(), 400)
LOAD = np.where(np.arange(400) % 20 == 0, 0.0, 1 + SMALL.rate * SMALL.subscribers)


def test_both_keep_the_load_limit_leave_hot_endpoints_out_and_beat_round_robin() -> None:
    by_turns = np.where(LOAD > 0, np.arange(400) % 4, -1).astype(np.int32)
    plain = placement_baselines.shp2(BACKEND, LOAD, 4, 0.1)
    streamed = placement_baselines.freight(BACKEND, LOAD, 4, 0.1)
    for part in (plain, streamed):
        assert ((part < 0) == (LOAD == 0)).all()
        assert balance(LOAD, part, 4) <= 1.1 + 1e-9
        assert fan_out(BACKEND, part, 4).mean < 0.95 * fan_out(BACKEND, by_turns, 4).mean


def test_a_stream_without_room_fills_the_emptiest_part() -> None:
    load = np.array([1.0, 1.0, 1.0, 0.0])
    backend = NumpyBackend([block()], 4)
    assert placement_baselines.freight(backend, load, 2, 0.0).tolist() == [0, 1, 0, -1]
