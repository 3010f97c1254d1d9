"""The choice of endpoints."""

import pytest

from tools.load.selection import assign, select

CATALOGUE = {"/load/GR", "/load/FR", "/dam/prices/GR", "/load/a/b"}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, ["/dam/prices/GR", "/load/FR", "/load/GR", "/load/a/b"]),
        ("2", ["/dam/prices/GR", "/load/FR"]),
        ("99", ["/dam/prices/GR", "/load/FR", "/load/GR", "/load/a/b"]),
        ("/load/*", ["/load/FR", "/load/GR", "/load/a/b"]),
        ("*/GR", ["/dam/prices/GR", "/load/GR"]),
        ("/load/?R", ["/load/FR", "/load/GR"]),
        ("/load", []),
    ],
)
def test_endpoints_are_all_the_first_or_those_that_match(wanted: str | None, names: list[str]) -> None:
    assert select(CATALOGUE, wanted) == names


def test_clients_have_different_endpoints_and_the_same_with_the_same_seed() -> None:
    names = [f"/{number}" for number in range(50)]
    made = assign(names, 20, 5, seed=3)
    assert [len(set(mine)) for mine in made] == [5] * 20
    assert {name for mine in made for name in mine} <= set(names)
    assert len({tuple(mine) for mine in made}) > 1
    assert made == assign(names, 20, 5, seed=3) != assign(names, 20, 5, seed=4)


def test_clients_have_no_more_endpoints_than_there_are() -> None:
    assert [sorted(mine) for mine in assign(["/a", "/b"], 2, 5, seed=0)] == [["/a", "/b"]] * 2
