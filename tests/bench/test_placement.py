from xml.etree import ElementTree as ET

import numpy as np
import pytest

from learning.placement import mt_kahypar
from tests.bench import placement
from tests.bench.placement import Bench, picture, problem_of, with_reference
from tests.load.bench import Goal
from tests.support.instances import Recipe, listeners, population

SMALL = population(Recipe(endpoints=400, clients=2000, communities=16, seed=3)).instance()


def test_every_row_is_complete_and_hot_plans_have_the_hash_with_the_same_hot_set() -> None:
    bench = Bench()
    bench.planned("small", problem_of(SMALL, servers=(4,), partitions=4, epsilon=0.1, hot_budget=0.01))
    rows = {title.removeprefix("small, 4 servers: "): row for title, row in bench.rows.items()}
    assert {*rows} == {"plan", "murmur2", "round_robin", "random", "lpt", "murmur2, same hot set", "shp2", "freight"}
    for row in rows.values():
        assert {*row} == {"fan_out", "fan_out_p99", "max_over_mean_load", "j_ms_per_s", "held_out_fan_out", "cpu_s"}
        assert row["max_over_mean_load"] >= 1
    assert rows["plan"]["fan_out"] < rows["murmur2, same hot set"]["fan_out"] < rows["murmur2"]["fan_out"]
    assert rows["plan"]["j_ms_per_s"] < rows["murmur2"]["j_ms_per_s"]
    assert rows["plan"]["held_out_fan_out"] < rows["murmur2"]["held_out_fan_out"]
    drawn = ET.fromstring(picture(bench.figures, [Goal("small, 4 servers: fan-out", "", 2.0, 1.0)]))  # noqa: S314 - ours
    assert {*rows} <= {each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")}


def test_without_mt_kahypar_there_are_no_rows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mt_kahypar, "version", lambda: None)
    bench = Bench()
    problem = problem_of(SMALL, servers=(4,), hot_budget=0.0)
    made = bench.planned("small", problem, placement.alone)
    assert "mt_kahypar" not in dict(with_reference(made, None))
    bench.polished("small", problem, 4, 1.02)
    assert [*bench.figures] == ["small"]


def test_unknown_parts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        placement.main(["--only", "A,Q"])
    assert "parts are A, Z, P, T, R, B, Spark" in capsys.readouterr().err


def test_made_listeners_have_the_shape_that_is_said() -> None:
    made = listeners()
    of_each = np.bincount(made.endpoint)
    assert (made.clients, made.endpoints, made.endpoint.size, of_each.max()) == (1892, 19_301, 94_600, 503)
