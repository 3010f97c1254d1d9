"""The instances that tests and benchmarks plan for."""

from pathlib import Path

import numpy as np
import pytest

from packs.energy.model import Market
from packs.energy.simulation import MarketSeries
from tests.support.instances import HOUR, Recipe, Timeline, page, population, read_pairs, windows

SMALL = Recipe(endpoints=50, clients=300, communities=3, seed=3)


def test_the_page_has_the_endpoints_and_rates_of_the_market() -> None:
    made = page(clients=50)
    assert dict(zip(made.names, made.rate.tolist(), strict=True)) == {
        each.endpoint: 1 / each.every_s for each in MarketSeries(Market(1), 1).all
    }
    sets = [{made.names[pin] for pin in made.endpoint[made.client == client]} for client in range(50)]
    assert all(any(name.startswith("/dam/prices/") for name in names) for names in sets)
    assert {sum(name.startswith("/load/") for name in names) for names in sets} == {0, 30}


@pytest.mark.parametrize(
    "text",
    ["userID\titemID\tweight\n1\t7\t5\n1\t8\t2\n2\t8\t9\n1\t7\t1\n", "1,7\n1,8\n\n2,8\n"],
    ids=["tabs", "commas"],
)
def test_pairs_of_a_file_are_distinct_and_exclude_the_heading(tmp_path: Path, text: str) -> None:
    (tmp_path / "pairs").write_text(text)
    made = read_pairs(tmp_path / "pairs")
    assert made.names == ("/item/7", "/item/8")
    assert list(zip(made.client.tolist(), made.endpoint.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 1)]


def test_windows_have_the_day_s_curve_and_sessions() -> None:
    base = population(SMALL)
    hours = list(windows(base, Timeline(clients=400, session_s=600, returning=0.5, day=0.8), 24))
    clients = [hour.subscribers.sum() for hour in hours]
    assert abs(int(np.argmax(clients)) - 18) <= 3
    assert max(clients) > 3 * min(clients)
    assert all(hour.weight.sum() < 0.3 * 400 * 2 * HOUR for hour in hours)
    assert hours[18].rate.sum() > 1.5 * hours[6].rate.sum()
