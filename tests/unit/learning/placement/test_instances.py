"""The instances that tests and benchmarks plan for."""

import numpy as np

from packs.energy.model import Market
from packs.energy.simulation import MarketSeries
from tests.support.instances import HOUR, Recipe, Timeline, page, population, windows

SMALL = Recipe(endpoints=50, clients=300, communities=3, seed=3)


def test_the_page_has_the_endpoints_and_rates_of_the_market() -> None:
    made = page(clients=50)
    assert dict(zip(made.names, made.rate.tolist(), strict=True)) == {
        each.endpoint: 1 / each.every_s for each in MarketSeries(Market(1), 1).all
    }
    sets = [{made.names[pin] for pin in made.endpoint[made.client == client]} for client in range(50)]
    assert all(any(name.startswith("/dam/prices/") for name in names) for names in sets)
    assert {sum(name.startswith("/load/") for name in names) for names in sets} == {0, 30}


def test_windows_have_the_day_s_curve_and_sessions() -> None:
    base = population(SMALL)
    hours = list(windows(base, Timeline(clients=400, session_s=600, returning=0.5, day=0.8), 24))
    clients = [hour.subscribers.sum() for hour in hours]
    assert abs(int(np.argmax(clients)) - 18) <= 3
    assert max(clients) > 3 * min(clients)
    assert all(hour.weight.sum() < 0.3 * 400 * 2 * HOUR for hour in hours)
    assert hours[18].rate.sum() > 1.5 * hours[6].rate.sum()
