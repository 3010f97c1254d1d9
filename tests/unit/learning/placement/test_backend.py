import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.placement.instance import Instance
from tests.unit.learning.placement.instances import backend, instances, random_instance, random_parts

K = 5


@given(instances(), st.integers(0, 99), st.integers(0, 29))
def test_incremental_affinity_equals_that_from_scratch(made: Instance, seed: int, moved: int) -> None:
    before = random_parts(made, seed, K)
    after = before.copy()
    after[moved % after.size] = 0
    known = backend(made, 3)
    known.affinity(before, K, 1)
    assert (known.affinity(after, K, 1) == backend(made).affinity(after, K, 1)).all()


@settings(deadline=None)
@given(instances(), st.integers(0, 99), st.integers(2, 9))
def test_results_are_bit_identical_for_any_division_into_blocks(made: Instance, seed: int, count: int) -> None:
    part = random_parts(made, seed, K)
    one, many = backend(made), backend(made, count)
    for each in (one, many):
        each.begin_level(part)
    side = (part % 2).astype(np.uint8)
    assert one.gains(side).tobytes() == many.gains(side).tobytes()
    assert one.affinity(part, K, 2).tobytes() == many.affinity(part, K, 2).tobytes()
    graphs = [each.cosubscription(part >= 0, 0.7, 100) for each in (one, many)]
    assert [graphs[0].data.tolist(), graphs[0].indices.tolist()] == [
        graphs[1].data.tolist(),
        graphs[1].indices.tolist(),
    ]
    rates = np.random.default_rng(seed).integers(0, 1000, len(made.endpoints))
    folds = [each.fold((0.2, 0.5), held_out=True) for each in (one, many)]
    for first, second in ((one, many), folds):
        assert first.count_clients() == second.count_clients()
        assert first.fan_out(part, K).tolist() == second.fan_out(part, K).tolist()
        assert first.weight_by_part(part, K).tolist() == second.weight_by_part(part, K).tolist()
        change = first.fan_out_change(part[::-1], part, K, 5.0)
        assert change.tolist() == second.fan_out_change(part[::-1], part, K, 5.0).tolist()
        assert first.squared_loads(rates, part, K).tolist() == second.squared_loads(rates, part, K).tolist()
    sets = [each.contract(part, K) for each in (one, many)]
    assert sets[0].pins.tolist() == sets[1].pins.tolist()
    assert sets[0].sizes.tolist() == sets[1].sizes.tolist()
    assert sets[0].weights.tolist() == sets[1].weights.tolist()


def test_a_sample_of_the_sets_has_about_its_share_of_the_weight() -> None:
    made = random_instance(1, 60, 4000)
    whole = backend(made)
    cold = np.ones(60, np.bool_)
    part, all_of_it = (whole.cosubscription(cold, share, 100).sum() for share in (0.3, 1.0))
    assert 0.2 < part / all_of_it < 0.4
