"""What proxies add to the rule of epochs; its cases are in ``tests/cases/epochs.json``."""

from diem.links.epochs import EpochGuard


def test_the_guard_is_behind_from_an_older_answer_to_the_next_that_is_admitted() -> None:
    epochs = EpochGuard()
    assert epochs.admits(5, 0.0)
    assert not epochs.behind
    assert not epochs.admits(4, 10.0)
    assert epochs.behind
    assert epochs.admits(5, 20.0)
    assert not epochs.behind


def test_with_other_partitions_it_is_another_map_and_not_an_older_one() -> None:
    epochs = EpochGuard()
    assert epochs.admits(5, 0.0, partitions=12)
    assert not epochs.admits(4, 1.0, partitions=12)
    assert epochs.admits(1, 2.0, partitions=16)
