import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learning.placement import blocks, fanout
from learning.placement.blocks import Block
from tests.unit.learning.placement.instances import block


def test_the_graph_divides_the_weight_of_a_set_among_its_pairs() -> None:
    made = block(([0, 1, 2], 2), ([0, 1], 1), ([3], 9), ([0, 4], 5))
    cold = np.array([True, True, True, True, False])
    shared = blocks.cosubscription(made, cold, 1.0, 100).toarray() / 4096
    assert shared[0].tolist() == [0, 2, 1, 0, 0]
    assert (shared == shared.T).all()
    assert shared[3].sum() == shared[4].sum() == 0


def test_contraction_merges_equal_sets_and_drops_those_within_one_cluster() -> None:
    made = block(([0, 1, 2], 2), ([0, 3], 1), ([1, 2], 5), ([0, 4], 7), ([3, 4], 1))
    found = blocks.contract(made, np.array([0, 1, 1, 1, -1], np.int32), 2)
    assert (found.pins.tolist(), found.sizes.tolist(), found.weights.tolist()) == ([0, 1], [2], [3])


def test_folds_divide_the_clients_of_every_set() -> None:
    made = block(*(([number % 40, 40 + number // 40], 100 if number % 2 else 1000) for number in range(1000)))
    used, others = (blocks.fold(made, 80, (0.0, 0.2), held_out=held_out) for held_out in (False, True))
    of_set = {
        tuple(pins): {"used": 0, "others": 0, "whole": int(weight)}
        for pins, weight in zip(made.pins.reshape(-1, 2).tolist(), made.weights, strict=True)
    }
    for name, part in (("used", used), ("others", others)):
        for pins, weight in zip(part.pins.reshape(-1, 2).tolist(), part.weights.tolist(), strict=True):
            of_set[tuple(pins)][name] = weight
    assert all(each["used"] + each["others"] == each["whole"] for each in of_set.values())
    # A set of one client is in one fold, one of ten in both.
    assert {each["others"] for each in of_set.values()} == {0, 100, 200}
    assert 0.17 < others.weights.sum() / made.weights.sum() < 0.23
    assert blocks.count_clients(used) + blocks.count_clients(others) == blocks.count_clients(made) == 5500


def test_a_client_is_in_one_fold_however_long_it_was_connected() -> None:
    made = block(*(([number % 40, 40 + number // 40], 1 + number % 997) for number in range(1000)))
    made = made._replace(clients=np.ones(1000, np.int64))
    used, others = (
        {tuple(pins): weight for pins, weight in zip(part.pins.reshape(-1, 2).tolist(), part.weights, strict=True)}
        for part in (blocks.fold(made, 80, (0.0, 0.2), held_out=held_out) for held_out in (False, True))
    )
    assert not used.keys() & others.keys()
    assert len(used) + len(others) == 1000
    assert 150 < len(others) < 250


def test_each_client_is_held_out_once() -> None:
    made = block(*(([number % 40, 40 + number // 40], 100 if number % 2 else 1000) for number in range(1000)))
    parts = [blocks.fold(made, 80, (each / 5, (each + 1) / 5), held_out=True) for each in range(5)]
    assert sum(blocks.count_clients(part) for part in parts) == blocks.count_clients(made)
    assert sum(int(part.weights.sum()) for part in parts) == made.weights.sum()
    assert all(0.17 < blocks.count_clients(part) / blocks.count_clients(made) < 0.23 for part in parts)


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


def test_selected_sets_keep_their_pins_and_weights() -> None:
    made: Block = block(([0, 1], 1), ([2], 2), ([0, 3, 4], 3))
    some = blocks.select_sets(made, np.array([2, 0]))
    assert (some.pins.tolist(), some.sizes.tolist(), some.weights.tolist()) == ([0, 3, 4, 0, 1], [3, 2], [3, 1])
