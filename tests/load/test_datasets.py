import orjson
import pytest

from tests.load.datasets import UNKNOWN, dataset, stamp_of


def served(version: object = 3, **changes: object) -> bytes:
    return orjson.dumps({**dataset("/a", 17, points=30), "version": version, **changes})


def test_dataset_says_to_which_change_it_belongs() -> None:
    assert stamp_of(served(), b"/a", 3) == 17


@pytest.mark.parametrize(
    "body",
    [
        served(version=2),
        served(endpoint="/b"),
        served(points=[{"value": 17.0}, {"value": 18.0}]),
        served(points=[]),
        served(points=None),
        b"[]",
        b'{"endpoint":"/a"',
    ],
    ids=["version", "endpoint", "two changes", "no points", "null", "array", "cut short"],
)
def test_dataset_of_anything_else_has_no_stamp(body: bytes) -> None:
    assert stamp_of(body, b"/a", 3) == UNKNOWN
