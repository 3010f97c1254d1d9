"""Local search."""

import numpy as np
import pytest

from learning.placement.objective import View, planned_fan_out
from learning.placement.refine import Movement, _best_move, refine
from tests.unit.learning.placement.instances import backend, random_instance


def test_refinement_keeps_load_limits_and_movement_budget() -> None:
    made = random_instance(3, 40, 300)
    load, start = np.ones(40), (np.arange(40) % 4).astype(np.int32)
    view = View(np.arange(4, dtype=np.int32), 4, np.full(4, 11.0))
    movement = Movement(start, np.ones(40), 5.0)
    part = refine(backend(made), load, start, [view], movement=movement)
    assert 0 < (part != start).sum() <= 5
    free = refine(backend(made), load, start, [view])
    assert np.bincount(free, minlength=4).max() <= 11
    assert (free != start).sum() > 5


def test_moves_do_not_depend_on_how_many_gains_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made, load, start = random_instance(3, 40, 300), np.ones(40), (np.arange(40) % 4).astype(np.int32)
    views = [View(np.array(servers, np.int32), 4, np.full(4, 12.0)) for servers in ([0, 1, 2, 3], [0, 0, 1, 1])]
    whole = refine(backend(made), load, start, views)
    monkeypatch.setattr("learning.placement.refine._MAX_CELLS", 28)
    assert refine(backend(made), load, start, views).tolist() == whole.tolist() != start.tolist()


def test_the_best_move_lowers_the_fan_out_most() -> None:
    made, part = random_instance(3, 12, 60), (np.arange(12) % 3).astype(np.int32)
    searched, view = backend(made), View(np.arange(3, dtype=np.int32), 3, np.full(3, 12.0))

    def after(vertex: int, leaf: int) -> float:
        moved = part.copy()
        moved[vertex] = leaf
        return planned_fan_out(searched, moved, [view])

    found = _best_move(searched, np.ones(12), part, np.arange(12), [view])
    assert after(*found) == min(
        after(vertex, leaf) for vertex in range(12) for leaf in range(3) if leaf != part[vertex]
    )
