"""Samples of the clients of a window."""

import random

import pytest

from learning.statistics.reference import Arrival, statistics
from learning.statistics.sampling import count_halvings, is_sampled
from learning.statistics.window import Window
from tests.support.traffic import BEGIN, MINUTE, generated


@pytest.mark.parametrize(("subscriptions", "halvings"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (40, 2), (41, 3)])
def test_clients_are_halved_until_their_subscriptions_are_few_enough(subscriptions: int, halvings: int) -> None:
    assert count_halvings(subscriptions, 10) == halvings


def test_samples_have_their_share_of_the_clients_and_are_in_each_other() -> None:
    rng = random.Random(1)
    clients = [f"{rng.getrandbits(64):016x}" for _ in range(8000)]
    samples = [{client for client in clients if is_sampled(client, halvings)} for halvings in range(4)]
    assert [abs(len(sample) / 8000 - 0.5**halvings) < 0.02 for halvings, sample in enumerate(samples)] == [True] * 4
    assert samples[0] > samples[1] > samples[2] > samples[3]


def test_only_the_sets_of_a_window_are_those_of_a_sample() -> None:
    arrivals, window = [*generated(1)], Window(BEGIN + 30 * MINUTE, BEGIN + 50 * MINUTE)
    whole = statistics(arrivals, window)
    sampled = statistics(arrivals, window, most=sum(len(row.endpoints) for row in whole.sets) * 2 // 5)
    assert sampled.summary.halvings == 2
    assert (sampled.endpoints, sampled.waste) == (whole.endpoints, whole.waste)
    # Sessions of others say until when a process lived.
    kept = statistics([each for each in arrivals if not is_other(each)], window)
    names = [[row.endpoint for row in each.endpoints] for each in (sampled, kept)]
    of_sampled, of_kept = (
        {tuple(own[pin] for pin in row.endpoints): row.clients for row in each.sets}
        for own, each in zip(names, (sampled, kept), strict=True)
    )
    assert of_sampled == of_kept
    assert 0 < len(sampled.sets) < len(whole.sets)
    assert set(sampled.sets) < set(whole.sets)


def is_other(arrival: Arrival) -> bool:
    """Whether it is an event of a client that is not in a quarter."""
    return bool(arrival.event.connection) and not is_sampled(arrival.event.client, 2)
