"""What is computed over blocks, against plain loops; and that it does not matter how sets are shared out."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.placement import blocks, fanout
from metadata.placement.backend import NumpyBackend
from metadata.placement.blocks import Block, Parts
from metadata.placement.instance import Instance
from tests.unit.metadata.placement.made import backend, block, instances, random_instance, sets_of

K = 5


def parts(made: Instance, seed: int, k: int = K) -> Parts:
    """At random; about one in eight is hot."""
    rng = np.random.default_rng(seed)
    count = len(made.endpoints)
    return np.where(rng.random(count) < 0.12, -1, rng.integers(0, k, count)).astype(np.int32)


def of(part: Parts, pins: list[int]) -> Counter[int]:
    return Counter(int(part[pin]) for pin in pins if part[pin] >= 0)


@given(instances(), st.integers(0, 99))
def test_fan_out_is_the_weight_of_sets_by_the_parts_they_meet(made: Instance, seed: int) -> None:
    part = parts(made, seed)
    expected = np.zeros(K + 1, np.int64)
    for pins, weight in sets_of(made):
        expected[len(of(part, pins))] += weight
    assert backend(made, 2).fan_out(part, K).tolist() == expected.tolist()


def test_fan_out_counts_more_than_64_parts() -> None:
    part = np.arange(200, dtype=np.int32)
    found = fanout.fan_out(block(([0, 63, 64, 65, 128, 199], 3), ([7], 2)), part, 200)
    assert (found[6], found[1], found.sum()) == (3, 2, 5)


@given(instances(), st.integers(0, 99))
def test_removal_savings_are_the_weight_of_sets_that_need_one_part_fewer_without_the_endpoint(
    made: Instance, seed: int
) -> None:
    part = parts(made, seed)
    expected = np.zeros(len(made.endpoints), np.int64)
    for pins, weight in sets_of(made):
        met = of(part, pins)
        for pin in pins:
            if part[pin] >= 0 and met[int(part[pin])] == 1 and len(met) > 1:
                expected[pin] += weight
    assert backend(made, 2).removal_savings(part, K).tolist() == expected.tolist()


@given(instances(), st.integers(0, 99), st.sampled_from([1, 2, 4]))
def test_affinity_is_the_sum_over_sets_of_the_power_of_their_pins_there(
    made: Instance, seed: int, sharpness: int
) -> None:
    part = parts(made, seed)
    expected = np.zeros((len(made.endpoints), K))
    for pins, weight in sets_of(made):
        met = of(part, pins)
        for pin in pins:
            expected[pin] += [weight * 2.0 ** -min(20, sharpness * met[each]) for each in range(K)]
    assert (backend(made, 2).affinity(part, K, sharpness) == expected).all()


@given(instances(), st.integers(0, 99), st.integers(0, 29))
def test_affinity_after_few_moves_is_what_it_would_be_from_scratch(made: Instance, seed: int, moved: int) -> None:
    before = parts(made, seed)
    after = before.copy()
    after[moved % after.size] = 0
    known = backend(made, 3)
    known.affinity(before, K, 1)
    assert (known.affinity(after, K, 1) == backend(made).affinity(after, K, 1)).all()


@given(instances(), st.integers(0, 99))
def test_gains_are_what_the_probabilistic_fan_out_falls_by(made: Instance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = len(made.endpoints)
    group, side = rng.integers(-1, 3, count).astype(np.int32), rng.integers(0, 2, count).astype(np.uint8)
    searched = backend(made, 2)
    searched.begin_level(group)
    found = searched.gains(side)

    def spread(sides: np.ndarray) -> float:
        total = 0.0
        for pins, weight in sets_of(made):
            met = Counter((int(group[pin]), int(sides[pin])) for pin in pins if group[pin] >= 0)
            total += weight * sum(1 - 0.5**pinned for pinned in met.values())
        return total

    for pin in range(count):
        other = side.copy()
        other[pin] ^= 1
        assert found[pin] == pytest.approx(spread(side) - spread(other))


@settings(deadline=None)
@given(instances(), st.integers(0, 99), st.integers(2, 9))
def test_every_result_is_the_same_bits_however_sets_are_shared_out(made: Instance, seed: int, count: int) -> None:
    part = parts(made, seed)
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
    sets = [each.contract(part, K) for each in (one, many)]
    assert sets[0].pins.tolist() == sets[1].pins.tolist()
    assert sets[0].sizes.tolist() == sets[1].sizes.tolist()
    assert sets[0].weights.tolist() == sets[1].weights.tolist()


def test_the_graph_shares_the_weight_of_a_set_out_over_its_pairs() -> None:
    made = block(([0, 1, 2], 2), ([0, 1], 1), ([3], 9), ([0, 4], 5))
    cold = np.array([True, True, True, True, False])
    shared = blocks.cosubscription(made, cold, 1.0, 100).toarray() / 4096
    assert shared[0].tolist() == [0, 2, 1, 0, 0]
    assert (shared == shared.T).all()
    assert shared[3].sum() == shared[4].sum() == 0


def test_a_share_of_the_sets_is_about_that_share() -> None:
    made = random_instance(1, 60, 4000)
    whole = NumpyBackend(made.blocks(), 60)
    cold = np.ones(60, np.bool_)
    part, all_of_it = (whole.cosubscription(cold, share, 100).sum() for share in (0.3, 1.0))
    assert 0.2 < part / all_of_it < 0.4


def test_contraction_merges_equal_sets_and_drops_what_is_in_one_cluster() -> None:
    made = block(([0, 1, 2], 2), ([0, 3], 1), ([1, 2], 5), ([0, 4], 7), ([3, 4], 1))
    found = blocks.contract(made, np.array([0, 1, 1, 1, -1], np.int32), 2)
    assert (found.pins.tolist(), found.sizes.tolist(), found.weights.tolist()) == ([0, 1], [2], [3])


def test_empty_blocks_count_nothing() -> None:
    nothing, part = block(), np.zeros(3, np.int32)
    assert fanout.fan_out(nothing, part, 2).tolist() == [0, 0, 0]
    assert fanout.affinity(nothing, part, 2, 1).sum() == fanout.removal_savings(nothing, part, 2).sum() == 0
    assert blocks.contract(nothing, part, 1).sizes.size == 0
    assert fanout.gains(fanout.regroup(nothing, part), np.zeros(3, np.uint8)).tolist() == [0, 0, 0]


@given(st.integers(1, 1 << 60))
def test_shifted_weights_have_a_bounded_sum(total: int) -> None:
    shift = blocks.weight_shift(total)
    assert total >> shift <= blocks.MAX_WEIGHT
    assert shift == 0 or total >> (shift - 1) >= blocks.MAX_WEIGHT
    assert blocks.shift_weights(np.array([1, total]), shift)[0] == 1


def test_a_block_of_some_sets_has_their_pins() -> None:
    made: Block = block(([0, 1], 1), ([2], 2), ([0, 3, 4], 3))
    some = blocks.select_sets(made, np.array([2, 0]))
    assert (some.pins.tolist(), some.sizes.tolist(), some.weights.tolist()) == ([0, 3, 4, 0, 1], [3, 2], [3, 1])
