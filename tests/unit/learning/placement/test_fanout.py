"""Fan-out and gains, against plain loops over the sets."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.placement import fanout
from learning.placement.blocks import Parts
from learning.placement.instance import Instance
from tests.unit.learning.placement.instances import backend, block, instances, random_parts, sets_of

K = 5


def parts_of(part: Parts, pins: list[int]) -> Counter[int]:
    """Count a set's pins in each part."""
    return Counter(int(part[pin]) for pin in pins if part[pin] >= 0)


@given(instances(), st.integers(0, 99))
def test_fan_out_is_the_weight_of_sets_by_the_parts_they_meet(made: Instance, seed: int) -> None:
    part = random_parts(made, seed, K)
    expected = np.zeros(K + 1, np.int64)
    for pins, weight in sets_of(made):
        expected[len(parts_of(part, pins))] += weight
    assert backend(made, 2).fan_out(part, K).tolist() == expected.tolist()


@given(instances(), st.integers(0, 99))
def test_weight_by_part_is_that_of_the_sets_that_need_it(made: Instance, seed: int) -> None:
    part = random_parts(made, seed, K)
    expected = np.zeros(K + 1, np.int64)
    for pins, weight in sets_of(made):
        expected[list(parts_of(part, pins)) or K] += weight
    assert backend(made, 2).weight_by_part(part, K).tolist() == expected.tolist()


@given(instances(), st.integers(0, 99), st.integers(0, 99))
def test_a_change_of_fan_out_is_the_weight_of_sets_by_the_parts_they_meet_more_than_before(
    made: Instance, first: int, second: int
) -> None:
    before, part = random_parts(made, first, K), random_parts(made, second, K)
    expected = np.zeros((2, 2 * K + 1), np.int64)
    for pins, weight in sets_of(made):
        now, then = (max(1, len(parts_of(each, pins))) for each in (part, before))
        # No client has more weight than 4: one with more is of several clients.
        expected[:, now - then + K] += weight, weight * min(weight, 4) * fanout.WEIGHT_RESOLUTION // 4
    assert backend(made, 2).fan_out_change(before, part, K, 4.0).tolist() == expected.tolist()


def test_fan_out_counts_more_than_64_parts() -> None:
    part = np.arange(200, dtype=np.int32)
    found = fanout.fan_out(block(([0, 63, 64, 65, 128, 199], 3), ([7], 2)), part, 200)
    assert (found[6], found[1], found.sum()) == (3, 2, 5)


@given(instances(), st.integers(0, 99))
def test_removal_savings_are_the_weight_of_sets_that_need_one_part_fewer_without_the_endpoint(
    made: Instance, seed: int
) -> None:
    part = random_parts(made, seed, K)
    expected = np.zeros(len(made.endpoints), np.int64)
    for pins, weight in sets_of(made):
        met = parts_of(part, pins)
        for pin in pins:
            if part[pin] >= 0 and met[int(part[pin])] == 1 and len(met) > 1:
                expected[pin] += weight
    assert backend(made, 2).removal_savings(part, K).tolist() == expected.tolist()


@given(instances(), st.integers(0, 99), st.sampled_from([1, 2, 4]))
def test_affinity_is_the_sum_over_sets_of_the_power_of_their_pins_there(
    made: Instance, seed: int, sharpness: int
) -> None:
    part = random_parts(made, seed, K)
    expected = np.zeros((len(made.endpoints), K))
    for pins, weight in sets_of(made):
        met = parts_of(part, pins)
        for pin in pins:
            expected[pin] += [weight * 2.0 ** -min(20, sharpness * met[each]) for each in range(K)]
    assert (backend(made, 2).affinity(part, K, sharpness) == expected).all()


@given(instances(), st.integers(0, 99))
def test_gains_are_of_moves_to_the_other_side_of_the_own_group(made: Instance, seed: int) -> None:
    rng, count = np.random.default_rng(seed), len(made.endpoints)
    group, side = rng.integers(-1, 2, count).astype(np.int32), rng.integers(0, 2, count).astype(np.uint8)
    expected = [0.0] * count
    for pins, weight in sets_of(made):
        for pin in pins:
            mates = [int(side[each]) for each in pins if group[each] == group[pin] >= 0]
            near = mates.count(int(side[pin]))
            if len(mates) > 1:
                expected[pin] += 0.5 * weight * (0.5 ** (near - 1) - 0.5 ** (len(mates) - near))
    blocks = backend(made, 2)
    blocks.begin_level(group)
    assert blocks.gains(side).tolist() == expected


@given(instances(), st.integers(0, 99))
def test_hot_endpoints_are_delivered_by_the_parts_that_clients_need_for_others(made: Instance, seed: int) -> None:
    part = random_parts(made, seed, K)
    rates = np.random.default_rng(seed).integers(0, 2 * fanout.MAX_SET_RATE // 3, len(made.endpoints))
    delivered, squared = [0] * K, [0] * K
    for pins, weight in sets_of(made):
        needed = {*part[pins].tolist()} - {-1} or {*range(K)}
        hot = sum(int(rates[pin]) for pin in pins if part[pin] < 0)
        for each in range(K):
            filled = sum(int(rates[pin]) for pin in pins if part[pin] == each)
            filled += hot // len(needed) if each in needed else 0
            delivered[each] += weight * filled
            squared[each] += weight * min(filled, fanout.MAX_SET_RATE) ** 2
    blocks = backend(made, 2)
    assert blocks.delivered(rates, part, K).tolist() == delivered
    assert blocks.squared_loads(rates, part, K).tolist() == squared


@given(instances(), st.integers(0, 99))
def test_endpoints_attract_an_equal_share_of_the_hot_rates_of_each_client(made: Instance, seed: int) -> None:
    part = random_parts(made, seed, K)
    rates = np.random.default_rng(seed).integers(0, fanout.MAX_TOTAL_RATE // len(part), len(part))
    expected = [0] * len(part)
    for pins, weight in sets_of(made):
        others = [pin for pin in pins if part[pin] >= 0]
        hot = sum(int(rates[pin]) for pin in pins if part[pin] < 0)
        for pin in others:
            expected[pin] += weight * (hot // len(others))
    assert backend(made, 2).attracted(rates, part).tolist() == expected


@given(instances(), st.integers(0, 99))
def test_gains_are_the_reduction_of_the_probabilistic_fan_out(made: Instance, seed: int) -> None:
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
